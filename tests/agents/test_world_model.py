"""The learned world model on a world that a few hundred steps are enough for."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents.simulator_planner import Goal, PlannerConfig
from jaxlab.agents.world_model import Hyper, ModelPlayer, WorldModelConfig, make, network_of
from jaxlab.agents.world_model.learner import random_action
from jaxlab.core.errors import ConfigError
from jaxlab.core.learner_check import check_learner
from jaxlab.core.training import run
from tests.agents.planner_toys import (
    CLICK_LAMP,
    HERO,
    LAMP_PLACE,
    LEFT,
    RIGHT,
    SIZE,
    WAIT,
    Play,
    make_world,
)

CONFIG = WorldModelConfig(channels=8, embedding=4, batch=16, length=8, episode=24)
SEARCH = PlannerConfig(beam=4, branches=28, pool=64, replanning=20, particles=2)


@pytest.fixture(scope="module")
def world():
    return make_world(toggles=False)


@pytest.fixture(scope="module")
def trained(world):
    return run(make(world, CONFIG), steps=150, chunk=50, progress=False)


@pytest.fixture(scope="module")
def player(world, trained):
    return ModelPlayer(world, network_of(world, CONFIG), trained.seed_state().params, SEARCH)


def test_it_is_a_learner(world):
    tiny = WorldModelConfig(channels=2, embedding=2, batch=2, length=2)
    check_learner(make(world, tiny), Hyper())


def test_it_learns_what_moves_and_what_is_hidden(trained):
    accuracy = trained.metrics["changed_accuracy"][:, 0]
    assert accuracy[-1] > 0.9
    assert trained.metrics["loss"][-1, 0] < 0.3 * trained.metrics["loss"][0, 0]
    assert np.sum(trained.metrics["env_steps"]) == 150 * 128


def test_it_follows_a_world_and_prefers_what_is_behind_the_mask(world, player):
    play = Play(world)
    player.begin(play.frame)
    visible = np.ones((SIZE, SIZE), bool)
    for action in (CLICK_LAMP, RIGHT, RIGHT, LEFT, RIGHT):
        loss = player.see(action, play.act(action))
        assert loss < 0.1
    visible[SIZE - 1, 2:] = False
    frame = play.act(RIGHT)
    player.see(RIGHT, np.where(visible, frame, 0), visible)
    options = np.zeros((3, 1, 3), np.int32)
    options[np.arange(3), 0, np.arange(3)] = HERO
    assert frame[SIZE - 1, 3] == HERO
    assert player.option_scores(options, ~visible).argmax() == 1


def test_what_the_rules_do_not_allow_costs_more(world, player):
    play = Play(make_world(jump_from=3, toggles=False))
    player.begin(play.frame)
    losses = [player.see(a, play.act(a)) for a in (CLICK_LAMP, RIGHT, WAIT, RIGHT)]
    assert losses[-1] > 5 * max(losses[:-1])


def test_it_plans_in_what_it_learnt(world, player):
    play = Play(world)
    picture = np.zeros((SIZE, SIZE), np.int32)
    picture[SIZE - 1, 2] = HERO
    mask = np.zeros((SIZE, SIZE), bool)
    mask[SIZE - 1] = True
    player.begin(play.frame)
    for step in range(10):
        key = jax.random.fold_in(jax.random.key(0), step)
        action = player.plan_act(key, Goal(picture, mask), 10)
        frame = play.act(action)
        player.see(action, frame)
        if frame[SIZE - 1, 2] == HERO:
            break
    assert frame[SIZE - 1, 2] == HERO


def test_actions_at_random_favour_rare_colours(world):
    frame = world.frame(world.init(jax.random.key(0), jnp.int32(0)))
    keys = jax.random.split(jax.random.key(1), 4000)
    drawn = np.asarray(jax.vmap(lambda key: random_action(world, key, frame))(keys))
    assert abs((drawn < 3).mean() - 0.6) < 0.03
    # Four colours are in sight, and the lamp is a colour of its own.
    assert abs((drawn == 3 + LAMP_PLACE).mean() - 0.1) < 0.02


def test_sizes_below_one_are_refused():
    with pytest.raises(ConfigError, match="channels"):
        WorldModelConfig(channels=0)
