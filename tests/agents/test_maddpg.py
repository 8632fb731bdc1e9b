"""What one step of the MADDPG learner does: collection, replay, masks, schedules, purity."""

import dataclasses
import functools
import subprocess
import sys
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxlab.agents import maddpg
from jaxlab.agents.maddpg import Hyper, MADDPGConfig
from jaxlab.core import probes
from jaxlab.core.environment import Env, TimeStep
from jaxlab.core.errors import ConfigError
from jaxlab.core.spaces import Box, Discrete, Tree
from jaxlab.core.testing import check_learner
from jaxlab.core.wrappers import AutoReset, Tasks, TimeLimit


@struct.dataclass
class DialParams:
    start: jax.Array
    length: jax.Array


@struct.dataclass
class DialState:
    count: jax.Array
    action: jax.Array
    illegal: jax.Array
    over: jax.Array


@dataclasses.dataclass(frozen=True)
class Dial(Env):
    """Two agents; the observation tells the step, the last action and an illegal one.

    Step `k` pays agent i `start + k + 10 i`. The illegal action changes at random; taking
    one is counted. The episode terminates after `length` steps.
    """

    name: ClassVar[str] = "dial"

    @property
    def num_agents(self):
        return 2

    def sample_params(self, key):
        return DialParams(jnp.zeros((), jnp.float32), jnp.full((), 10**6, jnp.int32))

    def _look(self, state, reward, broken):
        seen = jnp.stack(
            [jnp.full((2,), state.count, jnp.float32), state.action.astype(jnp.float32)], -1
        )
        return TimeStep(
            obs={"seen": seen, "action_mask": jnp.arange(4) != state.illegal[:, None]},
            reward=reward,
            cost=jnp.zeros((0,), jnp.float32),
            terminated=jnp.broadcast_to(state.over, (2,)),
            truncated=jnp.zeros((), bool),
            info={"broken": broken},
        )

    def reset(self, key, params):
        illegal = jax.random.randint(key, (2,), 0, 4, jnp.int32)
        none = jnp.full((2,), -1, jnp.int32)
        state = DialState(jnp.zeros((), jnp.int32), none, illegal, jnp.zeros((), bool))
        return state, self._look(state, jnp.zeros((2,), jnp.float32), jnp.zeros((), jnp.int32))

    def step(self, key, state, action, params):
        broken = jnp.sum(action == state.illegal, dtype=jnp.int32)
        count = state.count + 1
        reward = params.start + count.astype(jnp.float32) + 10 * jnp.arange(2, dtype=jnp.float32)
        illegal = jax.random.randint(key, (2,), 0, 4, jnp.int32)
        state = DialState(count, action, illegal, count >= params.length)
        return state, self._look(state, reward, broken)

    def observation_space(self, params):
        mask = Box(0, 1, (2, 4), "bool")
        return Tree({"seen": Box(-1.0, np.inf, (2, 2)), "action_mask": mask})

    def action_space(self, params):
        return Discrete(4, (2,))


SMALL = MADDPGConfig(
    num_envs=3,
    decisions=4,
    updates=4,
    batch_size=16,
    buffer_size=240,
    learning_starts=24,
    num_tasks=2,
    actor_hidden=(8,),
    critic_hidden=(8,),
)


def dial_tasks(starts, weights, length=10**6):
    """Tasks that differ in their pay."""
    lengths = jnp.full((len(starts),), length, jnp.int32)
    return Tasks(
        DialParams(jnp.array(starts, jnp.float32), lengths), jnp.array(weights, jnp.float32)
    )


@functools.cache
def dial(**changes):
    """Learner of small networks on the dial with a limit of five steps; init; several steps."""
    learner = maddpg.make(
        TimeLimit(Dial(), 5),
        dataclasses.replace(SMALL, **changes),
        episode_metrics=lambda info: {"broken": info["broken"]},
        prior=lambda obs, logits: jnp.broadcast_to(logits, (2, 4)),
        prior_params=jnp.arange(4, dtype=jnp.float32),
    )
    step = jax.jit(learner.step)

    def steps(state, start, count):
        metrics = []
        for t in range(start, start + count):
            state, measured = step(state, jnp.int32(t))
            metrics.append(measured)
        assert step._cache_size() == 1
        return state, jax.tree.map(lambda *x: jnp.stack(x), *metrics)

    return learner, jax.jit(learner.init), steps


def stored(state):
    """Transitions in the replay, `[written, ...]`."""
    replay = state.replay
    written = replay.experience.reward.shape[1] if replay.is_full else int(replay.current_index)
    return jax.tree.map(lambda x: np.asarray(x[0, :written]), replay.experience)


def key_free(tree):
    """Leaves with keys as their numbers."""
    return [
        jax.random.key_data(x) if jnp.issubdtype(x.dtype, jax.dtypes.prng_key) else x
        for x in jax.tree.leaves(tree)
    ]


def assert_same_bits(one, other):
    for a, b in zip(key_free(one), key_free(other), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.fixture(scope="module")
def collected():
    """State after ten steps on the dial with a limit of five steps."""
    _, init, steps = dial()
    return steps(init(jax.random.key(0), Hyper()), 0, 10)[0]


def test_contract():
    config = dataclasses.replace(
        SMALL, num_envs=2, updates=1, actor_hidden=(), critic_hidden=(4,), learning_starts=8
    )
    check_learner(maddpg.make(TimeLimit(Dial(), 5), config), Hyper(), steps=3)


def test_stored_action_is_the_executed_one(collected):
    data = stored(collected)
    assert len(data.action) == 120
    # The observation that followed tells which action the environment executed.
    np.testing.assert_array_equal(data.next_features[..., 1], data.action)


def test_no_masked_action_is_ever_taken(collected):
    data = stored(collected)
    assert np.all(np.take_along_axis(data.mask, data.action[..., None], -1))
    # All actions occur, so the mask and not chance kept illegal ones away.
    assert set(data.action.ravel()) == {0, 1, 2, 3}


def test_next_observation_belongs_to_the_same_episode(collected):
    data = stored(collected)
    np.testing.assert_array_equal(data.next_features[..., 0], data.features[..., 0] + 1)
    assert set(data.features[..., 0].ravel()) == {0, 1, 2, 3, 4}


def test_time_limit_bootstraps_and_termination_does_not(collected):
    data = stored(collected)
    np.testing.assert_array_equal(data.discount, np.float32(0.95))
    _, init, steps = dial()
    state = init(jax.random.key(0), Hyper())
    # The tasks hold from the second episode on.
    data = stored(
        steps(state.replace(tasks=dial_tasks([0.0, 0.0], [1.0, 1.0], length=3)), 0, 10)[0]
    )
    data = jax.tree.map(lambda x: x[15:], data)
    ends = data.next_features[..., 0] == 3
    assert ends.any()
    np.testing.assert_array_equal(data.discount, np.where(ends, 0, np.float32(0.95)))


def test_n_step_transitions_end_with_the_episode():
    _, init, steps = dial(n_step=3)
    data = stored(steps(init(jax.random.key(0), Hyper(gamma=0.5)), 0, 2)[0])
    first, after = data.features[..., 0], data.next_features[..., 0]
    length = (after - first).astype(int)
    assert set(length.ravel()) == {1, 2, 3}
    assert after.max() == 5
    offset = np.array([0, 10])
    sums = sum(
        np.where(ahead < length, 0.5**ahead * (first + 1 + ahead + offset), 0) for ahead in range(3)
    )
    np.testing.assert_allclose(data.reward, sums, rtol=1e-6)
    np.testing.assert_allclose(data.discount, 0.5**length)


def test_moments_are_those_of_everything_collected(collected):
    data = stored(collected)
    moments = collected.reward_moments
    np.testing.assert_allclose(moments.mean, data.reward.mean(0), rtol=1e-5)
    np.testing.assert_allclose(moments.variance, data.reward.var(0), rtol=1e-4)
    features = data.features.reshape(-1, 2)
    np.testing.assert_allclose(collected.feature_moments.mean, features.mean(0), rtol=1e-5)
    np.testing.assert_allclose(collected.feature_moments.variance, features.var(0), rtol=1e-4)


@pytest.mark.parametrize("normalise_rewards", ["none", "scale", "standardise"])
def test_sampled_rewards_are_normalised_per_agent(normalise_rewards):
    learner, init, steps = dial(n_step=3)
    state, _ = steps(init(jax.random.key(0), Hyper(gamma=0.5)), 0, 2)
    agent = learner.step.__self__
    config = dataclasses.replace(agent.config, normalise_rewards=normalise_rewards)
    agent = dataclasses.replace(agent, config=config)
    key = jax.random.key(5)
    raw = agent.replay.sample(state.replay, key).experience
    batch = agent._sample(state, key)
    mean, deviation = state.reward_moments.mean, np.sqrt(state.reward_moments.variance + 1e-4)
    expected = {
        "none": raw.reward,
        "scale": raw.reward / deviation,
        "standardise": (raw.reward - mean * raw.weight) / deviation,
    }[normalise_rewards]
    np.testing.assert_allclose(batch.reward, np.asarray(expected).T, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(np.argmax(batch.actions, -1), np.asarray(raw.action).T)


def test_act_is_greedy_and_legal_without_noise(collected):
    learner, _, _ = dial()
    act = jax.jit(learner.act)
    obs = jax.tree.map(lambda x: x[0], collected.obs)
    first = act(collected, obs, jax.random.key(0))
    for seed in range(1, 5):
        np.testing.assert_array_equal(act(collected, obs, jax.random.key(seed)), first)
    assert first.dtype == jnp.int32
    for forbidden in range(4):
        mask = jnp.arange(4) != forbidden
        masked = obs | {"action_mask": jnp.broadcast_to(mask, (2, 4))}
        assert np.all(np.asarray(act(collected, masked, jax.random.key(0))) != forbidden)
    only = obs | {"action_mask": jnp.eye(4, dtype=bool)[jnp.array([2, 1])]}
    np.testing.assert_array_equal(act(collected, only, jax.random.key(0)), [2, 1])


def test_episode_metrics():
    _, init, steps = dial()
    _, metrics = steps(init(jax.random.key(0), Hyper()), 0, 10)
    weight = np.asarray(metrics["episode_return"].weight)
    # Episodes of five steps in stretches of four decisions.
    np.testing.assert_array_equal(weight, [0, 3, 3, 3, 3, 0, 3, 3, 3, 3])
    ended = weight > 0
    np.testing.assert_allclose(metrics["episode_return"].value[ended], 15 + 5 * 10 / 2)
    np.testing.assert_allclose(metrics["episode_length"].value[ended], 5)
    np.testing.assert_array_equal(metrics["broken"].value, 0)
    np.testing.assert_array_equal(metrics["env_steps"].value, 12)


def test_no_update_before_learning_starts_and_actors_wait_their_turn():
    _, init, steps = dial(updates=1, actor_period=3, target_period=2)
    state = init(jax.random.key(0), Hyper(tau=1.0))
    start = state.networks
    state, metrics = steps(state, 0, 2)
    assert_same_bits(state.networks, start)
    assert np.all(np.asarray(metrics["critic_loss"].weight) == 0)
    moved = {"actor": [], "critic": [], "target_critic": []}
    for t in range(2, 8):
        before = state.networks
        state, _ = steps(state, t, 1)
        for name, moves in moved.items():
            pairs = zip(
                jax.tree.leaves(getattr(before, name)),
                jax.tree.leaves(getattr(state.networks, name)),
                strict=True,
            )
            moves.append(any(np.any(a != b) for a, b in pairs))
        if (t - 2) % 2 == 0:
            assert_same_bits(state.networks.critic, state.networks.target_critic)
            assert_same_bits(state.networks.actor, state.networks.target_actor)
    assert moved["critic"] == [True] * 6
    assert moved["actor"] == [True, False, False, True, False, False]
    assert moved["target_critic"] == [True, False, True, False, True, False]


def test_warm_up_explores_uniformly_whatever_the_policy():
    _, init, steps = dial()
    state = init(jax.random.key(0), Hyper(epsilon_start=0.0, epsilon_end=0.0))
    # An actor that would never leave action 0 by itself.
    actor = state.networks.actor
    bias = actor["params"]["MLP_0"]["Dense_1"]["bias"]
    actor["params"]["MLP_0"]["Dense_1"]["bias"] = bias + jnp.array([100.0, 0, 0, 0])
    state = state.replace(networks=state.networks.replace(actor=actor))
    data = stored(steps(state, 0, 10)[0])
    assert 0.05 < (data.action[:24] == 0).mean() < 0.5
    # Afterwards the policy alone decides; the mask forbids action 0 a quarter of the time.
    later = data.action[24:]
    assert np.all((later == 0) == data.mask[24:, :, 0])


def test_losses_do_not_leak_into_the_other_network():
    """With one learning rate at zero, only the other network moves."""
    for frozen, moving, hyper in (
        ("actor", "critic", Hyper(actor_learning_rate=0.0)),
        ("critic", "actor", Hyper(critic_learning_rate=0.0)),
    ):
        _, init, steps = dial()
        start = init(jax.random.key(0), hyper)
        state, _ = steps(start, 0, 4)
        before, after = start.networks, state.networks
        assert_same_bits(getattr(before, frozen), getattr(after, frozen))
        change = jax.tree.map(
            lambda a, b: jnp.max(jnp.abs(a - b)), getattr(before, moving), getattr(after, moving)
        )
        assert max(jax.tree.leaves(change)) > 0


def test_same_key_same_bits_and_another_key_others():
    _, init, steps = dial()
    first, second, other = (steps(init(jax.random.key(s), Hyper()), 0, 4)[0] for s in (0, 0, 1))
    assert_same_bits(first, second)
    kernels = [jax.tree.leaves(state.networks.actor)[-1] for state in (first, other)]
    assert np.any(kernels[0] != kernels[1])


def test_a_sweep_is_a_map_over_hyper():
    learner, init, steps = dial()
    rates = [1e-4, 1e-2]
    sweep = jax.tree.map(
        lambda *x: jnp.stack(x),
        *[jax.tree.map(jnp.float32, Hyper(critic_learning_rate=r)) for r in rates],
    )
    key = jax.random.key(0)
    state = jax.jit(jax.vmap(learner.init, (None, 0)))(key, sweep)
    step = jax.jit(jax.vmap(learner.step, (0, None)))
    for t in range(4):
        state, _ = step(state, jnp.int32(t))
    for index, rate in enumerate(rates):
        alone, _ = steps(init(key, Hyper(critic_learning_rate=rate)), 0, 4)
        for a, b in zip(
            jax.tree.leaves(alone.networks.critic),
            jax.tree.leaves(state.networks.critic),
            strict=True,
        ):
            np.testing.assert_allclose(a, b[index], rtol=1e-4, atol=1e-5)


def test_new_tasks_reach_the_episodes_that_begin_after_them():
    _, init, steps = dial()
    state, _ = steps(init(jax.random.key(0), Hyper()), 0, 1)
    state, _ = steps(state.replace(tasks=dial_tasks([100.0, 1000.0], [0.0, 1.0])), 1, 1)
    data = stored(state)
    start = data.reward[:, 0] - data.next_features[:, 0, 0]
    # Four decisions under the old tasks, the fifth ends the running episodes.
    np.testing.assert_array_equal(start.reshape(8, 3)[:5], 0)
    np.testing.assert_array_equal(start.reshape(8, 3)[5:], 1000)


def test_tasks_given_to_make():
    learner = maddpg.make(TimeLimit(Dial(), 5), SMALL, tasks=dial_tasks([7.0], [1.0]))
    state = jax.eval_shape(learner.init, jax.random.key(0), Hyper())
    assert state.tasks.params.start.shape == (1,)


def test_prior_sees_its_parameters_and_decays():
    _, init, steps = dial()
    state = init(jax.random.key(0), Hyper(prior_weight=2.0, prior_steps=48.0))
    state = state.replace(prior_params=jnp.array([5.0, 0, 0, 0], jnp.float32))
    state, metrics = steps(state, 0, 6)
    np.testing.assert_allclose(
        metrics["prior_weight"].value, [2.0, 1.5, 1.0, 0.5, 0.0, 0.0], atol=1e-6
    )
    np.testing.assert_array_equal(stored(state).prior[0], np.tile([5.0, 0, 0, 0], (2, 1)))


def test_networks_stay_in_32_bits_under_x64():
    with jax.enable_x64(True):
        env = TimeLimit(probes.CoordinationGrid(), 6)
        learner = maddpg.make(env, SMALL)
        state = jax.jit(learner.init)(jax.random.key(0), Hyper())
        step = jax.jit(learner.step)
        for t in range(3):
            state, metrics = step(state, jnp.int32(t))
        kinds = {leaf.dtype.name for leaf in jax.tree.leaves((state.networks, state.hyper))}
        assert kinds == {"float32", "int32"}
        assert np.isfinite(metrics["critic_loss"].value)
        assert step._cache_size() == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"num_envs": 0}, "num_envs is 0"),
        ({"critic_hidden": ()}, "critic_hidden is empty"),
        ({"buffer_size": 5}, "buffer_size is 5"),
        ({"critic_input": "all"}, "critic_input is 'all'"),
        ({"critic_input": "neighbourhood"}, "needs the agents' neighbours"),
    ],
)
def test_bad_options_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        maddpg.make(TimeLimit(Dial(), 5), dataclasses.replace(SMALL, **change))


def test_bad_environments_and_arguments_are_refused():
    with pytest.raises(ConfigError, match="no agent axis"):
        maddpg.make(probes.Bandit(), SMALL)
    with pytest.raises(ConfigError, match="resets by itself"):
        maddpg.make(AutoReset(TimeLimit(Dial(), 5)), SMALL)
    with pytest.raises(ConfigError, match=r"shape \(2,\)"):
        maddpg.make(Dial(), SMALL, observe=lambda obs: obs["seen"][:, 0])
    for table, message in (
        (np.zeros((3, 1), int), "expected integers"),
        (np.full((2, 1), 2), "-1 .. 1"),
        (np.array([[0], [0]]), "own neighbours"),
    ):
        with pytest.raises(ConfigError, match=message):
            maddpg.make(Dial(), SMALL, neighbours=table)


def test_options_are_read_without_jax():
    code = (
        "import sys; from jaxlab.agents.maddpg.config import Hyper, MADDPGConfig; "
        "assert MADDPGConfig().num_envs and Hyper().gamma; "
        "assert not {'jax', 'flax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
