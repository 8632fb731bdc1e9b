"""The actor-critic and its baselines against exact optima."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents import pdnac
from jaxlab.agents.pdnac import Hyper, PDNACConfig
from jaxlab.core.environment import Constant
from jaxlab.core.errors import ConfigError
from jaxlab.core.testing import check_learner
from jaxlab.core.training import run
from jaxlab.envs.cmdp import cartpole
from jaxlab.envs.cmdp.environment import Fleet, params_of, simulator, slack
from jaxlab.envs.cmdp.evaluation import evaluate, slack_gains
from jaxlab.envs.cmdp.generators import GarnetCMDP
from jaxlab.envs.cmdp.problems import hashed
from jaxlab.envs.cmdp.solving import evaluate_exactly

OPTIMUM, MARGIN = 0.5672007354901523, 0.20745565797527377


@pytest.fixture(autouse=True, scope="module")
def _x64():
    with jax.enable_x64(True):
        yield


def exact(theta, params):
    gains = evaluate(params.problem, jax.nn.softmax(theta.reshape(5, 3))).gains
    return jnp.concatenate([gains[:1], slack_gains(params.problem, gains)])


def learner(config, hyper, make=pdnac.make):
    problem = hashed()
    return make(
        simulator(problem),
        pdnac.tabular(5, 3),
        pdnac.tabular_critic(5),
        slack,
        config,
        hyper,
        params=params_of(problem),
        evaluate=exact,
    )


BATCH = PDNACConfig("batch", critic_steps=20, npg_steps=20, batch=16, evaluate_every=640)
HYPER = Hyper(alpha=0.3, beta=0.05, gamma_critic=0.1, gamma_npg=0.1, slater_margin=MARGIN)


#: Multipliers that find their value within a hundred outer steps.
QUICK = dataclasses.replace(HYPER, beta=0.3)


def test_gap_and_violation_fall():
    short, long = (
        run(learner(BATCH, QUICK), steps=steps, seeds=4, chunk=steps, thin=steps, progress=False)
        for steps in (12_800, 102_400)
    )
    gaps = [OPTIMUM - r.metrics["average_gains"][-1, :, 0] for r in (short, long)]
    violations = [-r.metrics["average_gains"][-1, :, 1] for r in (short, long)]
    assert 0.05 < gaps[0].mean() < 0.15
    assert gaps[1].mean() < 0.35 * gaps[0].mean()
    assert violations[1].mean() < 0.35 * violations[0].mean()
    # The averaged policy is worth what the policies are on average.
    policies = np.asarray(pdnac.averaged_policy(long.state))
    np.testing.assert_allclose(policies.sum(-1), 1, rtol=1e-12)
    worth = [float(evaluate_exactly(hashed(), policy).gains[0]) for policy in policies]
    np.testing.assert_allclose(worth, long.metrics["average_gains"][-1, :, 0], atol=0.01)
    assert np.all(np.isfinite(long.state.averages.iterate))
    assert long.learner.act(long.seed_state(), jnp.int32(0), jax.random.key(0)).shape == ()


def test_random_iterates_are_uniform_over_outer_steps():
    config = PDNACConfig("sample", critic_steps=1, npg_steps=1)
    hyper = dataclasses.replace(HYPER, gamma_critic=0.1, alpha=0.1)
    built = learner(config, hyper)

    def last(key):
        state = built.init(key, None)

        def move(carry, t):
            state, thetas = carry
            new, _ = built.step(state, t)
            return (new, thetas.at[t // 2].set(state.theta)), None

        thetas = jnp.zeros((5, 15))
        steps = jnp.arange(10, dtype=jnp.int32)
        (state, thetas), _ = jax.lax.scan(move, (state, thetas), steps)
        return jnp.all(state.averages.iterate == thetas, -1)

    matches = np.asarray(jax.jit(jax.vmap(last))(jax.random.split(jax.random.key(0), 3000)))
    # Policies that did not move match twice: share the draw among them.
    shares = (matches / matches.sum(1, keepdims=True)).mean(0)
    np.testing.assert_allclose(shares, 0.2, atol=0.035)


def test_the_clipped_baseline_learns():
    config = pdnac.PPOLagrangianConfig(rollout=256)
    built = learner(config, QUICK, pdnac.make_ppo_lagrangian)
    check_learner(built, QUICK, tolerance=1e-7)
    result = run(built, steps=200, seeds=2, chunk=100, thin=100, progress=False)
    reward, left = result.metrics["average_gains"][-1].mean(0)
    assert abs(reward - OPTIMUM) < 0.03
    assert abs(left) < 0.03
    assert np.all(result.metrics["multipliers"][-1] > 0)


@pytest.mark.parametrize(
    "options", [{"rollout": 0}, {"clip": 0.0}, {"trace": 2.0}, {"learning_rate": -1.0}]
)
def test_odd_options_of_the_clipped_baseline_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        pdnac.PPOLagrangianConfig(**options)


def test_random_instances_run_in_one_program():
    family = GarnetCMDP(states=4, actions=2, branching=2, signals=2)
    built = pdnac.make(family, pdnac.tabular(4, 2), pdnac.tabular_critic(4), slack, BATCH, HYPER)
    result = run(built, steps=1280, seeds=3, chunk=640, thin=640, progress=False)
    tables = np.asarray(result.state.params.problem.transitions)
    assert not np.allclose(tables[0], tables[1])
    assert result.metrics["multipliers"].shape == (2, 3, 2)
    assert np.all(result.metrics["outer_steps"][-1] == 2)


def test_one_rule_for_a_fleet():
    def each(obs):
        return jax.nn.one_hot(obs, 5, dtype=jnp.float64)

    built = pdnac.make(
        Fleet(Constant(hashed()), 4),
        pdnac.linear(each, 5, 3, 1.0),
        pdnac.linear_critic(lambda obs: jnp.mean(each(obs), 0), 5, 1.0),
        slack,
        dataclasses.replace(BATCH, evaluate_every=640),
        dataclasses.replace(HYPER, alpha=1.2, gamma_npg=0.05),
        params=params_of(hashed()),
        evaluate=exact,
    )
    result = run(built, steps=38_400, seeds=2, chunk=19_200, thin=19_200, progress=False)
    gains = result.metrics["gains"].mean(1)
    assert gains[-1, 0] > gains[0, 0] > 0.39
    with pytest.raises(ConfigError, match="only tables"):
        pdnac.averaged_policy(result.state)


def test_neural_policies_of_continuous_actions_keep_the_contract():
    built = pdnac.make(
        cartpole.ConstrainedCartPole(),
        pdnac.gaussian(lambda obs: obs, 5, 1, (8,)),
        pdnac.neural_critic(lambda obs: obs, 5, (8,)),
        cartpole.slack,
        PDNACConfig("mlmc", critic_steps=2, npg_steps=2, t_max=4, reset=True),
        Hyper(gamma_npg=0.005, slater_margin=0.1),
    )
    check_learner(built, Hyper(gamma_npg=0.005), tolerance=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("config", "gamma", "beta", "limit"),
    [(PDNACConfig("mlmc", evaluate_every=1000), 0.02, 0.03, 0.01), (BATCH, 0.1, 0.05, 0.004)],
    ids=["mlmc", "batch"],
)
def test_a_million_transitions_on_the_hashed_problem(config, gamma, beta, limit):
    hyper = dataclasses.replace(HYPER, beta=beta, gamma_critic=gamma, gamma_npg=gamma)
    result = run(
        learner(config, hyper),
        steps=1_000_000,
        seeds=16,
        chunk=250_000,
        thin=250_000,
        progress=False,
    )
    average = result.metrics["average_gains"][-1]
    assert np.mean(OPTIMUM - average[:, 0]) < limit
    assert np.mean(-average[:, 1]) < limit
    policies = np.asarray(pdnac.averaged_policy(result.state))
    left = [float(evaluate_exactly(hashed(), policy).gains[1]) - 0.55 for policy in policies]
    assert np.mean(left) > -0.01
