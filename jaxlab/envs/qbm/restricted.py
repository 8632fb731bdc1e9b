"""Semi-quantum restricted Boltzmann machines in closed form.

Visible operators are Z, hidden units do not interact: given visible bits, each hidden unit is a
spin in a field, and sums over visible bits remain (Demidik et al. 2025, arXiv:2502.17562).
Bits v and spins s are `s = 1 - 2 v`; visible unit 1 is the most significant bit.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float

from jaxlab.core.errors import CapacityError, ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.envs.qbm.bloch import spin_potentials, tanh_ratio, tanh_ratio_slope
from jaxlab.envs.qbm.evaluation import Evaluation, shannon_entropy
from jaxlab.envs.qbm.restricted_model import Fields as Fields
from jaxlab.envs.qbm.restricted_model import RestrictedModel as RestrictedModel

#: Visible units over which sums are exact.
MOST_VISIBLE = 20
#: Elements of a table of visible states by hidden units that are worked on at once.
_CHUNK = 2**14


class Conditionals(NamedTuple):
    """Hidden units given visible spins, for `rows` of them; rows run along the last axis.

    Attributes:
      log_weights: `log p~(v) = a . s + sum_j log(2 cosh R_j(v))`.
      squares: `R_j(v)^2`.
      fields: `phi_jP(v)`, one array for each letter of the hidden fields.
    """

    log_weights: Float[Array, " rows"]
    squares: Float[Array, "hidden rows"]
    fields: tuple[Float[Array, "hidden #rows"], ...]

    @property
    def bloch(self) -> list[Float[Array, "hidden rows"]]:
        """Components of the Bloch vectors of the hidden units, one array for each letter."""
        ratio = tanh_ratio(self.squares)
        return [ratio * phi for phi in self.fields]


def conditionals(parameters: Any, spins: Any, model: RestrictedModel) -> Conditionals:
    """Hidden units given visible spins `[rows, visible]`.

    Raises:
      PrecisionError: JAX computes in 32 bits.
    """
    require_x64("a restricted Boltzmann machine")
    fields = model.split(parameters)
    spins = jnp.asarray(spins, fields.visible.dtype)
    extended = jnp.concatenate([jnp.ones_like(spins[:, :1]), spins], 1)
    local = []
    for k, letter in enumerate(model.fields):
        phi = fields.hidden[:, k]
        if letter in model.couplings:
            coupling = fields.coupling[:, :, model.couplings.index(letter)]
            local.append(jnp.concatenate([phi[None], coupling]).T @ extended.T)
        else:
            local.append(phi[:, None])
    squares = functools.reduce(jnp.add, [phi * phi for phi in local])
    log_weights = fields.visible @ spins.T + spin_potentials(squares)
    return Conditionals(log_weights, squares, tuple(local))


def bloch_vectors(
    parameters: Any, spins: Any, model: RestrictedModel
) -> Float[Array, "rows hidden fields"]:
    """Expectations of the hidden operators given visible spins `[rows, visible]`."""
    return jnp.stack(conditionals(parameters, spins, model).bloch, -1).transpose(1, 0, 2)


def spins_of(numbers: Any, visible: int) -> Float[Array, "rows visible"]:
    """Spins of basis states by number; the first unit is the most significant bit."""
    shifts = np.arange(visible - 1, -1, -1, dtype=np.int32)
    bits = (jnp.asarray(numbers, np.int32)[:, None] >> shifts) & 1
    return (1 - 2 * bits).astype(np.float64)


def _averages(weights: Array, spins: Array, table: Conditionals, model: RestrictedModel) -> Array:
    """Sum over rows of weights times features, in the order of the parameters."""
    weighted = tanh_ratio(table.squares) * weights
    # One product of matrices for fields (the first column) and couplings.
    extended = jnp.concatenate([jnp.ones_like(spins[:, :1]), spins], 1)
    coupled = [
        phi
        for phi, letter in zip(table.fields, model.fields, strict=True)
        if letter in model.couplings
    ]
    sums = jnp.concatenate([weighted * phi for phi in coupled]) @ extended
    parts = iter(sums.reshape(len(coupled), model.hidden, -1))
    hidden, couplings = [], []
    for phi, letter in zip(table.fields, model.fields, strict=True):
        if letter in model.couplings:
            part = next(parts)
            hidden.append(part[:, 0])
            couplings.append(part[:, 1:].T)
        else:
            # A field that is the same in all rows is multiplied after the sum.
            hidden.append(weighted @ extended[:, 0] * phi[:, 0])
    return model.join(Fields(weights @ spins, jnp.stack(hidden, -1), jnp.stack(couplings, -1)))


def require_enumerable(model: RestrictedModel) -> None:
    """Refuse sums over more visible states than are exact in reasonable time, or in 32 bits.

    Raises:
      CapacityError: There are more than 20 visible units; says how many states that is.
      PrecisionError: JAX computes in 32 bits.
    """
    require_x64("a restricted Boltzmann machine")
    if model.visible > MOST_VISIBLE:
        raise CapacityError(
            f"{model.visible} visible units have {2**model.visible} states; sums over them are "
            f"exact up to {MOST_VISIBLE} units: use sampling (sampling.persistent_contrast)"
        )


def _chunk_rows(model: RestrictedModel) -> int:
    rows = 2**model.visible
    while rows * model.hidden > _CHUNK and rows > 64:
        rows //= 2
    return rows


#: `(spins [rows, visible], conditionals, weights [rows] in the sum, target [rows])` to sums.
Summand = Callable[[Array, Conditionals, Array, Any], Any]


def _sum_states(
    parameters: Array, model: RestrictedModel, summand: Summand, target: Any = None
) -> tuple[Array, Any, Any]:
    """Sums over visible states by chunks.

    Returns:
      `log sum_v p~(v)`; the sums of what `summand` returns first, with weights p(v); those of
      what it returns second, as they are.
    """
    require_enumerable(model)
    rows = _chunk_rows(model)
    count = 2**model.visible // rows

    def chunk(number: Any, part: Any, top: Any) -> Any:
        spins = spins_of(number * rows + lax.iota(np.int32, rows), model.visible)
        table = conditionals(parameters, spins, model)
        top = jnp.maximum(top, jnp.max(table.log_weights))
        weights = jnp.exp(table.log_weights - top)
        return top, jnp.sum(weights), *summand(spins, table, weights, part)

    if count == 1:
        top, mass, weighted, plain = chunk(np.int32(0), target, -jnp.inf)
        return top + jnp.log(mass), jax.tree.map(lambda x: x / mass, weighted), plain

    parts = None if target is None else jnp.asarray(target).reshape(count, rows)

    def step(carry: Any, x: Any) -> Any:
        top, mass, weighted, plain = carry
        new_top, new_mass, new_weighted, new_plain = chunk(x[0], x[1], top)
        shrink = jnp.exp(top - new_top)
        weighted = jax.tree.map(lambda a, b: shrink * a + b, weighted, new_weighted)
        plain = jax.tree.map(jnp.add, plain, new_plain)
        return (new_top, shrink * mass + new_mass, weighted, plain), None

    numbers = jnp.arange(count, dtype=np.int32)
    low = jnp.full((), -jnp.inf, parameters.dtype)
    first = jax.eval_shape(chunk, numbers[0], None if parts is None else parts[0], low)
    zero = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), first)
    (top, mass, weighted, plain), _ = lax.scan(step, (low, *zero[1:]), (numbers, parts))
    return top + jnp.log(mass), jax.tree.map(lambda x: x / mass, weighted), plain


def evaluate(parameters: Any, model: RestrictedModel, target: Any) -> Evaluation:
    """The model beside a target distribution of visible bits.

    Args:
      parameters: Natural parameters `[size]`.
      target: Probabilities `[2^visible]`, big-endian.

    Raises:
      CapacityError: There are more than 20 visible units.
      ConfigError: Sizes do not match.
    """
    require_enumerable(model)
    parameters, target = jnp.asarray(parameters), jnp.asarray(target)
    if target.shape != (2**model.visible,):
        raise ConfigError(f"target is {target.shape}, expected ({2**model.visible},) for {model}")

    if _chunk_rows(model) == 2**model.visible:
        return _evaluate_at_once(parameters, model, target)

    def summand(spins: Array, table: Conditionals, weights: Array, q: Array) -> Any:
        data = _averages(q, spins, table, model)
        return _averages(weights, spins, table, model), (data, q @ table.log_weights)

    log_z, moments, (data, free) = _sum_states(parameters, model, summand, target)
    divergence = log_z - free - shannon_entropy(target)
    return Evaluation(log_z, moments, data - moments, divergence)


def _evaluate_at_once(parameters: Array, model: RestrictedModel, target: Array) -> Evaluation:
    """`evaluate` without chunks: who needs but the gap, or but the moments, pays for one sum."""
    spins = spins_of(lax.iota(np.int32, 2**model.visible), model.visible)
    table = conditionals(parameters, spins, model)
    top = jnp.max(table.log_weights)
    weights = jnp.exp(table.log_weights - top)
    # As a product: sums along the last axis are slow loops where this is mapped over seeds.
    mass = weights @ jnp.ones_like(weights)
    p = weights * (1 / mass)
    return Evaluation(
        top + jnp.log(mass),
        _averages(p, spins, table, model),
        _averages(target - p, spins, table, model),
        # Differences first: with large parameters psi has few digits behind the point.
        jnp.log(mass) + target @ (top - table.log_weights) - shannon_entropy(target),
    )


def evaluate_data(parameters: Any, model: RestrictedModel, spins: Any, weights: Any) -> Evaluation:
    """As `evaluate`, for a target on some visible states: distinct spins and their weights.

    Args:
      spins: `[states, visible]`.
      weights: Their probabilities `[states]`.
    """
    parameters, weights = jnp.asarray(parameters), jnp.asarray(weights)

    def summand(rows: Array, table: Conditionals, p: Array, _: Any) -> Any:
        return _averages(p, rows, table, model), ()

    log_z, moments, _ = _sum_states(parameters, model, summand)
    data, free = data_moments(parameters, model, spins, weights)
    divergence = log_z - free - shannon_entropy(weights)
    return Evaluation(log_z, moments, data - moments, divergence)


def data_moments(
    parameters: Any, model: RestrictedModel, spins: Any, weights: Any
) -> tuple[Float[Array, " size"], Float[Array, ""]]:
    """Expectations of the terms with hidden units as the model has them, given visible spins.

    Returns:
      The expectations, and the mean of `log p~(v)`.
    """
    spins, weights = jnp.asarray(spins, np.float64), jnp.asarray(weights)
    table = conditionals(parameters, spins, model)
    return _averages(weights, spins, table, model), weights @ table.log_weights


def moments(parameters: Any, model: RestrictedModel) -> Float[Array, " size"]:
    """Expectations of the terms in the model."""

    def summand(spins: Array, table: Conditionals, weights: Array, _: Any) -> Any:
        return _averages(weights, spins, table, model), ()

    return _sum_states(jnp.asarray(parameters), model, summand)[1]


@functools.partial(jax.custom_jvp, nondiff_argnums=(1,))
def log_partition(parameters: Any, model: RestrictedModel) -> Float[Array, ""]:
    """The potential psi; its gradient are the moments, its Hessian the BKM metric.

    Raises:
      CapacityError: There are more than 20 visible units.
    """
    return _sum_states(jnp.asarray(parameters), model, lambda *_: ((), ()))[0]


@log_partition.defjvp
def _log_partition_jvp(model: RestrictedModel, primals: Any, tangents: Any) -> Any:
    return log_partition(primals[0], model), moments(primals[0], model) @ tangents[0]


def kl_divergence(parameters: Any, model: RestrictedModel, target: Any) -> Float[Array, ""]:
    """`KL(q || p)` of visible bits in nats; its gradient by the parameters is `eta_p - eta_q`.

    It is not differentiated by the target.
    """
    return _kl_divergence(jnp.asarray(parameters), lax.stop_gradient(jnp.asarray(target)), model)


@functools.partial(jax.custom_jvp, nondiff_argnums=(2,))
def _kl_divergence(parameters: Any, target: Any, model: RestrictedModel) -> Float[Array, ""]:
    return evaluate(parameters, model, target).divergence


@_kl_divergence.defjvp
def _kl_divergence_jvp(model: RestrictedModel, primals: Any, tangents: Any) -> Any:
    found = evaluate(primals[0], model, primals[1])
    return found.divergence, -found.gap @ tangents[0]


def probabilities(parameters: Any, model: RestrictedModel) -> Float[Array, " states"]:
    """Probabilities of all visible states `[2^visible]`, big-endian."""
    require_enumerable(model)
    rows = _chunk_rows(model)

    def chunk(number: Any) -> Array:
        spins = spins_of(number * rows + lax.iota(np.int32, rows), model.visible)
        return conditionals(parameters, spins, model).log_weights

    numbers = jnp.arange(2**model.visible // rows, dtype=np.int32)
    return jax.nn.softmax(lax.map(chunk, numbers).ravel())


def metric(parameters: Any, model: RestrictedModel) -> Float[Array, "size size"]:
    """The BKM metric of the whole state: `Cov_p(f) + E_p[Hess psi_v]`, without a matrix of it."""
    letters = range(len(model.fields))

    def features_of(spins: Array, squares: Array, *fields: Array) -> Array:
        one = Conditionals(jnp.zeros(1), squares[:, None], tuple(phi[:, None] for phi in fields))
        return _averages(jnp.ones(1), spins[None], one, model)

    def summand(spins: Array, table: Conditionals, weights: Array, _: Any) -> Any:
        local = [jnp.broadcast_to(phi, table.squares.shape) for phi in table.fields]
        columns = (0, *(1,) * (1 + len(local)))
        features = jax.vmap(features_of, columns)(spins, table.squares, *local)
        extended = jnp.concatenate([jnp.ones_like(spins[:, :1]), spins], 1)
        pairs = weights[:, None, None] * extended[:, :, None] * extended[:, None, :]
        ratio, slope = tanh_ratio(table.squares), tanh_ratio_slope(table.squares)
        bend = [
            slope * local[p] * local[q] + (ratio if p == q else 0.0)
            for p in letters
            for q in letters
        ]
        blocks = jnp.einsum("vab,kjv->abjk", pairs, jnp.stack(bend))
        return (weights @ features, features.T @ (weights[:, None] * features), blocks), ()

    _, (mean, second, blocks), _ = _sum_states(jnp.asarray(parameters), model, summand)
    rows, columns = _block_positions(model)
    shape = (model.visible + 1, model.visible + 1, model.hidden, len(letters), len(letters))
    placed = (second - jnp.outer(mean, mean)).at[rows, columns]
    return placed.add(blocks.reshape(shape), mode="drop")


def _block_positions(model: RestrictedModel) -> tuple[np.ndarray, np.ndarray]:
    """Places of `[a, b, hidden, P, Q]` in the metric, a and b being the field or a coupling."""
    n, m = model.visible, model.hidden
    # What does not exist lies outside, from where it is dropped.
    place = np.full((n + 1, m, len(model.fields)), model.size, np.int32)
    place[0] = n + np.arange(m * len(model.fields)).reshape(m, -1)
    chosen = [model.fields.index(letter) for letter in model.couplings]
    count = n * m * len(model.couplings)
    place[1:, :, chosen] = model.size - count + np.arange(count).reshape(n, m, -1)
    shape = (n + 1, n + 1, m, len(model.fields), len(model.fields))
    rows = np.broadcast_to(place[:, None, :, :, None], shape)
    return rows, np.broadcast_to(place[None, :, :, None, :], shape)
