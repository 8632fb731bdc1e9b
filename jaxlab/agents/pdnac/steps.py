"""Step sizes: those of the theory, and those at which the inner loops are stable.

Theory after Xu, Ganesh, Mondal, Bai and Aggarwal, "Global convergence for average reward
constrained MDPs with primal-dual actor critic algorithm", 2025, arXiv:2505.15138.
"""

from __future__ import annotations

import dataclasses
import math
import warnings
from typing import NamedTuple

import numpy as np

from jaxlab.agents.pdnac.config import Hyper, PDNACConfig, check_numbers
from jaxlab.core.errors import ConfigError


class Theory(NamedTuple):
    """What the theory prescribes for a number of transitions.

    Attributes:
      config: Inner steps and truncation.
      hyper: Step sizes.
      outer_steps: `K`.
      least_horizon: Transitions from which the guarantee holds, up to logarithms.
      known: Whether the mixing time was used.
    """

    config: PDNACConfig
    hyper: Hyper
    outer_steps: float
    least_horizon: float
    known: bool


def theory(
    horizon: float,
    *,
    mixing_time: float,
    epsilon: float | None = None,
    critic_curvature: float = 0.1,
    fisher_curvature: float = 0.1,
    slater_margin: float = 0.1,
    most_level: int = 1024,
) -> Theory:
    """Sizes and steps as in the paper, at equal numbers of transitions.

    Args:
      horizon: Transitions `T`.
      mixing_time: Of the slowest policy; with `epsilon` it only says from which horizon on the
        guarantee holds.
      epsilon: Without a known mixing time: `H = T^epsilon`.
      critic_curvature: `lambda_c`: least eigenvalue of the critic's matrix.
      fisher_curvature: `mu`: least eigenvalue of the Fisher matrix.
      slater_margin: `delta`.
      most_level: `t_max`, a power of two; it is lowered to the horizon.

    Warns:
      RuntimeWarning: The horizon is too short for the guarantee.

    Raises:
      ConfigError: A number is out of range.
    """
    if horizon < 2 or mixing_time < 1 or (epsilon is not None and not 0 < epsilon < 0.5):
        raise ConfigError(
            f"horizon {horizon}, mixing time {mixing_time}, epsilon {epsilon}: expected at least "
            "2, at least 1, and between 0 and 1/2"
        )
    known = epsilon is None
    inner = mixing_time**2 if epsilon is None else horizon**epsilon
    least = mixing_time**2 if epsilon is None else mixing_time ** (2 / epsilon)
    updates = max(1, round(inner))
    if horizon < least:
        warnings.warn(
            f"{horizon:g} transitions are too few for the guarantee with mixing time "
            f"{mixing_time:g}: it holds from about {least:.3g} on",
            RuntimeWarning,
            stacklevel=2,
        )
    level = 1 << (int(min(most_level, horizon)).bit_length() - 1)
    config = PDNACConfig(critic_steps=updates, npg_steps=updates, t_max=level, reset=True)
    step = horizon**-0.5
    gain_weight = critic_curvature + math.sqrt(max(1 / critic_curvature**2 - 1, 0.0))
    hyper = Hyper(
        alpha=step,
        beta=step,
        gamma_critic=2 * math.log(horizon) / (critic_curvature * updates),
        gamma_npg=2 * math.log(horizon) / (fisher_curvature * updates),
        gain_weight=gain_weight,
        slater_margin=slater_margin,
    )
    return Theory(config, hyper, horizon / config.outer_samples, least, known)


class Stable(NamedTuple):
    """Bounds on the inner step sizes.

    Attributes:
      critic, npg: Above these an inner loop diverges even with exact directions.
      noisy_critic, noisy_npg: Above these the noise of the estimator may make it diverge.
    """

    critic: float
    npg: float
    noisy_critic: float
    noisy_npg: float


def stable_steps(
    config: PDNACConfig,
    gain_weight: float = 1.0,
    *,
    feature_bound: float = 1.0,
    score_bound: float = math.sqrt(2.0),
) -> Stable:
    """Step sizes at which the inner loops are stable.

    The direction of a transition is linear with a matrix of norm at most `L`: the larger of
    `c_gamma` and `2 |phi|^2` for the critic, `|score|^2` for the natural gradient. Exact
    directions diverge above `2 / L`. Multilevel Monte Carlo multiplies differences by up to
    `t_max`: its second moment is `1 + J / batch` times that of a batch, which divides the step
    that noise allows.

    Args:
      config: The estimator.
      gain_weight: `c_gamma`.
      feature_bound: Largest norm of the critic's features.
      score_bound: Largest norm of a score.
    """
    critic = max(gain_weight, 2 * feature_bound**2)
    noise = 1 + config.levels / config.batch
    npg = score_bound**2
    return Stable(2 / critic, 2 / npg, 1 / (critic * noise), 1 / (npg * noise))


def check_steps(
    config: PDNACConfig, hyper: Hyper, *, feature_bound: float = 1.0, score_bound: float = 2**0.5
) -> None:
    """Refuse step sizes that diverge, warn of those that noise may make diverge.

    Args:
      config: The estimator.
      hyper: The numbers; leaves may be arrays of a sweep.
      feature_bound, score_bound: See `stable_steps`.

    Warns:
      RuntimeWarning: A step is above what the estimator's noise allows.

    Raises:
      ConfigError: A step is above what exact directions allow.
    """
    check_numbers(hyper)
    limits = stable_steps(
        config,
        float(np.max(hyper.gain_weight)),
        feature_bound=feature_bound,
        score_bound=score_bound,
    )
    for name, most, noisy in (
        ("gamma_critic", limits.critic, limits.noisy_critic),
        ("gamma_npg", limits.npg, limits.noisy_npg),
    ):
        value = float(np.max(np.asarray(getattr(hyper, name))))
        if value > most:
            raise ConfigError(
                f"{name} {value:.4g} diverges even with exact directions: expected at most "
                f"{most:.4g}, and {noisy:.3g} with the noise of this estimator"
            )
        if value > noisy:
            warnings.warn(
                f"{name} {value:.4g} is above {noisy:.3g}, where the noise of the estimator "
                f"{config.estimator!r} may make the inner loop diverge",
                RuntimeWarning,
                stacklevel=3,
            )


def comparison(theory: Theory, config: PDNACConfig, hyper: Hyper) -> list[list[str]]:
    """Rows `name, theory, in use, stable up to` for a table."""
    limits = stable_steps(config, float(np.max(hyper.gain_weight)))
    stable = {"gamma_critic": limits.noisy_critic, "gamma_npg": limits.noisy_npg}
    rows = [
        [name, str(getattr(theory.config, name)), str(getattr(config, name)), "-"]
        for name in ("critic_steps", "npg_steps", "t_max", "reset")
    ]
    for field in dataclasses.fields(Hyper):
        if field.name in ("alpha", "beta", "gamma_critic", "gamma_npg", "gain_weight"):
            values = [float(np.max(getattr(h, field.name))) for h in (theory.hyper, hyper)]
            limit = f"{stable[field.name]:.3g}" if field.name in stable else "-"
            rows.append([field.name, *(f"{value:.4g}" for value in values), limit])
    return rows
