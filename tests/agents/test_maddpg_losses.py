"""Losses, critics and n-step sums of MADDPG against closed forms."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents.maddpg import MADDPGConfig, losses
from jaxlab.agents.maddpg.collection import linear, reward_mixture, sum_n_steps
from jaxlab.agents.maddpg.config import Hyper
from jaxlab.agents.maddpg.networks import make_actor, make_critic
from jaxlab.agents.maddpg.state import Transition
from jaxlab.agents.maddpg.updates import Updater
from jaxlab.core.errors import ConfigError

AGENTS, BATCH, FEATURES, ACTIONS = 3, 5, 4, 3
# A line of three agents.
NEIGHBOURS = np.array([[1, -1], [0, 2], [1, -1]])


def one_hot(actions):
    return jax.nn.one_hot(actions, ACTIONS, dtype=jnp.float32)


def random_batch(seed=0, mask=None, prior=None):
    keys = jax.random.split(jax.random.key(seed), 5)
    mask = jnp.ones((AGENTS, BATCH, ACTIONS), bool) if mask is None else mask
    return losses.Batch(
        features=jax.random.normal(keys[0], (AGENTS, BATCH, FEATURES)),
        next_features=jax.random.normal(keys[1], (AGENTS, BATCH, FEATURES)),
        mask=mask,
        next_mask=mask,
        actions=one_hot(jax.random.randint(keys[2], (AGENTS, BATCH), 0, ACTIONS)),
        reward=jax.random.normal(keys[3], (AGENTS, BATCH)),
        discount=jax.random.bernoulli(keys[4], 0.5, (AGENTS, BATCH)) * 0.9,
        prior=prior,
    )


def critic_and_values(critic_input="joint", shared=True, layer_norm=False, seed=1):
    config = MADDPGConfig(
        critic_input=critic_input, shared=shared, critic_hidden=(8, 8), layer_norm=layer_norm
    )
    critic = make_critic(config, AGENTS, ACTIONS, NEIGHBOURS)
    batch = random_batch()
    keys = jax.random.split(jax.random.key(seed), 2)
    params = jax.vmap(lambda key: critic.init(key, batch.features, batch.actions))(keys)
    return jax.jit(lambda *inputs: jax.vmap(lambda p: critic.apply(p, *inputs))(params))


every_critic = pytest.mark.parametrize(
    ("critic_input", "shared", "layer_norm"),
    [
        *itertools.product(("joint", "neighbourhood", "local"), (True, False), (False,)),
        ("joint", False, True),
    ],
)


@every_critic
def test_replacing_the_own_action_equals_evaluating_each_joint_action(
    critic_input, shared, layer_norm
):
    values = critic_and_values(critic_input, shared, layer_norm)
    batch = random_batch()
    own = one_hot(jax.random.randint(jax.random.key(9), (AGENTS, BATCH), 0, ACTIONS))
    replaced = values(batch.features, batch.actions, own)
    for agent in range(AGENTS):
        actions = batch.actions.at[agent].set(own[agent])
        direct = values(batch.features, actions)[:, agent]
        np.testing.assert_allclose(replaced[:, agent], direct, rtol=1e-4, atol=1e-5)


@every_critic
def test_a_critic_sees_exactly_its_view(critic_input, shared, layer_norm):
    values = critic_and_values(critic_input, shared, layer_norm)
    batch = random_batch()
    near = {(i, j) for i in range(AGENTS) for j in NEIGHBOURS[i] if j >= 0}
    for critic, source in itertools.product(range(AGENTS), repeat=2):
        sees = (
            critic == source
            or {
                "joint": True,
                "neighbourhood": (critic, source) in near,
                "local": False,
            }[critic_input]
        )
        for name in ("features", "actions"):
            moved = {"features": batch.features, "actions": batch.actions}
            moved[name] = moved[name].at[source].add(1.0)
            change = values(*moved.values()) - values(batch.features, batch.actions)
            assert bool(jnp.any(change[:, critic] != 0)) == sees, (critic, source, name)


@pytest.mark.parametrize("shared", [True, False])
def test_agents_differ_only_where_they_may(shared):
    config = MADDPGConfig(shared=shared, actor_hidden=(8,))
    actor = make_actor(config, ACTIONS)
    features = jnp.ones((AGENTS, FEATURES))
    params = actor.init(jax.random.key(0), features)
    logits = np.asarray(actor.apply(params, features))
    # Told apart by id or by parameters, equal observations give different logits.
    assert not np.allclose(logits[0], logits[1], atol=1e-6)
    leading = {leaf.shape[0] for leaf in jax.tree.leaves(params)}
    assert (leading == {AGENTS}) == (not shared)


def test_neighbourhood_needs_neighbours():
    with pytest.raises(ConfigError, match="neighbours"):
        make_critic(MADDPGConfig(critic_input="neighbourhood"), AGENTS, ACTIONS, None)


def test_target_takes_greedy_legal_actions_and_the_smaller_critic():
    mask = jnp.ones((AGENTS, BATCH, ACTIONS), bool).at[:, :, 2].set(False)
    batch = random_batch(mask=mask)
    logits = jnp.broadcast_to(jnp.array([0.1, 0.5, 9.0]), mask.shape)

    def target_values(features, actions):
        assert features is batch.next_features
        np.testing.assert_array_equal(actions, jnp.broadcast_to(one_hot(1), mask.shape))
        return jnp.stack([jnp.full((AGENTS, BATCH), 3.0), jnp.full((AGENTS, BATCH), 2.0)])

    target = losses.critic_target(target_values, logits, batch)
    np.testing.assert_allclose(target, batch.reward + batch.discount * 2.0, rtol=1e-6)


def test_critic_loss_is_the_squared_error_of_both_critics():
    batch = random_batch()
    value = jnp.stack([jnp.full((AGENTS, BATCH), 1.0), jnp.full((AGENTS, BATCH), 4.0)])
    loss, metrics = losses.critic_loss(lambda *_: value, jnp.full((AGENTS, BATCH), 2.0), batch)
    np.testing.assert_allclose(loss, np.full(AGENTS, 1.0 + 4.0))
    assert metrics["q_mean"] == pytest.approx(2.5)
    assert metrics["td_error"] == pytest.approx(1.5)


@pytest.mark.parametrize("others_from_policy", [True, False])
def test_an_agents_value_reaches_its_own_logits_alone(others_from_policy):
    values, batch = critic_and_values(), random_batch()
    logits = jax.random.normal(jax.random.key(5), (AGENTS, BATCH, ACTIONS))
    key = jax.random.key(6)

    def straight_through(logits):
        value = losses.straight_through_value(
            key, values, logits, batch, jnp.float32(1), others_from_policy
        )
        return value.sum(-1)

    def expected(logits):
        return losses.expected_value(key, values, logits, batch, others_from_policy).sum(-1)

    for function in (straight_through, expected):
        jacobian = np.asarray(jax.jacobian(function)(logits))
        for value_of, with_respect_to in itertools.product(range(AGENTS), repeat=2):
            reached = np.any(jacobian[value_of, with_respect_to] != 0)
            assert reached == (value_of == with_respect_to)


def test_straight_through_value_is_the_critic_at_the_sampled_actions():
    values, batch = critic_and_values(), random_batch()
    logits = jax.random.normal(jax.random.key(5), (AGENTS, BATCH, ACTIONS))
    key = jax.random.key(6)
    noise = jax.random.gumbel(key, logits.shape, logits.dtype)
    sample = one_hot(jnp.argmax(logits + noise, -1))
    value = losses.straight_through_value(key, values, logits, batch, jnp.float32(0.5), True)
    np.testing.assert_allclose(value, values(batch.features, sample)[0], rtol=1e-5)


def test_expected_value_is_the_mean_over_own_actions():
    mask = jnp.ones((AGENTS, BATCH, ACTIONS), bool).at[0, :, 1].set(False)
    values, batch = critic_and_values(), random_batch(mask=mask)
    logits = jax.random.normal(jax.random.key(5), (AGENTS, BATCH, ACTIONS))
    value = losses.expected_value(jax.random.key(6), values, logits, batch, False)
    probs = np.where(mask, np.exp(logits), 0)
    probs /= probs.sum(-1, keepdims=True)
    mean = 0.0
    for action in range(ACTIONS):
        own = jnp.broadcast_to(one_hot(action), batch.actions.shape)
        mean = mean + probs[..., action] * values(batch.features, batch.actions, own)[0]
    np.testing.assert_allclose(value, mean, rtol=1e-4, atol=1e-5)


def penalties(logits, batch, **weights):
    names = ("logit_penalty", "entropy_bonus", "prior_weight")
    values = {name: jnp.float32(weights.get(name, 0.0)) for name in names}
    bound = jnp.float32(weights.get("prior_bound", 3.0))
    return losses.regularisation(logits, batch, prior_bound=bound, **values)


def test_logit_penalty_counts_legal_actions():
    mask = jnp.ones((AGENTS, BATCH, ACTIONS), bool).at[:, :, 0].set(False)
    logits = jnp.broadcast_to(jnp.array([100.0, 1.0, -3.0]), mask.shape)
    loss, metrics = penalties(logits, random_batch(mask=mask), logit_penalty=0.5)
    np.testing.assert_allclose(loss, np.full(AGENTS, 0.5 * (1 + 9) / 2), rtol=1e-6)
    np.testing.assert_allclose(metrics["logit_norm"], 5**0.5, rtol=1e-6)


def test_prior_distance_ignores_shifts_and_bounds_the_prior():
    prior = jnp.broadcast_to(jnp.array([2.0, 0.0, -2.0]), (AGENTS, BATCH, ACTIONS))
    batch = random_batch(prior=prior + 7.0)
    at_prior, _ = penalties(prior - 4.0, batch, prior_weight=1.0)
    np.testing.assert_allclose(at_prior, 0, atol=1e-6)
    bounded, metrics = penalties(prior, batch, prior_weight=2.0, prior_bound=1.0)
    np.testing.assert_allclose(bounded, 2.0 * 2 / 3, rtol=1e-5)
    np.testing.assert_allclose(metrics["prior_distance"], 2 / 3, rtol=1e-5)


def test_entropy_bonus_is_the_entropy():
    batch = random_batch()
    loss, metrics = penalties(jnp.zeros((AGENTS, BATCH, ACTIONS)), batch, entropy_bonus=1.0)
    np.testing.assert_allclose(loss, -np.log(3), rtol=1e-6)
    np.testing.assert_allclose(metrics["entropy"], np.log(3), rtol=1e-6)


def test_illegal_actions_get_no_gradient_from_any_term():
    mask = jnp.ones((AGENTS, BATCH, ACTIONS), bool).at[1, :, 2].set(False)
    batch = random_batch(mask=mask, prior=jnp.ones((AGENTS, BATCH, ACTIONS)) * jnp.arange(3.0))
    values, key = critic_and_values(), jax.random.key(0)
    logits = jax.random.normal(jax.random.key(5), (AGENTS, BATCH, ACTIONS))

    def actor_loss(logits, value):
        penalty, _ = penalties(
            logits, batch, logit_penalty=1.0, entropy_bonus=1.0, prior_weight=1.0
        )
        return jnp.sum(penalty) - jnp.sum(value(logits))

    for value in (
        lambda x: losses.straight_through_value(key, values, x, batch, jnp.float32(1), True),
        lambda x: losses.expected_value(key, values, x, batch, True),
    ):
        gradient = np.asarray(jax.grad(actor_loss)(logits, value))
        assert np.all(np.isfinite(gradient))
        assert np.all(gradient[1, :, 2] == 0)
        assert np.any(gradient[0, :, 2] != 0)


def n_step_by_loop(reward, discount, last, n):
    """Direct sums: reward and discount `[time, envs]` of one agent."""
    time, envs = reward.shape
    total, weight, carried = (np.zeros((time, envs)) for _ in range(3))
    end = np.zeros((time, envs), int)
    for t, env in itertools.product(range(time), range(envs)):
        factor = 1.0
        for ahead in range(n):
            if t + ahead >= time:
                break
            total[t, env] += factor * reward[t + ahead, env]
            weight[t, env] += factor
            factor *= discount[t + ahead, env]
            end[t, env] = t + ahead
            if last[t + ahead, env]:
                break
        carried[t, env] = factor
    return total, weight, carried, end


@pytest.mark.parametrize("n", [1, 2, 3, 9])
def test_n_step_sums(n):
    rng = np.random.default_rng(n)
    time, envs = 7, 6
    reward = rng.normal(size=(time, envs, 1)).astype(np.float32)
    last = rng.random((time, envs)) < 0.3
    terminated = last & (rng.random((time, envs)) < 0.5)
    discount = np.where(terminated, 0, 0.9).astype(np.float32)[..., None]
    stamps = jnp.arange(time * envs, dtype=jnp.float32).reshape(time, envs, 1, 1)
    transitions = Transition(
        features=stamps,
        next_features=stamps,
        mask=jnp.ones((time, envs, 1, 2), bool),
        next_mask=jnp.ones((time, envs, 1, 2), bool),
        action=jnp.zeros((time, envs, 1), jnp.int32),
        reward=jnp.asarray(reward),
        weight=jnp.ones_like(reward),
        discount=jnp.asarray(discount),
        prior=None,
        signals=None,
    )
    result = sum_n_steps(transitions, jnp.asarray(last), n)
    total, weight, carried, end = n_step_by_loop(reward[..., 0], discount[..., 0], last, n)
    np.testing.assert_allclose(result.reward[..., 0], total, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(result.weight[..., 0], weight, rtol=1e-6)
    np.testing.assert_allclose(result.discount[..., 0], carried, rtol=1e-6)
    expected = np.asarray(stamps)[end, np.arange(envs)[None, :]]
    np.testing.assert_array_equal(result.next_features, expected)
    np.testing.assert_array_equal(result.features, stamps)


def numbers(**changes):
    return jax.tree.map(jnp.float32, Hyper(**changes))


def test_reward_mixture():
    own = reward_mixture(numbers(), NEIGHBOURS, AGENTS)
    np.testing.assert_array_equal(own, np.eye(AGENTS))
    mixed = reward_mixture(numbers(team_reward=0.3, neighbour_reward=0.2), NEIGHBOURS, AGENTS)
    np.testing.assert_allclose(mixed[1], [0.1 + 0.1, 0.5 + 0.1, 0.1 + 0.1], rtol=1e-6)
    np.testing.assert_allclose(mixed[0], [0.5 + 0.1, 0.2 + 0.1, 0.1], rtol=1e-6)
    np.testing.assert_allclose(mixed.sum(1), 1, rtol=1e-6)
    alone = reward_mixture(numbers(neighbour_reward=0.5), np.array([[1], [-1], [1]]), AGENTS)
    np.testing.assert_allclose(alone[1], [0, 1, 0])


def test_linear_schedule():
    start, end, steps = jnp.float32(1.0), jnp.float32(0.2), jnp.float32(10)
    points = [linear(start, end, steps, jnp.float32(now)) for now in (0, 5, 10, 99)]
    np.testing.assert_allclose(points, [1.0, 0.6, 0.2, 0.2], rtol=1e-6)
    assert linear(start, end, jnp.float32(0), jnp.float32(1)) == pytest.approx(0.2)


def test_unshared_networks_are_updated_agent_by_agent():
    """A critic moves the same whatever another agent earns: clipping does not couple them."""
    config = MADDPGConfig(shared=False, actor_hidden=(8,), critic_hidden=(8,))
    actor = make_actor(config, ACTIONS)
    updater = Updater(config, actor, make_critic(config, AGENTS, ACTIONS, None))
    networks = jax.jit(updater.init, static_argnums=(1, 2))(jax.random.key(0), AGENTS, FEATURES)
    step = jax.jit(updater._critic_step)
    batch = random_batch()
    one, other = (
        step(networks, numbers(), batch.replace(reward=batch.reward.at[1].add(bonus)))[0].critic
        for bonus in (0.0, 50.0)
    )
    pairs = list(zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True))
    for a, b in pairs:
        np.testing.assert_allclose(a[:, [0, 2]], b[:, [0, 2]], rtol=1e-6)
    assert any(np.any(a[:, 1] != b[:, 1]) for a, b in pairs)
