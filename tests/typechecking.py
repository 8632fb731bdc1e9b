"""Run-time checks of annotations, array shapes included, for everything in `jaxlab`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import beartype


def typecheck(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check arguments and results of functions, but not the fields of dataclasses.

    JAX rebuilds dataclasses that are pytrees with whatever a transformation puts in the
    place of arrays: shapes, shardings, axes, None.
    """
    if function.__name__ == "__init__":
        return function
    return beartype.beartype(function)
