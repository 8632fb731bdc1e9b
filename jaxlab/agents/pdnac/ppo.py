"""A baseline: clipped policy optimisation with multipliers, for average reward.

After Schulman et al., "Proximal policy optimization algorithms", 2017, with multipliers as in
Ray, Achiam and Amodei, "Benchmarking safe exploration in deep reinforcement learning", 2019,
and advantages of average reward in place of discounted ones (Zhang and Ross, "On-policy deep
reinforcement learning for the average-reward criterion", 2021).
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float

from jaxlab.agents.pdnac import duals
from jaxlab.agents.pdnac.config import Hyper, check_numbers, hyper_arrays
from jaxlab.agents.pdnac.learner import Evaluate, Slack
from jaxlab.agents.pdnac.policies import Critic, Policy
from jaxlab.agents.pdnac.state import Dual
from jaxlab.core.environment import Env
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner, Metrics, last, mean, record, total

PyTree = Any


@dataclasses.dataclass(frozen=True)
class PPOLagrangianConfig:
    """Shapes and switches.

    Attributes:
      rollout: Transitions of an iteration.
      epochs: Gradient steps on them.
      clip: How far the ratio of probabilities may go from one.
      trace: Decay of errors in advantages, `lambda` of generalised advantage estimation.
      learning_rate: Of Adam, for policy and critic.
      tracking: How fast averages follow those of the last rollout.
    """

    rollout: int = 640
    epochs: int = 10
    clip: float = 0.2
    trace: float = 0.9
    learning_rate: float = 0.02
    tracking: float = 0.5

    def __post_init__(self) -> None:
        for field in ("rollout", "epochs"):
            if getattr(self, field) < 1:
                raise ConfigError(f"{field} is {getattr(self, field)}, expected at least 1")
        for field in ("clip", "trace", "learning_rate", "tracking"):
            if not 0 < getattr(self, field) <= 1:
                raise ConfigError(f"{field} is {getattr(self, field)}, expected in (0, 1]")


@struct.dataclass
class PPOState:
    """One run; see `state.PDNACState` for the fields that are alike."""

    key: jax.Array
    hyper: Hyper
    params: PyTree
    env_state: PyTree
    obs: PyTree
    theta: Float[Array, " p"]
    critic: Float[Array, "g d"]
    optimiser: PyTree
    gains: Float[Array, " g"]
    dual: Dual
    evaluated: Float[Array, " g"]
    iterations: Float[Array, ""]


@struct.dataclass
class _Batch:
    """Transitions of a rollout, `[n, ...]`."""

    obs: PyTree
    action: PyTree
    signals: Float[Array, "n g"]
    following: PyTree
    log_prob: Float[Array, " n"]


def make_ppo_lagrangian(
    env: Env,
    policy: Policy,
    critic: Critic,
    slack: Slack,
    config: PPOLagrangianConfig | None = None,
    hyper: Hyper | None = None,
    *,
    params: PyTree = None,
    evaluate: Evaluate | None = None,
) -> Learner:
    """Build the baseline; a step is one iteration. Arguments and metrics as for `learner.make`.

    Of `hyper` only `beta` and `slater_margin` count.

    Raises:
      ConfigError: A number is out of range.
    """
    check_numbers(hyper or Hyper())
    built = _PPO(
        env, policy, critic, slack, config or PPOLagrangianConfig(), hyper, params, evaluate
    )
    return Learner(built.init, built.step, lambda state, obs, key: policy.mode(state.theta, obs))


@dataclasses.dataclass(frozen=True, eq=False)
class _PPO:
    env: Env
    policy: Policy
    critic: Critic
    slack: Slack
    config: PPOLagrangianConfig
    hyper: Hyper | None
    shared: PyTree
    evaluate: Evaluate | None

    @property
    def optimiser(self) -> optax.GradientTransformation:
        return optax.adam(self.config.learning_rate)

    def init(self, key: jax.Array, hyper: Hyper | None) -> PPOState:
        keys = jax.random.split(key, 5)
        hyper = hyper_arrays(hyper if hyper is not None else self.hyper)
        dtype = hyper.beta.dtype
        params = self.env.sample_params(keys[0]) if self.shared is None else self.shared
        env_state, timestep = self.env.reset(keys[1], params)
        theta = self.policy.init(keys[2]).astype(dtype)
        signals = 1 + self.slack(timestep, params).shape[0]
        critic = jnp.tile(self.critic.init(keys[3]).astype(dtype), (signals, 1))
        none = jnp.zeros(signals - 1, dtype)
        return PPOState(
            key=keys[4],
            hyper=hyper,
            params=params if self.shared is None else None,
            env_state=env_state,
            obs=timestep.obs,
            theta=theta,
            critic=critic,
            optimiser=self.optimiser.init((theta, critic)),
            gains=jnp.zeros(signals, dtype),
            dual=Dual(none, none, none),
            evaluated=jnp.zeros(signals, dtype),
            iterations=jnp.zeros((), dtype),
        )

    def step(self, state: PPOState, t: jax.Array) -> tuple[PPOState, Metrics]:
        params = state.params if self.shared is None else self.shared
        key = jax.random.fold_in(state.key, t)
        evaluated = {}
        if self.evaluate is not None:
            gains = self.evaluate(state.theta, params).astype(state.theta.dtype)
            state = dataclasses.replace(
                state, evaluated=state.evaluated + gains, iterations=state.iterations + 1
            )
            average = last(state.evaluated / state.iterations)
            evaluated = {"gains": mean(gains), "average_gains": average}
        (env_state, obs), batch = self._rollout(state, params, key)
        averages = jnp.mean(batch.signals, 0)
        rate = jnp.where(t == 0, 1.0, self.config.tracking).astype(averages.dtype)
        gains = state.gains + rate * (averages - state.gains)
        theta, critic, optimiser = self._improved(state, batch, gains)
        dual = duals.move(state.dual, averages[1:], state.hyper, "projected")
        new = dataclasses.replace(
            state,
            env_state=env_state,
            obs=obs,
            theta=theta,
            critic=critic,
            optimiser=optimiser,
            gains=gains,
            dual=dual,
        )
        return new, {
            "reward": mean(averages[0]),
            "slack": mean(averages[1:]),
            "multipliers": last(dual.multipliers),
            "env_steps": total(jnp.full((), self.config.rollout, jnp.int32)),
            "multiplier": record(dual.multipliers),
            **evaluated,
        }

    def _rollout(
        self, state: PPOState, params: PyTree, key: jax.Array
    ) -> tuple[tuple[PyTree, PyTree], _Batch]:
        def move(carry: tuple[PyTree, PyTree], n: jax.Array) -> Any:
            env_state, obs = carry
            act, go = jax.random.split(jax.random.fold_in(key, n))
            action = self.policy.sample(state.theta, obs, act)
            env_state, timestep = self.env.step(go, env_state, action, params)
            slack = self.slack(timestep, params)
            signals = jnp.concatenate([timestep.reward[None], slack]).astype(state.theta.dtype)
            log_prob = self.policy.log_prob(state.theta, obs, action)
            return (env_state, timestep.obs), _Batch(obs, action, signals, timestep.obs, log_prob)

        steps = jnp.arange(self.config.rollout, dtype=jnp.int32)
        return jax.lax.scan(move, (state.env_state, state.obs), steps)

    def _improved(
        self, state: PPOState, batch: _Batch, gains: jax.Array
    ) -> tuple[jax.Array, jax.Array, PyTree]:
        """Parameters after the epochs on one rollout."""
        now, following = self._values(state.critic, batch)
        errors = batch.signals - gains + following - now

        def backward(after: jax.Array, error: jax.Array) -> tuple[jax.Array, jax.Array]:
            advantage = error + self.config.trace * after
            return advantage, advantage

        _, advantages = jax.lax.scan(backward, jnp.zeros_like(gains), errors, reverse=True)
        targets = now + advantages
        targets = targets - jnp.mean(targets, 0)
        weights = jnp.concatenate([jnp.ones_like(gains[:1]), state.dual.multipliers])
        combined = advantages @ weights / jnp.sum(weights)
        combined = (combined - jnp.mean(combined)) / (jnp.std(combined) + 1e-6)

        def loss(parameters: tuple[jax.Array, jax.Array]) -> jax.Array:
            theta, critic = parameters
            log_prob = jax.vmap(self.policy.log_prob, (None, 0, 0))(theta, batch.obs, batch.action)
            ratio = jnp.exp(log_prob - batch.log_prob)
            clipped = jnp.clip(ratio, 1 - self.config.clip, 1 + self.config.clip)
            gain = jnp.mean(jnp.minimum(ratio * combined, clipped * combined))
            return jnp.mean((self._values(critic, batch)[0] - targets) ** 2) - gain

        def epoch(carry: Any, _: None) -> tuple[Any, None]:
            parameters, optimiser = carry
            updates, optimiser = self.optimiser.update(jax.grad(loss)(parameters), optimiser)
            return (optax.apply_updates(parameters, updates), optimiser), None

        carry = ((state.theta, state.critic), state.optimiser)
        (parameters, optimiser), _ = jax.lax.scan(epoch, carry, None, self.config.epochs)
        return *parameters, optimiser

    def _values(self, critic: jax.Array, batch: _Batch) -> tuple[jax.Array, jax.Array]:
        """Relative values before and after each transition, `[n, g]`."""
        value = jax.vmap(jax.vmap(self.critic.value, (0, None)), (None, 0))
        return value(critic, batch.obs), value(critic, batch.following)
