"""Numbers that decide whether a scheme is stable, and the bounds they must keep.

Von Neumann analysis of the linear terms (LeVeque, "Finite Difference Methods for Ordinary
and Partial Differential Equations", 2007, chapters 9 and 10); the reaction by its steepest
decay, `-2 r` of `r (u - u^3)` and `-r` of `r u (1 - u)` at their stable states.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import ConfigError
from jaxlab.envs.pde.problems import Coefficients, Problem, Reaction, Scheme

_STEEPEST = {Reaction.NONE: 0.0, Reaction.BISTABLE: 2.0, Reaction.LOGISTIC: 1.0}
#: Largest `|lambda| dt` on the imaginary axis for which fourth-order Runge-Kutta is stable.
_RUNGE_KUTTA = 2.8
#: Rounding of a number that stands at its bound.
_SLACK = 1e-9


class StabilityNumber(NamedTuple):
    """A number, how it is written, the bound above which the scheme is unstable."""

    name: str
    formula: str
    value: Any
    bound: float


def stability_numbers(
    problem: Problem,
    scheme: Scheme,
    dx: Any,
    dt: Any,
    coefficients: Coefficients | None = None,
    amplitude: Any = 0.0,
) -> tuple[StabilityNumber, ...]:
    """All numbers that bound a scheme's step; none for the unconditional ones.

    Args:
      problem: The equation.
      scheme: One of its schemes.
      dx: Distance of neighbouring points.
      dt: Time step.
      coefficients: In place of the defaults.
      amplitude: A bound on |u|, which advection moves with.
    """
    c = problem.coefficients() if coefficients is None else coefficients
    reaction = dt * c.rate * _STEEPEST[problem.reaction]
    told = "2 r dt" if problem.reaction is Reaction.BISTABLE else "r dt"
    reacts = problem.reaction is not Reaction.NONE
    numbers = []
    if problem.name == "kuramoto_sivashinsky" or scheme is Scheme.ETDRK4:
        return _spectral(problem, scheme, dx, dt, c, amplitude)
    if scheme is Scheme.FTCS:
        s = c.diffusion * dt / dx**2
        numbers.append(StabilityNumber("diffusion number", "s = k dt / dx^2", s, 0.5))
        if reacts:
            both = 4 * s + reaction
            numbers.append(StabilityNumber("reaction number", f"4 s + {told}", both, 2.0))
    elif scheme is Scheme.IMEX and reacts:
        numbers.append(StabilityNumber("reaction number", told, reaction, 2.0))
    elif scheme is Scheme.LEAPFROG:
        numbers.append(StabilityNumber("Courant number", "c dt / dx", c.speed * dt / dx, 1.0))
    if problem.amplitude:
        numbers.append(
            StabilityNumber(
                "advection number",
                "max|u|^2 dt / (2 k)",
                amplitude**2 * dt / (2 * c.diffusion),
                1.0,
            )
        )
    return tuple(numbers)


def _spectral(
    problem: Problem, scheme: Scheme, dx: Any, dt: Any, c: Coefficients, amplitude: Any
) -> tuple[StabilityNumber, ...]:
    if scheme is Scheme.IMEX:
        # Modes of Kuramoto-Sivashinsky grow by at most k / 4; beyond, 1 - k dt / 4 changes sign.
        growth = StabilityNumber("growth number", "k dt / 4", c.diffusion * dt / 4, 1.0)
        moved = amplitude * dt / dx
        return growth, StabilityNumber("Courant number", "max|u| dt / dx", moved, 1.0)
    moved = amplitude * dt * np.pi / dx
    return (StabilityNumber("Courant number", "pi max|u| dt / dx", moved, _RUNGE_KUTTA),)


def check_stable(
    problem: Problem,
    scheme: Scheme,
    dx: float,
    dt: float,
    coefficients: Coefficients | None = None,
    amplitude: float = 0.0,
) -> None:
    """Refuse a scheme that does not apply, and a step beyond its stability bound.

    Raises:
      ConfigError: Names the number, its value, the bound and what to do.
    """
    scheme = applicable(problem, scheme)
    _check_coefficients(problem, coefficients)
    for name, formula, value, bound in stability_numbers(
        problem, scheme, dx, dt, coefficients, amplitude
    ):
        worst = float(np.max(np.asarray(value)))
        if not worst <= bound * (1 + _SLACK):
            raise ConfigError(
                f"{problem.name} by {scheme}: unstable, {name} {formula} = {worst:.4g}, expected "
                f"at most {bound:g}; take more time steps, fewer points or another scheme of "
                f"{', '.join(problem.schemes)}"
            )


def within_bounds(
    problem: Problem, scheme: Scheme, dx: Any, dt: Any, coefficients: Coefficients, amplitude: Any
) -> jax.Array:
    """Whether all numbers keep their bounds, bool, where values may be traced."""
    numbers = stability_numbers(problem, scheme, dx, dt, coefficients, amplitude)
    kept = [jnp.all(jnp.asarray(n.value) <= n.bound * (1 + _SLACK)) for n in numbers]
    return jnp.all(jnp.stack(kept)) if kept else jnp.ones((), bool)


def applicable(problem: Problem, scheme: Scheme | str) -> Scheme:
    """The scheme, if it applies to the problem.

    Raises:
      ConfigError: It does not, or is none.
    """
    if scheme not in problem.schemes:
        raise ConfigError(
            f"{problem.name}: scheme {str(scheme)!r} does not apply; expected one of "
            f"{', '.join(problem.schemes)}"
        )
    return Scheme(scheme)


def _check_coefficients(problem: Problem, coefficients: Coefficients | None) -> None:
    c = problem.coefficients() if coefficients is None else coefficients
    for name in ("diffusion", "rate", "speed"):
        values = np.asarray(getattr(c, name), float)
        if not (np.all(np.isfinite(values)) and np.all(values >= 0)):
            raise ConfigError(
                f"{problem.name}: {name} = {getattr(c, name)}, expected finite numbers >= 0"
            )
