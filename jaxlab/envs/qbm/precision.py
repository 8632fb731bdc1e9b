"""What the wing needs of floating-point numbers and of memory, checked before computing."""

from __future__ import annotations

import jax

from jaxlab.core.errors import CapacityError, DeviceError
from jaxlab.core.precision import require_x64

#: Qubits of a dense state at most. A decomposition takes 8 times as long with each one more:
#: about three minutes with 12, half an hour with 13.
MOST_QUBITS = 12
#: Bytes that dense states may take together.
MEMORY = 24 * 2**30
#: Matrices that live at once while a state is decomposed and its metric computed: 7.9 at 11
#: qubits, 4.5 for the state alone (measured as the peak of the process).
MATRICES = 8


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


def dense_bytes(states: int, dimension: int, *, real: bool = False) -> int:
    """Bytes that dense states `[states, dimension, dimension]` take while they are decomposed."""
    return states * MATRICES * (8 if real else 16) * dimension**2


def require_memory(states: int, dimension: int, *, real: bool = False) -> None:
    """Refuse dense states that take more than 24 GiB together, before anything is allocated.

    Raises:
      CapacityError: Says how much they would take.
    """
    size = dense_bytes(states, dimension, real=real)
    if size > MEMORY:
        raise CapacityError(
            f"{states} states of {dimension} x {dimension} would take about "
            f"{size / 2**30:.3g} GiB ({MATRICES} matrices each); the limit is "
            f"{MEMORY / 2**30:.3g} GiB: use fewer qubits, or fewer at once"
        )


def require_dense(qubits: int, *, real: bool = False, states: int = 1) -> None:
    """Refuse dense states that are too large, before anything is allocated.

    The limit is 12 qubits, and 24 GiB for all states of a batch together.

    Raises:
      CapacityError: Says how much they would take.
    """
    if qubits > MOST_QUBITS:
        size = dense_bytes(states, 2**qubits, real=real)
        raise CapacityError(
            f"a dense state of {qubits} qubits would take about {size / 2**30:.3g} GiB "
            f"({MATRICES} matrices of {2**qubits} x {2**qubits}); the limit is {MOST_QUBITS} "
            f"qubits: where visible operators commute use the closed form (restricted) or blocks "
            "(conditional)"
        )
    require_memory(states, 2**qubits, real=real)
