"""Target distributions of visible bits.

One bit order everywhere: a distribution is `[2^n]`, entry v has the bits of the number v in
binary, big-endian; unit 1 (the leftmost letter of a string, qubit 0) is the most significant
bit. Spins are `1 - 2 bit`.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterable
from typing import Any

import numpy as np

from jaxlab.core.errors import CapacityError, ConfigError, DataError
from jaxlab.envs.qbm.restricted import MOST_VISIBLE

#: How far the sum of probabilities may be from one.
SUM_TOLERANCE = 1e-8


def bits_of(units: int) -> np.ndarray:
    """All bit strings in order, `[2^units, units]` int8.

    Raises:
      CapacityError, ConfigError: There are more than 20 units, or none.
    """
    if units < 1:
        raise ConfigError(f"{units} visible units, expected at least 1")
    if units > MOST_VISIBLE:
        raise CapacityError(
            f"a distribution of {units} bits has {2**units} entries; they are listed up to "
            f"{MOST_VISIBLE} bits: use samples (read_bit_strings)"
        )
    shifts = np.arange(units - 1, -1, -1)
    return ((np.arange(2**units)[:, None] >> shifts) & 1).astype(np.int8)


def _uniform_on(chosen: np.ndarray) -> np.ndarray:
    return chosen / chosen.sum()


def bernoulli_mixture(
    units: int, *, centres: int = 8, probability: float = 0.9, seed: int = 0
) -> np.ndarray:
    """Mean over random centres c of `p^(n - d) (1 - p)^d`, d being the distance from c.

    Amin et al. 2018 (Phys. Rev. X 8, 021050). Centres are those that the code of Kimura et al.
    2025 (arXiv:2507.21569) draws for the same seed.

    Raises:
      ConfigError: A number is out of range.
    """
    if not 0 < probability < 1 or centres < 1:
        raise ConfigError(
            f"probability {probability}, centres {centres}: expected one between 0 and 1, and at "
            "least 1 centre"
        )
    # The older generator, since its numbers are those of the published experiment.
    rng = np.random.RandomState(seed)
    bits = bits_of(units)
    total = np.zeros(2**units)
    for _ in range(centres):
        distance = (bits != rng.randint(2, size=units)).sum(1)
        total += probability ** (units - distance) * (1 - probability) ** distance
    return total / total.sum()


def parity(units: int, *, odd: bool = False) -> np.ndarray:
    """Uniform on bit strings with an even number of ones (or an odd one)."""
    return _uniform_on(bits_of(units).sum(1) % 2 == int(odd))


def cardinality(units: int, weight: int | None = None) -> np.ndarray:
    """Uniform on bit strings with `weight` ones, by default `units // 2`.

    Raises:
      ConfigError: There are no such strings.
    """
    weight = units // 2 if weight is None else weight
    if not 0 <= weight <= units:
        raise ConfigError(f"weight is {weight}, expected 0 to {units}")
    return _uniform_on(bits_of(units).sum(1) == weight)


def random_strings(units: int, count: int | None = None, *, seed: int = 0) -> np.ndarray:
    """Uniform on random distinct bit strings, by default `units^2` of them: the O(n^2) data.

    The strings are those that the code of Kimura et al. 2025 draws for the same seed.

    Raises:
      ConfigError: There are not so many strings.
    """
    count = units**2 if count is None else count
    states = len(bits_of(units))
    if not 1 <= count <= states:
        raise ConfigError(f"{count} distinct strings of {units} bits: expected 1 to {states}")
    chosen = np.zeros(states, bool)
    # The older generator, since its numbers are those of the published experiment.
    chosen[np.random.RandomState(seed).permutation(states)[:count]] = True
    return _uniform_on(chosen)


def bars_and_stripes(rows: int, columns: int, *, single_lines: bool = False) -> np.ndarray:
    """Uniform on pictures of full rows, or of full columns; pixels row by row.

    Args:
      single_lines: One full row or one full column only (Demidik et al. 2025); otherwise any
        number of them, with the empty and the full picture once each.
    """
    bits = bits_of(rows * columns).reshape(-1, rows, columns)
    in_rows = np.all(bits == bits[:, :, :1], axis=(1, 2))
    in_columns = np.all(bits == bits[:, :1, :], axis=(1, 2))
    if single_lines:
        in_rows &= bits[:, :, 0].sum(1) == 1
        in_columns &= bits[:, 0, :].sum(1) == 1
    return _uniform_on(in_rows | in_columns)


def check_probabilities(probabilities: Any, units: int | None = None) -> np.ndarray:
    """A distribution of bits as `[2^units]` float64 that sums to one.

    Raises:
      ConfigError: Empty, of a wrong length, with negative or non-finite entries, or with a sum
        that differs from one by more than 1e-8.
    """
    try:
        values = np.asarray(probabilities, np.float64)
    except (TypeError, ValueError):
        raise ConfigError("the target holds something other than numbers") from None
    if values.ndim != 1 or not values.size:
        raise ConfigError(f"the target is {values.shape}, expected a list of probabilities")
    if units is not None and len(values) != 2**units:
        raise ConfigError(
            f"the target has {len(values)} probabilities, expected {2**units} for {units} visible "
            "bits"
        )
    if len(values) & (len(values) - 1):
        raise ConfigError(f"the target has {len(values)} probabilities, expected a power of two")
    if not np.all(np.isfinite(values)):
        raise ConfigError(f"target probability {np.flatnonzero(~np.isfinite(values))[0]} is NaN")
    if np.any(values < 0):
        where = int(np.flatnonzero(values < 0)[0])
        raise ConfigError(f"target probability {where} is {values[where]:g}, expected at least 0")
    if abs(values.sum() - 1) > SUM_TOLERANCE:
        raise ConfigError(f"target probabilities sum to {values.sum():.9g}, expected 1")
    return values / values.sum()


def from_bit_strings(strings: Iterable[Any]) -> tuple[np.ndarray, np.ndarray]:
    """Distinct spins and their frequencies from samples.

    Args:
      strings: Words of 0 and 1, or rows of bits `[samples, units]`.

    Returns:
      Spins `[states, units]` (+1 for 0) in ascending order of the bit strings, and weights.

    Raises:
      DataError: There are none, they differ in length, or hold something other than 0 and 1.
    """
    rows = [list(word) for word in strings]
    if not rows:
        raise DataError("there are no bit strings; expected at least one")
    for n, row in enumerate(rows):
        if not row or len(row) != len(rows[0]):
            raise DataError(
                f"bit string {n + 1} has {len(row)} bits, expected {max(len(rows[0]), 1)} as the "
                "first has"
            )
        if any(str(bit) not in ("0", "1") for bit in row):
            raise DataError(f"bit string {n + 1} is {row!r}, expected 0 and 1 alone")
    bits = np.array([[int(bit) for bit in row] for row in rows], np.int8)
    states, counts = np.unique(bits, axis=0, return_counts=True)
    return 1.0 - 2.0 * states, counts / counts.sum()


def read_bit_strings(path: Any) -> tuple[np.ndarray, np.ndarray]:
    """As `from_bit_strings`, from a text file: one string a line, spaces or commas allowed.

    Raises:
      DataError: The file cannot be read, or a line is no bit string.
    """
    path = pathlib.Path(path)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: cannot be read as text ({error})") from None
    lines = (line.translate({ord(c): None for c in " ,;\t\r"}) for line in text.splitlines())
    try:
        return from_bit_strings([line for line in lines if line])
    except DataError as error:
        raise DataError(f"{path}: {error}") from None


def distribution(spins: Any, weights: Any) -> np.ndarray:
    """The distribution `[2^units]` of distinct spins `[states, units]` and their weights."""
    bits = (np.asarray(spins) < 0).astype(np.int64)
    full = np.zeros(len(bits_of(bits.shape[1])))
    np.add.at(full, bits @ (1 << np.arange(bits.shape[1] - 1, -1, -1)), np.asarray(weights))
    return full
