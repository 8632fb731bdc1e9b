"""The decoder against transformers, against itself token by token, and its dtypes."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import CheckpointError
from jaxlab.llm import config as configs
from jaxlab.llm import rope, safetensors
from jaxlab.llm.decoder import Decoder, decode_steps, named_weights, random_weights
from tests.llm import checkpoints

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "llm" / "logits.npz"
NAMES = sorted(checkpoints.SETTINGS)


@pytest.fixture(scope="module")
def decoders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        name: safetensors.load(checkpoints.write_folder(folder / name, settings))
        for name, settings in checkpoints.SETTINGS.items()
    }


@jax.jit
def full_logits(decoder, tokens, valid=None):
    return decoder(tokens, valid=valid)


def fresh(config):
    return Decoder(config, random_weights(jax.random.key(0), config, 0.3))


def random_decoder(name="qwen3", dtype="float32"):
    config = configs.from_huggingface(checkpoints.SETTINGS[name], dtype)
    return jax.jit(fresh, static_argnums=0)(config)


@pytest.mark.parametrize("name", NAMES)
def test_logits_are_those_of_transformers(decoders, name):
    with np.load(GOLDEN) as golden:
        expected = golden[name]
    logits = full_logits(decoders[name], checkpoints.TOKENS)
    assert logits.dtype == jnp.float32
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(logits, expected, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_one_token_at_a_time_gives_the_same_logits(decoders, name):
    """Rows of different lengths; every position is compared."""
    decoder, tokens = decoders[name], jnp.asarray(checkpoints.TOKENS)
    full = full_logits(decoder, tokens)
    steps = decode_steps(decoder)
    # Row 0 starts at slot 2, row 1 at slot 0.
    padded = jnp.stack([jnp.concatenate([jnp.zeros(2, jnp.int32), tokens[0, :2]]), tokens[1, :4]])
    lengths = jnp.array([2, 4], jnp.int32)
    logits, cache = jax.jit(lambda d, t, n: d.prefill(t, n, 12))(decoder, padded, lengths)
    step = jax.jit(lambda s, t, c: s(t, c))
    for offset in range(8):
        np.testing.assert_allclose(logits[0], full[0, 1 + offset], atol=1e-4)
        np.testing.assert_allclose(logits[1], full[1, 3 + offset], atol=1e-4)
        following = jnp.stack([tokens[0, 2 + offset], tokens[1, 4 + offset]])
        logits, cache = step(steps, following, cache)
    assert step._cache_size() == 1


def test_padding_on_either_side_changes_nothing(decoders):
    decoder, tokens = decoders["llama3"], checkpoints.TOKENS
    full = full_logits(decoder, tokens[:, :8])
    flags = np.ones((2, 8), bool)
    for before, after in ((3, 1), (0, 4)):
        room = ((0, 0), (before, after))
        padded = full_logits(decoder, np.pad(tokens[:, :8], room), np.pad(flags, room))
        np.testing.assert_allclose(padded[:, before : before + 8], full, atol=1e-5)


def test_later_tokens_change_nothing(decoders):
    tokens = checkpoints.TOKENS.copy()
    before = full_logits(decoders["qwen2"], tokens)
    tokens[:, 6:] = 5
    after = full_logits(decoders["qwen2"], tokens)
    np.testing.assert_array_equal(before[:, :6], after[:, :6])
    assert not np.allclose(before[:, 6:], after[:, 6:])


def test_layers_without_rotation_do_not_see_positions():
    """Of equal tokens each position is the same, and equal keys leave no trace of order."""
    settings = checkpoints.SETTINGS["smollm3"] | {"no_rope_layers": [0, 0, 0, 0]}
    decoder = jax.jit(fresh, static_argnums=0)(configs.from_huggingface(settings))
    single = {"num_hidden_layers": 1, "no_rope_layers": [0]}
    shallow = jax.jit(fresh, static_argnums=0)(configs.from_huggingface(settings | single))
    logits = full_logits(decoder, np.full((1, 5), 7, np.int32))
    np.testing.assert_allclose(logits[0, 0], logits[0, 4], atol=1e-5)
    first, swapped = np.array([[3, 4, 5, 6, 9]], np.int32), np.array([[5, 3, 4, 6, 9]], np.int32)
    in_order, shuffled = (full_logits(shallow, tokens)[0, 4] for tokens in (first, swapped))
    np.testing.assert_allclose(in_order, shuffled, atol=1e-5)
    rotating = random_decoder("smollm2")
    in_order, shuffled = (full_logits(rotating, tokens)[0, 4] for tokens in (first, swapped))
    assert not np.allclose(in_order, shuffled, atol=1e-2)


def test_stretch_of_long_wavelengths():
    """Closed form: short ones stay, long ones take the factor, the middle is in between."""
    scaling = rope.RopeScaling(8.0, 1.0, 4.0, 8192)
    waves = rope.wavelengths(500000.0, 64)
    factors = rope.stretch(scaling, 500000.0, 64)
    assert (factors[waves < 8192 / 4] == 1).all()
    np.testing.assert_allclose(factors[waves > 8192], 8.0)
    between = (waves > 8192 / 4) & (waves < 8192)
    assert between.any()
    assert ((factors[between] > 1) & (factors[between] < 8)).all()
    assert rope.scaling_of(factors, 500000.0, 64) == scaling
    with pytest.raises(CheckpointError, match="Llama 3"):
        rope.scaling_of(np.linspace(1, 8, 32), 500000.0, 64)


def test_rotation_keeps_norms_and_depends_on_distance_alone():
    positions = jnp.arange(6, dtype=jnp.int32)[None]
    cosine, sine = rope.rotations(positions, 100.0, 8, None)
    heads = jax.random.normal(jax.random.key(0), (1, 1, 2, 8), jnp.float32)
    turned = rope.rotate(jnp.broadcast_to(heads, (1, 6, 2, 8)), cosine, sine)
    norms = jnp.linalg.norm(turned, axis=-1)
    np.testing.assert_allclose(norms, jnp.broadcast_to(norms[:, :1], norms.shape), rtol=1e-5)
    products = jnp.einsum("btd,bsd->ts", turned[:, :, 0], turned[:, :, 1])
    np.testing.assert_allclose(products[1, 3], products[3, 5], atol=1e-5)


@jax.jit
def prefill(decoder):
    return decoder.prefill(jnp.asarray(checkpoints.TOKENS), jnp.array([12, 9], jnp.int32), 16)


def test_bfloat16_weights_give_float32_logits_nearby():
    exact, rough = random_decoder(), random_decoder(dtype="bfloat16")
    assert {w.dtype for w in named_weights(rough).values()} == {jnp.dtype("bfloat16")}
    logits = full_logits(rough, checkpoints.TOKENS)
    assert logits.dtype == jnp.float32
    wanted = full_logits(exact, checkpoints.TOKENS)
    assert jnp.corrcoef(logits.ravel(), wanted.ravel())[0, 1] > 0.99
    assert prefill(rough)[1].keys[0].dtype == jnp.bfloat16


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_dtypes_stay_as_they_are_under_x64(dtype):
    def outputs():
        decoder = random_decoder(dtype=dtype)
        logits, cache = prefill(decoder)
        step = jax.jit(lambda s, c: s(jnp.array([3, 4], jnp.int32), c))
        stepped, cache = step(decode_steps(decoder), cache)
        return jax.tree.map(lambda x: (x.shape, str(x.dtype)), (logits, stepped, cache))

    narrow = outputs()
    with jax.enable_x64(True):
        wide = outputs()
    assert narrow == wide


def test_gradients_are_the_same_when_activations_are_recomputed():
    decoder = random_decoder("qwen2")

    def loss(decoder, remat):
        return jnp.mean(decoder(jnp.asarray(checkpoints.TOKENS), remat=remat) ** 2)

    kept, again = (
        named_weights(jax.jit(jax.grad(loss), static_argnums=1)(decoder, remat))
        for remat in (False, True)
    )
    for name, gradient in kept.items():
        np.testing.assert_allclose(gradient, again[name], atol=1e-5, err_msg=name)
        assert jnp.any(gradient != 0) or name.endswith("k.bias"), name


SHARDED = """
import jax, numpy as np
from jaxlab.core import devices
devices.setup("cpu:2")
from jaxlab.llm.decoder import decode_steps, named_weights
from jaxlab.llm.sharding import shard
from tests.llm import checkpoints
from tests.llm.test_decoder import full_logits, prefill, random_decoder
mesh = jax.make_mesh((2,), ("model",), axis_types=(jax.sharding.AxisType.Auto,))
tokens = checkpoints.TOKENS
decoder = random_decoder("qwen2")
spread = shard(decoder, mesh, "model")
split = [n for n, w in named_weights(spread).items() if not w.sharding.is_fully_replicated]
assert len(split) >= 7, split
np.testing.assert_allclose(full_logits(spread, tokens), full_logits(decoder, tokens), atol=1e-5)
one = decode_steps(decoder)
steps = shard(one, mesh, "model")
assert not steps.layers[0].mlp.gate_up.kernel[...].sharding.is_fully_replicated
step = jax.jit(lambda s, c: s(tokens[:, 0], c)[0])
logits, expected = step(steps, prefill(spread)[1]), step(one, prefill(decoder)[1])
np.testing.assert_allclose(logits, expected, atol=1e-5)
"""


def test_two_devices_agree_with_one():
    done = subprocess.run(
        [sys.executable, "-c", SHARDED],
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
        cwd=pathlib.Path(__file__).parents[2],
    )
    assert done.returncode == 0, done.stderr


def test_number_of_parameters():
    for name in NAMES:
        config = configs.from_huggingface(checkpoints.SETTINGS[name])
        weights = jax.eval_shape(lambda c=config: dict(named_weights(fresh(c))))
        assert sum(weight.size for weight in weights.values()) == config.num_parameters(), name
