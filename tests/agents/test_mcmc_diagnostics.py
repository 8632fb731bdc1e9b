"""Diagnostics of samples and of fronts, against known or brute-force answers."""

import numpy as np
import pytest

from jaxlab.agents.mcmc import diagnostics, pareto
from jaxlab.core.errors import DataError


def autoregressive(correlation, chains=8, draws=20000):
    """Stationary AR(1) chains of unit variance, two dimensions with opposite signs."""
    generator = np.random.default_rng(0)
    x = np.empty((chains, draws, 2))
    x[:, 0] = generator.normal(size=(chains, 2))
    noise = generator.normal(size=(chains, draws, 2)) * np.sqrt(1 - correlation**2)
    for t in range(1, draws):
        x[:, t] = correlation * np.array([1, -1]) * x[:, t - 1] + noise[:, t]
    return x


def test_effective_size_of_an_autoregression():
    """`n (1 - r) / (1 + r)`: more than n where draws alternate."""
    x = autoregressive(0.6)
    expected = x.shape[0] * x.shape[1] * np.array([0.4 / 1.6, 1.6 / 0.4])
    np.testing.assert_allclose(diagnostics.effective_sample_size(x), expected, rtol=0.1)
    found = diagnostics.summary(x, seconds=4.0, gradients=1000.0)
    np.testing.assert_allclose(found["ess_per_second"] * 4, found["ess"])
    np.testing.assert_allclose(found["ess_per_gradient"] * 1000, found["ess"])
    np.testing.assert_allclose(found["sd"], 1, atol=0.05)
    assert (np.abs(found["mean"]) < 4 * found["standard_error"]).all()
    assert (found["rhat"] < 1.01).all()


def test_rhat_of_chains_that_differ_and_of_halves_that_differ():
    """Between-chain variance 1/2 beside within-chain variance 1: sqrt(1.5)."""
    noise = np.random.default_rng(1).normal(size=(2, 20000, 1))
    apart = noise + np.array([-0.5, 0.5])[:, None, None]
    # Four half chains at -0.5, -0.5, 0.5, 0.5: their means have variance 1/3.
    assert diagnostics.split_rhat(apart)[0] == pytest.approx(np.sqrt(4 / 3), abs=0.01)
    drift = noise + np.repeat([-0.5, 0.5], 10000)[None, :, None]
    assert diagnostics.split_rhat(drift)[0] == pytest.approx(np.sqrt(4 / 3), abs=0.01)


def test_basins_are_judged_apart():
    generator = np.random.default_rng(2)
    side = np.array([0, 0, 0, 1, 1, 0])
    x = generator.normal(size=(6, 1000, 1)) + 20 * side[:, None, None]
    labels = np.repeat(side[:, None], 1000, 1)
    # The last chain changes its basin once, so it is part of neither.
    x[5, 400:] += 20
    labels[5, 400:] = 1
    found = diagnostics.basins(x, labels)
    assert diagnostics.split_rhat(x)[0] > 2
    assert (found.rhat < 1.02).all()
    np.testing.assert_array_equal(found.names, [0, 1])
    np.testing.assert_array_equal(found.chains, [3, 2])
    np.testing.assert_allclose(found.share, [3400 / 6000, 2600 / 6000])
    assert found.changes == 1
    only = diagnostics.basins(x[5:], labels[5:])
    assert np.isnan(only.rhat).all()
    assert only.chains.tolist() == [0, 0]


def test_records_become_chains():
    record = np.arange(2 * 3 * 4 * 5).reshape(2, 3, 4, 5)
    x = diagnostics.by_chain(record)
    assert x.shape == (12, 2, 5)
    np.testing.assert_array_equal(x[1 * 4 + 2, 1], record[1, 1, 2])
    assert diagnostics.by_chain(record[..., 0]).shape == (12, 2, 1)


def test_feasible_shares():
    error = np.array([1e-4, 5e-3, np.nan, 2e-4])
    assert diagnostics.feasible_shares(error, 1e-3) == {"raw": 0.5}
    found = diagnostics.feasible_shares(error, 1e-3, solved=[True, True, False, True])
    assert found == {"raw": 0.5, "solved": 0.75}


def test_round_trips_of_a_ladder():
    assert diagnostics.round_trip_rate([1.0, 1.0]) == 0.5
    # r / (1 - r) is 1 and 3: 1 / (2 + 2 * 4).
    assert diagnostics.round_trip_rate([0.5, 0.25]) == pytest.approx(0.1)
    assert diagnostics.round_trip_rate([0.5, 0.0]) == 0.0
    assert diagnostics.communication_barrier([0.5, 0.25]) == pytest.approx(1.25)


def test_neighbours_are_linked_into_basins():
    # A chain of steps shorter than a cell, one point far away, and two that touch at a corner.
    features = np.array([[0.0, 0.0], [0.9, 0.0], [1.8, 0.0], [2.9, 1.1], [9.0, 9.0]])
    np.testing.assert_array_equal(diagnostics.neighbouring(features, 1.0), [0, 0, 0, 0, 1])
    # Cells half as wide leave gaps between them.
    np.testing.assert_array_equal(diagnostics.neighbouring(features, 0.5), [0, 0, 1, 2, 3])
    # The largest comes first, whatever the order, and shapes are kept.
    angle = np.array([[3.0, 0.05, 6.2], [0.1, 3.1, 6.25]])
    labels = diagnostics.neighbouring(angle[..., None], 0.2, [2 * np.pi])
    np.testing.assert_array_equal(labels, [[1, 0, 0], [0, 1, 0]])
    np.testing.assert_array_equal(
        diagnostics.neighbouring(angle[..., None], 0.2), [[1, 0, 2], [0, 1, 2]]
    )


def dominated_by_hand(points):
    return np.array([any((q <= p).all() and (q < p).any() for q in points) for p in points], bool)


@pytest.mark.parametrize("levels", [4, 1000])
def test_front_is_that_of_the_definition(levels):
    """Few levels give ties and equal points."""
    generator = np.random.default_rng(levels)
    for _ in range(20):
        points = generator.integers(levels, size=(40, 2)).astype(float)
        np.testing.assert_array_equal(pareto.non_dominated(points), ~dominated_by_hand(points))
        feasible = generator.random(40) < 0.5
        front = pareto.non_dominated(points, feasible)
        assert not front[~feasible].any()
        np.testing.assert_array_equal(front[feasible], ~dominated_by_hand(points[feasible]))


def test_hypervolume_is_the_dominated_area():
    assert pareto.hypervolume([[1.0, 1.0]], [3.0, 2.0]) == 2.0
    assert pareto.hypervolume([[1.0, 2.0], [2.0, 1.0]], [3.0, 3.0]) == 3.0
    # Dominated, equal and outlying points add nothing.
    more = [[1.0, 2.0], [2.0, 1.0], [2.0, 1.0], [2.5, 2.5], [0.0, 9.0], [3.0, 0.0]]
    assert pareto.hypervolume(more, [3.0, 3.0]) == 3.0
    assert pareto.hypervolume(np.zeros((0, 2)), [1.0, 1.0]) == 0.0
    generator = np.random.default_rng(3)
    points, darts = generator.random((30, 2)), generator.random((100_000, 2)) * 1.1
    hit = (points[None] <= darts[:, None]).all(-1).any(1)
    assert pareto.hypervolume(points, [1.1, 1.1]) == pytest.approx(1.21 * hit.mean(), abs=0.01)


def test_spacing_and_coverage():
    even = np.stack([np.arange(5.0), 4 - np.arange(5.0)], 1)
    assert pareto.spacing(even) == 0.0
    # Nearest distances 1, 1, 3 have mean 5/3 and sample deviation sqrt(4/3).
    assert pareto.spacing([[0, 4], [0, 3], [0, 0]]) == pytest.approx(np.sqrt(4 / 3))
    np.testing.assert_array_equal(pareto.coverage([0.1, 0.2, 1.5], [0, 1, 2]), [2, 1])


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: diagnostics.split_rhat(np.zeros((2, 3, 1))), "at least 4 draws"),
        (lambda: diagnostics.split_rhat(np.zeros((8, 3))), r"expected \[chains, draws, dim\]"),
        (lambda: diagnostics.summary(np.full((2, 8, 1), np.nan)), "2 of 2 chains are not finite"),
        (lambda: diagnostics.basins(np.zeros((2, 8, 1)), np.zeros(8, int)), "labels are"),
        (lambda: diagnostics.neighbouring([[np.nan]], 1.0), "finite numbers"),
        (lambda: diagnostics.neighbouring([[1.0]], 1.0, [0.5]), "periods"),
        (lambda: diagnostics.by_chain(np.zeros((2, 8))), "the record has shape"),
        (lambda: diagnostics.feasible_shares([], 1.0), "no samples"),
        (lambda: diagnostics.feasible_shares([1.0], 1.0, [True, False]), "solved has shape"),
        (lambda: pareto.non_dominated(np.zeros((3, 3))), r"expected \[points, 2\]"),
        (lambda: pareto.non_dominated([[0.0, np.nan]]), "NaN"),
        (lambda: pareto.non_dominated([[0.0, 1.0]], [True, True]), "feasible has shape"),
        (lambda: pareto.hypervolume([[0.0, 0.0]], [1.0]), "two finite numbers"),
        (lambda: pareto.spacing([[0.0, 0.0]]), "at least two"),
    ],
)
def test_bad_samples_are_refused(call, message):
    with pytest.raises(DataError, match=message):
        call()
