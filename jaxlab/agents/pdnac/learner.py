"""The primal-dual natural actor-critic as a learner: one transition a step.

Xu, Ganesh, Mondal, Bai and Aggarwal, "Global convergence for average reward constrained MDPs
with primal-dual actor critic algorithm", 2025, arXiv:2505.15138. Updates have random lengths;
as a state machine that makes one transition in every step, runs of many seeds waste none.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from jaxlab.agents.pdnac import duals, levels
from jaxlab.agents.pdnac.config import Hyper, PDNACConfig, hyper_arrays
from jaxlab.agents.pdnac.policies import Critic, Policy
from jaxlab.agents.pdnac.state import Averages, Counters, Dual, Inner, PDNACState
from jaxlab.agents.pdnac.steps import check_steps
from jaxlab.core.environment import Env, TimeStep, select
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner import Learner, Metrics, last, mean, record, total

PyTree = Any
#: `(timestep, params)` to what a step leaves of the bounds, `[m]`: averages are to be >= 0.
Slack = Callable[[TimeStep, Any], jax.Array]
#: `(theta, params)` to exact averages of reward and slacks, `[1 + m]`.
Evaluate = Callable[[jax.Array, Any], jax.Array]


def make(
    env: Env,
    policy: Policy,
    critic: Critic,
    slack: Slack,
    config: PDNACConfig | None = None,
    hyper: Hyper | None = None,
    *,
    params: PyTree = None,
    evaluate: Evaluate | None = None,
) -> Learner:
    """Build a learner for a continuing environment with cost signals.

    Episodes that end must be begun again by a wrapper; averages are over all transitions.

    Args:
      env: The environment.
      policy: See `policies`.
      critic: See `policies`.
      slack: Measures a step against the bounds, which belong to the environment.
      config: Shapes and switches.
      hyper: The numbers, those of a sweep too: checked here, and what `init` takes for None.
      params: The task that all runs share; by default each run draws its own.
      evaluate: Exact averages of a policy, taken every `config.evaluate_every` steps.

    Returns:
      A learner. Metrics: `reward` and `slack [m]` (averages over the transitions),
      `multipliers [m]`, `outer_steps`, `env_steps`; the record `multiplier`; with `evaluate`
      also `gains [1 + m]` (mean of the evaluations; NaN without one) and `average_gains`
      (over the run so far).

    Raises:
      ConfigError: A number is out of range, or a step size diverges; see `steps.check_steps`.

    Warns:
      RuntimeWarning: The estimator's noise may make an inner loop diverge.
    """
    config = config or PDNACConfig()
    if env.num_agents is not None:
        raise ConfigError(f"{env.name} has {env.num_agents} agents; pdnac is for one")
    check_steps(
        config,
        hyper or Hyper(),
        feature_bound=critic.feature_bound or 1.0,
        score_bound=policy.score_bound or 2**0.5,
    )
    built = _PDNAC(env, policy, critic, slack, config, hyper, params, evaluate)
    return Learner(built.init, built.step, lambda state, obs, key: policy.mode(state.theta, obs))


@dataclasses.dataclass(frozen=True, eq=False)
class _PDNAC:
    env: Env
    policy: Policy
    critic: Critic
    slack: Slack
    config: PDNACConfig
    hyper: Hyper | None
    shared: PyTree
    evaluate: Evaluate | None

    def init(self, key: jax.Array, hyper: Hyper | None) -> PDNACState:
        keys = jax.random.split(key, 5)
        hyper = hyper_arrays(hyper if hyper is not None else self.hyper)
        dtype = hyper.alpha.dtype
        params = self.env.sample_params(keys[0]) if self.shared is None else self.shared
        env_state, timestep = self.env.reset(keys[1], params)
        theta = self.policy.init(keys[2]).astype(dtype)
        signals = 1 + self.slack(timestep, params).shape[0]
        weights = self.critic.init(keys[3]).astype(dtype)
        inner = Inner(
            jnp.zeros(signals, dtype),
            jnp.tile(weights, (signals, 1)),
            jnp.zeros((signals, theta.size), dtype),
        )
        zero, none = jnp.zeros((), jnp.int32), jnp.zeros(signals - 1, dtype)
        occupancy = None
        if self.policy.row is not None:
            occupancy = jnp.zeros_like(self.policy.row(theta, timestep.obs))
        return PDNACState(
            key=keys[4],
            hyper=hyper,
            params=params if self.shared is None else None,
            env_state=env_state,
            obs=timestep.obs,
            theta=theta,
            inner=inner,
            sums=jax.tree.map(jnp.zeros_like, inner),
            counters=Counters(zero, zero, zero, jnp.zeros((), bool), zero),
            dual=Dual(none, none, none),
            averages=Averages(
                theta if self.config.keep_random_iterate else None,
                occupancy,
                None if self.evaluate is None else jnp.zeros(signals, dtype),
                jnp.zeros((), dtype),
            ),
        )

    def step(self, state: PDNACState, t: jax.Array) -> tuple[PDNACState, Metrics]:
        params = state.params if self.shared is None else self.shared
        action_key, env_key, level_key, keep_key = jax.random.split(
            jax.random.fold_in(state.key, t), 4
        )
        state, evaluated = self._evaluated(state, params, t)
        action = self.policy.sample(state.theta, state.obs, action_key)
        env_state, timestep = self.env.step(env_key, state.env_state, action, params)
        dtype = state.theta.dtype
        slack = self.slack(timestep, params).astype(dtype)
        signals = jnp.concatenate([timestep.reward.astype(dtype)[None], slack])
        drawn = levels.draw_level(level_key, self.config)
        counters = state.counters
        level = jnp.where(counters.sample == 0, drawn, counters.level)
        state = dataclasses.replace(state, counters=dataclasses.replace(counters, level=level))
        new = self._advance(state, action, signals, timestep.obs)
        new = dataclasses.replace(
            new,
            env_state=env_state,
            obs=timestep.obs,
            averages=self._averaged(state, new, keep_key),
        )
        metrics = {
            "reward": mean(signals[0]),
            "slack": mean(slack),
            "multipliers": last(new.dual.multipliers),
            "outer_steps": last(new.counters.outer),
            "env_steps": total(jnp.ones((), jnp.int32)),
            "multiplier": record(new.dual.multipliers),
        }
        return new, metrics | evaluated

    def _evaluated(
        self, state: PDNACState, params: PyTree, t: jax.Array
    ) -> tuple[PDNACState, dict[str, Any]]:
        """Add exact averages of the policy at evenly spaced steps."""
        if self.evaluate is None:
            return state, {}
        due = t % self.config.evaluate_every == 0
        skipped = jnp.zeros_like(state.averages.gains)
        found = jax.lax.cond(
            due,
            lambda: self.evaluate(state.theta, params).astype(skipped.dtype),  # type: ignore[misc]
            lambda: skipped,
        )
        averages = dataclasses.replace(
            state.averages,
            gains=state.averages.gains + found,
            evaluations=state.averages.evaluations + due,
        )
        metrics = {
            "gains": mean(found, due),
            "average_gains": last(averages.gains / averages.evaluations),
        }
        return dataclasses.replace(state, averages=averages), metrics

    def _advance(
        self, state: PDNACState, action: PyTree, signals: jax.Array, obs: PyTree
    ) -> PDNACState:
        """Count one transition in; finish the update, the phase, the outer step it completes."""
        counters, config, hyper = state.counters, self.config, state.hyper
        weight = levels.weight(counters.sample, counters.level, config, signals.dtype)
        added = self.direction(state, action, signals, obs)
        # Only the sums of the current phase count.
        critic_weight = jnp.where(counters.natural, 0.0, weight)
        sums = Inner(
            state.sums.gains + critic_weight * added.gains,
            state.sums.critic + critic_weight * added.critic,
            state.sums.direction + jnp.where(counters.natural, weight, 0.0) * added.direction,
        )
        done = counters.sample + 1 == levels.length(counters.level, config)
        critic_step = jnp.where(done, hyper.gamma_critic, 0.0)
        npg_step = jnp.where(done, hyper.gamma_npg, 0.0)
        inner = Inner(
            state.inner.gains - critic_step * sums.gains,
            state.inner.critic - critic_step * sums.critic,
            state.inner.direction - npg_step * sums.direction,
        )
        sums = jax.tree.map(lambda leaf: jnp.where(done, 0.0, leaf), sums)
        updates = counters.update + done
        steps = jnp.where(counters.natural, config.npg_steps, config.critic_steps)
        phase_done = updates == steps
        outer = phase_done & counters.natural
        theta, dual, inner = self._outer(state, inner, outer)
        return dataclasses.replace(
            state,
            theta=theta,
            inner=inner,
            sums=sums,
            dual=dual,
            counters=Counters(
                sample=jnp.where(done, 0, counters.sample + 1),
                level=counters.level,
                update=jnp.where(phase_done, 0, updates),
                natural=counters.natural ^ phase_done,
                outer=counters.outer + outer,
            ),
        )

    def direction(
        self, state: PDNACState, action: PyTree, signals: jax.Array, obs: PyTree
    ) -> Inner:
        """What one transition contributes to the update of each part, signs as for descent."""
        inner, hyper = state.inner, state.hyper
        value = jax.vmap(self.critic.value, (0, None))
        gradients = jax.vmap(self.critic.gradient, (0, None))(inner.critic, state.obs)
        ahead = value(inner.critic, obs) - value(inner.critic, state.obs)
        surprise = signals - inner.gains + ahead
        score = self.policy.score(state.theta, state.obs, action)
        along = inner.direction @ score - surprise
        return Inner(
            hyper.gain_weight * (inner.gains - signals),
            -surprise[:, None] * gradients,
            along[:, None] * score,
        )

    def _outer(
        self, state: PDNACState, inner: Inner, outer: jax.Array
    ) -> tuple[jax.Array, Dual, Inner]:
        """Move policy and multipliers where an outer step is complete."""
        hyper, dual = state.hyper, state.dual
        slack = inner.gains[1:]
        natural = self._combined(inner.direction, dual.multipliers, slack, hyper)
        # A step of zero moves nothing, and costs less than a select of whole vectors.
        theta = state.theta + jnp.where(outer, hyper.alpha, 0.0) * natural
        moved = duals.move(dual, slack, hyper, self.config.dual)
        if self.config.method == "switching":
            moved = dual
        if self.config.reset:
            first = self.critic.init(jax.random.key(0)).astype(theta.dtype)
            fresh = Inner(
                jnp.zeros_like(inner.gains),
                jnp.broadcast_to(first, inner.critic.shape),
                jnp.zeros_like(inner.direction),
            )
            inner = select(outer, fresh, inner)
        return theta, select(outer, moved, dual), inner

    def _combined(
        self, direction: jax.Array, multipliers: jax.Array, slack: jax.Array, hyper: Hyper
    ) -> jax.Array:
        if self.config.method == "switching" and slack.size:
            chosen = jnp.where(jnp.min(slack) >= -hyper.tolerance, 0, 1 + jnp.argmin(slack))
            return direction[chosen]
        return direction[0] + multipliers @ direction[1:]

    def _averaged(self, before: PDNACState, after: PDNACState, key: jax.Array) -> Averages:
        averages = before.averages
        iterate, occupancy = averages.iterate, averages.occupancy
        if iterate is not None:
            # Reservoir sampling: the k-th policy replaces the one that is kept with chance 1/k.
            number = before.counters.outer + 1
            kept = jax.random.uniform(key, (), before.theta.dtype) * number < 1
            finished = after.counters.outer > before.counters.outer
            iterate = jnp.where(finished & kept, before.theta, iterate)
        if occupancy is not None:
            assert self.policy.row is not None
            occupancy = occupancy + self.policy.row(before.theta, before.obs)
        return dataclasses.replace(averages, iterate=iterate, occupancy=occupancy)


def averaged_policy(state: PDNACState) -> jax.Array:
    """The policy `[S, A]` whose occupation measure is the mean of those of all policies so far.

    Where no policy came it is uniform. Works on the state of one seed, or of many with a
    leading axis.

    Raises:
      ConfigError: The policy is no table.
    """
    occupancy = state.averages.occupancy
    if occupancy is None:
        raise ConfigError(
            "only tables have an averaged policy; sample `averages.iterate` in its place"
        )
    mass = jnp.sum(occupancy, -1, keepdims=True)
    uniform = jnp.full_like(occupancy, 1 / occupancy.shape[-1])
    return jnp.where(mass > 0, occupancy / jnp.where(mass > 0, mass, 1.0), uniform)
