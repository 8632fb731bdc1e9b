"""Assertions on pytrees and compiled functions, of which the conformance tests are made.

Each raises an AssertionError that names the leaf at fault.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.environment import PyTree
from jaxlab.core.spaces import Box, Discrete, Space, Tree, as_mapping

TOLERANCE = {"float64": 1e-12, "complex128": 1e-12, "float32": 1e-5, "complex64": 1e-5}
_HALF_TOLERANCE = 1e-2


@contextlib.contextmanager
def naming(what: str) -> Iterator[None]:
    """Put the name of what was checked before the message of a failure."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{what}: {error}") from error


def require(condition: Any, message: str) -> None:
    if not condition:
        raise AssertionError(message)


def attempt(what: str, function: Callable[..., Any], *args: Any) -> Any:
    """Call a function of the thing under test; whatever it raises becomes a failure."""
    try:
        return function(*args)
    except Exception as error:
        raise AssertionError(f"{what} raised {type(error).__name__}: {error}") from error


def leaves_with_paths(tree: PyTree) -> list[tuple[str, Any]]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    return [(jax.tree_util.keystr(path), leaf) for path, leaf in leaves]


def _signature(tree: PyTree) -> dict[str, tuple[tuple[int, ...], str]]:
    return {
        path or "value": (leaf.shape, str(leaf.dtype)) for path, leaf in leaves_with_paths(tree)
    }


def require_strong(what: str, tree: PyTree) -> None:
    """Every leaf of an abstract tree has an explicit dtype."""
    for path, leaf in leaves_with_paths(tree):
        weak = getattr(leaf, "weak_type", False)
        require(not weak, f"{what}{path} is weakly typed ({leaf.dtype}); give it a dtype")


def require_same_signature(what: str, first: PyTree, second: PyTree) -> None:
    a, b = _signature(first), _signature(second)
    for path in sorted(a.keys() | b.keys()):
        require(path in a and path in b, f"{what}: {path} is present in one of them only")
        require(a[path] == b[path], f"{what}: {path} is {a[path]} in one, {b[path]} in the other")
    shapes: list[Any] = [jax.tree.structure(tree) for tree in (first, second)]
    require(shapes[0] == shapes[1], f"{what}: tree structures differ")


def _numpy(leaf: Any) -> np.ndarray:
    if isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        leaf = jax.random.key_data(leaf)
    return np.asarray(leaf)


def require_equal(
    what: str,
    first: PyTree,
    second: PyTree,
    exact: bool = False,
    limit: float | None = None,
) -> None:
    """Equal integers, and floats equal in bits (`exact`) or within a tolerance.

    The tolerance, relative and absolute, is `limit`, or else that of the leaf's dtype.
    """
    require_same_signature(what, first, second)
    for (path, x), y in zip(leaves_with_paths(first), jax.tree.leaves(second), strict=True):
        a, b = _numpy(x), _numpy(y)
        if exact or not jnp.issubdtype(a.dtype, jnp.inexact):
            require(np.array_equal(_bits(a), _bits(b)), f"{what}: {path or 'value'} differs")
            continue
        allowed = TOLERANCE.get(str(a.dtype), _HALF_TOLERANCE) if limit is None else limit
        wide = np.complex128 if np.iscomplexobj(a) else np.float64
        a, b = a.astype(wide), b.astype(wide)
        close = np.isclose(a, b, rtol=allowed, atol=allowed, equal_nan=True)
        if not close.all():
            worst = np.max(np.abs(a - b)[~close])
            raise AssertionError(
                f"{what}: {path or 'value'} differs by {worst:.3g}, allowed is {allowed}"
            )


def _bits(array: np.ndarray) -> np.ndarray:
    return np.frombuffer(np.ascontiguousarray(array).tobytes(), np.uint8)


def require_member(what: str, space: Space, value: PyTree) -> None:
    """`value` is in `space`; the message says which part is not, and why."""
    if isinstance(space, Tree):
        fields = as_mapping(value)
        require(fields is not None, f"{what} is no mapping or dataclass, its space is a Tree")
        assert fields is not None
        names = [name for name, _ in space.items]
        require(
            sorted(fields) == names, f"{what} has fields {sorted(fields)}, its space has {names}"
        )
        for name, part in space.items:
            require_member(f"{what}.{name}", part, fields[name])
        return
    if isinstance(space, Box | Discrete):
        require(hasattr(value, "dtype"), f"{what} is no array, its space is {space}")
        require(
            value.shape == space.shape,
            f"{what} has shape {value.shape}, its space has {space.shape}",
        )
        require(
            value.dtype == jnp.dtype(space.dtype),
            f"{what} has dtype {value.dtype}, its space has {space.dtype}",
        )
    if not bool(space.contains(value)):
        array = _numpy(value)
        raise AssertionError(
            f"{what} is not in {space}: values from {array.min()} to {array.max()}"
        )


def primitives(jaxpr: Any) -> Iterator[str]:
    """Names of all primitives of a jaxpr, inner ones included."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name
        for value in jax.tree.leaves(
            list(equation.params.values()), is_leaf=lambda v: hasattr(v, "jaxpr")
        ):
            inner = getattr(value, "jaxpr", value)
            if hasattr(inner, "eqns"):
                yield from primitives(inner)


def require_no_callback(what: str, jaxpr: Any) -> None:
    for name in primitives(jaxpr):
        host = "callback" in name or name == "debug_print"
        require(not host, f"{what} calls back to the host ({name})")


class Traced:
    """A compiled function that counts how often it was traced."""

    def __init__(self, function: Callable[..., Any]):
        self.traces = 0

        def counted(*args: Any) -> Any:
            self.traces += 1
            return function(*args)

        self._compiled = jax.jit(counted)

    def __call__(self, *args: Any) -> Any:
        return self._compiled(*args)


def fresh(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function anew, past JAX's cache of traces."""
    return jax.jit(lambda *args: function(*args))


@jax.jit
def _slice(tree: PyTree, index: Any) -> PyTree:
    return jax.tree.map(lambda leaf: leaf[index], tree)


def member(tree: PyTree, index: int, axis: int | None = 0) -> PyTree:
    """Member `index` of a batched tree; the tree itself where it is not batched (`axis` None)."""
    return tree if axis is None else _slice(tree, index)
