"""Checkpoints on disk: both formats, there and back, and everything that can be wrong."""

from __future__ import annotations

import json

import gguf as gguf_format
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import safetensors.numpy

from jaxlab.core.errors import CheckpointError
from jaxlab.llm import config as configs
from jaxlab.llm import gguf, language_model, rope
from jaxlab.llm import safetensors as folders
from jaxlab.llm.decoder import named_weights
from jaxlab.llm.tensors import file_tensors
from tests.llm import checkpoints

SETTINGS = checkpoints.SETTINGS
#: Sizes that quantised blocks of 32 divide, and room for the tokeniser of the tests.
WIDE = {"hidden_size": 32, "intermediate_size": 64, "head_dim": 8, "vocab_size": 272}
TYPES = gguf_format.GGMLQuantizationType


@jax.jit
def logits_of(decoder):
    return decoder(jnp.asarray(checkpoints.TOKENS))


@pytest.fixture
def folder(tmp_path):
    return checkpoints.write_folder(tmp_path / "model", SETTINGS["smollm2"])


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_what_is_saved_is_read_again(tmp_path, name):
    original = folders.load(checkpoints.write_folder(tmp_path / "a", SETTINGS[name]))
    folders.save(original, tmp_path / "b")
    again = folders.load(tmp_path / "b")
    assert again.config == original.config
    for weight, value in named_weights(original).items():
        np.testing.assert_array_equal(value, named_weights(again)[weight])
    with_names = safetensors.numpy.load_file(tmp_path / "b" / "model.safetensors")
    for tensor, value in checkpoints.tensors(SETTINGS[name]).items():
        np.testing.assert_array_equal(with_names[tensor], value)


def test_shards_hold_what_one_file_holds(tmp_path, folder):
    decoder = folders.load(folder)
    folders.save(decoder, tmp_path / "shards", shard_bytes=10_000)
    index = json.loads((tmp_path / "shards" / "model.safetensors.index.json").read_text())
    assert len(set(index["weight_map"].values())) > 2
    assert index["metadata"]["total_size"] == 4 * decoder.config.num_parameters()
    again = folders.load(tmp_path / "shards")
    np.testing.assert_array_equal(logits_of(again), logits_of(decoder))


def test_bfloat16_there_and_back(tmp_path, folder):
    rough = folders.load(folder, "bfloat16")
    folders.save(rough, tmp_path / "rough")
    stored = safetensors.numpy.load_file(tmp_path / "rough" / "model.safetensors")
    assert {str(array.dtype) for array in stored.values()} == {"bfloat16"}
    np.testing.assert_array_equal(
        logits_of(folders.load(tmp_path / "rough", "bfloat16")), logits_of(rough)
    )
    exact = folders.load(tmp_path / "rough", "float32")
    assert {weight.dtype for weight in named_weights(exact).values()} == {jnp.dtype("float32")}


@pytest.mark.parametrize("name", ["smollm2", "qwen2", "qwen3", "smollm3", "phi4"])
def test_gguf_holds_what_a_folder_holds(tmp_path, name):
    expected = folders.load(checkpoints.write_folder(tmp_path / "folder", SETTINGS[name]))
    path = checkpoints.write_gguf(tmp_path / "model.gguf", SETTINGS[name])
    decoder, metadata = gguf.load(path)
    assert decoder.config == expected.config
    assert metadata["general.architecture"] == expected.config.family
    np.testing.assert_array_equal(logits_of(decoder), logits_of(expected))


def test_gguf_with_stretched_wavelengths(tmp_path):
    """GGUF stores the factors; those of Llama 3.2's real context are recognised."""
    scaling = SETTINGS["llama3"]["rope_scaling"] | {"original_max_position_embeddings": 8192}
    settings = SETTINGS["llama3"] | {"rope_scaling": scaling, "rope_theta": 500000.0}
    config = configs.from_huggingface(settings)
    factors = rope.stretch(config.rope_scaling, config.rope_theta, config.rotary_dim)
    path = checkpoints.write_gguf(tmp_path / "model.gguf", settings, factors=factors)
    assert gguf.load(path)[0].config == config


@pytest.mark.parametrize("kind", ["F16", "Q8_0", "Q4_0", "Q4_1"])
def test_quantised_gguf_holds_the_dequantised_weights(tmp_path, kind):
    settings = SETTINGS["qwen2"] | WIDE
    path = checkpoints.write_gguf(tmp_path / "model.gguf", settings, TYPES[kind])
    decoder, _ = gguf.load(path)
    weights = named_weights(decoder)
    errors = []
    for tensor in file_tensors(decoder.config):
        if tensor.columns is None or not tensor.stacked:
            continue
        original = checkpoints.tensor(tensor.huggingface.format(layer=1), tensor.shape)
        stored = gguf_format.dequantize(gguf_format.quantize(original, TYPES[kind]), TYPES[kind])
        (piece, _), *_ = tensor.pieces
        np.testing.assert_array_equal(weights[piece][1], stored.T)
        errors.append(np.abs(stored - original).max())
    assert 0 < max(errors) < {"F16": 1e-3, "Q8_0": 0.01, "Q4_0": 0.2, "Q4_1": 0.15}[kind]


def test_gguf_to_folder_and_back_keeps_logits_and_tokens(tmp_path):
    path = checkpoints.write_gguf(tmp_path / "m.gguf", SETTINGS["smollm2"] | WIDE, TYPES.Q4_1)
    model = language_model.load(path)
    language_model.save(model, tmp_path / "saved", shard_bytes=50_000)
    again = language_model.load(tmp_path / "saved")
    np.testing.assert_array_equal(logits_of(model.decoder), logits_of(again.decoder))
    assert again.tokenizer.encode("hello, 12") == model.tokenizer.encode("hello, 12")
    assert again.tokenizer.stop_ids == model.tokenizer.stop_ids == (2,)


def test_transformers_reads_what_is_saved_needs_extra_bench(tmp_path):
    """The live twin of the recorded logits, where torch and transformers are installed."""
    torch = pytest.importorskip("torch", reason="needs torch: the extra bench")
    transformers = pytest.importorskip("transformers", reason="needs transformers: extra bench")
    for name, settings in SETTINGS.items():
        decoder = folders.load(checkpoints.write_folder(tmp_path / name, settings))
        folders.save(decoder, tmp_path / "saved" / name)
        model = transformers.AutoModelForCausalLM.from_pretrained(
            tmp_path / "saved" / name, dtype=torch.float32
        )
        with torch.no_grad():
            expected = model(torch.from_numpy(checkpoints.TOKENS).long()).logits.numpy()
        np.testing.assert_allclose(logits_of(decoder), expected, atol=1e-4, err_msg=name)


def rewrite(folder, change):
    path = folder / "model.safetensors"
    tensors = safetensors.numpy.load_file(path)
    change(tensors)
    safetensors.numpy.save_file(tensors, path)


def test_a_missing_tensor_is_named(folder):
    rewrite(folder, lambda tensors: tensors.pop("model.layers.2.mlp.up_proj.weight"))
    with pytest.raises(CheckpointError, match=r"lacks the tensor model\.layers\.2\.mlp\.up_proj"):
        folders.load(folder)


def test_a_wrong_shape_is_named(folder):
    def cut(tensors):
        name = "model.layers.1.self_attn.k_proj.weight"
        tensors[name] = np.ascontiguousarray(tensors[name][:-1])

    rewrite(folder, cut)
    message = r"layers\.1\.self_attn\.k_proj\.weight has shape \[11, 24\]; expected \[12, 24\]"
    with pytest.raises(CheckpointError, match=message):
        folders.load(folder)


def test_a_tensor_that_the_decoder_lacks_is_named(folder):
    extra = "model.layers.0.self_attn.q_proj.bias"
    rewrite(folder, lambda tensors: tensors.update({extra: np.zeros(24, np.float32)}))
    with pytest.raises(CheckpointError, match=r"q_proj\.bias, which a llama decoder does not have"):
        folders.load(folder)


def test_copies_of_a_tied_embedding_are_left_out(folder):
    expected = logits_of(folders.load(folder))
    rewrite(folder, lambda t: t.update({"lm_head.weight": t["model.embed_tokens.weight"].copy()}))
    np.testing.assert_array_equal(logits_of(folders.load(folder)), expected)


@pytest.mark.parametrize("kept", [4, 60, 0.5, 0.999])
def test_a_truncated_file_is_said_to_be_one(folder, kept):
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data[: kept if kept > 1 else int(kept * len(data))])
    with pytest.raises(CheckpointError, match=r"model\.safetensors: truncated"):
        folders.load(folder)


@pytest.mark.parametrize("kept", [0, 3, 12, 30, 400, 0.5, 0.98])
def test_a_truncated_gguf_file_is_said_to_be_one(tmp_path, kept):
    path = checkpoints.write_gguf(tmp_path / "model.gguf", SETTINGS["smollm2"])
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if 0 < kept < 1 else kept])
    with pytest.raises(CheckpointError, match=r"model\.gguf: truncated or no GGUF"):
        gguf.load(path)


def test_a_missing_shard_is_named(tmp_path, folder):
    folders.save(folders.load(folder), tmp_path / "shards", shard_bytes=10_000)
    lost = sorted((tmp_path / "shards").glob("*.safetensors"))[1]
    lost.unlink()
    with pytest.raises(CheckpointError, match=lost.name):
        folders.load(tmp_path / "shards")


def test_an_index_without_a_map_is_named(tmp_path, folder):
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text("{}")
    with pytest.raises(CheckpointError, match="weight_map"):
        folders.load(folder)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "mamba"}, "'mamba': not supported; expected one of llama"),
        ({"model_type": None}, "not supported"),
        ({"rope_scaling": {"rope_type": "yarn"}}, "rope_type = yarn"),
        ({"attention_bias": True}, "attention_bias"),
        ({"mlp_bias": True}, "mlp_bias"),
        ({"hidden_act": "gelu"}, "hidden_act = gelu"),
        ({"sliding_window": 16}, "sliding_window = 16"),
        ({"num_key_value_heads": 3}, "4 query heads do not divide among 3"),
        ({"num_hidden_layers": None}, "lacks num_hidden_layers"),
        ({"vocab_size": 0}, "vocab_size = 0"),
    ],
)
def test_a_configuration_that_is_not_supported_is_named(folder, change, message):
    (folder / "config.json").write_text(json.dumps(SETTINGS["smollm2"] | change))
    with pytest.raises(CheckpointError, match=message):
        folders.load(folder)


@pytest.mark.parametrize("text", ["", "[]", "{", '{"model_type": '])
def test_a_configuration_that_is_no_json_object_is_named(folder, text):
    (folder / "config.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"config\.json"):
        folders.load(folder)


def test_missing_files_are_named(tmp_path, folder):
    with pytest.raises(CheckpointError, match="expected a folder"):
        language_model.load(tmp_path / "nowhere")
    with pytest.raises(CheckpointError, match="not there"):
        language_model.load(tmp_path / "nowhere.gguf")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match="no weights there"):
        folders.load(folder)
    (folder / "config.json").unlink()
    with pytest.raises(CheckpointError, match="not there"):
        folders.load(folder)


def test_a_tokenizer_larger_than_the_embedding_is_refused(tmp_path):
    path = checkpoints.write_gguf(tmp_path / "m.gguf", SETTINGS["smollm2"])
    with pytest.raises(CheckpointError, match="belong to different checkpoints"):
        language_model.load(path)


def test_another_architecture_in_gguf_is_named(tmp_path):
    writer = gguf_format.GGUFWriter(tmp_path / "m.gguf", "mamba")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(CheckpointError, match="'mamba': not supported"):
        gguf.load(tmp_path / "m.gguf")
