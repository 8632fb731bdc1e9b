"""The closed form of semi-quantum restricted machines against dense matrices."""

import functools
import itertools

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import CapacityError, ConfigError, PrecisionError
from jaxlab.envs.qbm import bloch, datasets, evaluation, restricted
from jaxlab.envs.qbm.restricted import RestrictedModel
from tests.envs.qbm import oracles, reference

FAMILIES = ("Z", "XZ", "XYZ", "transverse")
SIZES = [(n, m) for n, m in itertools.product(range(1, 8), range(1, 8)) if n + m <= 8]
XZ = RestrictedModel(2, 1, "XZ")
PAIR = np.array(oracles.PAIR)
coefficients = hnp.arrays(np.float64, XZ.size, elements=st.floats(-5, 5))


@functools.cache
def compiled(name, model):
    function = getattr(restricted, name)
    return jax.jit(lambda theta, *rest: function(theta, model, *rest))


@pytest.mark.parametrize("name", oracles.RESTRICTED)
def test_recorded_potentials_and_divergences(name):
    oracle = oracles.RESTRICTED[name]
    model = RestrictedModel(oracle.visible, oracle.hidden, oracle.operators)
    theta, target = oracles.parameters(model.size), np.array(oracle.target)
    found = restricted.evaluate(theta, model, target)
    np.testing.assert_allclose(found.log_partition, oracle.log_partition, atol=1e-13)
    np.testing.assert_allclose(found.divergence, oracle.kl, atol=1e-13)


def test_the_recorded_moments_and_metric():
    theta = oracles.parameters(8)
    assert XZ.strings.labels == oracles.XZ_ORDER
    found = restricted.evaluate(theta, XZ, PAIR)
    np.testing.assert_allclose(found.moments, oracles.XZ_MODEL, atol=1e-11)
    np.testing.assert_allclose(found.target_moments, oracles.XZ_E_STEP, atol=1e-11)
    np.testing.assert_allclose(
        restricted.probabilities(theta, XZ), oracles.XZ_PROBABILITIES, atol=1e-11
    )
    eigenvalues = np.linalg.eigvalsh(restricted.metric(theta, XZ))
    np.testing.assert_allclose(eigenvalues, oracles.XZ_METRIC, atol=1e-11)


@pytest.mark.parametrize("operators", ["XYZ", "transverse"])
def test_other_families_against_matrix_exponentials(operators):
    model = RestrictedModel(2, 1, operators)
    theta, labels = oracles.parameters(model.size), model.strings.labels
    rho = reference.state(theta, labels)
    found = restricted.evaluate(theta, model, PAIR)
    np.testing.assert_allclose(
        found.log_partition, reference.log_partition(theta, labels), atol=1e-12
    )
    np.testing.assert_allclose(found.moments, reference.moments(rho, labels), atol=1e-13)
    sigma = reference.e_step(rho, 2, PAIR)
    np.testing.assert_allclose(found.target_moments, reference.moments(sigma, labels), atol=1e-13)
    np.testing.assert_allclose(
        found.divergence, reference.kl(PAIR, reference.bits(rho, 2)), atol=1e-13
    )
    metric = restricted.metric(theta, model)
    np.testing.assert_allclose(metric, reference.bkm(theta, labels), atol=1e-12)


@pytest.mark.parametrize(("visible", "hidden"), SIZES)
def test_closed_form_is_the_dense_state(visible, hidden):
    model = RestrictedModel(visible, hidden, FAMILIES[(visible + hidden) % 4])
    theta, labels = oracles.parameters(model.size), model.strings.labels
    target = datasets.random_strings(visible, 2**visible // 2 + 1, seed=1)
    rho = reference.state(theta, labels)
    found = compiled("evaluate", model)(theta, target)
    np.testing.assert_allclose(
        found.divergence, reference.kl(target, reference.bits(rho, visible)), atol=1e-11
    )
    # Tr(rho F) without products of matrices of 256 x 256.
    moments = [np.sum(rho * reference.operator(label).T).real for label in labels]
    np.testing.assert_allclose(found.moments, moments, atol=1e-12)


def test_sums_by_chunks_are_the_same(monkeypatch):
    model = RestrictedModel(8, 2, "XYZ")
    theta, target = oracles.parameters(model.size), datasets.random_strings(8, seed=2)
    whole = restricted.evaluate(theta, model, target), restricted.metric(theta, model)
    state = restricted.probabilities(theta, model)
    spins, weights = 1.0 - 2 * datasets.bits_of(8)[target > 0], target[target > 0]
    sparse = restricted.evaluate_data(theta, model, spins, weights)
    monkeypatch.setattr(restricted, "_CHUNK", 128)
    assert restricted._chunk_rows(model) == 64
    parts = restricted.evaluate(theta, model, target), restricted.metric(theta, model)
    for a, b in zip(jax.tree.leaves(whole), jax.tree.leaves(parts), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)
    for a, b in zip(whole[0], sparse, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)
    np.testing.assert_allclose(restricted.probabilities(theta, model), state, atol=1e-15)


@settings(max_examples=25)
@given(coefficients)
def test_the_gradient_is_a_difference_of_moments(theta):
    found = compiled("evaluate", XZ)(theta, PAIR)
    gap = found.moments - found.target_moments
    divergence = _divergence()
    np.testing.assert_allclose(divergence[1](theta), gap, atol=1e-14)
    # Autodiff of the textbook formula, with no rule of the library.
    np.testing.assert_allclose(divergence[2](theta), gap, atol=1e-10)
    for k in range(0, XZ.size, 3):
        step = 1e-5 * np.eye(XZ.size)[k]
        slope = (divergence[0](theta + step) - divergence[0](theta - step)) / 2e-5
        np.testing.assert_allclose(slope, gap[k], atol=1e-8)


@functools.cache
def _divergence():
    spins = 1.0 - 2 * datasets.bits_of(2)

    def textbook(theta):
        a, b, w = theta[:2], theta[2:4], theta[4:].reshape(2, 2)
        squares = jnp.sum((b + spins @ w) ** 2, 1) + 1e-30
        log_weights = spins @ a + jnp.log(2 * jnp.cosh(jnp.sqrt(squares)))
        return jax.nn.logsumexp(log_weights) - PAIR @ log_weights

    def divergence(theta):
        return restricted.kl_divergence(theta, XZ, PAIR)

    return jax.jit(divergence), jax.jit(jax.grad(divergence)), jax.jit(jax.grad(textbook))


@settings(max_examples=15)
@given(coefficients)
def test_the_metric_is_the_hessian_of_the_potential(theta):
    metric = compiled("metric", XZ)(theta)
    assert np.linalg.eigvalsh(metric)[0] >= -1e-13
    np.testing.assert_allclose(_hessian()(theta), metric, atol=1e-11)


@functools.cache
def _hessian():
    return jax.jit(jax.hessian(lambda theta: restricted.log_partition(theta, XZ)))


def test_fields_of_zero_and_large_ones():
    model = RestrictedModel(3, 2, "XYZ")
    target = datasets.parity(3)
    zero = restricted.evaluate(np.zeros(model.size), model, target)
    np.testing.assert_allclose(zero.log_partition, 5 * np.log(2), atol=1e-15)
    np.testing.assert_array_equal(zero.moments, 0)
    np.testing.assert_allclose(
        restricted.metric(np.zeros(model.size), model), np.eye(model.size), atol=1e-15
    )
    for scale in (1e-200, 1e-9, 1e3, 1e8, 1e100):
        theta = scale * oracles.parameters(model.size)
        found = restricted.evaluate(theta, model, target)
        for leaf in (*found, restricted.metric(theta, model), _gradient(theta, model, target)):
            assert np.all(np.isfinite(leaf))
        assert np.all(np.abs(found.moments) <= 1 + 1e-15)


def _gradient(theta, model, target):
    return jax.grad(lambda t: restricted.kl_divergence(t, model, target))(theta)


def test_one_spin():
    lengths = np.concatenate([[0], np.logspace(-12, 2, 200)])
    with np.errstate(invalid="ignore"):
        exact = np.where(lengths > 0, np.tanh(lengths) / lengths, 1)
    np.testing.assert_allclose(bloch.tanh_ratio(lengths**2), exact, rtol=2e-15)
    potential = np.logaddexp(lengths, -lengths)
    np.testing.assert_allclose(bloch.spin_potentials(lengths[None] ** 2), potential, rtol=2e-15)
    many = np.tile(lengths**2, (1001, 1))
    np.testing.assert_allclose(bloch.spin_potentials(many), 1001 * potential, rtol=1e-14)
    # The derivative on both sides of where the series ends, by differences of the ratio.
    for square in (0.0099, 0.0101, 1.0, 50.0):
        h = 1e-5
        ends = bloch.tanh_ratio(np.array([square - h, square + h]))
        slope = 2 * (ends[1] - ends[0]) / (2 * h)
        np.testing.assert_allclose(bloch.tanh_ratio_slope(square), slope, rtol=1e-7)
    np.testing.assert_allclose(bloch.tanh_ratio_slope(0.0), -2 / 3, rtol=1e-15)
    below, above = bloch.tanh_ratio_slope(np.array([0.01 * (1 - 1e-12), 0.01 * (1 + 1e-12)]))
    np.testing.assert_allclose(below, above, rtol=1e-11)


@pytest.mark.parametrize("units", [1, 600])
def test_sums_of_potentials_in_longer_numbers(units):
    """Many weak fields, whose factors are close to one, and many strong ones, whose are two."""
    squares = 10.0 ** np.random.default_rng(0).uniform(-14, 6, (units, 64))
    lengths = np.sqrt(squares.astype(np.longdouble))
    expected = np.sum(lengths + np.log1p(np.exp(-2 * lengths)), 0).astype(np.float64)
    found = jax.jit(bloch.spin_potentials)(squares)
    np.testing.assert_allclose(found, expected, rtol=1e-14)
    # To the last digits where fields vanish, as differences of potentials need it.
    small = jax.jit(bloch.spin_potentials)(np.full((units, 1), 1e-30))
    np.testing.assert_allclose(small, units * np.log(2), rtol=4e-16)


def test_bloch_vectors_are_those_of_conditional_states():
    model = RestrictedModel(2, 1, "XYZ")
    theta = oracles.parameters(model.size)
    rho = reference.state(theta, model.strings.labels).reshape(4, 2, 4, 2)
    found = restricted.bloch_vectors(theta, 1.0 - 2 * datasets.bits_of(2), model)
    for v in range(4):
        block = rho[v, :, v, :] / np.trace(rho[v, :, v, :])
        np.testing.assert_allclose(found[v, 0], reference.moments(block, "XYZ"), atol=1e-14)


def test_twenty_visible_units_at_most():
    with pytest.raises(CapacityError, match=r"21 visible units have 2097152 states.*20 units"):
        restricted.log_partition(np.zeros(RestrictedModel(21, 1).size), RestrictedModel(21, 1))


def test_mistakes_are_named():
    with pytest.raises(ConfigError, match="visible is 0"):
        RestrictedModel(0, 1)
    with pytest.raises(ConfigError, match="hidden operators"):
        RestrictedModel(2, 1, "ZX")
    with pytest.raises(ConfigError, match=r"parameters are \(7,\), expected \(8,\)"):
        restricted.evaluate(np.zeros(7), XZ, PAIR)
    with pytest.raises(ConfigError, match=r"target is \(8,\), expected \(4,\)"):
        restricted.evaluate(np.zeros(8), XZ, np.ones(8) / 8)


def test_32_bits_are_refused():
    with jax.enable_x64(False):
        for function in (restricted.evaluate, restricted.kl_divergence):
            with pytest.raises(PrecisionError, match="64-bit"):
                function(np.zeros(8), XZ, PAIR)
        with pytest.raises(PrecisionError, match="64-bit"):
            restricted.probabilities(np.zeros(8), XZ)


def test_distances_of_distributions():
    target, other = np.array([0.5, 0.5, 0, 0]), np.array([0.25, 0.25, 0.5, 0])
    np.testing.assert_allclose(evaluation.total_variation(target, other), 0.5)
    np.testing.assert_allclose(evaluation.relative_entropy_of_bits(target, other), np.log(2))
    assert evaluation.relative_entropy_of_bits(other, target) == np.inf
    np.testing.assert_allclose(evaluation.shannon_entropy(other), 1.5 * np.log(2))


def test_parameters_by_their_meaning():
    model = RestrictedModel(3, 2, "transverse")
    theta = oracles.parameters(model.size)
    fields = model.split(theta)
    assert [part.shape for part in (fields.visible, fields.hidden, fields.coupling)] == [
        *((3,), (2, 2), (3, 2, 1)),
    ]
    np.testing.assert_array_equal(model.join(fields), theta)
