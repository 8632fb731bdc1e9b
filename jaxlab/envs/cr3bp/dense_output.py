"""States inside arcs, at any times: dense output.

An arc is integrated once and its accepted steps are kept. Between two of them a state is one more
step of the method, begun at the one before: as accurate as the method itself, which polynomials
through what is kept are not.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import CapacityError, ConfigError
from jaxlab.envs.cr3bp import dop853
from jaxlab.envs.cr3bp.flows import flow, guard
from jaxlab.envs.cr3bp.low_thrust import Thruster, require_thruster
from jaxlab.envs.cr3bp.propagation import DEFAULT, Accuracy, checked_states, one_each
from jaxlab.envs.cr3bp.stages import step_in_loop


class Samples(NamedTuple):
    """States inside arcs.

    Attributes:
      state: At each time, NaN where the arc does not come so far, `[..., times, size]`.
      valid: Whether it does, `[..., times]`.
      steps: Steps tried of each arc, `[...]`.
      status: A `dop853.Status` of each arc, over its longest time.
      end: Time reached.
    """

    state: Float[Array, "*batch times size"]
    valid: Bool[Array, "*batch times"]
    steps: Int[Array, "*batch"]
    status: Int[Array, "*batch"]
    end: Float[Array, "*batch"]


def states_at(
    state: Any,
    times: Any,
    mu: Any,
    thruster: Thruster | None = None,
    *,
    knots: int = 512,
    accuracy: Accuracy = DEFAULT,
) -> Samples:
    """States of arcs at many times, each arc integrated once; there is no derivative.

    Args:
      state: Where arcs begin, float64 `[..., 6]` or `[..., 4]`; with a thruster state, mass and
        their costates, `[..., 14]` or `[..., 10]`.
      times: After the start, `[times]` for all arcs or `[..., times]`, in any order, none of them
        negative or none positive for one arc.
      mu: Mass parameter, one for all or `[...]`.
      thruster: Under low thrust, its numbers one for all or `[...]`; None for ballistic arcs.
      knots: Steps an arc may take.
      accuracy: Of the integration by `dop853`.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: A shape or option is wrong, or times of one arc lie on both sides of its start.
      CapacityError: An arc took more steps than `knots` (not under a transformation).
    """
    what = "states_at"
    accuracy.check()
    if accuracy.engine != "dop853":
        raise ConfigError(f"{what} integrates with dop853 alone")
    if not isinstance(knots, int) or knots < 2:
        raise ConfigError(f"knots {knots!r}: expected a whole number of at least 2")
    if thruster is not None:
        require_thruster(thruster)
    state = checked_states(what, state, mu, (6, 4) if thruster is None else (14, 10))
    batch, size = state.shape[:-1], state.shape[-1]
    times = _checked_times(times, batch)
    count = times.shape[-1]
    if 0 in (*batch, count):
        raise ConfigError(f"{what}: there are no states or no times")
    names = ("mu", "acceleration", "exhaust_speed", "smoothing")
    given = (mu,) if thruster is None else (mu, *thruster)
    args = tuple(one_each(what, n, a, batch) for n, a in zip(names, given, strict=False))
    found = _sampled(accuracy, knots)(state.reshape(-1, size), times.reshape(-1, count), args)
    samples, number = found
    if not isinstance(number, jax.core.Tracer) and int(number.max()) > knots:
        raise CapacityError(
            f"an arc took {int(number.max())} steps, more than knots = {knots}: raise it"
        )
    return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), samples)


def _checked_times(times: Any, batch: tuple[int, ...]) -> jax.Array:
    """Times `[..., times]`.

    Raises:
      ConfigError: Their shape is another, or they lie on both sides of the start.
    """
    times = jnp.asarray(times, jnp.float64)
    try:
        times = jnp.broadcast_to(times, (*batch, times.shape[-1]))
    except (ValueError, IndexError):
        raise ConfigError(
            f"states_at: times are {list(times.shape)}, expected [times] or {[*batch, 'times']}"
        ) from None
    if not isinstance(times, jax.core.Tracer):
        numbers = np.asarray(times)
        if not np.isfinite(numbers).all():
            raise ConfigError("states_at: times must be finite")
        if ((numbers < 0).any(-1) & (numbers > 0).any(-1)).any():
            raise ConfigError(
                "states_at: times of one arc lie before and after its start; ask for each side on "
                "its own"
            )
    return times


@functools.cache
def _sampled(accuracy: Accuracy, knots: int) -> Any:
    """From states `[arcs, size]`, times `[arcs, times]`, arguments to samples and steps kept."""

    @jax.jit
    def many(
        state: jax.Array, times: jax.Array, args: tuple[jax.Array, ...]
    ) -> tuple[Samples, jax.Array]:
        of = flow(state.shape[1])
        farthest = jnp.argmax(jnp.abs(times), 1)
        span = jnp.take_along_axis(times, farthest[:, None], 1)[:, 0]
        solution = dop853.integrate(
            of.rates,
            of.as_phase(list(state.T)),
            span,
            args,
            error=dop853.Error(accuracy.tolerance, accuracy.tolerance),
            guard=guard(accuracy.collision_radius, of.axes),
            method=accuracy.method._replace(knots=knots),
        )
        kept = solution.knots
        assert kept is not None
        way = jnp.where(span < 0, -1.0, 1.0)[:, None]
        marks, asked = way * kept.time, way * times
        find = jax.vmap(functools.partial(jnp.searchsorted, side="right"))
        last = jnp.minimum(kept.number, knots) - 1
        place = jnp.clip(find(marks, asked) - 1, 0, last[:, None])
        row = jnp.arange(len(state))[:, None]
        valid = (asked >= 0) & (asked <= marks[row, last[:, None]])
        length = jnp.where(valid, times - kept.time[row, place], 0)
        start = jax.tree.map(lambda leaf: leaf[row, place].ravel(), kept.phase)
        each = tuple(jnp.repeat(a, times.shape[1]) for a in args)
        phase = step_in_loop(of.rates, start, length.ravel(), each)
        found = jnp.stack(of.from_phase(phase), 1).reshape(*times.shape, state.shape[1])
        samples = Samples(
            jnp.where(valid[..., None], found, jnp.nan),
            valid,
            solution.steps,
            solution.status,
            solution.time,
        )
        return samples, kept.number

    return many
