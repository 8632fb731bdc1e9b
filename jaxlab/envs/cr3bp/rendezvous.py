"""Where an arc comes closest to a periodic orbit, at what cost.

The pair of times is looked for among nodes of both and refined to where the cost is stationary,
by single steps of the integrator from the nearest knot.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Int

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp import dop853
from jaxlab.envs.cr3bp.dop853 import Phase, Solution, Status
from jaxlab.envs.cr3bp.flows import Flow, flow, vector_field
from jaxlab.envs.cr3bp.transfers import Transfer

GAPS = ("norm", "smooth", "square")


class Measure(NamedTuple):
    """phi, the cost of a gap d; static.

    Attributes:
      gap: `norm` |d|, `smooth` sqrt(|d|^2 + width^2) - width, or `square` |d|^2 / (2 width).
      width: Of the smoothed tip, or of the square.
    """

    gap: str
    width: float

    def check(self) -> None:
        """Refuse what there is not.

        Raises:
          ConfigError: The name is unknown or the width not positive.
        """
        if self.gap not in GAPS:
            raise ConfigError(f"gap '{self.gap}' is unknown: {', '.join(GAPS)}")
        if not 0 < self.width < np.inf:
            raise ConfigError(f"width {self.width:g}: expected a positive number")

    def value(self, square: jax.Array) -> jax.Array:
        """phi of |d|^2."""
        if self.gap == "square":
            return square / (2 * self.width)
        return self.radius(square) - (self.width if self.gap == "smooth" else 0)

    def radius(self, square: jax.Array) -> jax.Array:
        """How far from the tip of the cone; a square has none."""
        if self.gap == "square":
            return jnp.full_like(square, jnp.inf)
        return jnp.sqrt(square + (self.width**2 if self.gap == "smooth" else 0))

    def slope(self, gap: jax.Array) -> jax.Array:
        """phi' of d `[components, lanes]`; 0 at the tip."""
        return gap * self.curvature((gap**2).sum(0))[0]

    def curvature(self, square: jax.Array) -> tuple[jax.Array, jax.Array]:
        """a and b of the Hessian a I - b d d^T."""
        if self.gap == "square":
            return jnp.full_like(square, 1 / self.width), jnp.zeros_like(square)
        inverse = 1 / jnp.maximum(self.radius(square), 1e-100)
        return inverse, inverse**3

    def pull_back(self, rest: jax.Array, steep: jax.Array) -> jax.Array:
        """The factor of `_linear_step` for |g|^2 = steep; infinite without a minimum."""
        if self.gap == "square":
            return jnp.full_like(rest, self.width)
        far = self.radius(jnp.maximum(rest, 0)) / jnp.sqrt(jnp.maximum(1 - steep, 1e-12))
        return jnp.where(steep < 1, far, jnp.inf)


class Cost(NamedTuple):
    """What initial costates lead to.

    Attributes:
      value: J*; infinite, with the other numbers without meaning, for an arc that collides before
        the shortest duration or cannot begin.
      gap: |d|.
      propellant: Burnt part of the initial mass.
      time: ts.
      phase_time: tf, time after the target's stored state, in [0, period).
      end: Position, velocity and mass at ts, `[2 n + 1]`.
      status: A `dop853.Status` of the arc over the longest duration; one that collides counts up
        to there.
    """

    value: Float[Array, "*batch"]
    gap: Float[Array, "*batch"]
    propellant: Float[Array, "*batch"]
    time: Float[Array, "*batch"]
    phase_time: Float[Array, "*batch"]
    end: Float[Array, "*batch state"]
    status: Int[Array, "*batch"]


class _Nodes(NamedTuple):
    """Where the refinement begins, one a lane."""

    phase: Phase
    length: jax.Array
    begun: jax.Array
    offset: jax.Array
    target: jax.Array
    target_time: jax.Array


def rendezvous(
    solution: Solution,
    of: Flow,
    args: Any,
    transfer: Transfer,
    measure: Measure,
    between: int,
    rounds: int,
) -> tuple[Cost, Float[Array, "count components"]]:
    """The least cost of each arc over both times, and the gap d there.

    Args:
      solution: Arcs of states and costates with their knots.
      of: Their flow.
      args: Its arguments.
      transfer: The target, bounds and weights.
      measure: phi.
      between: Nodes looked at within each step.
      rounds: Evaluations of the refinement.
    """
    nodes = _nearest(solution, of, args, transfer, measure, between)
    best = _Refinement(of, args, transfer, measure, nodes).run(rounds)
    missing = jnp.isinf(best.value)
    size = transfer.target.shape[-1]
    mass0 = transfer.start[-1]
    assert solution.knots is not None
    cost = Cost(
        best.value,
        jnp.where(missing, jnp.inf, jnp.sqrt((best.gap**2).sum(0))),
        (mass0 - best.end[size]) / mass0,
        nodes.begun + best.offset,
        jnp.mod(nodes.target_time + best.shift, transfer.period),
        best.end[: size + 1].T,
        # What lies behind the last knot was not looked at.
        jnp.where(
            solution.knots.number > solution.knots.time.shape[1], Status.STEP_LIMIT, solution.status
        ).astype(jnp.int32),
    )
    return cost, best.gap.T


def _nearest(
    solution: Solution, of: Flow, args: Any, transfer: Transfer, measure: Measure, between: int
) -> _Nodes:
    """The pair of nodes with the least cost, for each arc."""
    knots = solution.knots
    size = transfer.target.shape[-1]
    half = size // 2
    leaves = jax.tree.map(lambda leaf: leaf[..., None], knots.phase)  # lanes last, one each
    bends, _ = of.rates(leaves, args)
    q = jnp.stack(knots.phase.position[:half], -1)
    v = jnp.stack(knots.phase.velocity[:half], -1)
    a = jnp.stack([bend[..., 0] for bend in bends[:half]], -1)
    mass = knots.phase.rest[0]
    fractions = np.arange(between) / between
    length = jnp.diff(knots.time, axis=1)
    states, masses, times = [], [], []
    for fraction in fractions:
        position, velocity = hermite(q, v, a, length[..., None], fraction)
        states.append(jnp.concatenate([position, velocity], -1))
        masses.append(mass[:, :-1] + fraction * jnp.diff(mass, axis=1))
        times.append(knots.time[:, :-1] + fraction * length)
    state, mass, time = (jnp.stack(of, 2) for of in (states, masses, times))
    shortest, longest = transfer.duration
    # The last accepted step ends at the longest duration or a collision: its start is the last
    # knot that has a step behind it.
    valid = (jnp.arange(length.shape[1])[None] < knots.number[:, None] - 1) & (length > 0)
    # A step that the shortest duration is in counts from there on.
    valid = valid[..., None] & (knots.time[:, 1:, None] >= shortest) & (time <= longest)
    extra = transfer.weights.propellant * (transfer.start[-1] - mass) / transfer.start[-1]
    extra = extra + transfer.weights.time * time

    def squares(flat: jax.Array) -> jax.Array:
        own, target = (flat**2).sum(1), (transfer.target**2).sum(1)
        return own[:, None] + target[None] - 2 * flat @ transfer.target.T

    def best(row: Any) -> tuple[jax.Array, jax.Array]:
        state, extra, valid = (leaf.reshape(-1, *leaf.shape[2:]) for leaf in row)
        nearest = jnp.maximum(squares(state).min(1), 0)
        node = jnp.argmin(jnp.where(valid, measure.value(nearest) + extra, jnp.inf))
        return node, jnp.argmin(squares(state[node][None])[0])

    node, other = lax.map(best, (state, extra, valid), batch_size=16)
    knot, part = jnp.divmod(node, between)
    row = jnp.arange(len(node))
    any_valid = valid.any((1, 2))
    step = length[row, knot]
    begun = knots.time[row, knot]
    offset = jnp.where(any_valid, jnp.asarray(fractions)[part] * step, jnp.nan)
    return _Nodes(
        jax.tree.map(lambda leaf: leaf[row, knot], knots.phase),
        step,
        begun,
        jnp.clip(offset, shortest - begun, longest - begun),
        transfer.target[other],
        other * (transfer.period / len(transfer.target)),
    )


def hermite(q: Any, v: Any, a: Any, h: Any, at: float) -> tuple[jax.Array, jax.Array]:
    """Positions and velocities within steps, by the quintic through both ends.

    Args:
      q, v, a: Positions, velocities and accelerations at knots, `[..., knots, n]`.
      h: Lengths of steps, `[..., knots - 1, 1]`.
      at: Part of the step.
    """
    q0, q1, v0, v1, a0, a1 = (leaf[..., side, :] for leaf in (q, v, a) for side in _SIDES)
    s = at
    # Basis of the quintic for values, slopes and second derivatives at 0, then at 1.
    p = [1 - 10 * s**3 + 15 * s**4 - 6 * s**5, s - 6 * s**3 + 8 * s**4 - 3 * s**5]
    p += [(s**2 - 3 * s**3 + 3 * s**4 - s**5) / 2, 10 * s**3 - 15 * s**4 + 6 * s**5]
    p += [-4 * s**3 + 7 * s**4 - 3 * s**5, (s**3 - 2 * s**4 + s**5) / 2]
    d = [-30 * s**2 + 60 * s**3 - 30 * s**4, 1 - 18 * s**2 + 32 * s**3 - 15 * s**4]
    d += [(2 * s - 9 * s**2 + 12 * s**3 - 5 * s**4) / 2, 30 * s**2 - 60 * s**3 + 30 * s**4]
    d += [-12 * s**2 + 28 * s**3 - 15 * s**4, (3 * s**2 - 8 * s**3 + 5 * s**4) / 2]
    terms = (q0, h * v0, h * h * a0, q1, h * v1, h * h * a1)
    position = sum(c * term for c, term in zip(p, terms, strict=True))
    velocity = sum(c * term for c, term in zip(d, terms, strict=True)) / jnp.where(h == 0, 1, h)
    return position, velocity


_SIDES = (slice(None, -1), slice(1, None))


class _Local(NamedTuple):
    """A pair of times and what is there: steps of both from their nodes, one a lane."""

    offset: jax.Array
    shift: jax.Array
    value: jax.Array
    gap: jax.Array
    end: jax.Array


class _Refinement:
    """The least cost near the nodes, by Newton's method on both times.

    Far from its minimum in time the norm's Hessian need not be positive, and at a gap of zero it
    has none: then the step is that of the linearised gap, which has a closed form.
    """

    def __init__(
        self, of: Flow, args: Any, transfer: Transfer, measure: Measure, nodes: _Nodes
    ) -> None:
        self.of, self.args, self.transfer, self.measure = of, args, transfer, measure
        self.nodes, self.size = nodes, transfer.target.shape[-1]
        self.ballistic = flow(self.size)
        self.target = self.ballistic.as_phase(list(nodes.target.T))
        shortest, longest = transfer.duration
        self.low, self.high = shortest - nodes.begun, longest - nodes.begun

    def run(self, rounds: int) -> _Local:
        """The best of so many evaluations; infinite where none has a value."""
        nodes, lanes = self.nodes, self.nodes.offset.shape
        reach = jnp.maximum(nodes.length, 1e-9)
        spacing = self.transfer.period / len(self.transfer.target)

        def once(_: Any, carry: Any) -> Any:
            best, offset, shift, scale = carry
            new = self.at(offset, shift)
            # Rounding decides between equals, so they count as progress.
            better = new.value <= best.value + 4e-16 * jnp.abs(new.value)
            best = jax.tree.map(lambda a, b: jnp.where(better, a, b), new, best)
            scale = jnp.where(better, 1.0, scale / 4)
            ds, df = self.step(best)
            offset = best.offset + scale * jnp.clip(ds, -reach, reach)
            shift = best.shift + scale * jnp.clip(df, -spacing, spacing)
            return best, jnp.clip(offset, self.low, self.high), shift, scale

        none = jnp.zeros(lanes)
        far = jnp.full(lanes, jnp.inf)
        begin = _Local(
            nodes.offset, none, far, jnp.ones((self.size, *lanes)), jnp.ones((self.of.size, *lanes))
        )
        return lax.fori_loop(0, rounds, once, (begin, nodes.offset, none, none + 1))[0]

    def at(self, offset: jax.Array, shift: jax.Array) -> _Local:
        """The cost at times that far from the nodes."""
        transfer, size = self.transfer, self.size
        phase = dop853.step(self.of.rates, self.nodes.phase, offset, self.args)
        end = jnp.stack(self.of.from_phase(phase))
        there = dop853.step(self.ballistic.rates, self.target, shift, (transfer.mu,))
        gap = end[:size] - jnp.stack(self.ballistic.from_phase(there))
        mass0 = transfer.start[-1]
        value = self.measure.value((gap**2).sum(0))
        value = value + transfer.weights.propellant * (mass0 - end[size]) / mass0
        value = value + transfer.weights.time * (self.nodes.begun + offset)
        return _Local(offset, shift, value, gap, end)

    def step(self, now: _Local) -> tuple[jax.Array, jax.Array]:
        """Steps of both times from there."""
        size, transfer, measure = self.size, self.transfer, self.measure
        mass0 = transfer.start[-1]
        slope, bend = _slope_and_bend(vector_field(self.of.size), now.end, self.args)
        there = now.end[:size] - now.gap
        back, back_bend = _slope_and_bend(vector_field(size), there, (transfer.mu,))
        d, p, q = now.gap, slope[:size], -back
        rate = transfer.weights.time - transfer.weights.propellant * slope[size] / mass0
        rate_slope = -transfer.weights.propellant * bend[size] / mass0
        pp, pq, qq = (p * p).sum(0), (p * q).sum(0), (q * q).sum(0)
        dp, dq, square = (d * p).sum(0), (d * q).sum(0), (d * d).sum(0)
        inverse, fall = measure.curvature(square)
        hss = (pp + (d * bend[:size]).sum(0)) * inverse - dp**2 * fall + rate_slope
        hff = (qq - (d * back_bend).sum(0)) * inverse - dq**2 * fall
        hsf = pq * inverse - dp * dq * fall
        bounds = (self.low - now.offset, self.high - now.offset)
        det = hss * hff - hsf**2
        convex = (det > 1e-6 * jnp.abs(hss * hff)) & (hss > 0) & (hff > 0)
        safe = jnp.where(convex, det, 1)
        gs, gf = dp * inverse + rate, dq * inverse
        newton = (-(hff * gs - hsf * gf) / safe, -(hss * gf - hsf * gs) / safe)
        # Newton's model of a cone is good within a part of the distance to its tip.
        radius = 0.5 * measure.radius(square)
        close = jnp.sqrt(pp) * jnp.abs(newton[0]) + jnp.sqrt(qq) * jnp.abs(newton[1]) < radius
        linear = _linear_step(measure, (pp, pq, qq), (dp, dq), square, rate)
        ds, df = (jnp.where(convex & close, a, b) for a, b in zip(newton, linear, strict=True))
        # At an end of the duration the other time is still free.
        bounded = jnp.clip(ds, *bounds)
        newton_alone = -(gf + hsf * bounded) / jnp.where(hff > 0, hff, 1)
        linear_alone = -(dq + pq * bounded) / jnp.maximum(qq, 1e-300)
        close = (hff > 0) & (jnp.sqrt(qq) * jnp.abs(newton_alone) < radius)
        alone = jnp.where(close, newton_alone, linear_alone)
        return bounded, jnp.where(bounded == ds, df, alone)


def _slope_and_bend(field: Any, y: jax.Array, args: Any) -> tuple[jax.Array, jax.Array]:
    """First and second derivative in time of a state."""
    along = functools.partial(field, args=args)
    return jax.jvp(along, (y,), (along(y),))


def _linear_step(
    measure: Measure, gram: Any, slopes: Any, square: Any, rate: Any
) -> tuple[jax.Array, jax.Array]:
    """The step to the minimum of phi(d + A u) + c . u for A = [p q], c = (rate, 0).

    With z the part of the gap that A can change, measured so that |d + A u|^2 = rest^2 + |z|^2,
    sqrt(rest^2 + |z|^2) + g . z is least at z = -rest g / sqrt(1 - |g|^2), g = R^-T c, A = Q R.
    Where it has no minimum (|g| >= 1), time costs more than any gap: as early as can be.
    """
    pp, pq, qq = gram
    dp, dq = slopes
    det = jnp.maximum(pp * qq - pq**2, 1e-300)
    # Least squares, and the inverse Gram matrix times c.
    us, uf = -(qq * dp - pq * dq) / det, -(pp * dq - pq * dp) / det
    cs, cf = qq * rate / det, -pq * rate / det
    scale = measure.pull_back(square + dp * us + dq * uf, rate * cs)
    # Clipped by the caller.
    ds = jnp.where(jnp.isfinite(scale), us - scale * cs, -jnp.sign(rate) * jnp.inf)
    return ds, uf - scale * cf
