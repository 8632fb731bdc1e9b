"""Simulators: the contract, and averages that agree with the exact ones."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.environment import Constant
from jaxlab.core.errors import ScenarioError
from jaxlab.core.testing import check_env
from jaxlab.envs.cmdp import cartpole
from jaxlab.envs.cmdp.cartpole import ConstrainedCartPole
from jaxlab.envs.cmdp.chains import classes, reachable
from jaxlab.envs.cmdp.environment import Fleet, params_of, simulator, slack
from jaxlab.envs.cmdp.evaluation import evaluate
from jaxlab.envs.cmdp.generators import GarnetCMDP, queueing_network
from jaxlab.envs.cmdp.model import cmdp
from jaxlab.envs.cmdp.problems import hashed, queue
from jaxlab.envs.cmdp.solving import solve


@pytest.mark.parametrize(
    "env",
    [
        simulator(queue()),
        GarnetCMDP(states=6, actions=2, branching=2, signals=2),
        Fleet(Constant(hashed()), 4),
        ConstrainedCartPole(),
    ],
    ids=lambda env: env.name,
)
def test_it_keeps_the_contract(env):
    check_env(env, steps=8, batch=2, batch_steps=2, eager_steps=1)


def rollout(env, params, policy, steps, seeds):
    """Mean signals, reward first, and fractions of time in states, of `[seeds]` runs."""

    def step(carry, key):
        state, obs = carry
        act, move = jax.random.split(key)
        action = jax.random.categorical(act, jnp.log(policy[obs])).astype(jnp.int32)
        state, timestep = env.step(move, state, action, params)
        signals = jnp.concatenate([timestep.reward[None], slack(timestep, params)])
        return (state, timestep.obs), (signals, jax.nn.one_hot(timestep.obs, len(policy)))

    def one(key):
        state, timestep = env.reset(key, params)
        kept = jax.lax.scan(step, (state, timestep.obs), jax.random.split(key, steps))[1]
        return jax.tree.map(lambda leaf: jnp.mean(leaf[50:], 0), kept)

    return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(0), seeds))


def test_averages_are_those_of_the_exact_evaluation():
    problem = hashed()
    policy = jnp.full((5, 3), 1 / 3)
    exact = evaluate(problem.cast(), policy)
    signals, states = rollout(simulator(problem), params_of(problem), policy, 2000, 40)
    for found, expected in (
        (signals, [exact.gains[0], exact.gains[1] - 0.55]),
        (states, exact.stationary),
    ):
        error = np.std(found, 0) / np.sqrt(len(found))
        assert np.all(np.abs(np.mean(found, 0) - np.asarray(expected)) < 4 * error)


def test_impossible_states_are_never_reached():
    # Sums of these probabilities fall short of one in 32 bits.
    row = np.array([0.1, 0.2, 0.3, 0.15, 0.25, 0.0])
    table = np.zeros((6, 1, 6))
    table[:, 0] = row
    env = simulator(cmdp(table, np.zeros((6, 1))))
    for x64 in (False, True):
        with jax.enable_x64(x64):
            params = env.sample_params(jax.random.key(0))
            cumulative = np.asarray(params.cumulative[0, 0])
            assert np.all(np.isinf(cumulative[4:]))
            np.testing.assert_allclose(cumulative[:4], np.cumsum(row)[:4], rtol=1e-6)


def test_random_processes_are_ergodic_and_have_their_margin():
    family = GarnetCMDP(states=8, actions=2, branching=2, signals=2, margin=0.05)
    draw = jax.jit(jax.vmap(family.draw))
    problems = draw(jax.random.split(jax.random.key(3), 4))
    for number in range(4):
        one = jax.tree.map(lambda leaf, n=number: np.asarray(leaf[n]), problems)
        assert classes(reachable(one.transitions)).ergodic
        assert np.sum(np.asarray(one.transitions) > 0.05 / 8 + 1e-12) <= 8 * 2 * 2
        assert solve(one).slater_margin > 0.05 - 1e-12
    with pytest.raises(ScenarioError, match="positive margin"):
        GarnetCMDP(margin=0.0)
    with pytest.raises(ScenarioError, match="successors"):
        GarnetCMDP(states=3, branching=4)


def test_a_fleet_is_worth_what_one_is():
    # Two copies as one process of all pairs of states and actions.
    one = queue(2)
    states, actions = one.states, one.actions
    transitions = np.einsum("sat,ubv->suabtv", one.transitions, one.transitions)
    both = lambda signal: (  # noqa: E731
        0.5 * (signal[..., :, None, :, None] + signal[..., None, :, None, :])
    )
    pairs = cmdp(
        transitions.reshape(states**2, actions**2, states**2),
        -both(np.asarray(one.reward)).reshape(states**2, actions**2),
        both(np.asarray(one.costs)).reshape(2, states**2, actions**2),
        ["<=", ">="],
        one.bounds,
        minimise=True,
    )
    np.testing.assert_allclose(solve(pairs).optimum, solve(one).optimum, atol=1e-9)


def test_networks_of_queues():
    network = queueing_network((2, 3))
    assert network.states == 12
    assert classes(reachable(network.transitions)).ergodic
    # Customers who are never sent away and served slowly fill the network.
    found = solve(network)
    assert np.all(found.signals <= np.asarray(network.bounds) + 1e-9)
    assert np.all(found.multipliers > 0)
    assert found.gain_unconstrained < found.optimum
    with pytest.raises(ScenarioError, match="one place"):
        queueing_network((0,))
    with pytest.raises(ScenarioError, match="slow one first"):
        queueing_network(rates=(0.5, 0.25))


def test_the_cartpole_keeps_its_energy_without_friction_and_force():
    env = ConstrainedCartPole(time_step=0.002, substeps=1)
    params = env.sample_params(jax.random.key(0))
    zero = jnp.zeros(())
    params = params.replace(friction=zero, gust=zero)
    state = cartpole.State(zero, zero, jnp.array(2.0), jnp.array(0.5))

    def energy(state):
        mass, pole = params.cart_mass + params.pole_mass, params.pole_mass
        half = params.half_length
        moving = 0.5 * mass * state.speed**2 + 2 / 3 * pole * half**2 * state.spin**2
        coupling = pole * half * state.speed * state.spin * jnp.cos(state.angle)
        return moving + coupling + pole * params.gravity * half * jnp.cos(state.angle)

    def step(state, _):
        state, _ = env.step(jax.random.key(0), state, jnp.zeros(1), params)
        return state, energy(state)

    final, energies = jax.jit(lambda s: jax.lax.scan(step, s, None, 1000))(state)
    assert np.abs(final.angle) <= np.pi
    np.testing.assert_allclose(energies, energy(state), atol=0.01)


def test_effort_is_clipped_and_the_track_ends():
    env = ConstrainedCartPole()
    params = env.sample_params(jax.random.key(0))
    zero = jnp.zeros(())
    state = cartpole.State(jnp.array(2.39), jnp.array(5.0), zero, zero)
    moved, timestep = env.step(jax.random.key(1), state, jnp.array([3.0]), params)
    assert moved.position == 2.4
    assert moved.speed == 0
    np.testing.assert_array_equal(timestep.cost, [1.0])
    np.testing.assert_allclose(cartpole.slack(timestep, params), [-0.9])
