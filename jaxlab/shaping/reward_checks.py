"""Tests that a reward must pass before anything is trained on it.

A bank of states covers the corners of the catalogue's ranges; recordings of scripted
policies tell whether the reward pays for what it should. All are evaluations of the
program on arrays, so no simulation is needed per candidate. What fails is said in
sentences that go into the next prompt.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxlab.core.errors import ConfigError
from jaxlab.shaping.feature_catalogue import FeatureCatalogue
from jaxlab.shaping.reward_program import RewardFunction
from jaxlab.shaping.reward_template import potential_payment
from jaxlab.shaping.stack_machine import evaluate

#: The policy that a reward must rank above the others.
BEST, WORSE = "max_pressure", ("random", "never_switch")


class Recording(NamedTuple):
    """What a scripted policy went through: features after each decision, and the rewards."""

    features: Float[np.ndarray, "steps agents features"]
    reward: Float[np.ndarray, "steps agents"]


@dataclasses.dataclass(frozen=True)
class CheckLimits:
    """What a reward is held against.

    Attributes:
      largest: Absolute value on any state of the bank.
      spread: Least standard deviation over the bank.
      tolerance: By how much a reward may move in the wrong direction.
      ratio: Least and largest mean |weight * reward| relative to the environment's.
      correlation: Least and largest correlation with the environment's reward.
      margin: By which the best policy must lead, relative to the spread of the bank.
    """

    largest: float = 5.0
    spread: float = 1e-3
    tolerance: float = 1e-5
    ratio: tuple[float, float] = (0.01, 10.0)
    correlation: tuple[float, float] = (0.0, 1.0)
    margin: float = 0.01


class Verdict(NamedTuple):
    """Outcome of the checks: sentences about what failed, and numbers for the record."""

    rejections: tuple[str, ...]
    statistics: dict[str, Any]

    @property
    def accepted(self) -> bool:
        return not self.rejections

    def text(self) -> str:
        """The rejections, one a line, for the next prompt."""
        return "\n".join(f"- {sentence}" for sentence in self.rejections)


def bank_of_states(
    catalogue: FeatureCatalogue, *, seed: int = 0, random: int = 256
) -> Float[np.ndarray, "states features"]:
    """States in the corners of the ranges and at random between them, float32.

    All lowest (an empty network), all highest (a jammed one), each feature alone at its
    highest and alone at its lowest, then uniform draws of which half are mostly extreme.
    """
    low, high = catalogue.bounds
    alone = np.eye(len(low), dtype=bool)
    corners = [low[None], high[None], np.where(alone, high, low), np.where(alone, low, high)]
    draws = np.random.default_rng(seed).uniform(-0.5, 1.5, (random, len(low)))
    draws[: random // 2] = draws[: random // 2] / 2 + 0.25
    states = np.concatenate([*corners, low + (high - low) * np.clip(draws, 0, 1)])
    return states.astype(np.float32)


def check_reward(
    function: RewardFunction,
    catalogue: FeatureCatalogue,
    *,
    recordings: Mapping[str, Recording] | None = None,
    weight: float = 1.0,
    potential: bool = False,
    discount: float = 0.95,
    limits: CheckLimits | None = None,
    seed: int = 0,
) -> Verdict:
    """Hold a reward against a bank of states and, where given, recordings of policies.

    Args:
      function: The reward.
      catalogue: Its features.
      recordings: Of `BEST` and `WORSE` at least, for the probes, the magnitude and the
        correlation.
      weight: The largest weight with which the reward will be added.
      potential: Whether it is used as a potential; magnitudes are then those of its
        discounted differences, and policies are ranked by the potential itself.
      discount: Of the potential's differences.
      limits: What is still acceptable.
      seed: Of the random states.

    Raises:
      ConfigError: The features differ from the catalogue, or a recording is missing.
    """
    limits = limits or CheckLimits()
    if function.features != catalogue.names:
        raise ConfigError(
            f"reward over {', '.join(function.features)}, catalogue of {', '.join(catalogue.names)}"
            ": expected the same features in the same order"
        )
    bank = bank_of_states(catalogue, seed=seed)
    rejections, statistics = _check_on_bank(function, catalogue, bank, limits)
    if recordings is not None and not rejections:
        values = {
            name: _values(function, r.features.reshape(-1, r.features.shape[-1])).reshape(
                r.features.shape[:-1]
            )
            for name, r in recordings.items()
        }
        scores = {name: float(value.mean()) for name, value in values.items()}
        spread = statistics["std"]
        rejections += probe_rejections(scores, margin=limits.margin * spread)
        statistics["scores"] = scores
        shaped = {
            name: potential_payment(value[:-1], value[1:], discount) if potential else value
            for name, value in values.items()
        }
        sizes = _size_rejections(shaped, values, recordings, weight, limits)
        rejections += sizes.rejections
        statistics |= sizes.statistics
    return Verdict(tuple(rejections), statistics)


@jax.jit
def _evaluated(program: Any, states: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Values and their gradients by the features of the own state."""
    total, gradient = jax.vjp(lambda x: evaluate(program, x), states)
    return total, gradient(jnp.ones_like(total))[0]


def _values(function: RewardFunction, states: np.ndarray) -> np.ndarray:
    return np.asarray(_evaluated(function.program(), jnp.asarray(states, jnp.float32))[0], float)


def _check_on_bank(
    function: RewardFunction,
    catalogue: FeatureCatalogue,
    bank: np.ndarray,
    limits: CheckLimits,
) -> tuple[list[str], dict[str, Any]]:
    value, gradient = _evaluated(function.program(), jnp.asarray(bank))
    statistics: dict[str, Any] = {
        "mean": float(value.mean()),
        "std": float(value.std()),
        "min": float(value.min()),
        "max": float(value.max()),
    }
    if value.dtype != bank.dtype or value.shape != bank.shape[:1]:
        return [f"the reward has dtype {value.dtype} and shape {value.shape}"], statistics
    if not (bool(jnp.isfinite(value).all()) and bool(jnp.isfinite(gradient).all())):
        return ["the reward or its gradient is not finite on some states; simplify it"], statistics
    rejections = []
    values = np.asarray(value, float)
    worst = int(np.abs(values).argmax())
    if abs(values[worst]) > limits.largest:
        rejections.append(
            f"the reward reaches {values[worst]:.3g} at {_state(function, bank[worst])}; keep it "
            f"within +-{limits.largest:g}, with smaller factors, tanh or clip"
        )
    if values.std() < limits.spread:
        rejections.append(
            f"the reward is nearly constant: its standard deviation over a bank of states is "
            f"{values.std():.2g}, at least {limits.spread:g} is expected; let it depend on features"
        )
        return rejections, statistics
    order = np.random.default_rng(0).permutation(len(bank))
    if not np.allclose(_values(function, bank[order]), values[order], rtol=1e-5, atol=1e-6):
        rejections.append("the reward of an agent depends on the order of the agents")
    statistics["sensitivity"] = _sensitivity(function, catalogue, bank)
    rejections += _sign_rejections(function, catalogue, bank, values, limits.tolerance)
    return rejections, statistics


def _state(function: RewardFunction, row: np.ndarray) -> str:
    named = dict(zip(function.features, row, strict=True))
    return ", ".join(f"{name} = {named[name]:.3g}" for name in function.used) or "every state"


def _sensitivity(
    function: RewardFunction, catalogue: FeatureCatalogue, bank: np.ndarray
) -> dict[str, float]:
    """Mean absolute change of the reward when a feature goes from its lowest to its highest."""
    change = {}
    for name in function.used:
        column = catalogue.names.index(name)
        ends = []
        for end in catalogue.ranges[column]:
            states = bank.copy()
            states[:, column] = end
            ends.append(_values(function, states))
        change[name] = float(np.abs(ends[1] - ends[0]).mean())
    return change


def _sign_rejections(
    function: RewardFunction,
    catalogue: FeatureCatalogue,
    bank: np.ndarray,
    values: np.ndarray,
    tolerance: float,
) -> list[str]:
    """Making a feature worse everywhere must not raise the reward, by a little or by much."""
    rejections = []
    for column, (name, sign) in enumerate(zip(catalogue.names, catalogue.signs, strict=True)):
        if sign == 0 or name not in function.used:
            continue
        low, high = catalogue.ranges[column]
        for share in (0.1, 0.5):
            worse = bank.copy()
            worse[:, column] = np.clip(bank[:, column] - sign * share * (high - low), low, high)
            after = _values(function, worse)
            rise = after - values
            worst = int(rise.argmax())
            if rise[worst] > tolerance * max(1.0, np.abs(values).max()):
                kind = "more" if sign < 0 else "less"
                rejections.append(
                    f"{kind} {name} is worse, but {name} = {worse[worst, column]:.3g} instead of "
                    f"{bank[worst, column]:.3g} raises the reward from {values[worst]:.3g} to "
                    f"{after[worst]:.3g}, at {_state(function, bank[worst])}; the reward must not "
                    f"rise with {kind} {name}"
                )
                break
    return rejections


def probe_rejections(
    scores: Mapping[str, float],
    *,
    best: str = BEST,
    worse: Sequence[str] = WORSE,
    margin: float = 0.0,
) -> list[str]:
    """Whether mean rewards rank the policies as they should be.

    Args:
      scores: Mean reward of each scripted policy.
      best: The policy that must lead.
      worse: The policies that it must lead by more than `margin`.

    Raises:
      ConfigError: A score is missing.
    """
    if missing := [name for name in (best, *worse) if name not in scores]:
        raise ConfigError(f"probes of the reward: no score of {', '.join(missing)}; record it")
    # Written so that a NaN is a failure.
    if all(scores[best] - scores[name] > margin for name in worse):
        return []
    table = ", ".join(f"{name} {score:.4g}" for name, score in scores.items())
    return [
        f"the reward pays a poor policy as well as a good one: mean rewards are {table}; "
        f"{best.replace('_', ' ')} must be clearly above "
        f"{' and '.join(name.replace('_', ' ') for name in worse)}"
    ]


def _size_rejections(
    shaped: Mapping[str, np.ndarray],
    values: Mapping[str, np.ndarray],
    recordings: Mapping[str, Recording],
    weight: float,
    limits: CheckLimits,
) -> Verdict:
    """Magnitude and correlation relative to the environment's reward, over all recordings."""
    environment = np.concatenate([np.ravel(r.reward) for r in recordings.values()]).astype(float)
    added = np.concatenate([np.ravel(value) for value in shaped.values()])
    ratio = abs(weight) * np.abs(added).mean() / max(np.abs(environment).mean(), 1e-9)
    value = np.concatenate([np.ravel(v) for v in values.values()])
    deviations = value.std() * environment.std()
    centred = (value - value.mean()) * (environment - environment.mean())
    correlation = centred.mean() / deviations if deviations > 0 else 0.0
    statistics = {"ratio": float(ratio), "correlation": float(correlation)}
    rejections = []
    low, high = limits.ratio
    if not low <= ratio <= high:
        change = "larger" if ratio < low else "smaller"
        rejections.append(
            f"with weight {weight:g} the reward is {ratio:.3g} times the environment's on "
            f"recorded states, expected {low:g} to {high:g}; make it {change}"
        )
    low, high = limits.correlation
    if not low <= correlation <= high:
        rejections.append(
            f"the correlation of the reward with the environment's is {correlation:.2f}, expected "
            f"{low:g} to {high:g}; it pays for the wrong thing"
        )
    return Verdict(tuple(rejections), statistics)
