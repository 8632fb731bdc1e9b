"""Whether the m-step has a finite minimiser.

It has none where the moments of the e-step's state lie on the boundary of those that states of
the model can have: some combination `c . f` of visible terms is constant on the data and nowhere
higher. Then parameters grow for ever along c. Hidden terms need not be looked at: in a block of
fixed visible bits they are traceless, so they only raise the largest eigenvalue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxlab.envs.qbm.pauli import PauliStrings
from jaxlab.envs.qbm.registers import visible_qubits

#: A gap that solvers of linear programs do not take for zero.
_GAP = 1e-7


def unbounded_direction(
    target: Any, strings: PauliStrings, hidden: Sequence[int] = ()
) -> dict[str, float] | None:
    """Terms along which parameters would grow without end, None where the m-step is bounded.

    Args:
      target: Probabilities `[2^visible]`, big-endian.
      strings: Terms of a model whose visible operators are I and Z.
      hidden: Its hidden qubits.
    """
    # A linear program on the host; scipy.optimize takes long to import.
    from scipy.optimize import linprog

    target = np.asarray(target)
    if np.all(target > 0):
        return None
    visible = visible_qubits(strings.qubits, hidden)
    pairs = zip(strings.restricted(visible), strings.restricted(hidden), strict=True)
    words = [v for v, h in pairs if set(h) <= {"I"} and set(v) != {"I"}]
    if not words:
        return None
    number = np.arange(len(target))
    masks = [int("".join("1" if c == "Z" else "0" for c in w), 2) for w in words]
    features = np.stack([1.0 - 2 * (np.bitwise_count(number & m) % 2) for m in masks], -1)
    held, free = features[target > 0], features[target == 0]
    gaps = free - held[0]
    found = linprog(
        gaps.sum(0),
        A_ub=gaps,
        b_ub=np.zeros(len(gaps)),
        A_eq=held[1:] - held[0] if len(held) > 1 else None,
        b_eq=np.zeros(len(held) - 1) if len(held) > 1 else None,
        bounds=[(-1, 1)] * len(words),
        method="highs",
    )
    if found.fun is None or -found.fun < _GAP:
        return None
    kept = {word: float(c) for word, c in zip(words, found.x, strict=True) if abs(c) > _GAP}
    return {_placed(word, visible, strings.qubits): c for word, c in kept.items()}


def _placed(word: str, qubits: Sequence[int], count: int) -> str:
    letters = ["I"] * count
    for qubit, letter in zip(qubits, word, strict=True):
        letters[qubit] = letter
    return "".join(letters)
