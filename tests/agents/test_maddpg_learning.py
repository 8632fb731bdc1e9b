"""MADDPG solves small problems whose answers are known."""

import dataclasses
import functools
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxlab.agents import maddpg
from jaxlab.agents.maddpg import Hyper, MADDPGConfig
from jaxlab.core import probes
from jaxlab.core.spaces import Box, Discrete
from jaxlab.core.wrappers import Tasks, TimeLimit

#: Both agents want the first pair most, and no lone deviation towards it is punished.
AGREEMENT = ((10.0, 0.0, 0.0), (0.0, 4.0, 0.0), (0.0, 0.0, 2.0))
#: Claus and Boutilier (1998): the best pair, 11, lies behind heavy punishment; 7 and 6 are
#: what careful agents find.
CLIMBING = ((11.0, -30.0, 0.0), (-30.0, 7.0, 6.0), (0.0, 0.0, 5.0))

SMALL = MADDPGConfig(
    num_envs=8,
    decisions=4,
    updates=4,
    batch_size=64,
    buffer_size=20_000,
    learning_starts=256,
    actor_hidden=(32,),
    critic_hidden=(32, 32),
    normalise_observations=False,
)
QUICK = Hyper(
    actor_learning_rate=1e-3,
    critic_learning_rate=3e-3,
    tau=0.05,
    epsilon_start=0.2,
    epsilon_end=0.2,
)


def one_task(params):
    stacked = jax.tree.map(lambda x: jnp.asarray(x)[None], params)
    return Tasks(stacked, jnp.ones((1,), jnp.float32))


def trainer(learner):
    """Compiled training from tasks and hyper-parameters, `[seeds]` at once."""

    init = jax.jit(jax.vmap(learner.init, (0, None)))
    step = jax.vmap(learner.step, (0, None))
    run = jax.jit(
        lambda state, steps: jax.lax.fori_loop(0, steps, lambda t, s: step(s, t)[0], state)
    )

    def train(hyper, steps, tasks=None, seeds=4):
        state = init(jax.random.split(jax.random.key(0), seeds), hyper)
        if tasks is not None:
            tasks = jax.tree.map(lambda x: jnp.broadcast_to(x, (seeds, *x.shape)), tasks)
            state = state.replace(tasks=tasks)
        return run(state, jnp.int32(steps))

    return train


@functools.cache
def game(shared, actor_gradient):
    """Greedy payoffs of four seeds after learning a game."""

    def towards_the_first_action(obs):
        return jnp.broadcast_to(jnp.array([3.0, -3.0, -3.0]), (2, 3))

    learner = maddpg.make(
        probes.MatrixGame(),
        dataclasses.replace(SMALL, shared=shared, actor_gradient=actor_gradient),
        prior=towards_the_first_action,
    )
    train = trainer(learner)

    def play(payoff, hyper, steps):
        params = probes.MatrixGameParams(jnp.array(payoff, jnp.float32))
        state = train(hyper, steps, one_task(params))
        act = jax.vmap(lambda s: learner.act(s, jnp.eye(2, dtype=jnp.float32), s.key))
        return [payoff[i][j] for i, j in act(state).tolist()]

    return play


@pytest.mark.parametrize(
    ("shared", "actor_gradient"),
    [
        (True, "straight_through"),
        pytest.param(False, "expected", marks=pytest.mark.slow),
        pytest.param(True, "expected", marks=pytest.mark.slow),
        pytest.param(False, "straight_through", marks=pytest.mark.slow),
    ],
)
def test_agreement_game_is_solved(shared, actor_gradient):
    assert game(shared, actor_gradient)(AGREEMENT, QUICK, 500) == [10.0] * 4


def test_climbing_game_without_help_ends_at_a_safe_pair():
    assert set(game(True, "expected")(CLIMBING, QUICK, 500)) <= {5.0, 6.0, 7.0}


@pytest.mark.parametrize("shared", [True, False])
def test_climbing_game_is_solved_from_a_prior_that_has_vanished(shared):
    hyper = dataclasses.replace(QUICK, prior_weight=3.0, prior_steps=8_000.0)
    assert game(shared, "expected")(CLIMBING, hyper, 500) == [11.0] * 4


def test_coordination_grid_is_solved():
    env = TimeLimit(probes.CoordinationGrid(), 20)
    params = probes.GridParams(
        starts=jnp.array([[1, 1], [0, 0]], jnp.int32), goals=jnp.array([[2, 2], [0, 2]], jnp.int32)
    )
    learner = maddpg.make(env, SMALL, tasks=one_task(params))
    hyper = dataclasses.replace(
        QUICK, gamma=0.9, epsilon_start=0.3, epsilon_end=0.1, epsilon_steps=10_000.0
    )
    state = trainer(learner)(hyper, 900, seeds=2)

    def episode(state):
        def advance(carry, _):
            env_state, timestep, total = carry
            action = learner.act(state, timestep.obs, state.key)
            env_state, timestep = env.step(state.key, env_state, action, params)
            return (env_state, timestep, total + timestep.reward), None

        start = (*env.reset(state.key, params), jnp.zeros((2,), jnp.float32))
        return jax.lax.scan(advance, start, None, 20)[0][2]

    returns = jax.jit(jax.vmap(episode))(state)
    np.testing.assert_allclose(returns, env.env.optimal_return(params), rtol=1e-5)


@struct.dataclass
class PayParams:
    ends: jax.Array


@dataclasses.dataclass(frozen=True)
class Paid(probes.OneStep):
    """Two agents get 1 and 3 at every step; it terminates at once, or never."""

    name: ClassVar[str] = "paid"

    @property
    def num_agents(self):
        return 2

    def sample_params(self, key):
        return PayParams(jnp.zeros((), bool))

    def observe(self, key, params):
        return jnp.ones((2, 1), jnp.float32)

    def pay(self, obs, action, params):
        return jnp.array([1.0, 3.0], jnp.float32)

    def step(self, key, state, action, params):
        after, timestep = super().step(key, state, action, params)
        ends = jnp.broadcast_to(params.ends, (2,))
        return after.replace(done=params.ends), dataclasses.replace(timestep, terminated=ends)

    def observation_space(self, params):
        return Box(1.0, 1.0, (2, 1))

    def action_space(self, params):
        return Discrete(2, (2,))


@functools.cache
def paid():
    config = dataclasses.replace(SMALL, normalise_rewards="none", n_step=2, buffer_size=2_000)
    learner = maddpg.make(TimeLimit(Paid(), 3), config)
    return learner, trainer(learner)


@pytest.mark.parametrize(("ends", "horizon"), [(True, 1.0), (False, 2.0)])
def test_values_bootstrap_at_a_time_limit_and_not_at_termination(ends, horizon):
    learner, train = paid()
    hyper = dataclasses.replace(QUICK, gamma=0.5, critic_learning_rate=1e-3)
    state = train(hyper, 1_000, one_task(PayParams(jnp.bool_(ends))), seeds=2)
    critic = jax.tree.map(lambda x: x[0], state.networks.critic)
    features = jnp.ones((2, 1, 1), jnp.float32)
    values = learner.step.__self__.updater._values(critic)
    for joint in ([0, 0], [0, 1], [1, 0], [1, 1]):
        actions = jax.nn.one_hot(jnp.array(joint), 2)[:, None]
        expected = horizon * np.array([[1.0, 3.0]] * 2)
        np.testing.assert_allclose(values(features, actions)[:, :, 0], expected, rtol=0.03)
