"""Random search keeps the best of all that it drew."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents import random_search
from jaxlab.agents.random_search import RandomSearchConfig
from jaxlab.core.errors import ConfigError
from jaxlab.core.testing import check_learner
from jaxlab.core.training import run

CONFIG = RandomSearchConfig(draws=16, keep=5)


def draw(key, count):
    return jax.random.normal(key, (count, 3))


def cost(x):
    return jnp.sum(x**2, 1)


def test_the_best_of_all_draws_are_kept_in_order():
    result = run(random_search.make(cost, draw, CONFIG), steps=4, seeds=2, progress=False)
    for seed in range(2):
        key = result.seed_state(seed).key
        drawn = np.concatenate([draw(jax.random.fold_in(key, t), 16) for t in range(4)])
        expected = np.sort((drawn**2).sum(1))[:5]
        np.testing.assert_allclose(result.state.values[seed], expected, rtol=1e-6)
        np.testing.assert_allclose(
            cost(result.state.positions[seed]), result.state.values[seed], rtol=1e-6
        )
    assert result.metrics["evaluations"].sum() == 2 * 4 * 16


def test_what_has_no_number_comes_last():
    holes = lambda x: jnp.where(x[:, 0] > 0, jnp.nan, cost(x))  # noqa: E731
    state = run(random_search.make(holes, draw, CONFIG), steps=3, progress=False).seed_state()
    assert np.isfinite(state.values).all()
    assert (np.asarray(state.positions)[:, 0] <= 0).all()


def test_it_keeps_the_contract():
    check_learner(random_search.make(cost, draw, CONFIG), None)


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="keep is 9"):
        RandomSearchConfig(draws=8, keep=9)
    with pytest.raises(ConfigError, match="draw gives"):
        random_search.make(cost, lambda key, n: jnp.zeros(n), CONFIG)
    with pytest.raises(ConfigError, match="cost has shape"):
        random_search.make(lambda x: x, draw, CONFIG)
