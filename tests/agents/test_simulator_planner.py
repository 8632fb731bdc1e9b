"""Search, filter and change-point test on a world small enough to know the answers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents.simulator_planner import (
    ChangeFinder,
    Goal,
    GoalSeeker,
    Planner,
    PlannerConfig,
)
from jaxlab.agents.simulator_planner.beliefs import option_weights
from jaxlab.agents.simulator_planner.novelty import are_new, nothing_seen, novelty
from jaxlab.core.errors import ConfigError
from tests.agents.planner_toys import (
    CLICK_LAMP,
    HERO,
    LAMP,
    LAMP_PLACE,
    LEFT,
    RIGHT,
    SIZE,
    WAIT,
    Play,
    make_world,
)

CONFIG = PlannerConfig(
    beam=4, branches=28, pool=64, iterations=30, replanning=20, exploring=4, particles=32, rounds=3
)


@pytest.fixture(scope="module")
def quiet():
    return Planner(make_world(), CONFIG)


@pytest.fixture(scope="module")
def noisy():
    return Planner(make_world(noisy=True), CONFIG)


def hero_at(x):
    picture = np.zeros((SIZE, SIZE), np.int32)
    picture[SIZE - 1, x] = HERO
    mask = np.zeros((SIZE, SIZE), bool)
    mask[SIZE - 1] = True
    return Goal(picture, mask)


def test_search_finds_the_shortest_way_through_a_hidden_latch(quiet):
    state = quiet.simulator.init(jax.random.key(0), jnp.int32(0))
    plan = quiet.search.find(jax.random.key(1), state, hero_at(3), iterations=30, horizon=20)
    assert plan.reached
    assert plan.distance == 0
    assert plan.actions.tolist() == [CLICK_LAMP, RIGHT, RIGHT, RIGHT]
    assert plan.frames[-1][SIZE - 1, 3] == HERO
    assert plan.frames.shape == (4, SIZE, SIZE)


def test_search_keeps_to_the_horizon(quiet):
    state = quiet.simulator.init(jax.random.key(0), jnp.int32(0))
    plan = quiet.search.find(jax.random.key(1), state, hero_at(4), iterations=30, horizon=3)
    assert not plan.reached
    assert len(plan.actions) <= 3


def test_search_says_how_near_it_came_where_there_is_no_way(quiet):
    state = quiet.simulator.init(jax.random.key(0), jnp.int32(0))
    picture = np.full((SIZE, SIZE), LAMP, np.int32)
    mask = np.zeros((SIZE, SIZE), bool)
    mask[0, :3] = True
    plan = quiet.search.find(
        jax.random.key(1), state, Goal(picture, mask), iterations=10, horizon=20
    )
    assert not plan.reached
    assert plan.distance == 3
    assert len(plan.actions) == 0


def test_a_search_without_a_goal_goes_where_it_has_not_been(quiet):
    state = quiet.simulator.init(jax.random.key(0), jnp.int32(0))
    nowhere = Goal(np.zeros((SIZE, SIZE), np.int32), np.zeros((SIZE, SIZE), bool))
    plan = quiet.search.find(jax.random.key(1), state, nowhere, iterations=8, horizon=20)
    assert len({frame.tobytes() for frame in plan.frames}) > 2
    seen = quiet.search.nothing_seen()
    for x in range(SIZE):
        for lit in (False, True):
            visited = {**state, "x": jnp.int32(x), "lit": jnp.asarray(lit)}
            seen = quiet.search.see(seen, visited)
    plan = quiet.search.find(jax.random.key(1), state, nowhere, iterations=8, horizon=20, seen=seen)
    assert len(plan.actions) == 0


def test_a_seeker_reaches_its_goal_whatever_jumps_about(noisy):
    play = Play(noisy.simulator, seed=5)
    seeker = GoalSeeker(noisy, jax.random.key(2), play.frame, hero_at(3), horizon=40)
    for _ in range(8):
        action = seeker.act()
        frame = play.act(action)
        if frame[SIZE - 1, 3] == HERO:
            break
        seeker.see(action, frame)
    assert frame[SIZE - 1, 3] == HERO
    assert seeker.simulated > 0


def test_the_filter_finds_what_is_hidden_behind_a_mask(noisy):
    play = Play(noisy.simulator, seed=1)
    visible = np.ones((SIZE, SIZE), bool)
    follower = noisy.follow(jax.random.key(0), play.frame)
    for action in (CLICK_LAMP, RIGHT, RIGHT, LEFT):
        follower.see(action, play.act(action))
    visible[SIZE - 1, :4] = False
    for action in (RIGHT, WAIT, RIGHT):
        frame = play.act(action)
        evidence = follower.see(action, np.where(visible, frame, 0), visible)
        assert evidence.distance == 0
    options = np.zeros((4, 1, 4), np.int32)
    options[np.arange(4), 0, np.arange(4)] = HERO
    weights = noisy.choose(follower, options, ~visible)
    assert frame[SIZE - 1, 3] == HERO
    assert weights.argmax() == 3
    assert weights[3] > 0.9
    np.testing.assert_allclose(weights.sum(), 1, rtol=1e-5)


def test_option_weights_count_masked_places_only():
    frames = np.zeros((2, 3, 3), np.int32)
    frames[:, 1, 1] = 1
    options = np.zeros((2, 2, 2), np.int32)
    options[0, 0, 0], options[1, 1, 1] = 1, 1
    corner = np.array([1, 1], np.int32)
    all_of_it = np.asarray(option_weights(frames, options, corner, np.ones((2, 2), bool)))
    # The second option differs in two places, each of which costs 2 nats.
    np.testing.assert_allclose(all_of_it[1] / all_of_it[0], np.exp(-4), rtol=1e-5)
    nothing = np.asarray(option_weights(frames, options, corner, np.eye(2, dtype=bool)[::-1]))
    np.testing.assert_allclose(nothing, 0.5, rtol=1e-6)


@pytest.mark.parametrize("kind", ["quiet", "noisy"])
def test_a_change_is_dated_to_the_first_frame_that_shows_it(kind, request):
    planner = request.getfixturevalue(kind)
    changed = make_world(noisy=kind == "noisy", jump_from=6)
    play = Play(changed, seed=3)
    finder = ChangeFinder(planner, jax.random.key(0), play.frame)
    script = [CLICK_LAMP, RIGHT, LEFT, WAIT, RIGHT, LEFT, RIGHT, LEFT, RIGHT]
    for number, action in enumerate(script, 1):
        report = finder.see(action, play.act(action))
        assert report is None or number >= 7
        if report is not None:
            break
    assert report == 7


@pytest.mark.parametrize("kind", ["quiet", "noisy"])
def test_nothing_is_reported_where_nothing_changed(kind, request):
    planner = request.getfixturevalue(kind)
    play = Play(planner.simulator, seed=7)
    finder = ChangeFinder(planner, jax.random.key(4), play.frame)
    for _ in range(25):
        action = finder.act(100)
        assert finder.see(action, play.act(action)) is None
    assert finder.suspicion is None


def test_states_pass_for_new_once():
    seen = nothing_seen(4, 3)
    prints = jnp.array([5, 9, 5, 11], jnp.uint32)
    valid = jnp.array([True, True, True, False])
    seen, new = are_new(seen, prints, valid)
    assert new.tolist() == [True, True, False, False]
    seen, new = are_new(seen, prints, jnp.ones(4, bool))
    assert new.tolist() == [False, False, False, True]


def test_novelty_tells_colours_nearness_and_features_apart():
    seen = nothing_seen(2, 3)
    features = jnp.zeros((1, 1), jnp.uint32)
    one = jnp.ones(1, bool)

    def level(seen, frame, distance, feature=0):
        frames = jnp.array([frame], jnp.int32)
        return novelty(seen, frames, features + np.uint32(feature), jnp.array([distance]), one)

    seen, first = level(seen, [0, 1], 3)
    seen, again = level(seen, [0, 1], 3)
    seen, nearer = level(seen, [0, 1], 2)
    seen, feature = level(seen, [0, 1], 2, feature=8)
    seen, colour = level(seen, [0, 2], 2)
    assert [float(x[0]) for x in (first, again, nearer, feature, colour)] == [7, 0, 2, 1, 6]


@pytest.mark.parametrize(("field", "value"), [("beam", 3), ("particles", 0), ("pool", 16)])
def test_sizes_that_do_not_fit_are_refused(field, value):
    with pytest.raises(ConfigError, match=field):
        PlannerConfig(**{field: value})


def test_the_lamp_stands_where_the_tests_think():
    assert (
        make_world()
        .frame(make_world().init(jax.random.key(0), jnp.int32(0)))
        .reshape(-1)[LAMP_PLACE]
        == LAMP
    )
