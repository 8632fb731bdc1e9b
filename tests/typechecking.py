"""Run-time checks of annotations, array shapes included, for everything in `jaxlab`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import beartype
import numpy as np

#: An int will do for a float, as for static type checkers, and numpy's numbers for Python's.
_checked = beartype.beartype(
    conf=beartype.BeartypeConf(
        hint_overrides=beartype.FrozenDict(
            {int: int | np.integer, float: float | int | np.integer | np.floating}
        )
    )
)


def typecheck(function: Callable[..., Any]) -> Callable[..., Any]:
    """Check arguments and results of functions, but not the fields of dataclasses.

    JAX rebuilds dataclasses that are pytrees with whatever a transformation puts in the
    place of arrays: shapes, shardings, axes, None.
    """
    if function.__name__ == "__init__":
        return function
    return _checked(function)
