"""Training as an environment."""

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.testing import check_env
from jaxlab.envs.qbm import restricted
from jaxlab.envs.qbm.environment import BoltzmannTraining
from jaxlab.envs.qbm.restricted import RestrictedModel

ENV = BoltzmannTraining(RestrictedModel(3, 1, "XYZ"))


def easy(key):
    """Tasks that random updates solve now and then."""
    return ENV.sample_params(key).replace(tolerance=jnp.full((), 1.1, np.float64))


def test_it_keeps_the_contract():
    report = check_env(ENV, sample_params=easy, steps=24, batch=2, batch_steps=2)
    assert report.episodes["float64"] >= 1


def test_steps_along_the_gradient_pay():
    params = ENV.sample_params(jax.random.key(0)).replace(tolerance=jnp.zeros(()))
    state, timestep = ENV.reset(jax.random.key(1), params)
    step = jax.jit(ENV.step)
    first, rewards = state.divergence, []
    for _ in range(200):
        state, timestep = step(jax.random.key(2), state, -timestep.obs["gradient"], params)
        rewards.append(float(timestep.reward))
    assert min(rewards) > -1e-12
    np.testing.assert_allclose(sum(rewards), first - state.divergence, atol=1e-12)
    assert state.divergence < 0.5 * first
    found = restricted.evaluate(state.parameters, ENV.model, params.target)
    np.testing.assert_allclose(found.divergence, state.divergence, atol=1e-14)


def test_families_leave_terms_out():
    params = jax.vmap(ENV.sample_params)(jax.random.split(jax.random.key(0), 30))
    kinds = np.unique(np.asarray(params.family), axis=0)
    # 3 visible fields; 1, 2 or 3 hidden operators with their field and 3 couplings each.
    assert sorted(kinds.sum(1)) == [7, 11, 15]
    small = jax.tree.map(lambda leaf: leaf[int(np.argmin(params.family.sum(1)))], params)
    state, _ = ENV.reset(jax.random.key(1), small)
    action = jnp.ones(ENV.model.size)
    state, timestep = ENV.step(jax.random.key(2), state, action, small)
    assert np.all(np.asarray(state.parameters)[~small.family] == 0)
    assert np.all(np.asarray(timestep.obs["gradient"])[~small.family] == 0)
