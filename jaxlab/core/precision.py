"""What needs 64-bit floats refuses to go on without."""

from __future__ import annotations

import jax

from jaxlab.core.errors import PrecisionError


def require_x64(what: str) -> None:
    """Refuse to go on in 32 bits.

    Raises:
      PrecisionError: JAX computes in 32 bits.
    """
    if not jax.config.jax_enable_x64:  # type: ignore[attr-defined]
        raise PrecisionError(
            f"{what} needs 64-bit floats: set JAX_ENABLE_X64=1 or call "
            "jax.config.update('jax_enable_x64', True) before anything else"
        )
