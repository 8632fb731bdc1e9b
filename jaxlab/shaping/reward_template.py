"""What a designer of rewards fills in: a shaping reward, a prior over actions, a weight.

    total reward = environment's + weight(difficulty) * shaping

A `RewardTemplate` holds what was designed, to be read and stored; its arrays, a `Shaping`,
enter the compiled step, one for each candidate or stacked.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float

from jaxlab.core.errors import ConfigError
from jaxlab.shaping.feature_catalogue import FeatureCatalogue
from jaxlab.shaping.reward_language import parse_reward
from jaxlab.shaping.reward_program import (
    LENGTH,
    Op,
    RewardError,
    RewardFunction,
    RewardProgram,
    assemble,
)
from jaxlab.shaping.stack_machine import evaluate

#: Bounds of the shaping reward and of prior logits, and of the weights of a linear prior.
LARGEST_REWARD, LARGEST_LOGIT = 5.0, 3.0
#: What a difference of 1 in a potential pays: potentials stand for sums of rewards to come, so
#: that one within the bounds of a reward would otherwise be felt by nobody.
POTENTIAL_SCALE = 10.0
_FORMAT = 1


@struct.dataclass
class Shaping:
    """A filled template as arrays; stacked ones have leading axes.

    Attributes:
      reward: Program over the features of an agent.
      prior: Program over the features of an action.
      potential: Whether the reward is a potential, of which differences are paid
        (`POTENTIAL_SCALE` for one of 1), `[]`, bool.
      weight: Weight at difficulty 0 and at difficulty 1, `[2]`, float32.
    """

    reward: RewardProgram
    prior: RewardProgram
    potential: jax.Array | np.ndarray
    weight: jax.Array | np.ndarray


@dataclasses.dataclass(frozen=True)
class RewardTemplate:
    """A reward design.

    Attributes:
      reward: The shaping reward; None adds nothing.
      prior: Prior logit of an action; None prefers none.
      potential: Pay `POTENTIAL_SCALE` times discount * value(after) - value(before), which
        keeps the optimal policy, instead of value(after).
      weight: Of the shaping reward at difficulty 0 and at difficulty 1, linear between.
    """

    reward: RewardFunction | None = None
    prior: RewardFunction | None = None
    potential: bool = False
    weight: tuple[float, float] = (1.0, 1.0)

    def __post_init__(self) -> None:
        if not all(math.isfinite(w) and w >= 0 for w in self.weight):
            raise ConfigError(
                f"weight of the shaping reward {self.weight}: expected two numbers of 0 or more"
            )

    def arrays(self, length: int = LENGTH) -> Shaping:
        """The arrays, as numpy: programs of `length` instructions."""
        nothing = assemble([(Op.CONSTANT, 0.0)], 0, length)
        reward, prior = (
            nothing if f is None else f.program(length) for f in (self.reward, self.prior)
        )
        return Shaping(
            reward=reward,
            prior=prior,
            potential=np.array(self.potential),
            weight=np.array(self.weight, np.float32),
        )

    def to_json(self) -> dict[str, Any]:
        """JSON value, from which `from_json` reads the same template."""
        functions = {"reward": self.reward, "prior": self.prior}
        return {
            "format": _FORMAT,
            **{k: None if f is None else f.to_json() for k, f in functions.items()},
            "potential": self.potential,
            "weight": list(self.weight),
        }

    @classmethod
    def from_json(cls, document: Any) -> RewardTemplate:
        """Read what `to_json` wrote.

        Raises:
          RewardError: It is malformed, of another format, or was changed since.
        """
        if not isinstance(document, Mapping) or document.get("format") != _FORMAT:
            raise RewardError(f"reward template: expected format {_FORMAT}; design it anew")
        try:
            functions = [document[name] for name in ("reward", "prior")]
            low, high = document["weight"]
            weight, potential = (float(low), float(high)), document["potential"]
        except (KeyError, TypeError, ValueError) as error:
            raise RewardError(f"reward template: malformed ({error}); design it anew") from error
        if not isinstance(potential, bool):
            raise RewardError(f"reward template: potential is {potential!r:.40}, no truth value")
        reward, prior = (None if f is None else RewardFunction.from_json(f) for f in functions)
        return cls(reward, prior, potential, weight)


def difficulty_weight(shaping: Shaping, difficulty: Float[Array, ""] | float) -> Float[Array, ""]:
    """Weight of the shaping reward at a difficulty in [0, 1]."""
    weight = jnp.asarray(shaping.weight)
    share = jnp.clip(jnp.asarray(difficulty, weight.dtype), 0, 1)
    return weight[0] + (weight[1] - weight[0]) * share


def shaping_value(
    shaping: Shaping, features: Float[Array, "agents features"]
) -> Float[Array, " agents"]:
    """The program's value within +-`LARGEST_REWARD`: the reward, or the potential, of a state."""
    return jnp.clip(evaluate(shaping.reward, features), -LARGEST_REWARD, LARGEST_REWARD)


def potential_payment(before: Any, after: Any, discount: Any) -> Any:
    """What a potential pays for a step from one value to another, numpy or JAX."""
    return POTENTIAL_SCALE * (discount * after - before)


def shaping_reward(
    shaping: Shaping,
    before: Float[Array, "agents features"],
    after: Float[Array, "agents features"],
    discount: Float[Array, "*agents"] | float,
) -> Float[Array, " agents"]:
    """What is added for a step, before it is weighted.

    Args:
      shaping: The design.
      before, after: Features before the action and after the step.
      discount: Of the learner; 0 where the step ends the episode, so that potentials of
        terminal states do not count (Ng, Harada, Russell 1999; Grzes 2017).
    """
    value = shaping_value(shaping, after)
    factor = jnp.asarray(discount, value.dtype)
    paid = potential_payment(shaping_value(shaping, before), value, factor)
    return jnp.where(shaping.potential, paid, value)


def prior_logits(
    shaping: Shaping,
    features: Float[Array, "agents actions features"],
    legal: Bool[Array, "agents actions"],
) -> Float[Array, "agents actions"]:
    """Prior logits of the actions: mean 0 over the legal ones, within +-`LARGEST_LOGIT`.

    Logits beyond the bound are scaled as a whole, so they keep their mean and their order.
    Illegal actions have logit 0.
    """
    agents, actions, _ = features.shape
    flat = features.reshape(agents * actions, -1)
    value = jnp.where(legal, evaluate(shaping.prior, flat).reshape(agents, actions), 0)
    count = jnp.maximum(jnp.sum(legal, axis=1, keepdims=True), 1).astype(value.dtype)
    centred = jnp.where(legal, value - jnp.sum(value, axis=1, keepdims=True) / count, 0)
    largest = jnp.max(jnp.abs(centred), axis=1, keepdims=True)
    return centred * (LARGEST_LOGIT / jnp.maximum(largest, LARGEST_LOGIT))


def linear_prior(weights: Mapping[str, Any], catalogue: FeatureCatalogue) -> RewardFunction | None:
    """The prior that is a weighted sum of the features of an action; None if all are zero.

    Raises:
      RewardError: A name is no feature, or a weight is not within +-`LARGEST_LOGIT`.
    """
    for name, weight in weights.items():
        if name not in catalogue.names:
            raise RewardError(
                f"prior: '{name}' is no feature of an action; "
                f"there are {', '.join(catalogue.names)}"
            )
        number = isinstance(weight, int | float) and not isinstance(weight, bool)
        if not number or not abs(weight) <= LARGEST_LOGIT:
            raise RewardError(
                f"prior: the weight of {name} is {weight!r:.40}, expected a number within "
                f"+-{LARGEST_LOGIT:g}"
            )
    used = {name: float(w) for name, w in weights.items() if w}
    if not used:
        return None
    terms = " + ".join(f"{weight!r} * {name}" for name, weight in used.items())
    source = f"def prior({', '.join(used)}):\n    return {terms}\n"
    return parse_reward(source, catalogue, name="prior")
