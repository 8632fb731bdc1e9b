"""Small diffusion models and data that the tests of the learner share."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.agents import diffusion
from jaxlab.agents.diffusion import DiffusionConfig, Hyper
from jaxlab.core.assertions import Traced
from jaxlab.core.training import run

SMALL = DiffusionConfig(
    shape=(2,), conditions=1, width=16, depth=1, embedding=8, timesteps=50, batch_size=32
)
#: Two modes at -0.8 and 0.8 are learned in seconds.
TOY = DiffusionConfig(shape=(1,), width=48, depth=2, embedding=16, timesteps=100, batch_size=128)
MODES, SPREAD = 0.8, 0.1


@functools.cache
def small_data(**changes):
    rng = np.random.default_rng(0)
    arrays = {"x": 3 + 2 * rng.normal(size=(40, 2)), "cond": rng.normal(size=(40, 1))}
    return diffusion.dataset(**(arrays | changes))


@functools.cache
def small(**changes):
    """Learner of a small network, init, and several steps."""
    learner = diffusion.make(dataclasses.replace(SMALL, **changes))
    step = Traced(learner.step)

    def steps(state, start, count):
        metrics = []
        for t in range(start, start + count):
            state, measured = step(state, jnp.int32(t))
            metrics.append(measured)
        assert step.traces == 1
        return state, jax.tree.map(lambda *x: jnp.stack(x), *metrics)

    return learner, jax.jit(learner.init), steps


@functools.cache
def begun():
    """A state a few steps on, where no layer is zero any more."""
    _, init, steps = small()
    return steps(init(jax.random.key(0), Hyper(data=small_data())), 0, 5)[0]


@functools.cache
def gradient_of():
    agent = small()[0].step.__self__

    def loss(params, state):
        return agent._loss(params, state, jax.random.key(7))

    return jax.jit(jax.value_and_grad(loss))


def assert_same_bits(one, other):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(other), strict=True):
        if jnp.issubdtype(a.dtype, jax.dtypes.prng_key):
            a, b = jax.random.key_data(a), jax.random.key_data(b)
        np.testing.assert_array_equal(a, b)


def largest(tree):
    return max(float(jnp.max(jnp.abs(leaf))) for leaf in jax.tree.leaves(tree))


def trained(config, hyper, steps, seed=0):
    """Final state of a run without a folder."""
    result = run(
        diffusion.make(config), steps=steps, hyper=hyper, seed=seed, chunk=steps, progress=False
    )
    return result.seed_state()


def two_modes(rows=2000):
    """Rows around the two modes, half of each, and the sign of their mode."""
    rng = np.random.default_rng(3)
    sign = np.repeat([[-1.0], [1.0]], rows // 2, axis=0)
    return MODES * sign + SPREAD * rng.normal(size=(rows, 1)), sign
