"""The checker of formulations, and the theory that rests on what it checks."""

import functools

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import CapacityError
from jaxlab.envs.combinatorial.colouring import GraphColouring
from jaxlab.envs.combinatorial.cuts import MaxCut
from jaxlab.envs.combinatorial.dynamic_programming import enumerate_states
from jaxlab.envs.combinatorial.formulation import ASSUMPTIONS, check_formulation
from jaxlab.envs.combinatorial.knapsack import Knapsack, KnapsackScan
from jaxlab.envs.combinatorial.paths import ShortestPath
from jaxlab.envs.combinatorial.routing import CVRP
from jaxlab.envs.combinatorial.scheduling import JobShop
from jaxlab.envs.combinatorial.tours import ATSP, TSP
from jaxlab.envs.combinatorial.vertices import IndependentSet, VertexCover
from tests.envs.combinatorial.formulations import ForgetfulShop, ForgetfulTSP

SMALL = (
    *(TSP(5), ATSP(5), MaxCut(6), IndependentSet(5), VertexCover(5), KnapsackScan(6, 20)),
    *(Knapsack(5), GraphColouring(4), CVRP(3), JobShop(2, 3), ShortestPath(6, 2)),
)


@pytest.mark.parametrize("env", SMALL, ids=lambda env: env.name)
def test_every_problem_is_what_it_says(env):
    report = check_formulation(env, enumerate_all=True)
    assert report.equivalent, str(report)
    assert report.strings > 0
    assert [check.assumption for check in report.checks] == list(ASSUMPTIONS)


@pytest.mark.parametrize("env", [TSP(9), JobShop(3, 3)], ids=lambda env: env.name)
def test_larger_ones_by_random_strings(env):
    report = check_formulation(env, enumerate_all=False, samples=40)
    assert report.equivalent, str(report)
    assert not report.enumerated


@pytest.mark.parametrize("everything", [True, False])
def test_a_tour_that_forgets_its_cities(everything):
    report = check_formulation(ForgetfulTSP(5), enumerate_all=everything, samples=60)
    assert not report.equivalent
    assert not report["no dead ends"].holds
    if everything:
        broken = report["right congruence"]
        assert "lead to one state" in broken.counter_example
        assert "FAILS" in str(report)


@pytest.mark.parametrize("everything", [True, False])
def test_a_shop_that_forgets_its_makespan(everything):
    report = check_formulation(ForgetfulShop(2, 3), enumerate_all=everything, samples=60)
    assert report["right congruence"].holds
    assert not report["cost consistency"].holds
    # Which of the two shows first depends on the instance that is drawn.
    example = report["cost consistency"].counter_example
    assert "differ by" in example or "its increments" in example


def test_too_many_strings_are_refused():
    with pytest.raises(CapacityError, match="too many"):
        check_formulation(TSP(12), enumerate_all=True)


# The theory, on a tour of 6 cities: T is the operator of Bellman on all states.


@functools.lru_cache(maxsize=4)
def problem(seed):
    env = TSP(6)
    with jax.enable_x64(True):
        return enumerate_states(env, env.sample_params(jax.random.key(seed)))


seeds = st.integers(0, 3)
noise_seeds = st.integers(0, 2**31 - 1)


def noisy(values, every, rng, size):
    """Values with an error of at most `size`, none where strings end."""
    return [
        value + size * rng.uniform(-1, 1, len(value)) * np.isnan(final)
        for value, final in zip(values, every.final, strict=True)
    ]


def distance(a, b):
    return max(float(np.abs(x - y).max()) for x, y in zip(a, b, strict=True))


@settings(max_examples=30)
@given(seeds, noise_seeds)
def test_values_are_exact_after_as_many_sweeps_as_letters(seed, noise):
    every = problem(seed)
    best = every.values()
    values = noisy(best, every, np.random.default_rng(noise), 10.0)
    for _ in range(len(best) - 1):
        values = every.backup(values)
    assert distance(values, best) < 1e-12


@settings(max_examples=30)
@given(seeds, noise_seeds, st.floats(1.1, 4.0))
def test_sweeps_contract_in_the_weighted_norm(seed, noise, kappa):
    every = problem(seed)
    best, rng = every.values(), np.random.default_rng(noise)
    layers = len(best)
    weights = [kappa ** (layers - 1 - k) for k in range(layers)]

    def norm(a, b):
        return max(np.abs(x - y).max() / w for x, y, w in zip(a, b, weights, strict=True))

    u, v = noisy(best, every, rng, 5.0), noisy(best, every, rng, 5.0)
    assert norm(every.backup(u), every.backup(v)) <= norm(u, v) / kappa + 1e-12


@settings(max_examples=30)
@given(seeds, noise_seeds, st.floats(0.01, 1.0))
def test_errors_add_up_over_the_last_sweeps_only(seed, noise, size):
    every = problem(seed)
    best, rng = every.values(), np.random.default_rng(noise)
    horizon = len(best) - 1
    values, errors = noisy(best, every, rng, 100.0), []
    for sweep in range(2 * horizon):
        error = size * rng.uniform(0, 1) * (100 if sweep < horizon else 1)
        exact = every.backup(values)
        values = noisy(exact, every, rng, error)
        errors.append(distance(values, exact))
    assert distance(values, best) <= sum(errors[-horizon:]) + 1e-12


@settings(max_examples=40)
@given(seeds, noise_seeds, st.floats(0.001, 0.5))
def test_greedy_strings_lose_at_most_what_the_bound_says(seed, noise, size):
    every = problem(seed)
    best = every.values()
    values = noisy(best, every, np.random.default_rng(noise), size)
    eps, horizon = distance(values, best), len(best) - 1
    assert every.greedy(values)[1] - best[0][0] <= 2 * eps * (horizon - 1) + 1e-12
