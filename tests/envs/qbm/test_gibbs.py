"""Dense Gibbs states, their derivatives and metrics."""

import functools

import hypothesis.extra.numpy as hnp
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxlab.core.errors import CapacityError, ConfigError, DeviceError, PrecisionError
from jaxlab.envs.qbm import gibbs, metrics, precision, registers
from jaxlab.envs.qbm.pauli import PauliStrings
from tests.envs.qbm import oracles, reference

GENERIC = PauliStrings(oracles.GENERIC)
THETA = oracles.parameters(12)
COMPLEX = PauliStrings(("ZI", "XY", "YI", "IX", "ZZ"))
coefficients = hnp.arrays(np.float64, 5, elements=st.floats(-4, 4))


@functools.cache
def compiled(function, strings, **options):
    return jax.jit(lambda theta: function(theta, strings, **options))


def test_the_generic_oracle():
    state = gibbs.gibbs_state(THETA, GENERIC)
    np.testing.assert_allclose(state.log_partition, oracles.GENERIC_LOG_PARTITION, atol=1e-13)
    np.testing.assert_allclose(gibbs.purity(THETA, GENERIC), oracles.GENERIC_PURITY, atol=1e-13)
    np.testing.assert_allclose(gibbs.entropy(THETA, GENERIC), oracles.GENERIC_ENTROPY, atol=1e-12)
    np.testing.assert_allclose(gibbs.moments(THETA, GENERIC), oracles.GENERIC_MODEL, atol=1e-11)
    eigenvalues = np.linalg.eigvalsh(metrics.metric(THETA, GENERIC))
    np.testing.assert_allclose(eigenvalues[[0, -1]], oracles.GENERIC_METRIC, atol=1e-11)
    np.testing.assert_allclose(jnp.trace(state.matrix), 1.0, atol=1e-14)
    ising = gibbs.density_matrix(oracles.ISING, GENERIC)
    for found in (
        gibbs.relative_entropy(ising, THETA, GENERIC),
        gibbs.gibbs_relative_entropy(oracles.ISING, THETA, GENERIC),
    ):
        np.testing.assert_allclose(found, oracles.GENERIC_DIVERGENCE, atol=1e-12)


@pytest.mark.parametrize("strings", [GENERIC, COMPLEX], ids=["real", "complex"])
def test_states_and_metrics_are_those_of_matrix_exponentials(strings):
    theta = oracles.parameters(len(strings))
    rho = reference.state(theta, strings.labels)
    np.testing.assert_allclose(gibbs.density_matrix(theta, strings), rho, atol=1e-14)
    for kind, expected in (
        ("bkm", reference.bkm),
        ("bures", reference.bures),
        ("wigner_yanase", reference.wigner_yanase),
    ):
        found = metrics.metric(theta, strings, kind)
        np.testing.assert_allclose(found, expected(theta, strings.labels), atol=1e-12)
    with pytest.raises(ConfigError, match="bkm, wigner_yanase or bures"):
        metrics.metric(theta, strings, "fisher")


def test_derivatives_are_analytic():
    theta = oracles.parameters(5)
    metric = compiled(metrics.metric, COMPLEX)(theta)
    value, gradient = jax.value_and_grad(gibbs.log_partition)(theta, COMPLEX)
    np.testing.assert_allclose(value, reference.log_partition(theta, COMPLEX.labels), atol=1e-13)
    np.testing.assert_allclose(gradient, gibbs.moments(theta, COMPLEX), atol=1e-14)
    np.testing.assert_allclose(jax.hessian(gibbs.log_partition)(theta, COMPLEX), metric, atol=1e-13)
    np.testing.assert_allclose(jax.jacrev(gibbs.moments)(theta, COMPLEX), metric, atol=1e-13)
    np.testing.assert_allclose(jax.grad(gibbs.entropy)(theta, COMPLEX), -metric @ theta, atol=1e-13)

    def entropy_again(x):
        return gibbs.von_neumann_entropy(gibbs.density_matrix(x, COMPLEX))

    np.testing.assert_allclose(entropy_again(theta), gibbs.entropy(theta, COMPLEX), atol=1e-13)
    np.testing.assert_allclose(jax.grad(entropy_again)(theta), -metric @ theta, atol=1e-12)


def test_derivatives_hold_where_levels_meet():
    # All levels of zero parameters are one.
    zero = np.zeros(5)
    np.testing.assert_allclose(
        jax.hessian(gibbs.log_partition)(zero, COMPLEX), np.eye(5), atol=1e-14
    )
    np.testing.assert_allclose(gibbs.log_partition(zero, COMPLEX), np.log(4), atol=1e-14)


def test_eigenvectors_are_not_differentiated():
    with pytest.raises(ConfigError, match="not differentiated"):
        jax.grad(lambda t: gibbs.gibbs_state(t, COMPLEX).populations[0])(np.ones(5))


def test_large_parameters_do_not_overflow():
    theta = 2000 * oracles.parameters(5)
    state = gibbs.gibbs_state(theta, COMPLEX)
    top = np.linalg.eigvalsh(reference.exponent(theta, COMPLEX.labels))[-1]
    np.testing.assert_allclose(state.log_partition, top, rtol=1e-14)
    assert np.all(np.isfinite(metrics.state_metric(state, COMPLEX)))
    for kind in ("bures", "wigner_yanase"):
        assert np.all(np.isfinite(metrics.state_metric(state, COMPLEX, kind)))


@settings(max_examples=25)
@given(coefficients)
def test_metrics_are_positive_and_ordered(theta):
    bkm, wigner_yanase, bures = (
        np.asarray(compiled(metrics.metric, COMPLEX, kind=kind)(theta))
        for kind in ("bkm", "wigner_yanase", "bures")
    )
    for matrix in (bures, wigner_yanase - bures, bkm - wigner_yanase):
        assert np.linalg.eigvalsh(matrix)[0] >= -1e-12


@settings(max_examples=15)
@given(coefficients, coefficients)
def test_relative_entropy_is_a_bregman_divergence(first, second):
    rho = compiled(gibbs.density_matrix, COMPLEX)
    found = float(gibbs.gibbs_relative_entropy(first, second, COMPLEX))
    logs = [
        reference.exponent(x, COMPLEX.labels)
        - np.eye(4) * float(compiled(gibbs.log_partition, COMPLEX)(x))
        for x in (first, second)
    ]
    expected = np.trace(np.asarray(rho(first)) @ (logs[0] - logs[1])).real
    assert found >= -1e-12
    np.testing.assert_allclose(found, expected, atol=1e-9)


def test_registers_are_traced_out():
    rho = reference.state(THETA, GENERIC.labels)
    tensor = rho.reshape((2,) * 6)
    np.testing.assert_allclose(
        registers.partial_trace(rho, (2, 0)),
        np.einsum("abcdbf->cafd", tensor).reshape(4, 4),
        atol=1e-15,
    )
    bits = np.diag(rho).reshape(2, 2, 2)
    np.testing.assert_allclose(
        registers.visible_probabilities(rho, (0, 2)), bits.sum(1).ravel(), atol=1e-15
    )
    np.testing.assert_allclose(
        registers.marginal(np.diag(rho).real, (2, 1)), bits.sum(0).T.ravel(), atol=1e-15
    )
    assert registers.visible_qubits(3, [1]) == (0, 2)
    for hidden, message in (([3], "from 0 to 2"), ([1, 1], "each once"), ([0, 1, 2], "all 3")):
        with pytest.raises(ConfigError, match=message):
            registers.visible_qubits(3, hidden)


def test_too_large_a_state_is_refused_before_it_is_allocated():
    strings = PauliStrings(("Z" * 13, "Y" + "I" * 12))
    # Traced alone: an allocation would need numbers.
    with pytest.raises(CapacityError, match=r"13 qubits would take about 8 GiB.*12 qubits"):
        jax.eval_shape(lambda t: gibbs.gibbs_state(t, strings), np.zeros(2))
    precision.require_dense(12)
    with pytest.raises(CapacityError, match=r"100 states of 4096 x 4096 would take about 200 GiB"):
        precision.require_dense(12, states=100)


def test_32_bits_and_devices_without_complex_numbers_are_refused(monkeypatch):
    with jax.enable_x64(False), pytest.raises(PrecisionError, match="64-bit"):
        gibbs.gibbs_state(np.zeros(5), COMPLEX)
    monkeypatch.setattr(jax, "default_backend", lambda: "tpu")
    with pytest.raises(DeviceError, match="complex128, which tpu devices lack"):
        gibbs.gibbs_state(np.zeros(5), COMPLEX)
    # Real Hamiltonians need none.
    assert gibbs.gibbs_state(np.zeros(12), GENERIC).levels.shape == (8,)


def test_parameters_must_match():
    with pytest.raises(ConfigError, match=r"expected \(5,\)"):
        gibbs.gibbs_state(np.zeros(4), COMPLEX)
