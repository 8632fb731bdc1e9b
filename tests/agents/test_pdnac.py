"""The state machine against plain loops, estimators against exact gradients, and what is refused."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents import pdnac
from jaxlab.agents.pdnac import duals, levels
from jaxlab.agents.pdnac.config import Hyper, PDNACConfig, hyper_arrays
from jaxlab.agents.pdnac.learner import _PDNAC
from jaxlab.agents.pdnac.state import Dual, Inner
from jaxlab.core.errors import ConfigError
from jaxlab.core.testing import check_learner
from jaxlab.envs.cmdp.environment import params_of, simulator, slack
from jaxlab.envs.cmdp.evaluation import evaluate, slack_gains
from jaxlab.envs.cmdp.problems import hashed, queue

STATES, ACTIONS = 5, 3


@pytest.fixture(autouse=True, scope="module")
def _x64():
    with jax.enable_x64(True):
        yield


def exact_gains(theta, params):
    policy = jax.nn.softmax(theta.reshape(STATES, ACTIONS))
    gains = evaluate(params.problem, policy).gains
    return jnp.append(gains[0], slack_gains(params.problem, gains))


def build(config, hyper=None, problem=None, **options):
    problem = problem or hashed()
    env = simulator(problem)
    return pdnac.make(
        env,
        pdnac.tabular(problem.states, problem.actions),
        pdnac.tabular_critic(problem.states),
        slack,
        config,
        hyper,
        **options,
    )


CONFIGS = {
    "mlmc": PDNACConfig("mlmc", critic_steps=3, npg_steps=2, t_max=8),
    "mlmc_batch": PDNACConfig("mlmc", critic_steps=2, npg_steps=3, batch=2, t_max=4, reset=True),
    "batch": PDNACConfig("batch", critic_steps=3, npg_steps=3, batch=4),
    "sample": PDNACConfig("sample", critic_steps=5, npg_steps=4),
}
HYPER = Hyper(alpha=0.3, beta=0.05, gamma_critic=0.02, gamma_npg=0.02, slater_margin=0.207)


def plain(config, hyper, tape):
    """The algorithm update by update as the paper writes it, on a recorded trajectory.

    `tape` has for each transition the state, action, signals, next state and the level that is
    drawn if an update begins with it.
    """
    machine = _PDNAC(
        simulator(hashed()),
        pdnac.tabular(STATES, ACTIONS),
        pdnac.tabular_critic(STATES),
        slack,
        config,
        hyper,
        None,
        None,
    )
    state = machine.init(jax.random.key(0), hyper)
    direction = jax.jit(machine.direction)
    hyper = hyper_arrays(hyper)
    position, history = 0, []
    length = len(tape["level"])
    zero = jax.tree.map(jnp.zeros_like, state.inner)

    def estimate(inner, natural):
        """Weighted sum over the transitions of one update, in their order."""
        nonlocal position
        if position >= length:
            return None
        level = int(tape["level"][position])
        count = config.batch * 2**level
        if position + count > length:
            return None
        total = jax.tree.map(np.array, zero)
        here = dataclasses.replace(state, inner=inner)
        for n in range(count):
            at = jax.tree.map(lambda leaf, p=position: leaf[p], tape)
            one = direction(
                dataclasses.replace(here, obs=at["obs"]), at["action"], at["signals"], at["next"]
            )
            first = 1 if n < config.batch else 0
            half = 0 if level == 0 else (-1 if n < count // 2 else 1)
            w = (first + half) / config.batch
            total = jax.tree.map(lambda a, b, w=w: a + w * np.asarray(b), total, one)
            position += 1
        return total

    while True:
        inner = state.inner
        if config.reset:
            inner = zero
        for _ in range(config.critic_steps):
            v = estimate(inner, False)
            if v is None:
                return history
            inner = Inner(
                inner.gains - hyper.gamma_critic * v.gains,
                inner.critic - hyper.gamma_critic * v.critic,
                inner.direction,
            )
        for _ in range(config.npg_steps):
            u = estimate(inner, True)
            if u is None:
                return history
            direction_now = inner.direction - hyper.gamma_npg * u.direction
            inner = dataclasses.replace(inner, direction=direction_now)
        multipliers = state.dual.multipliers
        natural = inner.direction[0] + multipliers @ inner.direction[1:]
        moved = jnp.clip(multipliers - hyper.beta * inner.gains[1:], 0.0, 2 / hyper.slater_margin)
        state = dataclasses.replace(
            state,
            theta=state.theta + hyper.alpha * natural,
            inner=inner,
            dual=dataclasses.replace(state.dual, multipliers=moved),
        )
        history.append((position, state.theta, moved, inner))


def recorded(config, hyper, steps):
    """A run of the learner, transition by transition, with the randomness it used."""
    learner = build(config, hyper)
    step = jax.jit(learner.step)
    state = learner.init(jax.random.key(0), hyper)
    env, params = simulator(hashed()), params_of(hashed())
    policy = pdnac.tabular(STATES, ACTIONS)

    @jax.jit
    def look(state, t):
        keys = jax.random.split(jax.random.fold_in(state.key, t), 4)
        action = policy.sample(state.theta, state.obs, keys[0])
        _, timestep = env.step(keys[1], state.env_state, action, params)
        return {
            "obs": state.obs,
            "action": action,
            "signals": jnp.append(timestep.reward, slack(timestep, params)),
            "next": timestep.obs,
            "level": levels.draw_level(keys[2], config),
        }

    tape, states = [], [state]
    for t in range(steps):
        count = jnp.asarray(t, jnp.int32)
        tape.append(look(state, count))
        state, _ = step(state, count)
        states.append(state)
    return jax.tree.map(lambda *leaves: np.stack(leaves), *tape), states


@pytest.mark.parametrize("name", CONFIGS)
def test_the_state_machine_is_the_plain_algorithm_bit_for_bit(name):
    config = CONFIGS[name]
    tape, states = recorded(config, HYPER, 120)
    history = plain(config, HYPER, tape)
    assert len(history) >= 2
    for number, (position, theta, multipliers, inner) in enumerate(history):
        state = states[position]
        assert state.counters.outer == number + 1
        assert states[position - 1].counters.outer == number
        np.testing.assert_array_equal(state.theta, theta)
        np.testing.assert_array_equal(state.dual.multipliers, multipliers)
        if not config.reset:
            for found, expected in zip(
                jax.tree.leaves(state.inner), jax.tree.leaves(inner), strict=True
            ):
                np.testing.assert_array_equal(found, expected)


def test_weights_are_those_of_the_papers_estimate():
    config = PDNACConfig("mlmc", batch=4, t_max=8)
    values = np.random.default_rng(0).normal(size=32)
    for level in range(4):
        count = int(levels.length(jnp.asarray(level, jnp.int32), config))
        assert count == 4 * 2**level
        weigh = jax.vmap(lambda n, q=level: levels.weight(n, jnp.int32(q), config, np.float64))
        found = np.asarray(weigh(jnp.arange(count, dtype=jnp.int32))) @ values[:count]
        expected = values[:4].mean()
        if level:
            half = values[: count // 2].mean()
            expected += 2**level * (values[:count].mean() - half)
        np.testing.assert_allclose(found, expected, rtol=1e-12)


def test_levels_are_geometric_and_take_the_samples_expected():
    config = PDNACConfig("mlmc", t_max=1024)
    assert config.expected_samples == 10 + 2.0**-10
    draw = jax.jit(jax.vmap(lambda key: levels.draw_level(key, config)))
    drawn = np.asarray(draw(jax.random.split(jax.random.key(1), 100_000)))
    for level in range(1, 11):
        share, expected = np.mean(drawn == level), 2.0**-level
        assert abs(share - expected) < 4 * np.sqrt(expected / len(drawn))
    assert np.mean(drawn == 0) < 10 * 2.0**-10
    counts = 2.0**drawn
    error = counts.std() / np.sqrt(len(counts))
    assert abs(counts.mean() - config.expected_samples) < 4 * error


def stationary_start(policy, key):
    exact = evaluate(hashed().cast(), policy)
    return jax.random.categorical(key, jnp.log(exact.stationary)).astype(jnp.int32)


def test_multilevel_estimates_have_the_mean_of_exact_directions():
    """A z-test over 10^5 updates, each begun in a stationary state and cut off at level 3.

    A cut-off estimate has the mean of the batch of the highest level, `v^3`; in a stationary
    chain that is the exact direction.
    """
    config = PDNACConfig("mlmc", t_max=8)
    machine = _PDNAC(
        simulator(hashed()),
        pdnac.tabular(STATES, ACTIONS),
        pdnac.tabular_critic(STATES),
        slack,
        config,
        None,
        None,
        None,
    )
    generator = np.random.default_rng(5)
    theta = jnp.asarray(generator.normal(size=STATES * ACTIONS))
    inner = Inner(*(jnp.asarray(generator.normal(size=s)) for s in ((2,), (2, 5), (2, 15))))
    template = dataclasses.replace(machine.init(jax.random.key(0), None), theta=theta, inner=inner)
    params = params_of(hashed())
    policy = jax.nn.softmax(theta.reshape(STATES, ACTIONS))

    def draw(key):
        start, level_key, key = jax.random.split(key, 3)
        level = levels.draw_level(level_key, config)
        count = levels.length(level, config)
        env_state, _ = machine.env.reset(start, params)
        position = stationary_start(policy, start)

        def step(carry, n):
            position, total = carry
            act, move = jax.random.split(jax.random.fold_in(key, n))
            action = machine.policy.sample(theta, position, act)
            moved = dataclasses.replace(env_state, position=position)
            _, timestep = machine.env.step(move, moved, action, params)
            signals = jnp.append(timestep.reward, slack(timestep, params))
            at = dataclasses.replace(template, obs=position)
            one = machine.direction(at, action, signals, timestep.obs)
            w = jnp.where(n < count, levels.weight(n, level, config, np.float64), 0.0)
            total = jax.tree.map(lambda a, b: a + w * b, total, one)
            return (timestep.obs, total), None

        zero = jax.tree.map(jnp.zeros_like, inner)
        steps = jnp.arange(8, dtype=jnp.int32)
        return jax.lax.scan(step, (position, zero), steps)[0][1]

    found = jax.jit(jax.vmap(draw))(jax.random.split(jax.random.key(7), 100_000))
    expected = exact_direction(template, policy)
    for name in ("gains", "critic", "direction"):
        values = np.asarray(getattr(found, name)).reshape(100_000, -1)
        error = values.std(0) / np.sqrt(len(values))
        z = (values.mean(0) - np.asarray(getattr(expected, name)).reshape(-1)) / error
        # The largest of some thirty standard normal numbers.
        assert np.max(np.abs(z)) < 4.5, name


def exact_direction(state, policy):
    """Means of directions over the stationary distribution, by matrices."""
    problem, inner = hashed(), state.inner
    exact = evaluate(problem.cast(), policy)
    signals = np.concatenate([problem.reward[None], problem.slacks])
    ahead = np.einsum("sat,gt->gsa", problem.transitions, inner.critic) - inner.critic[:, :, None]
    surprise = signals - np.asarray(inner.gains)[:, None, None] + ahead
    measure = np.asarray(exact.stationary)[:, None] * policy
    scores = np.zeros((STATES, ACTIONS, STATES, ACTIONS))
    for s in range(STATES):
        scores[s, :, s] = np.eye(ACTIONS) - np.asarray(policy)[s]
    scores = scores.reshape(STATES, ACTIONS, -1)
    along = np.einsum("gp,sap->gsa", inner.direction, scores) - surprise
    return Inner(
        np.einsum("sa,gsa->g", measure, np.asarray(inner.gains)[:, None, None] - signals),
        -np.einsum("sa,gsa->gs", measure, surprise),
        np.einsum("sa,gsa,sap->gp", measure, along, scores),
    )


@pytest.mark.parametrize("name", ["mlmc", "batch"])
def test_it_keeps_the_contract(name):
    config = dataclasses.replace(CONFIGS[name], evaluate_every=2)
    learner = build(config, HYPER, evaluate=exact_gains)
    metrics = check_learner(learner, HYPER, tolerance=1e-9)
    assert metrics["slack"].value.shape == (1,)
    other = build(dataclasses.replace(config, method="switching"), HYPER, queue(2))
    check_learner(other, HYPER, tolerance=None)


@pytest.mark.parametrize(
    "policy",
    [
        pdnac.linear(lambda obs: jax.nn.one_hot(obs, STATES, dtype=jnp.float64), STATES, ACTIONS),
        pdnac.neural(lambda obs: jax.nn.one_hot(obs, STATES, dtype=jnp.float64), STATES, ACTIONS),
    ],
    ids=["linear", "neural"],
)
def test_scores_are_gradients_of_log_probabilities(policy):
    theta = policy.init(jax.random.key(1)) + 0.1
    obs = jnp.asarray(2, jnp.int32)
    scores = [policy.score(theta, obs, jnp.asarray(a, jnp.int32)) for a in range(ACTIONS)]
    chances = [jnp.exp(policy.log_prob(theta, obs, jnp.asarray(a, jnp.int32))) for a in range(3)]
    np.testing.assert_allclose(sum(chances), 1, rtol=1e-6)
    mean = sum(p * s for p, s in zip(chances, scores, strict=True))
    np.testing.assert_allclose(mean, 0, atol=1e-6)
    draws = jax.vmap(lambda key: policy.sample(theta, obs, key))(
        jax.random.split(jax.random.key(0), 4000)
    )
    np.testing.assert_allclose(np.bincount(draws, minlength=3) / 4000, chances, atol=0.04)


def test_scores_of_tables_are_those_of_automatic_differentiation():
    policy = pdnac.tabular(STATES, ACTIONS)
    theta = jnp.asarray(np.random.default_rng(0).normal(size=15))
    obs, action = jnp.asarray(3, jnp.int32), jnp.asarray(1, jnp.int32)
    found = policy.score(theta, obs, action)
    np.testing.assert_allclose(found, jax.grad(policy.log_prob)(theta, obs, action), atol=1e-15)
    assert jnp.linalg.norm(found) <= policy.score_bound
    np.testing.assert_allclose(policy.row(theta, obs)[3], policy.table(theta)[3])


def test_rules_of_multipliers():
    hyper = hyper_arrays(Hyper(beta=0.5, slater_margin=1.0, pull=0.2))
    dual = Dual(jnp.array([1.0, 1.9]), jnp.array([0.2, 0.0]), jnp.array([0.5, 0.5]))
    slack = jnp.array([0.4, -1.0])
    expected = {
        "projected": [0.8, 2.0],
        "optimistic": [0.7, 2.0],
        "regularised": [0.7, 2.0],
        "pid": [0.0, 2.0],
    }
    for rule, values in expected.items():
        moved = duals.move(dual, slack, hyper, rule)
        np.testing.assert_allclose(moved.multipliers, values, atol=1e-12)
        np.testing.assert_array_equal(moved.previous, slack)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"estimator": "td"}, "mlmc, batch, sample"),
        ({"dual": "none"}, "projected"),
        ({"method": "dual"}, "switching"),
        ({"t_max": 100}, "power of two"),
        ({"npg_steps": 0}, "npg_steps is 0"),
        ({"estimator": "sample", "batch": 2}, "takes one transition"),
    ],
)
def test_odd_configurations_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        PDNACConfig(**options)


def test_step_sizes_beyond_stability():
    config = PDNACConfig("mlmc", t_max=1024)
    build(config, Hyper(gamma_critic=0.02, gamma_npg=0.02))
    build(PDNACConfig("mlmc", batch=8, t_max=64), Hyper(gamma_critic=0.05, gamma_npg=0.05))
    build(PDNACConfig("batch", batch=16), Hyper(gamma_critic=0.1, gamma_npg=0.1))
    with pytest.warns(RuntimeWarning, match="gamma_npg 0.1 is above 0.04"):
        build(config, Hyper(gamma_npg=0.1))
    with pytest.raises(ConfigError, match="gamma_critic 3 diverges"):
        build(config, Hyper(gamma_critic=np.array([0.01, 3.0])))
    with pytest.raises(ConfigError, match=r"slater_margin.*Slater point"):
        build(config, Hyper(slater_margin=0.0))
    with pytest.raises(ConfigError, match=r"alpha is -1\.0, expected not negative"):
        build(config, Hyper(alpha=-1.0))


def test_sizes_of_the_theory():
    known = pdnac.theory(1e6, mixing_time=3, slater_margin=0.2)
    assert known.config.critic_steps == 9
    assert known.config.reset
    np.testing.assert_allclose([known.hyper.alpha, known.hyper.beta], 1e-3)
    np.testing.assert_allclose(known.hyper.gamma_critic, 2 * np.log(1e6) / (0.1 * 9))
    np.testing.assert_allclose(known.outer_steps * known.config.outer_samples, 1e6)
    with pytest.raises(ConfigError, match="diverges"):
        build(known.config, known.hyper)
    unknown = pdnac.theory(1e6, mixing_time=3, epsilon=0.25)
    assert unknown.config.npg_steps == round(1e6**0.25)
    with pytest.warns(RuntimeWarning, match="too few"):
        pdnac.theory(1e4, mixing_time=100, epsilon=0.25)
    rows = pdnac.comparison(known, PDNACConfig(), Hyper())
    assert ["alpha", "0.001", "0.3", "-"] in rows
    assert next(row for row in rows if row[0] == "gamma_npg")[-1] == "0.0455"
