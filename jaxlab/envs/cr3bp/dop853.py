"""An explicit Runge-Kutta method of order 8 for many autonomous initial value problems at once.

Dormand and Prince's DOP853 (Hairer, Norsett and Wanner, Solving Ordinary Differential
Equations I, section II.10) with its step size control. Components are arrays over lanes,
one trajectory a lane, so that a stage is one vectorised loop. A fixed number of lanes is
kept; every few steps those that are done are written out and get the next trajectory of
the queue, so that none waits for the slowest. Between two knots (accepted steps) a
solution is one more step, begun at the knot: as accurate as the method, unlike a
polynomial through what is there.

A trajectory that cannot go on (see `Status`) stops where it is, alone.
"""

from __future__ import annotations

import enum
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxlab.core.errors import PrecisionError

Rates = Callable[[jax.Array, Any], jax.Array]

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
      y: `[count, knots, components]`.
      number: How many there were, `[count]`; more than `knots` means that the last are lost.
    """

    time: jax.Array
    y: jax.Array
    number: jax.Array


class Solution(NamedTuple):
    """Where trajectories ended.

    Attributes:
      y: `[count, components]`.
      time: Time reached, the span if all went well, `[count]`.
      steps: Steps tried, `[count]`.
      status: A `Status`, `[count]`.
      knots: Accepted steps, where asked for.
    """

    y: jax.Array
    time: jax.Array
    steps: jax.Array
    status: jax.Array
    knots: Knots | None = None


@functools.cache
def _tableau() -> dict[str, Any]:
    from scipy.integrate import DOP853  # the coefficients, as public attributes

    def used(row: np.ndarray) -> tuple[tuple[int, float], ...]:
        return tuple((j, float(a)) for j, a in enumerate(row) if a != 0)

    return {
        "stages": tuple(used(row) for row in DOP853.A[1:]),
        "weights": used(DOP853.B),
        "fifth": used(DOP853.E5),
        "third": used(DOP853.E3),
    }


def _combined(row: tuple[tuple[int, float], ...], stages: list[jax.Array], size: int) -> jax.Array:
    (first, a), *rest = row
    total = a * stages[first][:size]
    for j, a in rest:
        total = total + a * stages[j][:size]
    return total


def step(rates: Rates, y: jax.Array, h: jax.Array, args: Any) -> tuple[jax.Array, list[jax.Array]]:
    """One step of size `h [lanes]` from `y [components, lanes]`: the end, and all stages."""
    size, tableau = len(y), _tableau()

    def slope(y: jax.Array) -> jax.Array:
        # The barrier keeps XLA from computing a stage again for everyone who uses it.
        return lax.optimization_barrier(rates(y, args))

    stages = [slope(y)]
    for row in tableau["stages"]:
        stages.append(slope(y + h * _combined(row, stages, size)))
    return y + h * _combined(tableau["weights"], stages, size), stages


def _error(
    y: jax.Array, new: jax.Array, stages: list[jax.Array], h: jax.Array, tolerance: Any, size: int
) -> jax.Array:
    """Estimated error of a step by the tolerance, over the first `size` components, `[lanes]`."""
    tableau = _tableau()
    rtol, atol = tolerance
    scale = 1 / (atol + rtol * jnp.maximum(jnp.abs(y[:size]), jnp.abs(new[:size])))
    fifth = ((_combined(tableau["fifth"], stages, size) * scale) ** 2).sum(0)
    third = ((_combined(tableau["third"], stages, size) * scale) ** 2).sum(0)
    spread = jnp.sqrt(jnp.maximum((fifth + 0.01 * third) * size, jnp.finfo(y.dtype).tiny))
    return jnp.abs(h) * fifth / spread


class Method(NamedTuple):
    """How to integrate; static.

    Attributes:
      controlled: Components whose error sets the step size; all by default. With those of
        the state alone, tangents behind it are the derivative of the discrete map.
      lanes: Trajectories worked on at once.
      refill_every: Steps between two looks for lanes that are done.
      max_steps: Steps a trajectory may take.
      knots: Accepted steps to keep; none by default.
    """

    controlled: int | None = None
    lanes: int = 64
    refill_every: int = 8
    max_steps: int = 100_000
    knots: int = 0


#: The method unless told otherwise.
DEFAULT = Method()


class _Lanes(NamedTuple):
    """What is worked on, one trajectory a lane."""

    index: jax.Array
    y: jax.Array
    time: jax.Array
    span: jax.Array
    h: jax.Array
    steps: jax.Array
    accepted: jax.Array
    status: jax.Array
    args: Any


def require_x64(what: str) -> None:
    """Refuse to go on in 32 bits.

    Raises:
      PrecisionError: JAX computes in 32 bits.
    """
    if not jax.config.jax_enable_x64:
        raise PrecisionError(
            f"{what} needs 64-bit floats: set JAX_ENABLE_X64=1 or call "
            "jax.config.update('jax_enable_x64', True) before anything else"
        )


def integrate(
    rates: Rates,
    y: jax.Array,
    span: jax.Array,
    args: Any = (),
    *,
    tolerance: tuple[Any, Any] = (1e-12, 1e-12),
    guard: Callable[[jax.Array, Any], jax.Array] | None = None,
    method: Method = DEFAULT,
) -> Solution:
    """Integrate many trajectories, each over its own span with its own step sizes.

    Args:
      rates: From `[components, lanes]` and arguments to the rates, of the same shape.
      y: Initial values, `[count, components]`.
      span: Times to integrate over, of either sign, `[count]`.
      args: A pytree whose leaves are scalars or `[count]`; `rates` sees `[lanes]` or scalars.
      tolerance: Relative and absolute, of each controlled component.
      guard: Where it is true at an accepted step a trajectory ends with `COLLISION`.
      method: Static options.
    """
    count, size = y.shape
    lanes = min(method.lanes, count)
    controlled = size if method.controlled is None else method.controlled
    shared = jax.tree.map(lambda leaf: jnp.ndim(leaf) == 0, args)

    def pick(index: jax.Array) -> Any:
        return jax.tree.map(lambda leaf, whole: leaf if whole else leaf[index], args, shared)

    def first_step(y: jax.Array, args: Any) -> jax.Array:
        slope = rates(y, args)[:controlled]
        sizes = ((y[:controlled] ** 2).sum(0), (slope**2).sum(0))
        return 0.03 * jnp.sqrt(sizes[0] / jnp.maximum(sizes[1], jnp.finfo(y.dtype).tiny))

    def loaded(index: jax.Array) -> _Lanes:
        at = jnp.minimum(index, count - 1)
        start, own = y[at].T, pick(at)
        none = jnp.zeros(lanes, jnp.int32)
        spans = jnp.where(index < count, span[at], 0)
        h = first_step(start, own)
        return _Lanes(index, start, jnp.zeros_like(spans), spans, h, none, none, none, own)

    def finished(work: _Lanes) -> jax.Array:
        return (work.time == jnp.abs(work.span)) | (work.status != Status.DONE)

    def advance(work: _Lanes, out: Any) -> tuple[_Lanes, Any]:
        over = finished(work)
        left = jnp.abs(work.span) - work.time
        last = work.h >= left
        h = jnp.where(last, left, work.h)
        new, stages = step(rates, work.y, jnp.where(work.span < 0, -h, h), work.args)
        error = _error(work.y, new, stages, h, tolerance, controlled)
        good = (error <= 1) & ~over
        eighth_root = jnp.sqrt(jnp.sqrt(jnp.sqrt(jnp.maximum(error, 1e-20))))
        # A step without a number is a step too far.
        factor = jnp.where(error >= 0, jnp.clip(SAFETY / eighth_root, SHRINK, GROW), SHRINK)
        steps = work.steps + ~over
        status = jnp.where(
            ~good & (h < SMALLEST * jnp.maximum(work.time, 1)), Status.STEP_TOO_SMALL, Status.DONE
        )
        status = jnp.where((steps >= method.max_steps) & ~(good & last), Status.STEP_LIMIT, status)
        if guard is not None:
            status = jnp.where(good & guard(new, work.args), Status.COLLISION, status)
        status = jnp.where(over, work.status, status).astype(jnp.int32)
        work = work._replace(
            y=jnp.where(good, new, work.y),
            time=jnp.where(good, jnp.where(last, jnp.abs(work.span), work.time + h), work.time),
            # The last step is short because it is the last.
            h=jnp.where(over | (good & last), work.h, h * factor),
            steps=steps,
            accepted=work.accepted + good,
            status=status,
        )
        if method.knots:
            row = jnp.where(good, work.index, count)
            at = (row, jnp.minimum(work.accepted, method.knots))
            times = out[0].at[at].set(work.time * jnp.sign(work.span), mode="drop")
            out = (times, out[1].at[at].set(work.y.T, mode="drop"))
        return work, out

    def block(carry: Any) -> Any:
        work, following, results, out = carry
        work, out = lax.fori_loop(0, method.refill_every, lambda _, c: advance(*c), (work, out))
        done = finished(work) & (work.index < count)

        def refill(carry: Any) -> Any:
            work, following, results = carry
            at = jnp.where(done, work.index, count)
            values = (work.y.T, work.time * jnp.sign(work.span), work.steps, work.status)
            values = (*values, work.accepted)
            results = tuple(
                r.at[at].set(v, mode="drop") for r, v in zip(results, values, strict=True)
            )
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

    results = (
        jnp.zeros_like(y),
        jnp.zeros((count,), y.dtype),
        *(jnp.zeros((count,), jnp.int32) for _ in range(3)),
    )
    out: Any = ()
    if method.knots:
        # One more than is kept, for what is written behind the end.
        out = (
            jnp.zeros((count, method.knots + 1), y.dtype),
            jnp.zeros((count, method.knots + 1, size), y.dtype).at[:, 0].set(y),
        )
    start = (loaded(jnp.arange(lanes, dtype=jnp.int32)), jnp.int32(lanes), results, out)
    _, _, results, out = lax.while_loop(lambda c: (c[0].index < count).any(), block, start)
    end, time, steps, status, accepted = results
    knots = _padded(out, accepted, end, time, method.knots) if method.knots else None
    return Solution(end, time, steps, status, knots)


def _padded(out: Any, accepted: jax.Array, end: jax.Array, time: jax.Array, size: int) -> Knots:
    """The knots with the end repeated behind them."""
    number = accepted + 1
    behind = jnp.arange(size)[None] >= number[:, None]
    times = jnp.where(behind, time[:, None], out[0][:, :size])
    return Knots(times, jnp.where(behind[..., None], end[:, None], out[1][:, :size]), number)
