"""Programs as an environment."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from jaxlab.core.errors import ConfigError, ProgramError
from jaxlab.core.testing import check_env
from jaxlab.envs.autumn.environment import SIMPLE, Autumn
from jaxlab.envs.autumn.pictures import picture, write_gif

FALLING = """(program (= GRID_SIZE 5) (object A (: n Number) (Cell 0 0 "red"))
 (: as (List A)) (= as (initnext (map (--> p (A 1 p)) (randomPositions 5 2)) (updateObj (prev as) moveDown)))
 (on (& clicked (isFreePos click)) (= as (addObj (prev as) (A 2 click))))
 (on (> (length as) 5) (= as (list (head (filter (--> a (== (.. a n) 3)) as))))))"""
RISING = FALLING.replace("moveDown", "moveUp").replace('"red"', '"teal"')


@pytest.fixture(scope="module")
def env():
    return Autumn((FALLING, RISING), capacity=8)


def test_it_meets_the_contract(env):
    report = check_env(env, steps=60, batch=2, batch_steps=2, eager_steps=1, precisions=["float32"])
    assert report.episodes["float32"] > 0


def test_it_meets_the_contract_in_reference_mode():
    env = Autumn((FALLING,), random="reference", capacity=8)
    check_env(env, steps=20, batch=2, batch_steps=2, eager_steps=1, precisions=["float64"])


def params_of(env, variant, seed=5):
    params = env.sample_params(jax.random.key(0))
    return params.replace(variant=jnp.int32(variant), seed=jnp.uint32(seed))


def test_the_task_picks_program_and_seed(env):
    step = jax.jit(env.step)
    rows = []
    for variant in (0, 1):
        params = params_of(env, variant)
        state, first = env.reset(jax.random.key(0), params)
        _, after = step(jax.random.key(1), state, jnp.int32(0), params)
        rows.append([np.argwhere(np.asarray(step.obs) > 1)[:, 0] for step in (first, after)])
        shade = env.palette[int(np.max(first.obs))]
        assert shade == ("red", "teal")[variant]
    assert sorted(rows[0][0]) == sorted(rows[1][0])
    assert all(rows[0][1] == rows[0][0][rows[0][0] < 4] + 1)


def test_a_click_paints_and_reset_begins_again(env):
    params = params_of(env, 0)
    step = jax.jit(env.step)
    state, first = env.reset(jax.random.key(0), params)
    state, clicked = step(jax.random.key(1), state, jnp.int32(env.click(3, 1)), params)
    assert clicked.obs[1, 3] == env.palette.index("red")
    state, again = step(jax.random.key(2), state, jnp.int32(SIMPLE.index("reset")), params)
    np.testing.assert_array_equal(again.obs, first.obs)


def test_a_failed_program_ends_the_episode_and_raises_on_the_host(env):
    params = params_of(env, 0)
    step = jax.jit(env.step)
    state, timestep = env.reset(jax.random.key(0), params)
    for x in range(4):
        env.require_sound(timestep)
        action = jnp.int32(env.click(x, 0))
        state, timestep = step(jax.random.key(x), state, action, params)
    assert timestep.terminated
    with pytest.raises(ProgramError, match="head of an empty list"):
        env.require_sound(timestep)


def test_what_is_asked_for_is_checked(env):
    with pytest.raises(ConfigError, match="outside the grid"):
        env.click(5, 0)
    with pytest.raises(ConfigError, match="one GRID_SIZE"):
        Autumn((FALLING, FALLING.replace("SIZE 5", "SIZE 6")))
    with pytest.raises(ConfigError, match="tuple"):
        Autumn(FALLING)


def test_pictures_have_the_colours_of_the_palette(env, tmp_path):
    params = params_of(env, 0)
    state, timestep = env.reset(jax.random.key(0), params)
    image = env.render(state, params)
    assert image.shape == (80, 80, 3)
    assert {tuple(p) for p in image.reshape(-1, 3).tolist()} == {(0, 0, 0), (255, 0, 0)}
    np.testing.assert_array_equal(image, picture(timestep.obs, env.palette))
    write_gif(tmp_path / "run.gif", np.stack([timestep.obs] * 3 + [timestep.obs * 0]), env.palette)
    with Image.open(tmp_path / "run.gif") as gif:
        assert (gif.size, gif.n_frames) == ((80, 80), 2)
