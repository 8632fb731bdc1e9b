"""A Runge-Kutta method of order 8 for many autonomous problems of mechanics at once.

Dormand and Prince's DOP853 (Hairer, Norsett and Wanner, Solving Ordinary Differential
Equations I, section II.10) with its step size control, for q'' = f(q, q', s), s' = g(q, q', s).
Slopes of q are velocities, so the stages are written with accelerations alone (the
Nystrom form of the same method, section II.14): half the slopes to compute and to keep.

Components are arrays with lanes last, one trajectory a lane, so that a stage is one
vectorised loop. A fixed number of lanes is kept; every few steps those that are done are
written out and get the next trajectory of the queue, so that none waits for the slowest.
Between two knots (accepted steps) a solution is one more step, begun at the knot: as
accurate as the method, unlike a polynomial through what is there.

A trajectory that cannot go on (see `Status`) stops where it is, alone.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp.stages import Error as Error
from jaxlab.envs.cr3bp.stages import Phase as Phase
from jaxlab.envs.cr3bp.stages import Rates, error_of, moved, reach, stages_of
from jaxlab.envs.cr3bp.stages import step as step
from jaxlab.envs.cr3bp.tableau import tableau

#: Growth and shrinkage of the step size, as in Hairer's code.
SAFETY, SHRINK, GROW = 0.9, 1 / 3, 6.0
#: Steps below this part of the time reached (or of one unit) cannot be told from no step.
SMALLEST = 1e-15


class Status(enum.IntEnum):
    """How a trajectory ended."""

    DONE = 0
    COLLISION = 1
    STEP_LIMIT = 2
    STEP_TOO_SMALL = 3


class Knots(NamedTuple):
    """Accepted steps, in order, padded with the last.

    Attributes:
      time: `[count, knots]`.
      phase: Leaves `[count, knots, ...]`.
      number: How many there were, `[count]`; more than `knots` means that the last are lost.
    """

    time: jax.Array
    phase: Phase
    number: jax.Array


class Solution(NamedTuple):
    """Where trajectories ended.

    Attributes:
      phase: Leaves `[count, ...]`.
      time: Time reached, the span if all went well, `[count]`.
      steps: Steps tried, `[count]`.
      status: A `Status`, `[count]`.
      knots: Accepted steps, where asked for.
    """

    phase: Phase
    time: jax.Array
    steps: jax.Array
    status: jax.Array
    knots: Knots | None = None


class Method(NamedTuple):
    """How to integrate; static.

    Attributes:
      lanes: Trajectories worked on at once.
      refill_every: Steps between two looks for lanes that are done.
      max_steps: Steps a trajectory may take.
      knots: Accepted steps to keep; none by default.
      fixed_steps: So many equal steps instead of a tolerance; the discrete map is then as
        smooth as the equations. A step that ends nowhere is `STEP_TOO_SMALL`.
    """

    lanes: int = 64
    refill_every: int = 8
    max_steps: int = 100_000
    knots: int = 0
    fixed_steps: int | None = None

    def check(self) -> None:
        """Refuse what is no way to integrate.

        Raises:
          ConfigError: A number is out of range or none.
        """
        least = {"lanes": 1, "refill_every": 1, "max_steps": 1, "knots": 0, "fixed_steps": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if name == "fixed_steps" and value is None:
                continue
            if not isinstance(value, int) or value < low:
                raise ConfigError(f"{name} {value!r}: expected a whole number of at least {low}")


#: The method unless told otherwise.
DEFAULT = Method()


class _Lanes(NamedTuple):
    """What is worked on, one trajectory a lane."""

    index: jax.Array
    phase: Phase
    time: jax.Array
    span: jax.Array
    h: jax.Array
    steps: jax.Array
    accepted: jax.Array
    status: jax.Array
    args: Any


def integrate(
    rates: Rates,
    start: Phase,
    span: jax.Array,
    args: Any = (),
    *,
    error: Error | None = None,
    guard: Callable[[Phase, Any], jax.Array] | None = None,
    method: Method = DEFAULT,
) -> Solution:
    """Integrate many trajectories, each over its own span with its own step sizes.

    Args:
      rates: See `Rates`.
      start: Initial values, leaves `[count, ...]`.
      span: Times to integrate over, of either sign, `[count]`.
      args: A pytree whose leaves are scalars or `[count]`; `rates` sees `[lanes]` or scalars.
      error: What sets the step size.
      guard: Where it is true, at the start or at an accepted step, a trajectory ends with
        `COLLISION`.
      method: Static options.
    """
    error = error or Error()
    (count,) = span.shape
    leaves, tree = jax.tree.flatten(start)
    shapes = [leaf.shape[1:] for leaf in leaves]
    starts = jnp.concatenate([leaf.reshape(count, -1) for leaf in leaves], 1)

    def packed(phase: Phase) -> jax.Array:
        """Rows `[lanes, numbers]` of a phase, which are written and read at once."""
        rows = [jnp.moveaxis(leaf, -1, 0) for leaf in jax.tree.leaves(phase)]
        return jnp.concatenate([row.reshape(len(row), -1) for row in rows], 1)

    def unpacked(rows: jax.Array, lanes_last: bool = True) -> Phase:
        sizes = np.cumsum([math.prod(shape) for shape in shapes])[:-1]
        parts = [
            part.reshape(*rows.shape[:-1], *shape)
            for part, shape in zip(jnp.split(rows, sizes, -1), shapes, strict=True)
        ]
        return jax.tree.unflatten(
            tree, [jnp.moveaxis(part, 0, -1) if lanes_last else part for part in parts]
        )

    lanes = min(method.lanes, count)
    shared = jax.tree.map(lambda leaf: jnp.ndim(leaf) == 0, args)
    fixed = method.fixed_steps

    def pick(index: jax.Array) -> Any:
        return jax.tree.map(lambda leaf, whole: leaf if whole else leaf[index], args, shared)

    def loaded(index: jax.Array) -> _Lanes:
        at = jnp.minimum(index, count - 1)
        phase, own = unpacked(starts[at]), pick(at)
        none = jnp.zeros(lanes, jnp.int32)
        spans = jnp.where(index < count, span[at], 0)
        # What cannot begin must not keep a lane busy.
        known = jnp.isfinite(sum(map(reach, jax.tree.leaves(phase)))) & jnp.isfinite(spans)
        status = jnp.where(known, Status.DONE, Status.STEP_TOO_SMALL).astype(jnp.int32)
        if guard is not None:
            status = jnp.where(guard(phase, own), jnp.int32(Status.COLLISION), status)
        h = spans / fixed if fixed else _first_step(rates, phase, own, error) * jnp.sign(spans)
        return _Lanes(index, phase, jnp.zeros_like(spans), spans, h, none, none, status, own)

    def finished(work: _Lanes) -> jax.Array:
        return (work.time == work.span) | (work.status != Status.DONE)

    def advance(work: _Lanes, out: Any) -> tuple[_Lanes, Any]:
        over = finished(work)
        left = work.span - work.time
        last = work.steps + 1 >= fixed if fixed else jnp.abs(work.h) >= jnp.abs(left)
        h = jnp.where(last, left, work.h)
        stages = stages_of(rates, work.phase, h, work.args)
        new = moved(work.phase, h, 1.0, tableau().weights, stages)
        if fixed:
            # A step without a number is the end, as no smaller one will be tried.
            good, factor = jnp.isfinite(sum(map(reach, new.position))) & ~over, 1.0
            small: Any = True
        else:
            size = error_of(work.phase, h, stages, error)
            good = (size <= 1) & ~over
            eighth_root = jnp.sqrt(jnp.sqrt(jnp.sqrt(jnp.maximum(size, 1e-20))))
            # A step without a number is a step too far.
            factor = jnp.where(size >= 0, jnp.clip(SAFETY / eighth_root, SHRINK, GROW), SHRINK)
            small = ~(jnp.abs(h) >= SMALLEST * jnp.maximum(jnp.abs(work.time), 1))
        steps = work.steps + ~over
        status = jnp.where(~good & small, Status.STEP_TOO_SMALL, Status.DONE)
        status = jnp.where((steps >= method.max_steps) & ~(good & last), Status.STEP_LIMIT, status)
        if guard is not None:
            status = jnp.where(good & guard(new, work.args), Status.COLLISION, status)
        work = work._replace(
            phase=jax.tree.map(lambda a, b: jnp.where(good, a, b), new, work.phase),
            time=jnp.where(good, jnp.where(last, work.span, work.time + h), work.time),
            # The last step is short because it is the last.
            h=jnp.where(over | (good & last), work.h, h * factor),
            steps=steps,
            accepted=work.accepted + good if method.knots else work.accepted,
            status=jnp.where(over, work.status, status).astype(jnp.int32),
        )
        if method.knots:
            row = jnp.where(good, work.index, count)
            at = (row, jnp.minimum(work.accepted, method.knots))
            values = (work.time, packed(work.phase))
            out = jax.tree.map(lambda o, v: o.at[at].set(v, mode="drop"), out, values)
        return work, out

    def block(carry: Any) -> Any:
        work, following, results, out = carry
        work, out = lax.fori_loop(0, method.refill_every, lambda _, c: advance(*c), (work, out))
        done = finished(work) & (work.index < count)

        def refill(carry: Any) -> Any:
            work, following, results = carry
            at = jnp.where(done, work.index, count)
            counts = jnp.stack([work.steps, work.status, work.accepted], 1)
            values = (packed(work.phase), work.time, counts)
            results = jax.tree.map(lambda r, v: r.at[at].set(v, mode="drop"), results, values)
            place = following + jnp.cumsum(done, dtype=jnp.int32) - 1
            fresh = loaded(jnp.where(done, place, work.index))
            work = jax.tree.map(
                lambda a, b: jnp.where(done, a, b) if jnp.ndim(b) else b, fresh, work
            )
            return work, following + done.sum(dtype=jnp.int32), results

        work, following, results = lax.cond(
            done.any(), refill, lambda carry: carry, (work, following, results)
        )
        return work, following, results, out

    results = (jnp.zeros_like(starts), jnp.zeros_like(span), jnp.zeros((count, 3), jnp.int32))
    out: Any = ()
    if method.knots:
        # One more than is kept, for what is written behind the end.
        out = (_rows(jnp.zeros_like(span), method.knots + 1), _rows(starts, method.knots + 1))
    begin = (loaded(jnp.arange(lanes, dtype=jnp.int32)), jnp.int32(lanes), results, out)
    _, _, results, out = lax.while_loop(lambda c: (c[0].index < count).any(), block, begin)
    end, time, counts = results
    knots = None
    if method.knots:
        number = counts[:, 2] + 1
        behind = jnp.arange(method.knots)[None] >= number[:, None]
        times = jnp.where(behind, time[:, None], out[0][:, :-1])
        rows = jnp.where(behind[..., None], end[:, None], out[1][:, :-1])
        knots = Knots(times, unpacked(rows, lanes_last=False), number)
    return Solution(unpacked(end, lanes_last=False), time, counts[:, 0], counts[:, 1], knots)


def _first_step(rates: Rates, phase: Phase, args: Any, error: Error) -> jax.Array:
    """Size of values by size of slopes, over the components that count, `[lanes]`."""
    accelerations, others = rates(phase, args)
    pairs, rest = error.controlled or ((True,) * len(phase.position), (True,) * len(phase.rest))
    slopes = Phase(phase.velocity, tuple(accelerations), tuple(others))
    sizes = []
    for of in (phase, slopes):
        parts = zip((*of.position, *of.velocity, *of.rest), (*pairs, *pairs, *rest), strict=True)
        sizes.append(sum(reach(leaf) for leaf, wanted in parts if wanted))
    size = 0.03 * jnp.sqrt(sizes[0] / jnp.maximum(sizes[1], jnp.finfo(sizes[1].dtype).tiny))
    # Nothing is known of the scale at an origin at rest.
    return jnp.clip(size, 1e-6, 1e6)


def _rows(leaf: jax.Array, size: int) -> jax.Array:
    """Room for `size` rows of each trajectory, of which the first is the start."""
    rows = jnp.zeros((leaf.shape[0], size, *leaf.shape[1:]), leaf.dtype)
    return rows.at[:, 0].set(leaf)
