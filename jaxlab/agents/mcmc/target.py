"""The density that chains sample, as functions of one flat position, and checks of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from jaxtyping import Array, Float

from jaxlab.agents.mcmc.config import Hyper
from jaxlab.core.errors import ConfigError

PyTree = Any

#: Of one position.
LogDensity = Callable[[PyTree], Float[Array, ""]]
#: `(position, beta) -> [dim, dim]`.
MetricFunction = Callable[[PyTree, Float[Array, ""]], Float[Array, "dim dim"]]
#: `(position, beta) -> (log density without prior and beta, its gradient [dim], metric)`.
Fused = Callable[
    [PyTree, Float[Array, ""]],
    tuple[Float[Array, ""], Float[Array, " dim"], Float[Array, "dim dim"]],
]
#: Positions `[chains, ...]`, or a function from a key to them.
Initial = PyTree | Callable[[jax.Array], PyTree]

jax.tree_util.register_dataclass(
    Hyper, data_fields=[field.name for field in dataclasses.fields(Hyper)], meta_fields=[]
)


@dataclasses.dataclass(frozen=True, eq=False)
class Problem:
    """What a caller of `make` gives; see there.

    Attributes:
      metric: None, a constant `[dim]` or `[dim, dim]`, or a function.
    """

    log_density: LogDensity
    initial: Initial | None = None
    log_prior: LogDensity | None = None
    metric: Any = None
    fused: Fused | None = None

    @property
    def constant_metric(self) -> np.ndarray | None:
        """The metric as a matrix, if it is constant."""
        if self.metric is None or callable(self.metric):
            return None
        matrix = np.asarray(self.metric)
        return np.diag(matrix) if matrix.ndim == 1 else matrix

    @property
    def local_metric(self) -> bool:
        """Whether the metric depends on the position."""
        return callable(self.metric) or self.fused is not None


class Target(NamedTuple):
    """The density as functions of one flat position `[dim]`.

    Attributes:
      log_prior: The part that is not tempered.
      log_likelihood: The part that beta multiplies.
      metric: `(x, beta) -> [dim, dim]`, or None.
      fused: `(x, beta) -> (log likelihood, its gradient, metric)`, or None.
    """

    log_prior: Callable[[jax.Array], jax.Array]
    log_likelihood: Callable[[jax.Array], jax.Array]
    metric: Callable[[jax.Array, jax.Array], jax.Array] | None
    fused: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array, jax.Array]] | None

    def tempered(self, x: Float[Array, " dim"], beta: Float[Array, ""]) -> Float[Array, ""]:
        """Log density at an inverse temperature."""
        return self.log_prior(x) + beta * self.log_likelihood(x)


def ravel(positions: PyTree) -> Float[Array, "chains dim"]:
    """Positions of all chains as vectors."""
    return jax.vmap(lambda position: ravel_pytree(position)[0])(positions)


def unraveller(positions: PyTree) -> Callable[[Float[Array, " dim"]], PyTree]:
    """The function that makes a vector a position again."""
    return ravel_pytree(jax.tree.map(lambda leaf: leaf[0], positions))[1]


def flatten(problem: Problem, positions: PyTree) -> Target:
    """The problem as functions of flat positions.

    Args:
      positions: `[chains, ...]`; only the structure is used.
    """
    unravel = unraveller(positions)

    def scalar(function: LogDensity) -> Callable[[jax.Array], jax.Array]:
        def flat(x: jax.Array) -> jax.Array:
            value = jnp.asarray(function(unravel(x)), x.dtype)
            # A chain at +inf would never leave it, and NaN compares with nothing.
            return jnp.where(jnp.isnan(value) | (value == jnp.inf), -jnp.inf, value)

        return flat

    def metric(x: jax.Array, beta: jax.Array) -> jax.Array:
        if problem.fused is not None:
            return fused(x, beta)[2]
        return jnp.asarray(problem.metric(unravel(x), beta), x.dtype)

    def fused(x: jax.Array, beta: jax.Array) -> tuple[jax.Array, jax.Array, jax.Array]:
        assert problem.fused is not None
        value, gradient, matrix = problem.fused(unravel(x), beta)
        value = jnp.asarray(value, x.dtype)
        value = jnp.where(jnp.isnan(value) | (value == jnp.inf), -jnp.inf, value)
        return value, jnp.asarray(gradient, x.dtype), jnp.asarray(matrix, x.dtype)

    return Target(
        log_prior=(lambda x: jnp.zeros((), x.dtype))
        if problem.log_prior is None
        else scalar(problem.log_prior),
        log_likelihood=scalar(problem.log_density),
        metric=metric if problem.local_metric else None,
        fused=None if problem.fused is None else fused,
    )


def start(problem: Problem, key: jax.Array, hyper: Hyper) -> tuple[PyTree, Hyper]:
    """Positions `[chains, ...]` at the start, and the hyper-parameters in their precision.

    Raises:
      ConfigError: There are no positions, or the problem does not fit them.
    """
    initial = problem.initial if hyper.positions is None else hyper.positions
    if initial is None:
        raise ConfigError(
            "there are no initial positions; give make(initial=...) an array [chains, ...] or a "
            "function of a key, or set Hyper.positions"
        )
    positions = jax.tree.map(jnp.asarray, initial(key) if callable(initial) else initial)
    check_positions(problem, positions)
    dtype = jax.tree.leaves(positions)[0].dtype
    # The state holds the positions themselves; a second copy would only be carried along.
    numbers = dataclasses.replace(hyper, positions=None)
    return positions, jax.tree.map(lambda x: jnp.asarray(x, dtype), numbers)


def check_problem(problem: Problem, sampler: str) -> None:
    """Refuse what does not fit together, before anything is compiled.

    Initial positions that are given as an array are tried: the log density, and the
    metric, must be finite there.

    Raises:
      ConfigError: Names what is wrong and what was expected.
    """
    if problem.local_metric and sampler != "preconditioned_mala":
        raise ConfigError(
            f"sampler {sampler!r} takes a constant metric only; use sampler "
            "'preconditioned_mala' with one that depends on the position"
        )
    if sampler == "preconditioned_mala" and problem.metric is None and problem.fused is None:
        raise ConfigError(
            "sampler 'preconditioned_mala' needs a metric: give make(metric=...) a matrix "
            "[dim, dim], a diagonal [dim], or a function of (position, beta)"
        )
    if problem.constant_metric is not None:
        _check_constant(problem.constant_metric)
    if problem.initial is None:
        return
    if callable(problem.initial):
        check_positions(problem, jax.eval_shape(problem.initial, jax.random.key(0)))
        return
    positions = jax.tree.map(jnp.asarray, problem.initial)
    check_positions(problem, positions)
    if not any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(positions)):
        _check_finite_start(problem, positions)


def _check_constant(matrix: np.ndarray) -> None:
    square = matrix.ndim == 2 and matrix.shape[0] == matrix.shape[1]
    if not square or not np.all(np.isfinite(matrix)):
        raise ConfigError(
            f"metric has shape {matrix.shape} or is not finite, expected finite numbers "
            "[dim, dim], or a diagonal [dim]"
        )
    if not np.allclose(matrix, matrix.T) or np.linalg.eigvalsh(matrix).min() <= 0:
        raise ConfigError("metric is not symmetric and positive definite; regularise it")


def check_positions(problem: Problem, positions: PyTree) -> None:
    """Refuse positions of wrong shapes, and functions that do not take them.

    Args:
      positions: Arrays or `ShapeDtypeStruct`s, `[chains, ...]`.

    Raises:
      ConfigError: Names what is wrong and what was expected.
    """
    leaves = jax.tree.leaves(positions)
    kinds = {str(leaf.dtype) for leaf in leaves}
    if len(kinds) != 1 or not jnp.issubdtype(leaves[0].dtype, jnp.floating):
        raise ConfigError(
            f"initial positions have dtypes {sorted(kinds)}, expected one floating-point type"
        )
    if any(leaf.ndim < 1 for leaf in leaves) or len({leaf.shape[0] for leaf in leaves}) != 1:
        raise ConfigError(
            f"initial positions have shapes {[leaf.shape for leaf in leaves]}, expected "
            "[chains, ...] with the same number of chains"
        )
    if leaves[0].shape[0] < 1 or (dim := _dimension(leaves)) < 1:
        raise ConfigError(
            f"initial positions have shapes {[leaf.shape for leaf in leaves]}, expected at least "
            "one chain and one number in a position"
        )
    one = jax.tree.map(lambda leaf: jax.ShapeDtypeStruct(leaf.shape[1:], leaf.dtype), positions)
    beta = jax.ShapeDtypeStruct((), leaves[0].dtype)
    _require_shape("log_density", (), problem.log_density, one)
    if problem.log_prior is not None:
        _require_shape("log_prior", (), problem.log_prior, one)
    if problem.constant_metric is not None and problem.constant_metric.shape[0] != dim:
        raise ConfigError(
            f"metric is for dimension {problem.constant_metric.shape[0]}, but initial positions "
            f"have dimension {dim}"
        )
    if callable(problem.metric):
        _require_shape("metric", (dim, dim), problem.metric, one, beta)
    if problem.fused is not None:
        for part, shape in enumerate(((), (dim,), (dim, dim))):
            _require_shape(
                f"fused (part {part})", shape, lambda *a, i=part: problem.fused(*a)[i], one, beta
            )


def _dimension(leaves: list[Any]) -> int:
    return sum(int(np.prod(leaf.shape[1:])) for leaf in leaves)


def _require_shape(name: str, shape: tuple[int, ...], function: Callable, *args: Any) -> None:
    described = [leaf.shape for leaf in jax.tree.leaves(args[0])]
    try:
        found = jax.eval_shape(function, *args)
    except Exception as error:
        raise ConfigError(
            f"{name} fails on one position of shape {described}: {error}; check that its "
            "dimension is that of the initial positions"
        ) from error
    if getattr(found, "shape", None) != shape:
        raise ConfigError(
            f"{name} of one position of shape {described} has shape "
            f"{getattr(found, 'shape', type(found).__name__)}, expected {shape}"
        )


def _check_finite_start(problem: Problem, positions: PyTree) -> None:
    target = flatten(problem, positions)
    x = ravel(positions)
    one = jnp.ones((), x.dtype)
    _require_finite("log density", jax.jit(jax.vmap(lambda x: target.tempered(x, one)))(x))
    if target.metric is not None:
        metric = target.metric
        factor = jax.jit(jax.vmap(lambda x: jnp.linalg.cholesky(metric(x, one))))(x)
        _require_finite("metric (its Cholesky factor)", jnp.sum(factor, axis=(1, 2)))


def _require_finite(name: str, values: Float[Array, "*chains"]) -> None:
    bad = ~np.isfinite(np.asarray(values))
    if bad.any():
        raise ConfigError(
            f"{name} is not finite at {bad.sum()} of {bad.size} chains (first: chain "
            f"{np.argwhere(bad)[0].tolist()}); start them inside the support"
        )


def check_state(state: Any) -> None:
    """Refuse a state in which a chain stands where the density is not finite.

    For states whose positions came from a function or from `Hyper.positions`, which
    `make` cannot try; call it on `learner.init(...)` or in `between`.

    Raises:
      ConfigError: Says how many chains, and which comes first.
    """
    if hasattr(state, "parts"):
        _require_finite("log prior", state.parts.log_prior)
        _require_finite("log likelihood", state.parts.log_likelihood)
    else:
        _require_finite("log density", state.log_density)
