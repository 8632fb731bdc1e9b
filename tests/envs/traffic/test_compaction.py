"""Members of a mask against numpy."""

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.envs.traffic.compaction import members


@jax.jit
def _measured(mask):
    found = members(mask)
    places = jnp.arange(mask.shape[0] + 1, dtype=jnp.int32)
    return found.total, found.before(places), found.locate(places)


@settings(max_examples=60, deadline=None)
@given(
    length=st.sampled_from([1, 2, 31, 32, 33, 64, 100, 257]),
    share=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    seed=st.integers(0, 2**32 - 1),
)
def test_members_are_counted_and_found(length, share, seed):
    mask = np.random.default_rng(seed).uniform(size=length) < share
    total, before, located = (np.asarray(value) for value in _measured(jnp.asarray(mask)))
    places = np.flatnonzero(mask)
    assert total == len(places)
    np.testing.assert_array_equal(before, np.concatenate([[0], np.cumsum(mask)]))
    np.testing.assert_array_equal(located[: len(places)], places)
    assert (located[len(places) :] == length).all()
