"""The U-Net of the diffusion model: shapes, gradients, and a simple set of sequences."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from jaxlab.agents import diffusion
from jaxlab.agents.diffusion import DiffusionConfig, Hyper, networks, unet
from jaxlab.core.errors import ConfigError
from jaxlab.core.training import run

#: A length that does not halve without padding.
SMALL = DiffusionConfig(
    shape=(9, 2),
    conditions=1,
    network="unet",
    width=8,
    multipliers=(1, 2),
    groups=2,
    heads=2,
    embedding=16,
    timesteps=100,
    batch_size=32,
)


@functools.cache
def params(config=SMALL):
    """Parameters with noise in every layer, zeros included."""
    fresh = jax.jit(functools.partial(networks.init_params, config))(jax.random.key(0))
    leaves, tree = jax.tree.flatten(fresh)
    rng = np.random.default_rng(0)
    noisy = [x + 0.1 * rng.normal(size=x.shape).astype(np.float32) for x in leaves]
    return jax.tree.unflatten(tree, noisy)


def rows(count=3):
    rng = np.random.default_rng(1)
    x = jnp.asarray(rng.normal(size=(count, *SMALL.shape)), jnp.float32)
    t = jnp.asarray(rng.integers(1, 101, size=count), jnp.int32)
    return x, t, jnp.ones((count, 1), jnp.float32), jnp.ones(count, bool)


@functools.cache
def compiled():
    return jax.jit(functools.partial(networks.predict, SMALL))


def waves(count=512):
    """Sine and cosine over one period, with a random phase: sequences of a circle."""
    phase = np.random.default_rng(2).uniform(0, 2 * np.pi, size=(count, 1))
    angle = phase + 2 * np.pi * np.arange(9) / 9
    return np.stack([np.sin(angle), np.cos(angle)], axis=-1), np.sign(np.sin(phase))


def test_shape_and_levels():
    out = compiled()(params(), *rows())
    assert out.shape == (3, 9, 2)
    assert out.dtype == jnp.float32
    tree = params()
    # Two levels of 8 and 16 channels, and back with what was kept of each; windows of three.
    widths = [tree["down"][i]["conv_out"]["linear"]["kernel"].shape for i in range(2)]
    assert widths == [(24, 8), (48, 16)]
    entering = [tree["up"][i]["conv_in"]["linear"]["kernel"].shape for i in range(2)]
    assert entering == [(96, 8), (48, 8)]
    assert len(tree["shorten"]) == len(tree["lengthen"]) == 1


@pytest.mark.parametrize("stride", [1, 2])
def test_convolution_is_that_of_a_library(stride):
    conv = unet._Conv(2, 4, config=SMALL, rngs=nnx.Rngs(0), stride=stride)
    x = jnp.asarray(np.random.default_rng(0).normal(size=(3, 8, 2)), jnp.float32)
    kernel = conv.linear.kernel[...].reshape(3, 2, 4)
    expected = jax.lax.conv_general_dilated(
        x, kernel, (stride,), ((1, 1),), dimension_numbers=("NHC", "HIO", "NHC")
    )
    np.testing.assert_allclose(conv(x), expected, atol=1e-5)


def test_first_prediction_is_zero():
    fresh = jax.jit(functools.partial(networks.init_params, SMALL))(jax.random.key(0))
    np.testing.assert_array_equal(compiled()(fresh, *rows()), 0)


def test_rows_do_not_see_each_other():
    x, t, cond, keep = rows()
    out = compiled()(params(), x, t, cond, keep)
    other = compiled()(params(), x.at[1].add(1.0), t.at[1].set(50), cond, keep)
    np.testing.assert_allclose(other[::2], out[::2], atol=1e-5)
    assert np.abs(other[1] - out[1]).max() > 1e-2


def test_every_position_sees_every_other():
    """The attention in the middle joins the ends of the sequence."""
    x, t, cond, keep = rows()
    out = compiled()(params(), x, t, cond, keep)
    for position in (0, 8):
        other = compiled()(params(), x.at[:, position].add(3.0), t, cond, keep)
        assert np.abs(other - out).max(axis=(0, 2)).min() > 1e-6


def test_time_and_condition_matter():
    x, t, cond, keep = rows()
    out = compiled()(params(), x, t, cond, keep)
    for changed in (
        (x, jnp.maximum(101 - t, 1), cond, keep),
        (x, t, -cond, keep),
        (x, t, cond, ~keep),
    ):
        assert np.abs(compiled()(params(), *changed) - out).max() > 1e-3
    dropped = compiled()(params(), x, t, cond, ~keep)
    np.testing.assert_array_equal(compiled()(params(), x, t, -cond, ~keep), dropped)


def test_gradient_reaches_every_parameter():
    x, t, cond, keep = rows()
    keep = keep.at[0].set(False)

    def loss(p):
        return jnp.mean(jnp.square(networks.predict(SMALL, p, x, t, cond, keep)))

    gradient = jax.jit(jax.grad(loss))(params())
    for path, leaf in jax.tree_util.tree_flatten_with_path(gradient)[0]:
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        assert np.isfinite(leaf).all(), name
        assert np.abs(leaf).max() > 0, name


@pytest.mark.parametrize("network", ["unet", "mlp"])
def test_length_one_channel_and_no_condition(network):
    config = dataclasses.replace(SMALL, shape=(1, 1), conditions=0, multipliers=(1,))
    if network == "mlp":
        config = dataclasses.replace(config, network="mlp", shape=(1,), depth=1)
    data = diffusion.dataset(np.ones((4, *config.shape)))
    state = jax.eval_shape(diffusion.make(config).init, jax.random.key(0), Hyper(data=data))
    _, metrics = jax.eval_shape(diffusion.make(config).step, state, jnp.int32(0))
    assert metrics["loss"].value.shape == ()


def trained(steps):
    x, sign = waves()
    hyper = Hyper(
        data=diffusion.dataset(x, sign), learning_rate=5e-3, warmup_steps=10.0, ema_decay=0.95
    )
    return run(diffusion.make(SMALL), steps=steps, chunk=20, hyper=hyper, progress=False)


@pytest.mark.slow
def test_learns_waves_a_little():
    """Predicting zero costs one; knowing the circle costs much less."""
    loss = trained(100).metrics["loss"][:, 0]
    assert loss[0] > loss[-1]
    assert loss[-1] < 0.6


@pytest.mark.slow
def test_learns_waves():
    model = diffusion.model(trained(1000).seed_state())
    samples = diffusion.sample(SMALL, model, jax.random.key(0), 200, jnp.ones(1))
    samples = np.asarray(samples)
    # On the circle sine and cosine have a radius of one at every position.
    radius = np.linalg.norm(samples, axis=-1)
    assert np.abs(radius - 1).mean() < 0.15
    # The condition is the sign of the first sine.
    assert np.mean(samples[:, 0, 0] > 0) > 0.9


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"multipliers": ()}, r"multipliers is \(\)"),
        ({"width": 9}, "width is 9, expected a multiple of groups = 2"),
        ({"heads": 3}, "heads is 3, expected a divisor of .* = 16"),
    ],
)
def test_bad_options_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        diffusion.make(dataclasses.replace(SMALL, **change))
