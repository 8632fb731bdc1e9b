"""Numbers as tokens: one token a number, or one token a digit, behind one interface.

Llama 3, SmolLM3 and Phi-4 keep up to three digits in one token; SmolLM, SmolLM2 and Qwen
split every digit. A `NumberCodec` writes fixed-width decimals for either kind.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.core.errors import TokenizerError
from jaxlab.llm.sampling import entropy
from jaxlab.llm.tokenizer import Tokenizer


@struct.dataclass
class NumberCodec:
    """Numbers `0 .. base ** width - 1` as `width` tokens each, leading zeros written.

    Attributes:
      symbols: Token of each symbol, int32 `[base]`; base 10 for digits, 1000 for whole
        three-digit numbers.
      values: Symbol of each token, -1 for tokens that are none, int32 `[vocab]`.
      width: Tokens a number.
    """

    symbols: jax.Array
    values: jax.Array
    width: int = struct.field(pytree_node=False)

    @property
    def base(self) -> int:
        """Number of symbols."""
        return self.symbols.shape[0]

    def encode(self, numbers: Int[Array, "*shape"]) -> Int[Array, "*shape width"]:
        """Tokens of numbers, most significant first, int32."""
        powers = self._powers()
        return self.symbols[(numbers[..., None] // powers) % jnp.int32(self.base)]

    def decode(
        self, tokens: Int[Array, "*shape width"]
    ) -> tuple[Int[Array, "*shape"], Bool[Array, "*shape"]]:
        """Numbers of tokens, int32, and whether all tokens of a number were symbols."""
        digits = self.values[tokens]
        numbers = jnp.sum(jnp.maximum(digits, 0) * self._powers(), axis=-1, dtype=jnp.int32)
        return numbers, jnp.all(digits >= 0, axis=-1)

    def log_probs(self, logits: Float[Array, "*shape vocab"]) -> Float[Array, "*shape base"]:
        """Log-probabilities of the symbols among themselves, float32."""
        among = logits[..., self.symbols].astype(jnp.float32)
        return jax.nn.log_softmax(among, axis=-1)

    def score(
        self,
        logits: Float[Array, "*shape width vocab"],
        numbers: Int[Array, "*shape"],
    ) -> tuple[Float[Array, "*shape"], Float[Array, "*shape"]]:
        """Log-probability of numbers and entropy, in nats, summed over a number's tokens.

        Args:
          logits: Before each token of each number, under teacher forcing.
          numbers: The numbers that were written there.
        """
        log_probs = self.log_probs(logits)
        digits = (numbers[..., None] // self._powers()) % jnp.int32(self.base)
        chosen = jnp.take_along_axis(log_probs, digits[..., None], axis=-1)[..., 0]
        return jnp.sum(chosen, axis=-1), jnp.sum(entropy(log_probs), axis=-1)

    def _powers(self) -> Int[Array, " width"]:
        exponents = np.arange(self.width - 1, -1, -1)
        return jnp.asarray(self.base**exponents, jnp.int32)


def number_codec(tokenizer: Tokenizer, digits: int = 3) -> NumberCodec:
    """The codec that a tokeniser's own splitting of digits asks for.

    Args:
      tokenizer: Decides whether numbers are one token or one token a digit.
      digits: Decimal digits of a number.

    Raises:
      TokenizerError: The tokeniser splits such numbers in neither way.
    """
    if not 1 <= digits <= 9:
        raise TokenizerError(f"numbers of {digits} digits: expected 1 to 9")
    single = _symbols(tokenizer, 10, 1)
    whole = _symbols(tokenizer, 10**digits, digits) if 1 < digits <= 3 else None
    if whole is not None:
        symbols, width = whole, 1
    elif single is not None and _splits_digits(tokenizer, digits):
        symbols, width = single, digits
    else:
        raise TokenizerError(
            f"numbers of {digits} digits: this tokenizer writes them neither as one token nor "
            "as one token a digit; expected a tokenizer of the Llama 3, SmolLM or Qwen kind"
        )
    values = np.full(tokenizer.vocab_size, -1, np.int32)
    values[symbols] = np.arange(len(symbols))
    return NumberCodec(symbols=jnp.asarray(symbols), values=jnp.asarray(values), width=width)


def _symbols(tokenizer: Tokenizer, count: int, digits: int) -> np.ndarray | None:
    """Tokens of the numbers of so many digits, None where one takes several tokens."""
    tokens = []
    for number in range(count):
        written = tokenizer.encode(f"{number:0{digits}}", add_special_tokens=False)
        if len(written) != 1:
            return None
        tokens += written
    return np.array(tokens, np.int32)


def _splits_digits(tokenizer: Tokenizer, digits: int) -> bool:
    probes = ("".join(str((i * step + step) % 10) for i in range(digits)) for step in range(10))
    return all(len(tokenizer.encode(p, add_special_tokens=False)) == digits for p in probes)
