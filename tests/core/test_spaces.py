"""Spaces: samples are members, members of other shapes, dtypes and values are not."""

import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.spaces import Box, Discrete, Tree, as_mapping, zeros

INTEGERS = ("int8", "uint8", "int16", "int32", "uint32")
shapes = st.sampled_from([(), (0,), (2, 3)])


@st.composite
def integer_boxes(draw):
    dtype = draw(st.sampled_from(INTEGERS))
    limits = np.iinfo(dtype)
    ends = st.integers(limits.min, limits.max) | st.sampled_from([limits.min, limits.max])
    low, high = sorted((draw(ends), draw(ends)))
    return Box(low, high, draw(shapes), dtype)


@st.composite
def float_boxes(draw):
    ends = st.floats(-1e3, 1e3, width=32)
    low, high = sorted((draw(ends), draw(ends)))
    low = draw(st.sampled_from([low, -math.inf]))
    high = draw(st.sampled_from([high, math.inf]))
    return Box(low, high, draw(shapes), draw(st.sampled_from(["float32", "float16", "bfloat16"])))


discretes = st.builds(
    Discrete, st.integers(1, 9), shapes, st.sampled_from(["int8", "uint8", "int32"])
)
booleans = shapes.map(lambda shape: Box(0, 1, shape, "bool"))
leaves = discretes | integer_boxes() | float_boxes() | booleans
trees = st.recursive(
    leaves, lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(Tree)
)


@settings(max_examples=40, deadline=None)
@given(trees, st.integers(0, 2**31 - 1))
def test_samples_are_members(space, seed):
    sample = space.sample(jax.random.key(seed))
    assert space.contains(sample)
    assert hash(space) == hash(space)
    same = jax.tree.map(lambda x, y: x.shape == y.shape, sample, zeros(space))
    assert all(jax.tree.leaves(same))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integers_reach_both_ends_of_their_range(dtype):
    limits = np.iinfo(dtype)
    for low, high in (
        (limits.min, limits.min + 1),
        (limits.max - 1, limits.max),
        (-math.inf, math.inf),
    ):
        sample = np.asarray(Box(low, high, (4000,), dtype).sample(jax.random.key(0)))
        assert sample.dtype == dtype
        if math.isinf(low):
            middle = (int(limits.min) + int(limits.max)) / 2
            assert 0.4 < np.mean(sample > middle) < 0.6
        else:
            assert set(sample.tolist()) == {low, high}


def test_double_precision_boxes():
    with jax.enable_x64(True):
        space = Box(-1, 1, (3,), "float64")
        sample = space.sample(jax.random.key(0))
        assert sample.dtype == jnp.float64
        assert space.contains(sample)
        assert not space.contains(sample.astype(jnp.float32))
        assert Discrete(3, (2,)).sample(jax.random.key(0)).dtype == jnp.int32
        mask = jnp.ones((2, 3), bool)
        assert Discrete(3, (2,)).sample(jax.random.key(0), mask).dtype == jnp.int32


@pytest.mark.parametrize(
    ("space", "value"),
    [
        (Discrete(3), jnp.int32(3)),
        (Discrete(3), jnp.int32(-1)),
        (Discrete(3), jnp.float32(1)),
        (Discrete(3, (2,)), jnp.int32(1)),
        (Box(0, 1, (2,)), jnp.array([0.0, 1.5])),
        (Box(0, 1, (2,)), jnp.array([0.0, jnp.nan])),
        (Box(0, 1, (2,)), jnp.array([0.5])),
        (Box(0, 1, (2,)), jnp.array([0, 1], jnp.int32)),
        (Box(0, 1, (2,), "bool"), jnp.array([0, 1], jnp.int8)),
        (Tree({"a": Discrete(2)}), {"b": jnp.int32(0)}),
        (Tree({"a": Discrete(2)}), {"a": jnp.int32(0), "b": jnp.int32(0)}),
        (Tree({"a": Discrete(2)}), jnp.int32(0)),
        (Tree({"a": Tree({"b": Discrete(2)})}), {"a": {"b": jnp.int32(2)}}),
    ],
)
def test_others_are_no_members(space, value):
    assert not space.contains(value)
    assert not jax.jit(space.contains)(value)


def test_integers_of_any_dtype_name_a_choice():
    # Learners take actions from argmax, whose dtype depends on the precision.
    assert Discrete(3).contains(jnp.int8(2))


def test_masked_samples_are_legal_and_uniform():
    mask = jnp.array([[True, False, True, True], [False, True, False, False]])
    space = Discrete(4, (2,), "int8")
    keys = jax.random.split(jax.random.key(0), 6000)
    samples = np.asarray(jax.vmap(space.sample, (0, None))(keys, mask))
    assert samples.dtype == np.int8
    assert set(samples[:, 1]) == {1}
    share = np.bincount(samples[:, 0], minlength=4) / 6000
    np.testing.assert_allclose(share, [1 / 3, 0, 1 / 3, 1 / 3], atol=0.03)


@struct.dataclass
class Seen:
    a: jax.Array
    b: jax.Array


class Named(NamedTuple):
    a: jax.Array
    b: jax.Array


@pytest.mark.parametrize("kind", [Seen, Named, dict])
def test_trees_hold_mappings_dataclasses_and_named_tuples(kind):
    space = Tree({"b": Discrete(2), "a": Box(0, 1, (2,))})
    value = kind(a=jnp.array([0.0, 1.0]), b=jnp.int32(1))
    assert space.contains(value)
    assert sorted(as_mapping(value)) == ["a", "b"]
    assert not space.contains(kind(a=jnp.array([0.0, 2.0]), b=jnp.int32(1)))


def test_only_named_parts_are_a_mapping():
    assert as_mapping(jnp.zeros(3)) is None
    assert as_mapping((1, 2)) is None
    assert as_mapping(Seen) is None


def test_spaces_compare_by_value():
    assert Tree({"a": Discrete(2), "b": Box(0, 1)}) == Tree({"b": Box(0, 1), "a": Discrete(2)})
    assert Tree({"a": Discrete(2)}) != Tree({"a": Discrete(3)})
    assert Tree({"a": Discrete(2)})["a"] == Discrete(2)
    with pytest.raises(KeyError):
        Tree({})["a"]


def test_zeros_have_the_shape_of_members():
    space = Tree({"mask": Box(0, 1, (2,), "bool"), "in": Tree({"x": Box(-1, 1, (3,), "float16")})})
    value = zeros(space)
    assert value["mask"].dtype == bool
    assert value["in"]["x"].shape == (3,)
    assert isinstance(value["mask"], np.ndarray)
