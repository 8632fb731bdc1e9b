"""Control of fields as an environment."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.core.testing import check_env
from jaxlab.envs.pde.environment import FieldControl

BURGERS = FieldControl(points=16, substeps=4)


def close(env):
    """Tasks that are so easy that episodes end within a few steps."""

    def sample(key):
        params = env.sample_params(key)
        tolerance = jnp.full_like(params.tolerance, 0.1)
        return dataclasses.replace(params, tolerance=tolerance, initial=params.initial * 0.8)

    return sample


@pytest.mark.parametrize(
    "env",
    [BURGERS, FieldControl("heat_neumann", points=12, actuators=2, actuation="boundary")],
    ids=["burgers", "heat"],
)
def test_it_keeps_the_contract(env):
    report = check_env(env, sample_params=close(env), steps=24, batch=2, batch_steps=2)
    assert min(report.episodes.values()) >= 1


def test_heat_let_in_through_the_walls_stays():
    """Without flux the mean changes by what the actions let in."""
    env = FieldControl("heat_neumann", points=12, actuators=2, actuation="boundary")
    params = env.sample_params(jax.random.key(0))
    params = dataclasses.replace(params, tolerance=jnp.zeros(()))
    state, _ = env.reset(jax.random.key(1), params)
    dx = 2 / 13
    before = state.field.sum() * dx
    for _ in range(3):
        state, _ = env.step(jax.random.key(1), state, jnp.array([1.0, -0.4]), params)
    np.testing.assert_allclose(state.field.sum() * dx - before, 3 * 0.05 * 0.6, rtol=1e-12)


def test_pushing_against_the_field_pays():
    params = dataclasses.replace(BURGERS.sample_params(jax.random.key(3)), tolerance=jnp.zeros(()))
    shapes = jnp.asarray(BURGERS.shapes())
    step = jax.jit(BURGERS.step)
    returns = {}
    for gain in (0.0, 2.0):
        state, timestep = BURGERS.reset(jax.random.key(0), params)
        total = 0.0
        for _ in range(40):
            action = jnp.clip(-gain * shapes @ timestep.obs["field"] / 4, -1, 1)
            state, timestep = step(jax.random.key(0), state, action, params)
            total += float(timestep.reward)
        returns[gain] = total
    assert returns[2.0] > 0.8 * returns[0.0]
    assert float(timestep.info["error"]) < 0.01


def test_a_field_too_fast_for_the_scheme_ends_the_episode():
    params = BURGERS.sample_params(jax.random.key(0))
    params = dataclasses.replace(params, initial=jnp.full(16, 4.0))
    state, timestep = BURGERS.reset(jax.random.key(0), params)
    state, timestep = BURGERS.step(jax.random.key(0), state, jnp.zeros(4), params)
    assert bool(state.diverged)
    assert bool(timestep.terminated)
    np.testing.assert_array_equal(state.field, params.initial)


def test_gradients_flow_through_a_step():
    params = BURGERS.sample_params(jax.random.key(0))
    state, _ = BURGERS.reset(jax.random.key(0), params)

    def reward(action):
        return BURGERS.step(jax.random.key(0), state, action, params)[1].reward

    action, h = jnp.array([0.3, -0.2, 0.1, 0.5]), 1e-6
    gradient = jax.grad(reward)(action)
    for i in range(4):
        d = jnp.zeros(4).at[i].set(h)
        np.testing.assert_allclose(
            gradient[i], (reward(action + d) - reward(action - d)) / (2 * h), rtol=1e-6
        )


def test_pictures_show_the_field():
    params = BURGERS.sample_params(jax.random.key(0))
    state, _ = BURGERS.reset(jax.random.key(0), params)
    picture = BURGERS.render(state, params)
    assert (picture.shape, picture.dtype) == ((128, 256, 3), np.uint8)
    assert (picture == 230).any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"equation": "wave"}, "equation 'wave'"),
        ({"actuation": "wind"}, "actuation 'wind'"),
        ({"actuation": "boundary"}, "Burgers is periodic"),
        ({"equation": "heat_neumann", "actuation": "boundary", "actuators": 3}, "not 3"),
        ({"points": 3}, "points 3"),
    ],
)
def test_mistakes_are_named(change, message):
    with pytest.raises(ConfigError, match=message):
        FieldControl(**change)
