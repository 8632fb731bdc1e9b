"""What a decoder looks like: sizes, rotary embedding, and the switches of each family.

One table, `FAMILIES`, names what tells the Llama, SmolLM, Qwen2.5, Qwen3, SmolLM3 and
Phi-4 checkpoints apart; the decoder knows only the fields of `ModelConfig`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import numpy as np

from jaxlab.core.errors import CheckpointError
from jaxlab.llm.rope import RopeScaling, scaling_of

DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class Family:
    """What is common to all checkpoints of an architecture.

    Attributes:
      model_type: `model_type` of `config.json` and `general.architecture` of GGUF.
      architecture: Class name in `config.json`.
      qkv_bias: Whether the q, k and v projections have a bias.
      qk_norm: Whether each head of q and k is normalised.
      fused: Whether q, k, v are one tensor, and gate and up another.
      interleaved_rope: Whether GGUF stores q and k for rotation of (even, odd) pairs.
      rope_period: Every layer of this number leaves the rotary embedding out; 0 for none.
    """

    model_type: str
    architecture: str
    qkv_bias: bool = False
    qk_norm: bool = False
    fused: bool = False
    interleaved_rope: bool = False
    rope_period: int = 0


FAMILIES = {
    family.model_type: family
    for family in (
        Family("llama", "LlamaForCausalLM", interleaved_rope=True),
        Family("qwen2", "Qwen2ForCausalLM", qkv_bias=True),
        Family("qwen3", "Qwen3ForCausalLM", qk_norm=True),
        Family("smollm3", "SmolLM3ForCausalLM", interleaved_rope=True, rope_period=4),
        Family("phi3", "Phi3ForCausalLM", fused=True),
    )
}


@dataclasses.dataclass(frozen=True)
class ModelConfig:
    """Static structure of a decoder.

    Attributes:
      family: Key of `FAMILIES`.
      vocab_size: Rows of the embedding.
      hidden_size: Width of the residual stream.
      num_layers: Number of layers.
      num_heads: Query heads.
      num_kv_heads: Key and value heads; each serves `num_heads / num_kv_heads` query heads.
      head_dim: Width of a head.
      intermediate_size: Width of the feed-forward part.
      context_length: Most positions, prompt and answer together.
      rope_theta: Base of the rotary embedding's wavelengths.
      rope_scaling: Stretch of the wavelengths, or None.
      rotary_dim: How many leading entries of a head are rotated.
      rope_layers: For each layer, whether it uses the rotary embedding.
      norm_eps: Added to the mean square in RMS norms.
      tied: Whether the head is the embedding.
      qkv_bias: Whether q, k and v have a bias.
      qk_norm: Whether the heads of q and k are normalised.
      dtype: `float32` or `bfloat16`, of weights and activations. Norms, rotations, softmax
        and logits are float32 in both.
    """

    family: str
    vocab_size: int
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    context_length: int
    rope_theta: float
    rotary_dim: int
    rope_layers: tuple[bool, ...]
    rope_scaling: RopeScaling | None = None
    norm_eps: float = 1e-5
    tied: bool = True
    qkv_bias: bool = False
    qk_norm: bool = False
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for name in (
            "vocab_size",
            "hidden_size",
            "num_layers",
            "num_heads",
            "num_kv_heads",
            "head_dim",
            "intermediate_size",
            "context_length",
        ):
            _require(getattr(self, name) >= 1, f"{name} = {getattr(self, name)}: expected >= 1")
        _require(
            self.num_heads % self.num_kv_heads == 0,
            f"{self.num_heads} query heads do not divide among {self.num_kv_heads} key heads",
        )
        _require(
            self.rotary_dim % 2 == 0 and 0 < self.rotary_dim <= self.head_dim,
            f"rotary_dim = {self.rotary_dim}: expected an even number up to {self.head_dim}",
        )
        _require(
            len(self.rope_layers) == self.num_layers,
            f"rope_layers has {len(self.rope_layers)} entries for {self.num_layers} layers",
        )
        _require(self.dtype in DTYPES, f"dtype = {self.dtype}: expected {' or '.join(DTYPES)}")

    @property
    def traits(self) -> Family:
        """What is common to the family."""
        return FAMILIES[self.family]

    def num_parameters(self) -> int:
        """Number of weights."""
        heads = (2 * self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        layer = self.hidden_size * (heads + 3 * self.intermediate_size + 2)
        layer += self.qkv_bias * (self.num_heads + 2 * self.num_kv_heads) * self.head_dim
        layer += self.qk_norm * 2 * self.head_dim
        embeddings = (1 if self.tied else 2) * self.vocab_size * self.hidden_size
        return self.num_layers * layer + embeddings + self.hidden_size


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise CheckpointError(f"model configuration: {message}")


def family_of(model_type: Any) -> Family:
    """The family of a `model_type`.

    Raises:
      CheckpointError: The architecture is not one of `FAMILIES`.
    """
    if model_type not in FAMILIES:
        raise CheckpointError(
            f"architecture {model_type!r}: not supported; expected one of {', '.join(FAMILIES)} "
            "(Llama, SmolLM, SmolLM2; Qwen2.5; Qwen3; SmolLM3; Phi-4)"
        )
    return FAMILIES[model_type]


def from_huggingface(settings: Mapping[str, Any], dtype: str = "float32") -> ModelConfig:
    """Configuration from the contents of `config.json`.

    Args:
      settings: The JSON object.
      dtype: `float32` or `bfloat16`, whatever the file says.

    Raises:
      CheckpointError: The architecture, or one of its options, is not supported.
    """
    family = family_of(settings.get("model_type"))

    def need(name: str) -> Any:
        _require(settings.get(name) is not None, f"config.json lacks {name}")
        return settings[name]

    # Newer files keep all that concerns the rotary embedding in one object.
    rope = settings.get("rope_parameters") or settings.get("rope_scaling") or {}
    context = int(need("max_position_embeddings"))
    window = settings.get("sliding_window")
    if settings.get("use_sliding_window", window is not None) and window is not None:
        _require(
            int(window) >= context,
            f"sliding_window = {window}: sliding-window attention is not supported",
        )
    _require(not settings.get("attention_bias", False), "attention_bias is not supported")
    _require(not settings.get("mlp_bias", False), "mlp_bias is not supported")
    activation = settings.get("hidden_act", "silu")
    _require(activation == "silu", f"hidden_act = {activation}: expected silu")
    heads, layers = int(need("num_attention_heads")), int(need("num_hidden_layers"))
    head_dim = int(settings.get("head_dim") or int(need("hidden_size")) // heads)
    partial = settings.get("partial_rotary_factor") or rope.get("partial_rotary_factor") or 1.0
    return ModelConfig(
        family=family.model_type,
        vocab_size=int(need("vocab_size")),
        hidden_size=int(need("hidden_size")),
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=int(settings.get("num_key_value_heads") or heads),
        head_dim=head_dim,
        intermediate_size=int(need("intermediate_size")),
        context_length=context,
        rope_theta=float(rope.get("rope_theta") or settings.get("rope_theta") or _theta(family)),
        rope_scaling=_rope_scaling(rope),
        rotary_dim=int(head_dim * float(partial)),
        rope_layers=_rope_layers(settings, family, layers),
        norm_eps=float(need("rms_norm_eps")),
        tied=bool(settings.get("tie_word_embeddings", family.model_type == "smollm3")),
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        dtype=dtype,
    )


def _theta(family: Family) -> float:
    """The first Llama files do not say it."""
    _require(family.model_type == "llama", "config.json lacks rope_theta")
    return 10000.0


def _rope_scaling(rope: Mapping[str, Any]) -> RopeScaling | None:
    kind = rope.get("rope_type") or rope.get("type") or "default"
    if kind == "default":
        return None
    _require(kind == "llama3", f"rope_type = {kind}: expected default or llama3")
    return RopeScaling(
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_context=int(rope["original_max_position_embeddings"]),
    )


def _rope_layers(settings: Mapping[str, Any], family: Family, layers: int) -> tuple[bool, ...]:
    """`no_rope_layers` has, against its name, a one for each layer that does rotate."""
    listed = settings.get("no_rope_layers")
    if listed is not None and family.rope_period:
        return tuple(bool(flag) for flag in listed)
    period = int(settings.get("no_rope_layer_interval") or family.rope_period)
    return _periodic(layers, period if family.rope_period else 0)


def _periodic(layers: int, period: int) -> tuple[bool, ...]:
    return tuple(not period or (layer + 1) % period != 0 for layer in range(layers))


def to_huggingface(config: ModelConfig) -> dict[str, Any]:
    """Contents of `config.json` for a configuration."""
    settings: dict[str, Any] = {
        "architectures": [config.traits.architecture],
        "model_type": config.family,
        "vocab_size": config.vocab_size,
        "hidden_size": config.hidden_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.context_length,
        "rope_theta": config.rope_theta,
        "rope_scaling": None,
        "partial_rotary_factor": config.rotary_dim / config.head_dim,
        "rms_norm_eps": config.norm_eps,
        "tie_word_embeddings": config.tied,
        "hidden_act": "silu",
        "torch_dtype": config.dtype,
        "use_cache": True,
        # Left out they default to ids of each family's own vocabulary; those of this
        # checkpoint stand in generation_config.json.
        "bos_token_id": None,
        "eos_token_id": None,
        "pad_token_id": None,
    }
    if config.rope_scaling is not None:
        settings["rope_scaling"] = {
            "rope_type": "llama3",
            "factor": config.rope_scaling.factor,
            "low_freq_factor": config.rope_scaling.low_freq_factor,
            "high_freq_factor": config.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": config.rope_scaling.original_context,
        }
    if config.traits.rope_period:
        settings["no_rope_layers"] = [int(flag) for flag in config.rope_layers]
        settings["no_rope_layer_interval"] = config.traits.rope_period
    return settings


def from_gguf(
    metadata: Mapping[str, Any],
    *,
    tied: bool,
    rope_factors: np.ndarray | None = None,
    dtype: str = "float32",
) -> ModelConfig:
    """Configuration from the metadata of a GGUF file.

    Args:
      metadata: Values by key.
      tied: Whether the file has no head of its own.
      rope_factors: The tensor `rope_freqs.weight`, by which the frequencies are divided.
      dtype: `float32` or `bfloat16`.

    Raises:
      CheckpointError: The architecture is not supported, or a key is missing.
    """
    family = family_of(metadata.get("general.architecture"))
    name = family.model_type

    def get(key: str, default: Any = None) -> Any:
        found = metadata.get(f"{name}.{key}", default)
        _require(found is not None, f"the GGUF file lacks {name}.{key}")
        return found

    kind = metadata.get(f"{name}.rope.scaling.type", "none")
    _require(kind == "none", f"{name}.rope.scaling.type = {kind}: expected none")
    heads, width, layers = (
        int(get(key)) for key in ("attention.head_count", "embedding_length", "block_count")
    )
    head_dim = int(get("attention.key_length", width // heads))
    rotary_dim = int(get("rope.dimension_count", head_dim))
    theta = float(get("rope.freq_base", 10000.0))
    tokens = metadata.get("tokenizer.ggml.tokens")
    vocab_size = get("vocab_size", None if tokens is None else len(tokens))
    return ModelConfig(
        family=name,
        vocab_size=int(vocab_size),
        hidden_size=width,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=int(get("attention.head_count_kv", heads)),
        head_dim=head_dim,
        intermediate_size=int(get("feed_forward_length")),
        context_length=int(get("context_length")),
        rope_theta=theta,
        rope_scaling=scaling_of(rope_factors, theta, rotary_dim),
        rotary_dim=rotary_dim,
        rope_layers=_periodic(layers, family.rope_period),
        # Stored as float32: the shortest decimal is what the original file said.
        norm_eps=float(str(np.float32(get("attention.layer_norm_rms_epsilon")))),
        tied=tied,
        qkv_bias=family.qkv_bias,
        qk_norm=family.qk_norm,
        dtype=dtype,
    )
