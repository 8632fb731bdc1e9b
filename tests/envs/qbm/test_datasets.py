"""Target distributions, their bit order, and what is refused."""

import numpy as np
import pytest

from jaxlab.core.errors import CapacityError, ConfigError, DataError
from jaxlab.envs.qbm import datasets


def words(target):
    return [f"{v:0{len(target).bit_length() - 1}b}" for v in np.flatnonzero(target)]


def test_the_first_unit_is_the_most_significant_bit():
    assert datasets.bits_of(3)[6].tolist() == [1, 1, 0]
    spins, weights = datasets.from_bit_strings(["110", "110", "001", "000"])
    assert spins.tolist() == [[1, 1, 1], [1, 1, -1], [-1, -1, 1]]
    np.testing.assert_allclose(weights, [0.25, 0.25, 0.5])
    full = datasets.distribution(spins, weights)
    assert full.tolist() == [0.25, 0.25, 0, 0, 0, 0, 0.5, 0]


def test_what_the_sets_hold():
    assert words(datasets.parity(3)) == ["000", "011", "101", "110"]
    assert words(datasets.parity(3, odd=True)) == ["001", "010", "100", "111"]
    assert words(datasets.cardinality(4)) == ["0011", "0101", "0110", "1001", "1010", "1100"]
    assert len(words(datasets.random_strings(5))) == 25
    bars = ["0000", "0011", "0101", "1010", "1100", "1111"]
    assert words(datasets.bars_and_stripes(2, 2)) == bars
    assert words(datasets.bars_and_stripes(2, 2, single_lines=True)) == bars[1:-1]
    single = ["000111", "001001", "010010", "100100", "111000"]
    assert words(datasets.bars_and_stripes(2, 3, single_lines=True)) == single
    for target in (
        datasets.parity(5),
        datasets.cardinality(5),
        datasets.random_strings(5),
        datasets.bernoulli_mixture(5),
        datasets.bars_and_stripes(2, 4),
    ):
        datasets.check_probabilities(target, int(np.log2(len(target))))
        assert target.dtype == np.float64


def test_the_mixture_has_its_centres():
    target = datasets.bernoulli_mixture(6, centres=1, probability=0.9, seed=3)
    np.testing.assert_allclose(target.max(), 0.9**6)
    np.testing.assert_allclose(np.sort(target)[-7:-1], 0.9**5 * 0.1)
    # numpy's older generator with seed 0, as the published code uses it.
    first = datasets.bernoulli_mixture(5, centres=1)
    assert words(first == first.max()) == ["01101"]
    different = datasets.bernoulli_mixture(5, seed=1)
    assert np.abs(different - datasets.bernoulli_mixture(5)).max() > 0.01


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ([], "list of probabilities"),
        ([0.5, 0.4], "sum to 0.9"),
        ([0.5, 0.25, 0.25], "power of two"),
        ([1.5, -0.5], "probability 1 is -0.5"),
        ([np.nan, 1.0], "is NaN"),
        (["a", "b"], "other than numbers"),
        ([[0.5, 0.5]], "list of probabilities"),
    ],
)
def test_wrong_probabilities_are_named(values, message):
    with pytest.raises(ConfigError, match=message):
        datasets.check_probabilities(values)


def test_wrong_numbers_are_named():
    with pytest.raises(ConfigError, match="2 probabilities, expected 8"):
        datasets.check_probabilities([0.5, 0.5], 3)
    with pytest.raises(ConfigError, match="expected 0 to 3"):
        datasets.cardinality(3, 4)
    with pytest.raises(ConfigError, match="expected 1 to 4"):
        datasets.random_strings(2, 5)
    with pytest.raises(ConfigError, match="probability 1"):
        datasets.bernoulli_mixture(3, probability=1)
    with pytest.raises(ConfigError, match="at least 1"):
        datasets.parity(0)
    with pytest.raises(CapacityError, match="2097152 entries"):
        datasets.parity(21)


def test_files_of_bit_strings(tmp_path):
    path = tmp_path / "bits.txt"
    path.write_text("1 0 1\n0,0,1\n\n101\n")
    spins, weights = datasets.read_bit_strings(path)
    assert spins.tolist() == [[1, 1, -1], [-1, 1, -1]]
    np.testing.assert_allclose(weights, [1 / 3, 2 / 3])
    rows, _ = datasets.from_bit_strings(np.array([[1, 0, 1], [0, 0, 1]]))
    assert rows.shape == (2, 3)
    for text, message in (
        ("", "no bit strings"),
        ("101\n10\n", "string 2 has 2 bits, expected 3"),
        ("102\n", "0 and 1 alone"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=f"bits.txt.*{message}"):
            datasets.read_bit_strings(path)
    with pytest.raises(DataError, match="cannot be read"):
        datasets.read_bit_strings(tmp_path / "absent.txt")
