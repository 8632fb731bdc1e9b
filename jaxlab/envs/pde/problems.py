"""The equations, their coefficients, walls and random initial conditions.

The five problems of Bao, Boulle, Liu, Sarfati and Earls, "Text-Trained LLMs Can Zero-Shot
Extrapolate PDE Dynamics", arXiv 2509.06322, and two periodic ones of our own.
"""

from __future__ import annotations

import dataclasses
import enum
from typing import Any

from flax import struct

from jaxlab.core.errors import ConfigError


class Walls(enum.StrEnum):
    """What happens at the ends of the domain, and where the grid ends."""

    DIRICHLET = "dirichlet"
    """The value is held; the grid has the interior points."""
    NEUMANN = "neumann"
    """No flux, one-sided at the points next to the walls; the grid has the interior points."""
    GHOST = "ghost"
    """No flux by ghost points; the grid has the interior points and both walls."""
    PERIODIC = "periodic"
    """The ends are one point; the grid has it once, as its first."""


class Scheme(enum.StrEnum):
    """How time is stepped; `Problem.schemes` says which apply."""

    FTCS = "ftcs"
    """Forward in time, centred in space."""
    BTCS = "btcs"
    """Backward in time, centred in space: a tridiagonal solve a step."""
    IMEX = "imex"
    """Linear terms backward, reaction or advection forward in time."""
    LEAPFROG = "leapfrog"
    """Centred in time and space, from a Taylor step."""
    CRANK_NICOLSON = "crank_nicolson"
    """The mean of both times; of the wave equation as a system of displacement and velocity."""
    ETDRK4 = "etdrk4"
    """Fourth-order exponential Runge-Kutta on Fourier modes (Cox, Matthews 2002)."""


class Reaction(enum.StrEnum):
    """The local term, times `Coefficients.rate`."""

    NONE = "none"
    BISTABLE = "bistable"
    """u - u^3"""
    LOGISTIC = "logistic"
    """u (1 - u)"""


@struct.dataclass
class Coefficients:
    """Numbers of an equation, each `[]`; leaves of a pytree, so a sweep is a vmap.

    Attributes:
      diffusion: `k` of `k u_xx`, length^2 / time; of Kuramoto-Sivashinsky the factor of both
        linear terms.
      rate: Of the reaction, 1 / time; 0 without one.
      speed: `c` of the wave equation, length / time; 0 elsewhere.
    """

    diffusion: Any
    rate: Any
    speed: Any


@dataclasses.dataclass(frozen=True)
class Problem:
    """An equation on `[-length / 2, length / 2]`; static, so it may be an argument of `jax.jit`.

    Attributes:
      name: Its key in `PROBLEMS`.
      equation: How it is written.
      walls: Of coarse grids; references of Neumann problems use `Walls.GHOST`.
      diffusion, rate, speed: Default coefficients.
      draw: Bounds between which nodes of initial conditions are drawn.
      reference: Scheme of refined solutions.
      baselines: Schemes that forecast from a quantised state.
      schemes: All schemes that apply.
      wall_value: Held at Dirichlet walls.
      reaction: The local term.
      length: Of the domain.
      duration: Default time span.
      amplitude: A bound on |u| that advection meets, for references of periodic problems.
    """

    name: str
    equation: str
    walls: Walls
    draw: tuple[float, float]
    reference: Scheme
    baselines: tuple[Scheme, ...]
    schemes: tuple[Scheme, ...]
    diffusion: float = 0.0
    rate: float = 0.0
    speed: float = 0.0
    wall_value: float = 0.0
    reaction: Reaction = Reaction.NONE
    length: float = 2.0
    duration: float = 0.5
    amplitude: float = 0.0

    def coefficients(self, **changes: Any) -> Coefficients:
        """The default coefficients with changes, such as `diffusion=0.05`."""
        default = Coefficients(diffusion=self.diffusion, rate=self.rate, speed=self.speed)
        return dataclasses.replace(default, **changes)


_HEAT = (Scheme.FTCS, Scheme.BTCS, Scheme.CRANK_NICOLSON)
_PERIODIC = (Scheme.FTCS, Scheme.IMEX, Scheme.ETDRK4)

_ALL = (
    Problem(
        name="allen_cahn",
        equation="u_t = k u_xx + r (u - u^3), u = -1 at the walls",
        walls=Walls.DIRICHLET,
        wall_value=-1.0,
        diffusion=0.001,
        rate=2.0,
        reaction=Reaction.BISTABLE,
        draw=(-0.5, 0.5),
        reference=Scheme.FTCS,
        baselines=(Scheme.FTCS, Scheme.IMEX),
        schemes=(Scheme.FTCS, Scheme.IMEX),
    ),
    Problem(
        name="fisher_kpp",
        equation="u_t = k u_xx + r u (1 - u), u = 0 at the walls",
        walls=Walls.DIRICHLET,
        diffusion=0.002,
        rate=1.0,
        reaction=Reaction.LOGISTIC,
        draw=(0.3, 0.7),
        reference=Scheme.FTCS,
        baselines=(Scheme.FTCS, Scheme.IMEX),
        schemes=(Scheme.FTCS, Scheme.IMEX),
    ),
    Problem(
        name="heat_dirichlet",
        equation="u_t = k u_xx, u = 0 at the walls",
        walls=Walls.DIRICHLET,
        diffusion=0.01,
        draw=(-0.5, 0.5),
        reference=Scheme.BTCS,
        baselines=(Scheme.FTCS, Scheme.BTCS),
        schemes=_HEAT,
    ),
    Problem(
        name="heat_neumann",
        equation="u_t = k u_xx, u_x = 0 at the walls",
        walls=Walls.NEUMANN,
        diffusion=0.01,
        draw=(-0.5, 0.5),
        reference=Scheme.BTCS,
        baselines=(Scheme.FTCS, Scheme.BTCS),
        schemes=_HEAT,
    ),
    Problem(
        name="wave",
        equation="u_tt = c^2 u_xx, u_t = 0 at the start, u = 0 at the walls",
        walls=Walls.DIRICHLET,
        speed=0.2,
        draw=(-0.5, 0.5),
        reference=Scheme.LEAPFROG,
        baselines=(Scheme.LEAPFROG, Scheme.CRANK_NICOLSON),
        schemes=(Scheme.LEAPFROG, Scheme.CRANK_NICOLSON),
    ),
    Problem(
        name="burgers",
        equation="u_t = k u_xx - (u^2 / 2)_x, periodic",
        walls=Walls.PERIODIC,
        diffusion=0.02,
        draw=(-0.5, 0.5),
        reference=Scheme.ETDRK4,
        baselines=(Scheme.FTCS, Scheme.IMEX),
        schemes=_PERIODIC,
        amplitude=1.0,
    ),
    Problem(
        name="kuramoto_sivashinsky",
        equation="u_t = -k (u_xx + u_xxxx) - (u^2 / 2)_x, periodic",
        walls=Walls.PERIODIC,
        diffusion=1.0,
        draw=(-0.5, 0.5),
        reference=Scheme.ETDRK4,
        baselines=(Scheme.IMEX,),
        schemes=(Scheme.IMEX, Scheme.ETDRK4),
        length=22.0,
        duration=10.0,
        amplitude=4.0,
    ),
)
#: The problems by name.
PROBLEMS = {problem.name: problem for problem in _ALL}


def problem(name: str) -> Problem:
    """A problem by its name.

    Raises:
      ConfigError: There is none of that name.
    """
    if name not in PROBLEMS:
        raise ConfigError(f"problem {name!r}: expected one of {', '.join(PROBLEMS)}")
    return PROBLEMS[name]
