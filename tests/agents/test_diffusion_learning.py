"""What the diffusion learner learns, and going on from a model."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.agents import diffusion
from jaxlab.agents.diffusion import Hyper
from jaxlab.core import checkpointing
from jaxlab.core.errors import ConfigError
from jaxlab.core.stages import Stage, run_stages
from tests.agents.diffusion_toys import (
    MODES,
    SMALL,
    SPREAD,
    TOY,
    assert_same_bits,
    begun,
    largest,
    small,
    small_data,
    trained,
    two_modes,
)


@functools.cache
def conditional_toy():
    """Config and state of a model that was told which mode each row is of."""
    config = dataclasses.replace(TOY, conditions=1)
    x, sign = two_modes()
    hyper = Hyper(data=diffusion.dataset(x, sign), learning_rate=2e-3, ema_decay=0.98)
    return config, trained(config, hyper, 500)


@pytest.mark.parametrize("sign", [-1.0, 1.0])
@pytest.mark.parametrize("method", ["ddim", "ddpm"])
def test_modes_by_condition(sign, method):
    config, state = conditional_toy()
    samples = np.asarray(
        diffusion.sample(
            config, diffusion.model(state), jax.random.key(1), 500, jnp.full(1, sign), method=method
        )
    )
    assert abs(samples.mean() - sign * MODES) < 0.05
    assert 0.06 < samples.std() < 0.15
    assert np.mean(np.sign(samples) == sign) > 0.98


def test_without_the_condition_both_modes_come():
    config, state = conditional_toy()
    samples = diffusion.sample(
        config, diffusion.model(state), jax.random.key(1), 500, jnp.ones(1), guidance=0.0
    )
    assert 0.35 < np.mean(np.asarray(samples) > 0) < 0.65
    assert np.mean(np.abs(np.abs(np.asarray(samples)) - MODES) < 4 * SPREAD) > 0.9


def test_act_draws_a_sample():
    config, state = conditional_toy()
    act = jax.jit(diffusion.make(config).act)
    one = act(state, jnp.ones(1), jax.random.key(5))
    assert one.shape == (1,)
    assert abs(float(one[0]) - MODES) < 5 * SPREAD
    model = diffusion.model(state)
    same = diffusion.sample(config, model, jax.random.key(5), 1, jnp.ones(1), steps=50)[0]
    np.testing.assert_allclose(one, same, atol=1e-5)


def share_of_right_mode(state, config=TOY):
    samples = diffusion.sample(
        config, diffusion.model(state), jax.random.key(2), 2000, method="ddpm", steps=50
    )
    return float(np.mean(np.asarray(samples) > 0))


@functools.cache
def base():
    """A model of both modes in equal shares."""
    x, _ = two_modes()
    hyper = Hyper(data=diffusion.dataset(x, capacity=2048), learning_rate=2e-3, ema_decay=0.98)
    return trained(TOY, hyper, 500)


def weighted_data():
    """The same rows, the right mode weighing four times the left one."""
    x, sign = two_modes()
    return diffusion.dataset(x, weights=np.where(sign[:, 0] > 0, 4.0, 1.0), capacity=2048)


def test_weights_move_the_share_of_modes():
    """From equal shares to those of the weights, 0.8; a share of 2000 has deviation 0.011."""
    assert abs(share_of_right_mode(base()) - 0.5) < 0.07
    tuned = diffusion.with_data(base(), weighted_data())
    hyper = Hyper(
        data=weighted_data(), start=diffusion.model(base()), learning_rate=2e-3, ema_decay=0.98
    )
    assert_same_bits(tuned.scaling, base().scaling)
    state = trained(TOY, hyper, 400, seed=1)
    assert abs(share_of_right_mode(state) - 0.8) < 0.07
    # The scaling is that of the start, not of the new data.
    assert_same_bits(state.scaling, base().scaling)


# Going on


def test_new_data_between_steps():
    state = begun()
    _, _, steps = small()
    fresh = small_data(weights=tuple(range(1, 41)))
    changed = diffusion.with_data(state, fresh)
    assert_same_bits((changed.params, changed.optimiser), (state.params, state.optimiser))
    np.testing.assert_allclose(
        state.scaling.from_network(changed.data.x), fresh.x, rtol=1e-5, atol=1e-5
    )
    # The same program serves.
    _, metrics = steps(changed, 5, 1)
    weights = np.arange(1.0, 41.0)
    expected = weights.sum() ** 2 / (weights**2).sum()
    np.testing.assert_allclose(metrics["effective_sample_size"].value, expected, rtol=1e-5)
    with pytest.raises(ConfigError, match=r"data.x has shape \(40, 3\), expected \(40, 2\)"):
        diffusion.with_data(state, diffusion.dataset(np.ones((40, 3)), np.ones((40, 1))))


def test_start_from_a_model():
    _, init, steps = small()
    model = diffusion.model(begun())
    shifted = diffusion.dataset(np.asarray(small_data().x) + 100, small_data().cond)
    state = init(jax.random.key(9), Hyper(data=shifted, start=model))
    assert_same_bits((state.params, state.ema), (model.params, model.params))
    assert_same_bits(state.scaling, model.scaling)
    np.testing.assert_allclose(state.scaling.from_network(state.data.x), shifted.x, rtol=1e-4)
    assert largest(state.optimiser) == 0
    state, _ = steps(state, 0, 1)
    assert np.any(state.params["last"]["bias"] != model.params["last"]["bias"])


def test_saved_state_goes_on_to_the_same_bits(tmp_path):
    _, init, steps = small()
    state = begun()
    checkpointing.save(tmp_path / "checkpoints", 5, state, config={})
    sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding),
        jax.eval_shape(init, jax.random.key(0), Hyper(data=small_data())),
    )
    restored = checkpointing.restore(tmp_path / "checkpoints", abstract)
    assert restored.step == 5
    assert_same_bits(restored.state, state)
    assert_same_bits(steps(restored.state, 5, 2), steps(state, 5, 2))


def test_pipeline_samples_weighs_and_trains_again():
    """Two stages over two seeds: the second one's data are samples of the first one's model."""
    config = dataclasses.replace(SMALL, conditions=0)
    seen = {}

    def again(results):
        model = diffusion.model(results["base"].seed_state(1))
        samples = diffusion.sample(config, model, jax.random.key(0), 30, steps=5)
        weights, size = diffusion.reward_weights(-jnp.sum(samples**2, axis=-1), 2.0)
        data = diffusion.dataset(samples, weights=weights, capacity=40)
        seen.update(model=model, size=size)
        return diffusion.make(config, data=data, start=model)

    first = diffusion.make(config, data=diffusion.dataset(small_data().x))
    results = run_stages(
        [Stage("base", lambda _: first, 4), Stage("tuned", again, 4)],
        hyper=Hyper(),
        seeds=2,
        chunk=2,
        progress=False,
    )
    tuned = results["tuned"].state
    assert tuned.data.x.shape == (2, 40, 2)
    assert_same_bits(jax.tree.map(lambda leaf: leaf[0], tuned.scaling), seen["model"].scaling)
    np.testing.assert_allclose(
        results["tuned"].metrics["effective_sample_size"], seen["size"], rtol=1e-4
    )
    loss = results["tuned"].metrics["loss"]
    assert loss.shape == (2, 2)
    assert np.all(np.isfinite(loss))
    assert np.all(loss[:, 0] != loss[:, 1])


def test_each_seed_may_have_numbers_data_and_a_start_of_its_own():
    learner, init, _ = small()
    key, model = jax.random.key(0), diffusion.model(begun())
    other = diffusion.dataset(np.asarray(small_data().x) * 3, small_data().cond)
    hypers = [
        jax.tree.map(jnp.asarray, Hyper(data=data, start=start, learning_rate=rate))
        for data, start, rate in (
            (small_data(), model, 1e-4),
            (other, model.replace(params=jax.tree.map(lambda x: 2 * x, model.params)), 1e-2),
        )
    ]
    sweep = jax.tree.map(lambda *x: jnp.stack(x), *hypers)
    states = jax.jit(jax.vmap(learner.init, (None, 0)))(key, sweep)
    for index, hyper in enumerate(hypers):
        found = jax.tree.map(lambda leaf, index=index: leaf[index], states)
        assert_same_bits(found, init(key, hyper))


# Mistakes
