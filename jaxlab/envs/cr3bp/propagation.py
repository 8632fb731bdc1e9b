"""Arcs of the three-body problem, ballistic or under low thrust, alone or with their derivatives.

One function each, with any leading batch axes and under `vmap`: the whole batch goes to
the engine (`jaxlab.envs.cr3bp.dop853`) at once. An arc is differentiable in state and
time: its state transition matrix is integrated beside it and is the derivative, forward
and backward.
"""

from __future__ import annotations

import functools
import math
import numbers
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.custom_derivatives import SymbolicZero
from jaxtyping import Array, Float, Int

from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.envs.cr3bp import diffrax_engine, dop853
from jaxlab.envs.cr3bp.dop853 import Method, Status
from jaxlab.envs.cr3bp.flows import Flow, apart, beside, flow, guard, vector_field
from jaxlab.envs.cr3bp.low_thrust import Thruster, require_thruster
from jaxlab.envs.cr3bp.systems import require_mass_parameter

#: Below this relative tolerance 64-bit rounding decides, not the method.
FINEST = 1e-15


class Arc(NamedTuple):
    """Where arcs end.

    Attributes:
      state: `[..., 6]`, or `[..., 14]` under low thrust; 4 and 10 in the plane.
      stm: Derivative of the end by the start, `[..., 6, 6]` and so on, where asked for.
      steps: Steps tried.
      status: A `dop853.Status`: an arc that collides ends there, alone.
      time: Time reached.
    """

    state: Float[Array, "*batch components"]
    stm: Float[Array, "*batch components components"] | None
    steps: Int[Array, "*batch"]
    status: Int[Array, "*batch"]
    time: Float[Array, "*batch"]


class Accuracy(NamedTuple):
    """How an arc is integrated; static.

    Attributes:
      tolerance: Relative and absolute tolerance of each component, a step.
      control: `state`: the step size follows the state alone and the tangents are the exact
        derivative of the discrete map, and faster; `all`: tangents count too.
      collision_radius: Distances from the larger and the smaller primary at which an arc
        ends; by default next to nothing.
      method: Lanes and limits of the engine.
      engine: `dop853`, or the name of a solver of diffrax, as `Dopri8`: slower by far in batches,
        and differentiable in the mass parameter and the thruster, too.
    """

    tolerance: float = 1e-12
    control: str = "state"
    collision_radius: tuple[float, float] = (1e-7, 1e-7)
    method: Method = Method()
    engine: str = "dop853"

    def check(self) -> None:
        """Refuse what no integration can keep.

        Raises:
          ConfigError: An option is no constant, the tolerance below rounding, the control unknown.
        """
        for name, value in self._asdict().items():
            try:
                hash(value)
            except TypeError:
                raise ConfigError(
                    f"{name} of an Accuracy is a {type(value).__name__}: programs are compiled for "
                    "its options, so give plain numbers, strings and tuples of them"
                ) from None
        if not isinstance(self.tolerance, numbers.Real):
            raise ConfigError(f"a tolerance of {self.tolerance!r}: expected a number")
        if not self.tolerance >= FINEST:
            raise ConfigError(
                f"a tolerance of {self.tolerance:g} is below what 64-bit floats can hold: "
                f"use at least {FINEST:g}"
            )
        if self.control not in ("state", "all"):
            raise ConfigError(f"control '{self.control}' is unknown: state, all")
        radii = self.collision_radius
        if not isinstance(radii, tuple) or len(radii) != 2 or not all(map(_is_radius, radii)):
            raise ConfigError(
                f"collision_radius {radii!r}: expected two numbers, none of them negative"
            )
        self.method.check()
        if self.engine != "dop853":
            diffrax_engine.require_solver(self.engine)
            if self.method.fixed_steps is not None:
                raise ConfigError("fixed_steps are dop853's: diffrax's solvers adapt theirs")


def _is_radius(value: Any) -> bool:
    return isinstance(value, numbers.Real) and float(value) >= 0


#: What arcs are integrated with unless told otherwise.
DEFAULT = Accuracy()


def solve(
    state: jax.Array,
    tangents: jax.Array | None,
    time: jax.Array,
    args: Any,
    accuracy: Accuracy,
    of: Flow | None = None,
) -> Arc:
    """Arcs of states `[count, size]` with tangents `[count, size, columns]`.

    The flow is that of the size of states unless given.
    """
    of = of or flow(state.shape[1])
    start, rates, controlled = of.as_phase(list(state.T)), of.rates, None
    if tangents is not None:
        rates = of.rates_with_tangents
        columns = of.as_phase(list(jnp.moveaxis(tangents, 1, 0)))
        all_count = accuracy.control == "all"
        controlled = tuple(
            (True,) * len(part) + (all_count,) * len(part) for part in (start[0], start[2])
        )
        start = beside(start, columns)
    solution = dop853.integrate(
        rates,
        start,
        time,
        args,
        error=dop853.Error(accuracy.tolerance, accuracy.tolerance, controlled),  # type: ignore[arg-type]
        guard=guard(accuracy.collision_radius, of.axes),
        method=accuracy.method,
    )
    end, stm = solution.phase, None
    if tangents is not None:
        end, columns = apart(end)
        stm = jnp.stack(of.from_phase(columns), 1)
    return Arc(
        jnp.stack(of.from_phase(end), 1), stm, solution.steps, solution.status, solution.time
    )


@functools.cache
def _engine(accuracy: Accuracy, tangents: bool) -> Any:
    """From states `[count, size]`, times `[count]` and arguments to an `Arc`.

    Under `vmap` the axes are merged, so that the engine always sees one flat batch.
    """

    # Compiled also where the caller is not, once for each accuracy.
    @custom_vmap
    @jax.jit
    def many(state: jax.Array, time: jax.Array, args: tuple[jax.Array, ...]) -> Arc:
        count, size = state.shape
        eye = jnp.broadcast_to(jnp.eye(size, dtype=state.dtype), (count, size, size))
        return solve(state, eye if tangents else None, time, args, accuracy)

    @many.def_vmap
    def _(copies: int, batched: Any, state: Any, time: Any, args: Any) -> Any:
        count = state.shape[-2]

        def merged(leaf: jax.Array, is_batched: bool, rank: int) -> jax.Array:
            if not is_batched:
                if leaf.ndim < rank:
                    return leaf  # one for all
                leaf = jnp.broadcast_to(leaf, (copies, *leaf.shape))
            elif leaf.ndim == rank:  # one for each copy
                leaf = jnp.repeat(leaf[:, None], count, 1)
            return leaf.reshape(copies * count, *leaf.shape[2:])

        arguments = tuple(merged(a, b, 1) for a, b in zip(args, batched[2], strict=True))
        arc = many(merged(state, batched[0], 2), merged(time, batched[1], 1), arguments)
        arc = jax.tree.map(lambda leaf: leaf.reshape(copies, count, *leaf.shape[1:]), arc)
        return arc, jax.tree.map(lambda _: True, arc)

    return many


@functools.cache
def _differentiable(accuracy: Accuracy) -> Any:
    """`_engine` without tangents, whose derivative is by the variational equations."""

    @jax.custom_jvp
    def arc(state: jax.Array, time: jax.Array, args: tuple[jax.Array, ...]) -> Arc:
        return _engine(accuracy, False)(state, time, args)

    def rule(primals: Any, tangents: Any) -> Any:
        state, time, args = primals
        d_state, d_time, d_args = tangents
        if not all(isinstance(d, SymbolicZero) for d in d_args):
            raise ConfigError(
                "arcs have no derivative by the mass parameter or the thruster: stop the "
                "gradient there, or use Accuracy(engine='Dopri8')"
            )
        full = _engine(accuracy, True)(state, time, args)
        change = jnp.zeros_like(state)
        if not isinstance(d_state, SymbolicZero):
            change += jnp.einsum("nij,nj->ni", full.stm, d_state)
        if not isinstance(d_time, SymbolicZero):
            rates = vector_field(state.shape[1])(full.state.T, args)
            # An arc that ended early ends there whatever its span.
            moving = jnp.where(full.status == Status.DONE, d_time, 0)
            change += rates.T * moving[:, None]
        none = jax.tree.map(_no_tangent, full._replace(stm=None))
        if not isinstance(d_time, SymbolicZero):
            none = none._replace(time=moving)
        return full._replace(stm=None), none._replace(state=change)

    arc.defjvp(rule, symbolic_zeros=True)
    return arc


@functools.cache
def _general(accuracy: Accuracy, stm: bool) -> Any:
    """`_engine` by diffrax, with its derivatives."""

    @jax.jit
    def many(state: jax.Array, time: jax.Array, args: tuple[jax.Array, ...]) -> Arc:
        ends = diffrax_engine.solve(
            state,
            stm,
            time,
            args,
            solver=accuracy.engine,
            tolerance=accuracy.tolerance,
            control_all=accuracy.control == "all",
            radii=accuracy.collision_radius,
            max_steps=accuracy.method.max_steps,
        )
        return Arc(*ends)

    return many


def _no_tangent(leaf: jax.Array) -> Any:
    if jnp.issubdtype(leaf.dtype, jnp.floating):
        return jnp.zeros_like(leaf)
    return np.zeros(leaf.shape, jax.dtypes.float0)


def propagate(
    state: Any,
    time: Any,
    mu: Any,
    *,
    stm: bool = False,
    accuracy: Accuracy = DEFAULT,
) -> Arc:
    """Ballistic arcs.

    Args:
      state: Positions and velocities in units of the system, float64 `[..., 6]`, or `[..., 4]` in
        the plane.
      time: Spans of either sign, one for all or `[...]`.
      mu: Mass parameter, one for all or `[...]`.
      stm: Also the state transition matrix.
      accuracy: Tolerance and control.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: Shapes, mass parameter or tolerance are wrong.
    """
    return _propagate("propagate", state, time, (mu,), (6, 4), stm, accuracy)


def propagate_low_thrust(
    state: Any,
    time: Any,
    mu: Any,
    thruster: Thruster,
    *,
    stm: bool = False,
    accuracy: Accuracy = DEFAULT,
) -> Arc:
    """Arcs of states (position, velocity, mass) and their costates under smoothed optimal thrust.

    `state` is float64 `[..., 14]`, or `[..., 10]` in the plane; with a primer vector of zero its direction is undefined.
    Args and errors as `propagate`, with the numbers of the thruster one for all or `[...]`; they
    must be finite and positive.
    """
    require_thruster(thruster)
    return _propagate("propagate_low_thrust", state, time, (mu, *thruster), (14, 10), stm, accuracy)


def checked_states(what: str, state: Any, mu: Any, sizes: tuple[int, ...] = (6,)) -> jax.Array:
    """States `[..., size]` of a problem as they must be.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: They are no float64 of one of the sizes, or the mass parameter is outside
        (0, 0.5].
    """
    require_x64(what)
    state = jnp.asarray(state)
    if state.ndim == 0 or state.shape[-1] not in sizes or state.dtype != jnp.float64:
        raise ConfigError(
            f"{what}: states are float64 [..., {' or '.join(map(str, sizes))}], "
            f"got {state.dtype}{list(state.shape)}"
        )
    if not isinstance(mu, jax.core.Tracer):
        require_mass_parameter(mu)
    return state


def one_each(what: str, name: str, value: Any, batch: tuple[int, ...]) -> jax.Array:
    """A number for each state of a batch, flat; `value` is one for all or one each.

    Raises:
      ConfigError: It has another shape.
    """
    value = jnp.asarray(value, jnp.float64)
    try:
        return jnp.broadcast_to(value, batch).reshape(math.prod(batch))
    except ValueError:
        raise ConfigError(
            f"{what}: {name} is {list(value.shape)}, expected one or {list(batch)}"
        ) from None


def _propagate(
    what: str,
    state: Any,
    time: Any,
    args: Any,
    sizes: tuple[int, ...],
    stm: bool,
    accuracy: Accuracy,
) -> Arc:
    accuracy.check()
    state = checked_states(what, state, args[0], sizes)
    batch, size = state.shape[:-1], state.shape[-1]
    names = ("mu", "acceleration", "exhaust_speed", "smoothing")
    # What is one for all stays one number, which is less to load.
    flat_args = tuple(
        jnp.asarray(a, jnp.float64) if jnp.ndim(a) == 0 else one_each(what, n, a, batch)
        for n, a in zip(names, args, strict=False)
    )
    if accuracy.engine != "dop853":
        engine = _general(accuracy, stm)
    else:
        engine = _engine(accuracy, True) if stm else _differentiable(accuracy)
    if 0 in batch:
        raise ConfigError(f"{what}: there are no states in {list(state.shape)}")
    arc = engine(state.reshape(-1, size), one_each(what, "time", time, batch), flat_args)
    return jax.tree.map(lambda leaf: leaf.reshape(*batch, *leaf.shape[1:]), arc)
