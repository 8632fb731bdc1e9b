"""Low-thrust control as an environment: contract, rewards, ends, and accuracy of a segment."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError, PrecisionError
from jaxlab.core.spaces import Box
from jaxlab.core.testing import check_env
from jaxlab.core.wrappers import TimeLimit
from jaxlab.envs.cr3bp import dop853, dynamics
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.construction import default_environment, make_environment
from jaxlab.envs.cr3bp.dop853 import Phase
from jaxlab.envs.cr3bp.environment import circular
from jaxlab.envs.cr3bp.propagation import propagate
from jaxlab.envs.cr3bp.transfers import circular_start, make_transfer, thruster_in_units

KEY = jax.random.key(0)


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def env():
    with jax.enable_x64(True):
        return default_environment()


@pytest.fixture(scope="module")
def step(env):
    with jax.enable_x64(True):
        return jax.jit(env.step)


def begin(env, **changes):
    params = env.nominal_params().replace(**changes)
    return params, *env.reset(KEY, params)


def test_the_contract_of_environments():
    env = default_environment(angle=(0.5, 6.0), segment=0.5, trail=8)
    report = check_env(TimeLimit(env, 5), steps=9, batch=2, batch_steps=2, eager_steps=1)
    assert report.steps == {"float64": 9}
    assert report.episodes["float64"] >= 1


def test_the_contract_in_space():
    env = default_environment(spatial=True, substeps=2, inclination=0.2, trail=4)
    check_env(env, steps=2, batch=2, batch_steps=1, eager_steps=0)
    params = env.sample_params(KEY)
    assert params.start.shape == (7,)
    assert params.start[2] != 0
    state, timestep = env.reset(KEY, params)
    assert timestep.obs.shape == (20,)
    assert env.action_space(params) == Box(-1.0, 1.0, (3,), "float64")
    assert env.render(state, params).shape == (256, 512, 3)


def reference(state, action, params):
    """The end of a segment by adaptive steps, with the thrust in the equations."""
    craft = params.spacecraft
    thrust = craft.acceleration * action

    def rates(phase, _):
        pull = dynamics.ballistic(phase.position, phase.velocity, params.mu)
        rate = -jnp.linalg.norm(thrust) / craft.exhaust_speed
        push = [t / phase.rest[0] for t in thrust]
        return tuple(a + p for a, p in zip(pull, push, strict=True)), (rate + 0 * phase.rest[0],)

    columns = [c[None] for c in state]
    start = Phase(tuple(columns[:2]), tuple(columns[2:4]), (columns[4],))
    error = dop853.Error(1e-14, 1e-14)
    end = dop853.integrate(rates, start, params.segment[None], error=error).phase
    return jnp.concatenate([*end.position, *end.velocity, *end.rest])


def test_a_segment_against_adaptive_steps(env, step):
    """A coast, full thrust, and passages of Titan as close as the resolution tells."""
    solve = jax.jit(reference)
    params, state, _ = begin(env)
    for action in ([0.0, 0.0], [0.6, -0.8], [-0.3, 0.1]):
        new, timestep = step(KEY, state, jnp.array(action), params)
        exact = solve(state.state, jnp.array(action), params)
        np.testing.assert_allclose(new.state, exact, rtol=0, atol=1e-13)
        assert timestep.info["resolution"] < 0.05
        state = new
    coast = propagate(params.start[:4], params.segment, params.mu).state
    first, _ = step(KEY, env.reset(KEY, params)[0], jnp.zeros(2), params)
    np.testing.assert_allclose(first.state[:4], coast, rtol=0, atol=1e-12)
    assert first.state[4] == pytest.approx(1.0, abs=1e-15)
    resolved = []
    for distance in (0.04, 0.025, 0.018, 0.012, 0.008):
        titan = 1 - params.mu
        speed = jnp.sqrt(2 * params.mu / distance)
        start = jnp.array([titan + distance, 0, 0, 0, 1.0]).at[3].set(speed)
        params, state, _ = begin(env, start=start)
        new, timestep = step(KEY, state, jnp.zeros(2), params)
        gap = np.abs(new.state - solve(start, jnp.zeros(2), params)).max()
        resolved.append((float(timestep.info["resolution"]), gap))
    assert all(gap < 1e-10 for pace, gap in resolved if pace < 0.2), resolved
    assert [pace < 0.2 for pace, _ in resolved] == [True] * 4 + [False], resolved
    assert resolved[-1][1] > 1e-9  # and the flag is of use


def test_the_return_is_the_gap_at_the_start_less_the_objective(env, step):
    params, state, first = begin(env)
    total, steps = 0.0, 6
    for n in range(steps):
        action = jnp.array([np.cos(n), np.sin(n)])
        state, timestep = step(KEY, state, action, params)
        total += float(timestep.reward)
    burnt = 1 - float(state.state[-1])
    craft = params.spacecraft
    expected = steps * params.segment * craft.acceleration / craft.exhaust_speed
    assert burnt == pytest.approx(float(expected), rel=1e-12)
    cost = params.weights @ jnp.array([burnt, steps * 0.25])
    assert total == pytest.approx(float(first.info["gap"] - state.gap - cost), abs=1e-12)
    assert timestep.info["time"] == steps * 0.25


def test_actions_longer_than_one_are_scaled(env, step):
    params, state, _ = begin(env)
    one, _ = step(KEY, state, jnp.array([0.6, 0.8]), params)
    long, _ = step(KEY, state, jnp.array([6.0, 8.0]), params)
    np.testing.assert_allclose(long.state, one.state, rtol=0, atol=1e-15)
    half, _ = step(KEY, state, jnp.array([0.3, 0.4]), params)
    assert 1 - half.state[-1] == pytest.approx(float(1 - one.state[-1]) / 2, rel=1e-12)


def test_arrival_and_what_comes_after_it(env, step):
    """From a node of the target orbit the next segment ends on it."""
    node = env.nominal_params().target[17]
    params, state, first = begin(env, start=jnp.append(node, 0.95))
    assert first.info["gap"] < 1e-12
    assert not first.terminated
    state, timestep = step(KEY, state, jnp.zeros(2), params)
    # On the orbit, which the polygon of its nodes cuts short by less than this.
    assert timestep.info["gap"] < 1e-4
    assert timestep.terminated
    assert timestep.info["arrived"]
    after, timestep = step(KEY, state, jnp.ones(2), params)
    assert timestep.reward == 0
    jax.tree.map(np.testing.assert_array_equal, after, state)


@pytest.mark.parametrize("primary", [0, 1])
def test_a_collision_is_flagged_without_nan(env, step, primary):
    """At rest in the inertial frame it falls straight into the primary, from a segment's fall."""
    params, *_ = begin(env)
    mu = float(params.mu)
    mass, place = ((1 - mu, -mu), (mu, 1 - mu))[primary]
    # Free fall from here takes half a segment (Kepler: pi sqrt(r^3 / 8 m)).
    distance = (8 * mass * (0.125 / np.pi) ** 2) ** (1 / 3)
    start = jnp.array([place + distance, 0, 0, -distance, 1.0])
    for action in (jnp.zeros(2), jnp.full(2, jnp.nan)):
        tiny = params.replace(start=start, collision_radius=jnp.array([1e-3, 1e-4]))
        state, _ = env.reset(KEY, tiny)
        state, timestep = step(KEY, state, action, tiny)
        assert timestep.info["collided"]
        assert timestep.terminated
        assert not timestep.info["arrived"]
        for leaf in jax.tree.leaves((state, timestep)):
            assert np.isfinite(leaf).all()
    assert timestep.reward == pytest.approx(-1 - 1e-4 * 0.25)  # did not move at all


def test_a_fast_passage_between_two_steps_is_a_collision(env, step):
    params, *_ = begin(env)
    start = jnp.array([1 - params.mu - 0.1, 0.0, 20.0, 0.0, 1.0])
    params, state, _ = begin(env, start=start)
    state, timestep = step(KEY, state, jnp.zeros(2), params)
    assert timestep.info["collided"]
    assert float(state.state[0]) < 1 - float(params.mu)


def test_without_propellant_the_thrust_ends(env, step):
    params, state, _ = begin(env)
    craft = params.spacecraft.replace(dry_mass=jnp.asarray(1 - 3.6e-4))
    params = params.replace(spacecraft=craft)
    timesteps = []
    for _ in range(2):
        state, timestep = step(KEY, state, jnp.array([1.0, 0.0]), params)
        timesteps.append(timestep)
    assert float(timesteps[0].info["mass"]) > 1 - 9.1e-4
    burn = float(craft.acceleration / craft.exhaust_speed * params.segment)
    lasting = 3.6e-4 / burn
    assert 0 < lasting < 1
    assert timesteps[0].info["out_of_propellant"]
    assert timesteps[0].terminated
    assert float(timesteps[0].info["mass"]) == pytest.approx(1 - 3.6e-4, abs=1e-15)
    assert timesteps[1].reward == 0


def test_observations(env):
    params, state, timestep = begin(env)
    obs = np.asarray(timestep.obs)
    own = np.asarray(params.start[:4])
    np.testing.assert_array_equal(obs[:4], own)
    gaps = np.linalg.norm(np.asarray(params.target) - own, axis=1)
    assert np.linalg.norm(obs[4:8]) == pytest.approx(float(state.gap))
    assert 0.99 * gaps.min() < float(state.gap) <= gaps.min()
    away = own[:2] - [1 - float(params.mu), 0]
    np.testing.assert_allclose(obs[8:10], away)
    np.testing.assert_allclose(obs[10:12], away / np.linalg.norm(away))
    np.testing.assert_allclose(obs[12:], [np.log(np.linalg.norm(away)), 1.0], atol=1e-12)
    _, _, far = begin(env, start=params.start.at[0].set(1e3))
    assert np.abs(far.obs).max() == 10


def test_tasks_differ_by_their_start(env):
    tasks = jax.vmap(env.sample_params)(jax.random.split(KEY, 64))
    mu = float(env.nominal_params().mu)
    position = np.asarray(tasks.start[:, :2]) + np.array([mu, 0])
    radius = np.linalg.norm(position, axis=1)
    assert ((radius > 0.8) & (radius < 0.9)).all()
    assert np.ptp(radius) > 0.08
    assert len(set(np.sign(position).astype(int).view("i8,i8").ravel().tolist())) == 4
    angle = np.arctan2(position[5, 1], position[5, 0])
    expected = circular_start(mu, radius[5], angle)
    np.testing.assert_allclose(tasks.start[5, :4], expected, rtol=0, atol=1e-14)
    tilted = circular(mu, radius[5], angle, 0.3, 3)
    turning = np.array([-tilted[1], tilted[0] + mu, 0])
    inertial = tilted[3:] + turning
    assert np.linalg.norm(inertial) == pytest.approx(np.sqrt((1 - mu) / radius[5]))
    normal = np.cross(tilted[:3] + np.array([mu, 0, 0]), inertial)
    assert normal[2] / np.linalg.norm(normal) == pytest.approx(np.cos(0.3))


def test_a_reward_has_a_derivative_by_the_action(env):
    params, state, _ = begin(env)
    reward = jax.jit(lambda action: env.step(KEY, state, action, params)[1].reward)
    action = jnp.array([0.3, -0.2])
    slope = jax.grad(reward)(action)
    h = 1e-5
    rise = [(reward(action + h * e) - reward(action - h * e)) / (2 * h) for e in np.eye(2)]
    np.testing.assert_allclose(slope, rise, rtol=1e-5)
    assert np.isfinite(jax.grad(reward)(jnp.zeros(2))).all()


def test_pictures(env, step):
    params, state, _ = begin(env)
    empty = env.render(state, params)
    assert empty.dtype == np.uint8
    assert empty.shape == (256, 256, 3)
    for _ in range(3):
        state, _ = step(KEY, state, jnp.ones(2), params)
    flown = env.render(state, params)
    blue = (120, 160, 255)
    assert (flown == blue).all(-1).sum() > (empty == blue).all(-1).sum() + 10
    # More segments than the ring keeps.
    short = dataclasses.replace(env, trail=2)
    state = short.reset(KEY, params)[0]
    ring = state.replace(trail=jnp.array([[0.5, 0.5], [0.5, 0.4]]), steps=jnp.int32(4))
    assert (short.render(ring, params) == blue).all(-1).any()


def test_32_bits_are_refused(env):
    params = env.nominal_params()
    with jax.enable_x64(False), pytest.raises(PrecisionError, match="64-bit"):
        env.reset(KEY, params)


def transfer():
    row = published_orbit("st-dro-small")
    thruster = thruster_in_units(row.system, thrust=1.0, mass=1e3, specific_impulse=3e3)
    orbit = row.initial()[[0, 1, 3, 4]]
    mu = row.system.mass_parameter
    return make_transfer(
        mu, circular_start(mu, 0.5), thruster, orbit, row.period, duration=(1.0, 9.0)
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"dry_mass": 1.0}, "dry_mass"),
        ({"segment": 0.0}, "segment"),
        ({"tolerance": float("nan")}, "tolerance"),
        ({"collision_radius": (0.1, -1.0)}, "two positive"),
        ({"penalty": -1.0}, "penalty"),
        ({"substeps": 0}, "substeps"),
        ({"trail": 1.5}, "trail"),
        ({"radius": (0.9, 0.8)}, "from and to"),
        ({"radius": (0.0, 0.8)}, "must be positive"),
        ({"inclination": 0.1}, "in space"),
    ],
)
def test_mistakes_are_named(fields, message):
    with pytest.raises(ConfigError, match=message):
        make_environment(transfer(), **fields)
