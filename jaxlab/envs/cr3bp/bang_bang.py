"""Minimum-fuel low thrust without smoothing: full thrust or none, and what a switch does.

The limit of `jaxlab.envs.cr3bp.low_thrust` for rho -> 0: thrust is full where the switching
function S = |lv| / m + lm / c is positive and none where it is negative. With the throttle held
the flow is smooth, so an arc is a chain of smooth legs; each ends at the first zero of S, which
is looked for between the integrator's steps and refined by Newton's method on single steps of it.
S and its rate dS/dt = lv . lv' / (|lv| m) are continuous there, but the flow f is not. A
neighbour switches earlier by grad S . dy / S', so the state transition matrix jumps (saltation;
Leine and Nijmeijer, Dynamics and Bifurcations of Non-Smooth Mechanical Systems, 2004, section 7):

  Phi+ = (I + (f+ - f-) grad(S)^T / S') Phi-.

As f+ - f- is a J grad S or its negative with the thrust acceleration a, the jump is symplectic.
It has no value where S touches zero without crossing it (S' = 0).
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import ConfigError
from jaxlab.envs.cr3bp import dop853, low_thrust
from jaxlab.envs.cr3bp.dop853 import Knots, Phase, Status
from jaxlab.envs.cr3bp.dynamics import dot
from jaxlab.envs.cr3bp.flows import Flow, flow, guard
from jaxlab.envs.cr3bp.low_thrust import Thruster
from jaxlab.envs.cr3bp.propagation import DEFAULT, Accuracy, checked_states, one_each, solve
from jaxlab.envs.cr3bp.rendezvous import hermite
from jaxlab.envs.cr3bp.stages import step_in_loop

#: S within this of zero is a switch's rounding.
ROUNDING = 1e-13
#: Points of each step at which the sign of S is looked at: a shorter burn or coast is not seen.
BETWEEN = 4
#: Of Newton's method or halving at most, some five are needed, and how close is close enough, by
#: the step.
ROUNDS, CLOSE = 60, 1e-13
#: Steps that are kept to look for a switch among them; then the leg is taken up again.
KNOTS = 64
#: Any number will do for the smoothing where the throttle is held.
_UNUSED = 1.0


class BangBangArc(NamedTuple):
    """Where arcs end, and when they switched; k is the number of switches there is room for.

    Attributes:
      state: `[..., 14]`, or `[..., 10]` in the plane.
      stm: Derivative of the end by the start, `[..., 14, 14]` and so on, where asked for.
      steps: Steps tried.
      status: A `dop853.Status`.
      time: Time reached.
      switch_time: In order, NaN behind the last, `[..., k]`.
      switch_state: State and costates at the switches, NaN behind the last, `[..., k, 14]`.
      switches: How many there were, at most k.
      burning: Whether the arc begins under thrust.
      exceeded: Whether it ends early, at a switch there is no room for.
    """

    state: Float[Array, "*batch components"]
    stm: Float[Array, "*batch components components"] | None
    steps: Int[Array, "*batch"]
    status: Int[Array, "*batch"]
    time: Float[Array, "*batch"]
    switch_time: Float[Array, "*batch k"]
    switch_state: Float[Array, "*batch k components"]
    switches: Int[Array, "*batch"]
    burning: Bool[Array, "*batch"]
    exceeded: Bool[Array, "*batch"]


def propagate_bang_bang(
    state: Any,
    time: Any,
    mu: Any,
    thruster: Thruster,
    *,
    switches: int = 16,
    stm: bool = False,
    accuracy: Accuracy = DEFAULT,
) -> BangBangArc:
    """Arcs of states (position, velocity, mass) and their costates under bang-bang thrust.

    Legs of the whole batch go to the engine at once. There is no derivative but `stm`.

    Args:
      state: Float64 `[..., 14]`, or `[..., 10]` in the plane; the primer vector must not be zero.
      time: Spans of either sign, one for all or `[...]`.
      mu: Mass parameter, one for all or `[...]`.
      thruster: Numbers one for all or `[...]`; the smoothing is not used.
      switches: Switches there is room for; an arc ends at one more.
      stm: Also the state transition matrix, with its jumps at the switches.
      accuracy: Of the integration by `dop853`.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: A shape, the mass parameter, the thruster or an option is wrong.
    """
    what = "propagate_bang_bang"
    accuracy.check()
    if accuracy.engine != "dop853" or accuracy.method.fixed_steps is not None:
        raise ConfigError(f"{what} integrates with dop853 alone, to a tolerance")
    if not isinstance(switches, int) or switches < 1:
        raise ConfigError(f"switches {switches!r}: expected a whole number of at least 1")
    state = checked_states(what, state, mu, (14, 10))
    batch, size = state.shape[:-1], state.shape[-1]
    if 0 in batch:
        raise ConfigError(f"{what}: there are no states in {list(state.shape)}")
    names = ("mu", "acceleration", "exhaust_speed")
    given = (mu, thruster.acceleration, thruster.exhaust_speed)
    args = tuple(one_each(what, n, a, batch) for n, a in zip(names, given, strict=True))
    span = one_each(what, "time", time, batch)
    arc = _arcs(accuracy, switches, stm)(state.reshape(-1, size), span, args)
    return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), arc)


def switching(
    state: Any, thruster: Thruster
) -> tuple[Float[Array, "*batch"], Float[Array, "*batch"]]:
    """The switching function S of states and costates and its rate, whatever the throttle is."""
    phase = low_thrust.as_phase(list(jnp.moveaxis(jnp.asarray(state), -1, 0)))
    return _switching(phase, thruster.exhaust_speed)


def hamiltonian(state: Any, mu: Any, thruster: Thruster) -> Float[Array, "*batch"]:
    """H = lr . v + lv . g - a max(S, 0), constant along the flow, across switches too."""
    coasting = Thruster(0.0, thruster.exhaust_speed, _UNUSED)
    burn = thruster.acceleration * jnp.maximum(switching(state, thruster)[0], 0)
    return low_thrust.hamiltonian(jnp.asarray(state), mu, coasting) - burn


def saltation(
    state: Any, thruster: Thruster, starts: Any
) -> Float[Array, "*batch components components"]:
    """The jump of the state transition matrix at a switch, to thrust where `starts`.

    Args:
      state: State and costates at the switch.
      thruster: Numbers one for all or of the shape of the batch.
      starts: Whether thrust is on behind the switch.
    """
    state = jnp.asarray(state)
    size = state.shape[-1]
    n = (size - 2) // 4
    a, c = jnp.asarray(thruster.acceleration), jnp.asarray(thruster.exhaust_speed)
    mass, primer = state[..., 2 * n], state[..., 3 * n + 1 : 4 * n + 1]
    length = jnp.linalg.norm(primer, axis=-1)
    along = primer / (length * mass)[..., None]
    slope = jnp.zeros_like(state).at[..., 2 * n].set(-length / mass**2)
    slope = slope.at[..., 3 * n + 1 : 4 * n + 1].set(along).at[..., -1].set(1 / c)
    jump = jnp.zeros_like(state).at[..., n : 2 * n].set(-along)
    jump = jump.at[..., 2 * n].set(-1 / c).at[..., -1].set(-length / mass**2)
    rate = switching(state, thruster)[1]
    factor = jnp.where(starts, a, -a) / rate
    return jnp.eye(size) + factor[..., None, None] * jump[..., :, None] * slope[..., None, :]


def held_flow(size: int) -> Flow:
    """The flow of `size` components with arguments (mu, a, c, throttle), the throttle held."""

    def rates(phase: Phase, args: Any) -> Any:
        return low_thrust.flow(phase, args[0], Thruster(args[1], args[2], _UNUSED), args[3])

    def rates_with_tangents(phase: Phase, args: Any) -> Any:
        thruster = Thruster(args[1], args[2], _UNUSED)
        return low_thrust.flow_with_tangents(phase, args[0], thruster, args[3])

    return flow(size)._replace(rates=rates, rates_with_tangents=rates_with_tangents)


def _switching(phase: Phase, exhaust_speed: Any) -> tuple[Any, Any]:
    """S and its rate."""
    n = len(phase.position) // 2
    primer, rate = phase.position[n:], phase.velocity[n:]
    mass, mass_costate = phase.rest
    length = jnp.sqrt(dot(primer, primer))
    return length / mass + mass_costate / exhaust_speed, dot(primer, rate) / (length * mass)


def _bend(phase: Phase, accelerations: Any, mass_rate: Any, rate: Any) -> Any:
    """Second derivative of S with the throttle held."""
    n = len(phase.position) // 2
    primer, primer_rate = phase.position[n:], phase.velocity[n:]
    mass = phase.rest[0]
    length = jnp.sqrt(dot(primer, primer))
    longer = (dot(primer_rate, primer_rate) + dot(primer, accelerations[n:])) / length
    return (longer - (mass * rate) ** 2 / length - rate * mass_rate) / mass


class _Leg(NamedTuple):
    """How far legs come with their throttle held."""

    state: jax.Array
    time: jax.Array
    steps: jax.Array
    status: jax.Array
    switched: jax.Array


class _Chain(NamedTuple):
    """Arcs so far: where they are, and where their legs began."""

    state: jax.Array
    time: jax.Array
    steps: jax.Array
    status: jax.Array
    over: jax.Array
    exceeded: jax.Array
    number: jax.Array
    starts: jax.Array
    times: jax.Array


@functools.cache
def _arcs(accuracy: Accuracy, limit: int, stm: bool) -> Any:
    """From states `[count, size]`, spans and arguments `[count]` to a `BangBangArc`."""

    @jax.jit
    def many(state: jax.Array, span: jax.Array, args: tuple[jax.Array, ...]) -> BangBangArc:
        count, size = state.shape
        of = held_flow(size)
        value, rate = _switching(of.as_phase(list(state.T)), args[2])
        # At a zero of S the way it goes decides.
        burning = jnp.where(value == 0, rate * span > 0, value > 0)
        row, zero = jnp.arange(count), jnp.zeros(count, jnp.int32)
        none = jnp.zeros(count, bool)

        def more(chain: _Chain) -> jax.Array:
            return ~chain.over.all()

        def leg(chain: _Chain) -> _Chain:
            throttle = (burning ^ (chain.number % 2 == 1)).astype(state.dtype)
            left = jnp.where(chain.over, 0, span - chain.time)
            new = _leg(of, chain.state, left, (*args, throttle), accuracy)
            going = ~chain.over
            time = jnp.where(
                ~new.switched & (new.status == Status.DONE), span, chain.time + new.time
            )
            time = jnp.where(going, time, chain.time)
            steps = chain.steps + new.steps
            # Only the knots were at their end.
            unfinished = going & ~new.switched & (new.status == Status.STEP_LIMIT)
            unfinished &= steps < accuracy.method.max_steps
            exceeded = going & new.switched & (chain.number == limit)
            switched = going & new.switched & ~exceeded
            place = jnp.where(switched, chain.number + 1, limit + 1)  # dropped, where it is none
            return _Chain(
                jnp.where(going[:, None], new.state, chain.state),
                time,
                steps,
                jnp.where(going & ~new.switched & ~unfinished, new.status, chain.status),
                ~(switched | unfinished),
                chain.exceeded | exceeded,
                chain.number + switched,
                chain.starts.at[row, place].set(new.state, mode="drop"),
                chain.times.at[row, place].set(time, mode="drop"),
            )

        starts = jnp.full((count, limit + 1, size), jnp.nan).at[:, 0].set(state)
        times = jnp.full((count, limit + 1), jnp.nan).at[:, 0].set(0)
        begin = _Chain(state, jnp.zeros_like(span), zero, zero, none, none, zero, starts, times)
        end = lax.while_loop(more, leg, begin)
        matrix = _matrix(of, end, burning, args, accuracy) if stm else None
        return BangBangArc(
            end.state,
            matrix,
            end.steps,
            end.status,
            end.time,
            end.times[:, 1:],
            end.starts[:, 1:],
            end.number,
            burning,
            end.exceeded,
        )

    return many


def _leg(of: Flow, state: jax.Array, span: jax.Array, args: Any, accuracy: Accuracy) -> _Leg:
    """Legs to the first switch, to the end of their spans, or as far as knots are kept."""
    collides = guard(accuracy.collision_radius, of.axes)

    def stop(phase: Phase, args: Any) -> jax.Array:
        wrong = _switching(phase, args[2])[0] * (1 - 2 * args[3]) > ROUNDING
        return collides(phase, args) | wrong

    method = accuracy.method
    solution = dop853.integrate(
        of.rates,
        of.as_phase(list(state.T)),
        span,
        args,
        error=dop853.Error(accuracy.tolerance, accuracy.tolerance),
        guard=stop,
        method=method._replace(knots=KNOTS, max_steps=min(method.max_steps, KNOTS - 1)),
    )
    assert solution.knots is not None
    switched, begun, length, phase, low, high = _bracket(of, solution.knots, args)

    def closer(carry: Any) -> Any:
        count, low, high, h, following, _, done = carry
        h = jnp.where(done, h, following)
        there = step_in_loop(of.rates, phase, h, args)
        value, rate = _switching(there, args[2])
        behind = value * (2 * args[3] - 1) < 0
        low, high = jnp.where(behind, low, h), jnp.where(behind, h, high)
        newton = h - value / rate
        inside = (newton - low) * (newton - high) <= 0
        following = jnp.where(inside, newton, (low + high) / 2)
        done |= jnp.abs(following - h) <= CLOSE * jnp.abs(length)
        return count + 1, low, high, h, following, there, done

    middle = (low + high) / 2
    start = (0, low, high, middle, middle, phase, ~switched)
    *_, h, _, there, _ = lax.while_loop(lambda c: (c[0] < ROUNDS) & ~c[-1].all(), closer, start)
    switch = jnp.stack(of.from_phase(there), 1)
    end = jnp.stack(of.from_phase(solution.phase), 1)
    return _Leg(
        jnp.where(switched[:, None], switch, end),
        jnp.where(switched, begun + h, solution.time),
        solution.steps,
        solution.status,
        switched,
    )


def _bracket(of: Flow, knots: Knots, args: Any) -> Any:
    """Where S first has the sign that the throttle does not go with.

    Returns:
      Whether it has; of the step with the switch its start, length and phase at the start; and
      from there two times with the switch between them. Each `[count]`.
    """
    each = tuple(a[:, None] for a in args)  # over all knots
    accelerations, rest = of.rates(knots.phase, each)
    value, rate = _switching(knots.phase, each[2])
    bend = _bend(knots.phase, accelerations, rest[0], rate)
    length = jnp.diff(knots.time, axis=1)
    curve = (value[..., None], rate[..., None], bend[..., None])
    parts = [(n + 1) / BETWEEN for n in range(BETWEEN)]
    inside = [hermite(*curve, length[..., None], part)[0][..., 0] for part in parts[:-1]]
    values = jnp.stack([*inside, value[:, 1:]], 2)
    taken = jnp.arange(length.shape[1])[None, :, None] < knots.number[:, None, None] - 1
    wrong = (values * (2 * args[3] - 1)[:, None, None] < 0) & taken
    wrong = wrong.reshape(len(wrong), -1)
    knot, part = jnp.divmod(jnp.argmax(wrong, 1), BETWEEN)
    row = jnp.arange(len(wrong))
    step = length[row, knot]
    # A little wider, as the curve is not S itself.
    low = jnp.maximum((part - 0.1) / BETWEEN, 0) * step
    high = jnp.minimum((part + 1.1) / BETWEEN, 1) * step
    phase = jax.tree.map(lambda leaf: leaf[row, knot], knots.phase)
    return wrong.any(1), knots.time[row, knot], step, phase, low, high


def _matrix(
    of: Flow, chain: _Chain, burning: jax.Array, args: Any, accuracy: Accuracy
) -> jax.Array:
    """The state transition matrix: of all legs at once, and then their product."""
    count, legs, size = chain.starts.shape
    place = jnp.arange(legs)[None]
    on = burning[:, None] ^ (place % 2 == 1)
    there = place <= chain.number[:, None]
    starts = jnp.where(there[..., None], chain.starts, chain.state[:, None])
    ends = jnp.concatenate([chain.times[:, 1:], jnp.full((count, 1), jnp.nan)], 1)
    ends = jnp.where(place < chain.number[:, None], ends, chain.time[:, None])
    spans = jnp.where(there, ends - chain.times, 0)
    each = [jnp.repeat(a, legs) for a in args]
    eye = jnp.broadcast_to(jnp.eye(size), (count * legs, size, size))
    throttle = on.astype(starts.dtype).ravel()
    # Most of the room is empty and should not keep lanes busy.
    often = accuracy.method._replace(refill_every=min(accuracy.method.refill_every, 2))
    accuracy = accuracy._replace(method=often)
    arc = solve(starts.reshape(-1, size), eye, spans.ravel(), (*each, throttle), accuracy, of)
    assert arc.stm is not None
    jumps = saltation(starts, Thruster(args[1][:, None], args[2][:, None], _UNUSED), on)
    jumps = jnp.where((there & (place > 0))[..., None, None], jumps, jnp.eye(size))
    pieces = arc.stm.reshape(count, legs, size, size) @ jumps

    def product(total: jax.Array, piece: jax.Array) -> tuple[jax.Array, None]:
        return piece @ total, None

    return lax.scan(product, pieces[:, 0], jnp.moveaxis(pieces[:, 1:], 1, 0))[0]
