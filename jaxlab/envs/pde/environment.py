"""Control of the heat or Burgers equation, as an environment.

A step holds an action over `params.interval` of time. The reward is minus what a quadratic
regulator pays for it:

  reward = -interval * (mean of (u - target)^2 over the domain + weight * mean of action^2).
"""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Literal

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Tree
from jaxlab.envs.pde.grids import spacing, uniform_points
from jaxlab.envs.pde.initial import NODES, spline_values
from jaxlab.envs.pde.problems import Coefficients, Problem, Scheme, Walls, problem
from jaxlab.envs.pde.schemes import stepper
from jaxlab.envs.pde.stability import within_bounds

#: A field beyond this has diverged; what is observed is clipped to it.
BOUND = 10.0
_SCHEMES = {
    "heat_dirichlet": Scheme.BTCS,
    "heat_neumann": Scheme.BTCS,
    "burgers": Scheme.IMEX,
}


@struct.dataclass
class ControlParams:
    """A task.

    Attributes:
      coefficients: Of the equation.
      initial: Field at the start.
      target: Field that is wanted.
      force: What an action of 1 adds to the equation (distributed) or lets in as a flux through
        a wall (boundary).
      interval: Time over which an action is held.
      weight: Of the squared action in the reward.
      tolerance: Mean squared error below which an episode ends.
    """

    coefficients: Coefficients
    initial: Float[Array, " points"]
    target: Float[Array, " points"]
    force: Float[Array, ""]
    interval: Float[Array, ""]
    weight: Float[Array, ""]
    tolerance: Float[Array, ""]


@struct.dataclass
class ControlState:
    """A field under control.

    Attributes:
      field: Its values.
      time: Since the start.
      steps: Actions taken.
      reached: Whether the error fell below the tolerance.
      diverged: Whether the field left its bound, or its speed the stability bound of the scheme;
        it is then the last that had not.
    """

    field: Float[Array, " points"]
    time: Float[Array, ""]
    steps: Int[Array, ""]
    reached: Bool[Array, ""]
    diverged: Bool[Array, ""]

    @property
    def over(self) -> jax.Array:
        """Whether the episode has ended."""
        return self.reached | self.diverged


@dataclasses.dataclass(frozen=True)
class FieldControl(Env[ControlState, ControlParams]):
    """Drive a field to a target by a force.

    Actions `[actuators]` in [-1, 1] are amplitudes of overlapping bumps of force over the
    domain, or with `actuation="boundary"` (heat equations only) the heat let in through the
    left and the right wall. Observations are `field` and `target`, `[points]` each. Episodes
    end at the target or where the field diverges; wrap it in `TimeLimit`.

    Attributes:
      equation: `heat_dirichlet` or `heat_neumann`, by backward differences; `burgers`, by
        IMEX.
      points: Of the grid.
      actuators: Bumps of force; 2 with boundary actuation.
      actuation: Where the force acts.
      substeps: Time steps of the scheme in an action's interval.
    """

    name: ClassVar[str] = "field_control"

    equation: Literal["heat_dirichlet", "heat_neumann", "burgers"] = "burgers"
    points: int = 32
    actuators: int = 4
    actuation: Literal["distributed", "boundary"] = "distributed"
    substeps: int = 10

    def __post_init__(self) -> None:
        if self.equation not in _SCHEMES:
            raise ConfigError(f"equation {self.equation!r}: expected one of {', '.join(_SCHEMES)}")
        if self.actuation not in ("distributed", "boundary"):
            raise ConfigError(f"actuation {self.actuation!r}: expected distributed or boundary")
        if self.points < 4 or self.substeps < 1 or self.actuators < 1:
            raise ConfigError(
                f"points {self.points}, actuators {self.actuators}, substeps {self.substeps}: "
                "expected at least 4, 1 and 1"
            )
        if self.actuation == "boundary" and (self.equation == "burgers" or self.actuators != 2):
            raise ConfigError(
                "actuation boundary: expected a heat equation, since Burgers is periodic, and "
                f"actuators=2 for the two walls, not {self.actuators} with {self.equation}"
            )

    @property
    def problem(self) -> Problem:
        """The equation with its default coefficients."""
        return problem(self.equation)

    def shapes(self) -> np.ndarray:
        """Force of each actuator at amplitude 1, `[actuators, points]`."""
        equation = self.problem
        if self.actuation == "boundary":
            found = np.zeros((2, self.points))
            found[0, 0] = found[1, -1] = 1 / spacing(equation, self.points)
            return found
        where = uniform_points(equation, self.points)
        width = equation.length / self.actuators
        centres = -equation.length / 2 + width * (np.arange(self.actuators) + 0.5)
        away = where - centres[:, None]
        if equation.walls is Walls.PERIODIC:
            away = (away + equation.length / 2) % equation.length - equation.length / 2
        return np.exp(-((2 * away / width) ** 2))

    def sample_params(self, key: jax.Array) -> ControlParams:
        """A random initial field, diffusion within a factor of 2 of the default, target zero."""
        equation = self.problem
        node_key, factor_key = jax.random.split(key)
        dtype = jnp.result_type(float)
        low, high = equation.draw
        nodes = jax.random.uniform(node_key, (NODES,), dtype, low, high)
        factor = jnp.exp2(jax.random.uniform(factor_key, (), dtype, -1.0, 1.0))
        number = lambda value: jnp.asarray(value, dtype)  # noqa: E731
        return ControlParams(
            coefficients=Coefficients(
                diffusion=equation.diffusion * factor, rate=number(0.0), speed=number(0.0)
            ),
            initial=spline_values(equation, nodes, uniform_points(equation, self.points)),
            target=jnp.zeros(self.points, dtype),
            force=number(1.0),
            interval=number(0.05),
            weight=number(0.01),
            tolerance=number(1e-4),
        )

    def reset(self, key: jax.Array, params: ControlParams) -> tuple[ControlState, TimeStep]:
        dtype = params.initial.dtype
        state = ControlState(
            field=params.initial,
            time=jnp.zeros((), dtype),
            steps=jnp.zeros((), jnp.int32),
            reached=jnp.zeros((), bool),
            diverged=jnp.zeros((), bool),
        )
        return state, self._timestep(state, jnp.zeros((), dtype), params)

    def step(
        self, key: jax.Array, state: ControlState, action: jax.Array, params: ControlParams
    ) -> tuple[ControlState, TimeStep]:
        field, diverged = self._advance(state.field, action, params)
        error = jnp.mean((field - params.target) ** 2)
        new = ControlState(
            field=field,
            time=state.time + params.interval,
            steps=state.steps + jnp.ones((), jnp.int32),
            reached=~diverged & (error < params.tolerance),
            diverged=diverged,
        )
        paid = params.interval * (error + params.weight * jnp.mean(action**2))
        over = state.over
        new = jax.tree.map(lambda old, now: jnp.where(over, old, now), state, new)
        zero = jnp.zeros((), field.dtype)
        return new, self._timestep(new, jnp.where(over, zero, -paid), params)

    def _advance(
        self, start: jax.Array, action: jax.Array, params: ControlParams
    ) -> tuple[jax.Array, jax.Array]:
        """The field after an interval, and whether it diverged on the way."""
        equation, dtype = self.problem, start.dtype
        scheme = _SCHEMES[self.equation]
        dt = params.interval / self.substeps
        run = stepper(equation, scheme, self.points, dt, params.coefficients)
        force = params.force * (action.astype(dtype) @ jnp.asarray(self.shapes(), dtype))
        dx = spacing(equation, self.points)

        def substep(_: Any, carry: tuple[Array, Array]) -> tuple[Array, Array]:
            field, diverged = carry
            speed = jnp.max(jnp.abs(field))
            stable = within_bounds(equation, scheme, dx, dt, params.coefficients, speed)
            moved = run.advance(field, force)
            inside = jnp.all(jnp.abs(moved) < BOUND) & stable
            diverged = diverged | ~inside
            return jnp.where(diverged, field, moved), diverged

        return jax.lax.fori_loop(0, self.substeps, substep, (start, jnp.zeros((), bool)))

    def _timestep(self, state: ControlState, reward: jax.Array, params: ControlParams) -> TimeStep:
        return TimeStep(
            obs={
                "field": jnp.clip(state.field, -BOUND, BOUND),
                "target": jnp.clip(params.target, -BOUND, BOUND),
            },
            reward=reward,
            cost=jnp.zeros((0,), state.field.dtype),
            terminated=state.over,
            truncated=jnp.zeros((), bool),
            info={
                "error": jnp.mean((state.field - params.target) ** 2),
                "time": state.time,
                "reached": state.reached,
                "diverged": state.diverged,
            },
        )

    def observation_space(self, params: ControlParams) -> Tree:
        dtype = str(params.initial.dtype)
        box = Box(-BOUND, BOUND, (self.points,), dtype)
        return Tree({"field": box, "target": box})

    def action_space(self, params: ControlParams) -> Box:
        return Box(-1.0, 1.0, (self.actuators,), str(params.initial.dtype))

    def render(self, state: ControlState, params: ControlParams) -> np.ndarray:
        """The field (light) and the target (green) over the domain; uint8 `[128, 256, 3]`."""
        height, width = 128, 256
        picture = np.full((height, width, 3), 20, np.uint8)
        target, field = np.asarray(params.target), np.asarray(state.field)
        reach = 1.1 * max(np.abs(field).max(), np.abs(target).max(), 1e-3)
        place = np.linspace(0, self.points - 1, width)
        for values, colour in ((target, (90, 170, 90)), (field, (230, 230, 255))):
            curve = np.interp(place, np.arange(self.points), values)
            rows = np.clip((1 - curve / reach) / 2 * (height - 1), 1, height - 2).round()
            for column, row in enumerate(rows.astype(int)):
                picture[row - 1 : row + 2, column] = colour
        return picture
