"""What the wing needs of floating-point numbers and of memory, checked before computing."""

from __future__ import annotations

import jax

from jaxlab.core.errors import CapacityError, DeviceError, PrecisionError

#: Qubits of a dense state at most: with its metric, 12 of them stay far below `MEMORY`.
MOST_QUBITS = 12
#: Bytes that dense states may take together.
MEMORY = 24 * 2**30
#: Matrices that live at once while a state is decomposed and differentiated: the exponent,
#: its eigenvectors, the workspace of LAPACK (three), two products and the state.
MATRICES = 8


def require_x64(what: str) -> None:
    """Refuse to go on in 32 bits.

    Raises:
      PrecisionError: JAX computes in 32 bits.
    """
    if not jax.config.jax_enable_x64:
        raise PrecisionError(
            f"{what} needs 64-bit floats: set JAX_ENABLE_X64=1 or call "
            "jax.config.update('jax_enable_x64', True) before anything else"
        )


def require_complex128(what: str) -> None:
    """Refuse a device that has no 128-bit complex numbers.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      DeviceError: The default device is a TPU.
    """
    require_x64(what)
    platform = jax.default_backend()
    if platform == "tpu":
        raise DeviceError(
            f"{what} needs complex128, which {platform} devices lack: run it with --devices cpu "
            "or gpu, or use real Hamiltonians (strings with an even number of Y)"
        )


def dense_bytes(qubits: int, *, real: bool = False, states: int = 1) -> int:
    """Bytes that dense states take while they are decomposed."""
    return states * MATRICES * (8 if real else 16) * 4**qubits


def require_dense(qubits: int, *, real: bool = False, states: int = 1) -> None:
    """Refuse dense states that are too large, before anything is allocated.

    The limit is 12 qubits, and 24 GiB for all states of a batch together.

    Raises:
      CapacityError: Says how much they would take.
    """
    size = dense_bytes(qubits, real=real, states=states)
    if qubits > MOST_QUBITS or size > MEMORY:
        many = f"{states} dense states" if states > 1 else "a dense state"
        raise CapacityError(
            f"{many} of {qubits} qubits would take about {size / 2**30:.3g} GiB "
            f"({MATRICES} matrices of {2**qubits} x {2**qubits}); the limit is {MOST_QUBITS} "
            f"qubits and {MEMORY / 2**30:.3g} GiB together: use fewer qubits, fewer at once, or "
            "the closed form (restricted) or blocks (conditional) where visible units commute"
        )
