"""Pauli strings and Hamiltonians against Kronecker products."""

import jax
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.envs.qbm import hamiltonian as h
from jaxlab.envs.qbm.pauli import PauliStrings, apply, assemble, expectations
from tests.envs.qbm import oracles, reference

MIXED = PauliStrings(("XYZ", "IIY", "YYI", "ZII", "III", "XXX", "YYY", "XYI"))


def test_strings_act_as_their_kronecker_products():
    c = oracles.parameters(len(MIXED))
    expected = reference.exponent(c, MIXED.labels)
    np.testing.assert_allclose(assemble(c, MIXED), expected, atol=1e-15)
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(8, 3)) + 1j * rng.normal(size=(8, 3))
    for n, label in enumerate(MIXED.labels):
        found = apply(vectors, MIXED.flips[n], MIXED.parities[n], MIXED.phases[n])
        np.testing.assert_allclose(found, reference.operator(label) @ vectors, atol=1e-15)
    hermitian = vectors @ vectors.conj().T
    np.testing.assert_allclose(
        expectations(hermitian, MIXED), reference.moments(hermitian, MIXED.labels), atol=1e-13
    )


def test_real_strings_have_real_matrices():
    strings = PauliStrings(("XX", "YY", "ZI"))
    assert strings.real
    assert not MIXED.real
    matrix = assemble(np.ones(3), strings)
    assert matrix.dtype == np.float64
    np.testing.assert_array_equal(matrix, reference.exponent(np.ones(3), strings.labels).real)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ((), "at least one"),
        (("ZI", "Z"), "1 letters, expected 2"),
        (("ZA",), "over I, X, Y, Z"),
        (("zi",), "over I, X, Y, Z"),
        (("ZI", "IZ", "ZI"), "'ZI' is given twice"),
    ],
)
def test_wrong_strings_are_named(labels, message):
    with pytest.raises(ConfigError, match=message):
        PauliStrings(labels)


def test_a_hamiltonian_is_a_pytree_of_named_terms():
    strings = {"field": ("ZI", "IZ"), "coupling": ("ZZ",)}
    model = h.hamiltonian({"field": [0.1, 0.2], "coupling": 0.3}, strings, sign=-1)
    np.testing.assert_allclose(model.parameters, [-0.1, -0.2, -0.3])
    assert model.terms.labels == ("ZI", "IZ", "ZZ")
    doubled = jax.tree.map(lambda c: 2 * c, model)
    np.testing.assert_allclose(doubled.parameters, [-0.2, -0.4, -0.6])
    again = model.with_parameters(model.parameters)
    assert jax.tree.structure(again) == jax.tree.structure(model)
    np.testing.assert_allclose(again.coefficients["field"], [0.1, 0.2])
    gradient = jax.grad(lambda m: m.parameters @ np.arange(3.0))(model)
    np.testing.assert_allclose(gradient.coefficients["coupling"], [-2.0])


@pytest.mark.parametrize(
    ("terms", "strings", "message"),
    [
        ([("ZI", 1j)], None, "not be Hermitian"),
        ([("ZI", np.nan)], None, "finite"),
        ([("ZI", "0.1")], None, "real number"),
        ([("ZI", 0.1), ("ZI", 0.2)], None, "twice"),
        ({"a": [0.1]}, {"a": ("ZI", "IZ")}, r"expected \(2,\)"),
        ({"a": [0.1]}, {"b": ("ZI",)}, "terms are a, but strings b"),
        ({"a": [0.1], "b": [0.1]}, {"a": ("ZI",), "b": ("ZI",)}, "twice"),
    ],
)
def test_wrong_hamiltonians_are_named(terms, strings, message):
    with pytest.raises(ConfigError, match=message):
        h.hamiltonian(terms, strings)
    with pytest.raises(ConfigError, match="sign"):
        h.hamiltonian({"Z": 1.0}, sign=2)


def test_families_have_the_documented_order():
    assert h.semi_quantum_strings(2, 1, "XZ").labels == oracles.XZ_ORDER
    assert h.semi_quantum_strings(1, 2, "transverse").labels == (
        *("ZII", "IXI", "IZI", "IIX", "IIZ", "ZZI", "ZIZ"),
    )
    assert h.chain_strings(3, "X", ("ZZ",)).labels == ("XII", "IXI", "IIX", "ZZI", "IZZ")
    with pytest.raises(ConfigError, match="hidden operators"):
        h.semi_quantum_strings(2, 1, "Y")
