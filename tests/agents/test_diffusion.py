"""The diffusion learner: what a step does."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents import diffusion
from jaxlab.agents.diffusion import Hyper
from jaxlab.agents.diffusion import learner as learner_
from jaxlab.core.errors import PrecisionError
from jaxlab.core.testing import check_learner
from tests.agents.diffusion_toys import (
    SMALL,
    assert_same_bits,
    begun,
    gradient_of,
    largest,
    small,
    small_data,
)


def test_contract():
    check_learner(small()[0], Hyper(data=small_data()), steps=3)


# What one step does


def test_average_of_parameters_by_hand():
    _, init, steps = small()
    state = init(jax.random.key(0), Hyper(data=small_data(), ema_decay=0.7))
    expected = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(state.params)]
    assert_same_bits(state.ema, state.params)
    for t in range(4):
        state, _ = steps(state, t, 1)
        new = jax.tree.leaves(state.params)
        expected = [0.7 * a + 0.3 * np.asarray(p) for a, p in zip(expected, new, strict=True)]
    for found, wanted in zip(jax.tree.leaves(state.ema), expected, strict=True):
        np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert_same_bits(diffusion.model(state).params, state.ema)
    assert_same_bits(diffusion.model(state, averaged=False).params, state.params)


def test_warm_up_and_first_step_of_adam():
    _, init, steps = small()
    state = init(jax.random.key(0), Hyper(data=small_data(), learning_rate=0.1, warmup_steps=4.0))
    after, metrics = steps(state, 0, 6)
    np.testing.assert_allclose(
        metrics["learning_rate"].value, [0.025, 0.05, 0.075, 0.1, 0.1, 0.1], rtol=1e-6
    )
    first, _ = steps(state, 0, 1)
    # Adam's first change is the sign of the gradient, whatever its size.
    change = first.params["last"]["bias"] - state.params["last"]["bias"]
    np.testing.assert_allclose(jnp.abs(change), 0.025, rtol=1e-3)
    assert largest(after.params) > 0


def test_gradient_is_clipped():
    _, init, steps = small()
    for bound in (1e-3, 1e6):
        state = init(jax.random.key(0), Hyper(data=small_data(), max_gradient_norm=bound))
        state, metrics = steps(state, 0, 1)
        norm = float(metrics["gradient_norm"].value[0])
        assert 1e-3 < norm < 1e6
        moment = np.sqrt(sum(np.sum(np.square(m)) for m in jax.tree.leaves(state.optimiser.mu)))
        # The first moment is a tenth of the clipped gradient.
        np.testing.assert_allclose(moment, 0.1 * min(norm, bound), rtol=1e-4)


def test_loss_of_a_network_that_says_zero():
    """The first prediction is zero; a velocity has variance one, as have noise and data."""
    learner, init, _ = small()
    state = init(jax.random.key(0), Hyper(data=small_data()))
    loss = jax.jit(jax.vmap(learner.step.__self__._loss, (None, None, 0)))
    keys = jax.random.split(jax.random.key(1), 128)
    mean = np.mean(loss(state.params, state, keys))
    # The mean of 8192 squares of a Gaussian has deviation sqrt(2 / 8192).
    assert abs(mean - 1) < 5 * np.sqrt(2 / 8192)
    doubled = state.replace(data=state.data.replace(weights=2 * state.data.weights))
    np.testing.assert_allclose(np.mean(loss(state.params, doubled, keys)), 2 * mean, rtol=1e-5)


def test_what_the_network_is_shown(monkeypatch):
    """Every time from 1 to T, noisy rows in use with their own conditions, some dropped."""
    shown = {}

    def record(config, params, x, t, cond, keep):
        shown.update(x=x, t=np.asarray(t), cond=np.asarray(cond), keep=np.asarray(keep))
        return jnp.zeros_like(x)

    monkeypatch.setattr(learner_, "predict", record)
    agent = diffusion.make(dataclasses.replace(SMALL, batch_size=2000)).step.__self__
    # Conditions count the rows; the data are far from zero and from each other.
    index = np.arange(1.0, 11.0)
    data = diffusion.dataset(np.stack([index, -index], -1), index[:, None], capacity=16)
    config = dataclasses.replace(agent.config, scaling="none")
    agent = dataclasses.replace(agent, config=config)
    state = agent.init(jax.random.key(0), Hyper(data=data, drop_probability=0.2))
    agent._loss(state.params, state, jax.random.key(1))
    assert set(shown["t"]) == set(range(1, 51))
    assert set(shown["cond"][:, 0]) == set(index)
    # 2000 draws at 0.8 have a deviation of 0.009.
    assert abs(shown["keep"].mean() - 0.8) < 5 * 0.009
    signal = np.sqrt(agent.schedule.alpha_bar[shown["t"]])[:, None]
    noise = np.sqrt(1 - signal**2)
    drawn = (shown["x"] - signal * shown["cond"] * [1, -1]) / noise
    assert abs(drawn.mean()) < 5 / np.sqrt(4000)
    assert abs(drawn.var() - 1) < 5 * np.sqrt(2 / 4000)


def test_scaling():
    x = np.array([[1.0, 5.0, 2.0], [3.0, 5.0, 4.0], [8.0, 5.0, 0.0], [1e6, 1e6, 1e6]])
    data = diffusion.dataset(x, weights=[1.0, 1.0, 2.0, 0.0], capacity=6)
    config = dataclasses.replace(SMALL, shape=(3,), conditions=0)
    for kind in ("standardise", "range", "none"):
        learner = diffusion.make(dataclasses.replace(config, scaling=kind))
        state = jax.jit(learner.init)(jax.random.key(0), Hyper(data=data))
        scaled = np.asarray(state.data.x[:3])
        back = state.scaling.from_network(state.data.x[:3])
        np.testing.assert_allclose(back, x[:3], rtol=1e-5, atol=1e-5)
        if kind == "standardise":
            np.testing.assert_allclose(scaled.mean(0), 0, atol=1e-6)
            # A constant coordinate is only moved.
            np.testing.assert_allclose(scaled.std(0), [1, 0, 1], rtol=1e-5, atol=1e-6)
        elif kind == "range":
            np.testing.assert_allclose(scaled.min(0), [-1, 0, -1], atol=1e-6)
            np.testing.assert_allclose(scaled.max(0), [1, 0, 1], atol=1e-6)
        else:
            np.testing.assert_array_equal(scaled, x[:3].astype(np.float32))


def test_rows_without_weight_and_padding_do_not_matter():
    """Neither the loss nor its gradient knows what such rows hold."""
    rng = np.random.default_rng(1)
    x, cond = rng.normal(size=(40, 2)), rng.normal(size=(40, 1))
    weights = np.where(np.arange(40) % 4 == 0, 0.0, 1.0)
    spoiled = np.where(weights[:, None] > 0, x, np.nan)
    data = diffusion.dataset(x, cond, weights, capacity=48)
    unknown = np.where(weights[:, None] > 0, cond, np.inf)
    same = diffusion.dataset(spoiled, unknown, weights, capacity=48)
    assert data.x.shape == (48, 2)
    np.testing.assert_allclose(np.mean(same.weights[:40]), 1, rtol=1e-6)
    np.testing.assert_allclose(data.effective_sample_size, 30)
    _, init, _ = small()
    states = [init(jax.random.key(0), Hyper(data=d)) for d in (data, same)]
    assert_same_bits(states[0].scaling, states[1].scaling)
    filled = states[0].data
    filled = filled.replace(x=filled.x.at[40:].set(jnp.nan), weights=filled.weights.at[40:].set(9))
    states.append(states[0].replace(data=filled))
    # Trained parameters, since at first the network says zero whatever the gradient's path.
    results = [gradient_of()(begun().params, state) for state in states]
    assert largest(results[0][1]) > 0
    assert_same_bits(results[0], results[1])
    assert_same_bits(results[0], results[2])


@pytest.mark.parametrize("drop", [0.0, 1.0])
def test_gradient_reaches_the_condition_or_the_null_embedding(drop):
    state = begun()
    hyper = dataclasses.replace(state.hyper, drop_probability=jnp.float32(drop))
    _, gradient = gradient_of()(state.params, state.replace(hyper=hyper))
    embedding = gradient["embedding"]
    size = {name: largest(embedding[name]) for name in ("cond_in", "cond_out", "null")}
    if drop:
        assert size["cond_in"] == size["cond_out"] == 0 < size["null"]
    else:
        assert size["null"] == 0 < min(size["cond_in"], size["cond_out"])


def test_rows_are_drawn_anew_each_step():
    state = begun()
    _, _, steps = small()
    losses = {float(steps(state, t, 1)[1]["loss"].value[0]) for t in range(5, 8)}
    assert len(losses) == 3


def test_same_key_same_bits_and_another_key_others():
    _, init, steps = small()
    hyper = Hyper(data=small_data())
    first, second, other = (steps(init(jax.random.key(s), hyper), 0, 3)[0] for s in (0, 0, 1))
    assert_same_bits(first, second)
    assert np.any(first.params["first"]["kernel"] != other.params["first"]["kernel"])


def test_precision():
    """Under x64 everything has the configured precision, whatever the data's."""
    with jax.enable_x64(True):
        for dtype in ("float32", "float64"):
            learner = diffusion.make(dataclasses.replace(SMALL, dtype=dtype))
            key, hyper = jax.random.key(0), Hyper(data=small_data())
            state = jax.eval_shape(learner.init, key, hyper)
            state, metrics = jax.eval_shape(learner.step, state, jnp.int32(0))
            tree = (state.params, state.ema, state.optimiser, state.data, state.scaling)
            assert {leaf.dtype.name for leaf in jax.tree.leaves(tree)} == {dtype, "int32"}
            assert metrics["loss"].value.dtype == dtype
            assert jax.eval_shape(learner.act, state, jnp.zeros(1), key).dtype == dtype
    with pytest.raises(PrecisionError, match="x64 is off"):
        diffusion.make(dataclasses.replace(SMALL, dtype="float64"))


# What is learned
