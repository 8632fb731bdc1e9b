"""The embedded model itself: fetched once, skipped by name where it cannot be."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import DownloadError
from jaxlab.llm import embedded, language_model
from jaxlab.llm.language_model import LanguageModel
from jaxlab.llm.numbers import number_codec
from jaxlab.llm.sampling import sampling
from jaxlab.llm.tokenizer import token_bytes


@pytest.fixture(scope="module")
def smollm2() -> LanguageModel:
    try:
        return embedded.load_embedded()
    except DownloadError as error:
        pytest.skip(f"needs the embedded model: {error}")


@jax.jit
def full_logits(decoder, tokens):
    return decoder(tokens)


def test_shape_of_smollm2(smollm2):
    config = smollm2.config
    assert (config.num_layers, config.hidden_size, config.num_heads) == (30, 576, 9)
    assert (config.num_kv_heads, config.head_dim, config.context_length) == (3, 64, 8192)
    assert config.tied
    assert config.num_parameters() == 134_515_008


def test_fixed_prompts_give_fixed_greedy_text_with_smollm2(smollm2):
    prompts = ["The capital of France is", "1,2,3,4,5,6,7,8,9,10,11,12,"]
    answer = smollm2.generate(prompts, max_new_tokens=12)
    capital, counting = smollm2.texts(answer)
    assert capital.startswith(" Paris.")
    assert counting.startswith("13,14,15,16")
    question = [{"role": "user", "content": "Name three primary colours."}]
    prompt = smollm2.chat_prompt(question)
    text = smollm2.tokenizer.decode(prompt, skip_special_tokens=False)
    assert text.startswith("<|im_start|>system\nYou are a helpful AI assistant named SmolLM")
    assert text.endswith("colours.<|im_end|>\n<|im_start|>assistant\n")


def test_incremental_and_full_logits_of_smollm2_agree_at_every_position(smollm2):
    text = "Traffic lights at the corner change every ninety seconds, 435,271;900."
    tokens = jnp.array([smollm2.tokenizer.encode(text)], jnp.int32)
    length = tokens.shape[1]
    assert length > 20
    full = full_logits(smollm2.decoder, tokens)
    log_probs = jax.nn.log_softmax(full, axis=-1)
    np.testing.assert_allclose(jnp.exp(log_probs).sum(-1), 1, atol=1e-5)
    logits, cache = jax.jit(lambda d, t, n: d.prefill(t, n, 32))(
        smollm2.decoder, tokens[:, :1], jnp.ones(1, jnp.int32)
    )
    step = jax.jit(lambda s, t, c: s(t, c))
    for place in range(length):
        np.testing.assert_allclose(logits[0], full[0, place], atol=1e-3, err_msg=str(place))
        if place + 1 < length:
            logits, cache = step(smollm2.steps, tokens[:, place + 1], cache)


def test_smollm2_as_a_folder_gives_the_same_logits(smollm2, tmp_path):
    again = language_model.load(language_model.save(smollm2, tmp_path / "folder"))
    tokens = jnp.array([smollm2.tokenizer.encode("The capital of France is")], jnp.int32)
    before, after = full_logits(smollm2.decoder, tokens), full_logits(again.decoder, tokens)
    np.testing.assert_array_equal(before, after)
    assert again.config == smollm2.config
    assert again.tokenizer.chat_template == smollm2.tokenizer.chat_template


def test_tokeniser_of_smollm2(smollm2):
    tokenizer = smollm2.tokenizer
    assert len(tokenizer.encode("435,271;900")) == 11
    assert (tokenizer.bos_id, tokenizer.eos_id, tokenizer.vocab_size) == (1, 2, 49152)
    text = "naïve café — 東京\n\t12.5% don't"
    table = token_bytes(tokenizer)
    assert b"".join(table[token] for token in tokenizer.encode(text)) == text.encode()
    codec = number_codec(tokenizer, 3)
    assert (codec.base, codec.width) == (10, 3)


def test_samples_of_smollm2_differ_and_are_valid(smollm2):
    answer = smollm2.generate(
        ["Once upon a time"],
        max_new_tokens=8,
        samples=4,
        key=jax.random.key(1),
        options=sampling(0.8, 50, 0.95),
    )
    assert len(set(smollm2.texts(answer))) > 1
    assert (answer.log_probs <= 0).all()
    assert (answer.sampled_log_probs >= answer.log_probs - 1e-3).mean() > 0.5
