"""Models that are block diagonal in the visible bits, and the e-step where they are not."""

import itertools

import numpy as np
import pytest
from scipy.linalg import sqrtm

from jaxlab.core.errors import CapacityError, ConfigError
from jaxlab.envs.qbm import conditional, dual
from jaxlab.envs.qbm.boundedness import unbounded_direction
from jaxlab.envs.qbm.conditional import ConditionalModel, commutes_visibly
from jaxlab.envs.qbm.dual import DualModel
from jaxlab.envs.qbm.pauli import PauliStrings
from tests.envs.qbm import oracles, reference

#: Hidden qubits interact with one another.
INTERACTING = PauliStrings(("ZIII", "IZII", "ZZXI", "IIXY", "IZZZ", "IIYI", "ZIIY", "IIXX"))
TARGET = np.array([0.5, 0.0, 0.2, 0.3])
PAIR = DualModel(PauliStrings(oracles.PAIR_TERMS), (1,))


def test_blocks_are_the_dense_state():
    model = ConditionalModel(INTERACTING, (2, 3))
    theta, labels = oracles.parameters(8), INTERACTING.labels
    rho = reference.state(theta, labels)
    found = conditional.evaluate(theta, model, TARGET)
    np.testing.assert_allclose(
        found.log_partition, reference.log_partition(theta, labels), atol=1e-12
    )
    np.testing.assert_allclose(found.moments, reference.moments(rho, labels), atol=1e-13)
    sigma = reference.e_step(rho, 2, TARGET)
    np.testing.assert_allclose(found.target_moments, reference.moments(sigma, labels), atol=1e-13)
    probabilities = conditional.probabilities(theta, model)
    np.testing.assert_allclose(probabilities, reference.bits(rho, 2), atol=1e-14)
    np.testing.assert_allclose(found.divergence, reference.kl(TARGET, probabilities), atol=1e-13)
    np.testing.assert_allclose(
        conditional.metric(theta, model), reference.bkm(theta, labels), atol=1e-12
    )
    states = np.asarray(conditional.conditional_states(theta, model))
    np.testing.assert_allclose(states[2] * probabilities[2], rho[8:12, 8:12], atol=1e-14)


def test_visible_qubits_may_stand_anywhere():
    order = (2, 0, 3, 1)
    moved = PauliStrings(INTERACTING.restricted(order))
    hidden = tuple(n for n, q in enumerate(order) if q in (2, 3))
    theta = oracles.parameters(8)
    found = conditional.evaluate(theta, ConditionalModel(moved, hidden), TARGET)
    expected = conditional.evaluate(theta, ConditionalModel(INTERACTING, (2, 3)), TARGET)
    for a, b in zip(found, expected, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)


def test_models_without_hidden_qubits():
    strings = PauliStrings(("ZI", "IZ", "ZZ"))
    theta = oracles.parameters(3)
    model = ConditionalModel(strings)
    rho = reference.state(theta, strings.labels)
    found = conditional.evaluate(theta, model, TARGET)
    np.testing.assert_allclose(found.moments, reference.moments(rho, strings.labels), atol=1e-14)
    np.testing.assert_allclose(
        conditional.metric(theta, model), reference.bkm(theta, strings.labels), atol=1e-13
    )


def test_what_does_not_commute_is_refused():
    assert commutes_visibly(INTERACTING, (2, 3))
    assert not commutes_visibly(INTERACTING, (2,))
    with pytest.raises(ConfigError, match="'IIXY' has X or Y on a visible qubit"):
        ConditionalModel(INTERACTING, (2,))
    model = ConditionalModel(INTERACTING, (2, 3))
    with pytest.raises(ConfigError, match=r"expected \(8,\)"):
        conditional.evaluate(np.zeros(7), model, TARGET)
    with pytest.raises(ConfigError, match=r"expected \(4,\)"):
        conditional.evaluate(np.zeros(8), model, np.ones(2) / 2)
    large = ConditionalModel(PauliStrings(("Z" * 18 + "Y" * 5,)), tuple(range(18, 23)))
    with pytest.raises(CapacityError, match="262144 states of 32 x 32"):
        conditional.blocks(np.zeros(1), large)


def test_the_recorded_dual_e_step():
    theta = oracles.parameters(9)
    assert PAIR.visible_strings.labels == ("X", "Y", "Z")
    goal = dual.visible_moments(oracles.PAIR_TARGET, PAIR)
    np.testing.assert_allclose(goal, [0, 0, 0.4], atol=1e-15)
    _, both = dual.potential(np.concatenate([theta, np.zeros(3)]), PAIR)
    visible = oracles.PAIR_VISIBLE
    expected = [2 * visible[0, 1], 0, visible[0, 0] - visible[1, 1]]
    np.testing.assert_allclose(both[9:], expected, atol=1e-9)
    # At the recorded multipliers the marginal is the target, and the divergence the recorded.
    point = np.concatenate([theta, oracles.PAIR_MULTIPLIERS])
    potential, both = dual.potential(point, PAIR)
    np.testing.assert_allclose(both[9:], goal, atol=1e-9)
    alone, _ = dual.potential(np.concatenate([theta, np.zeros(3)]), PAIR)
    divergence = goal @ np.array(oracles.PAIR_MULTIPLIERS) - potential + alone
    np.testing.assert_allclose(divergence, oracles.PAIR_DIVERGENCE, atol=1e-9)


def test_the_hessian_of_the_dual_is_that_of_all_terms():
    point = oracles.parameters(12)
    labels = (*oracles.PAIR_TERMS, "XI", "YI", "ZI")
    np.testing.assert_allclose(dual.metric(point, PAIR), reference.bkm(point, labels), atol=1e-12)


def test_the_petz_map_misses_the_target():
    # The recorded marginal of Petz's map, which therefore is no e-step.
    rho = reference.state(oracles.parameters(9), oracles.PAIR_TERMS)
    root, visible = sqrtm(rho), rho.reshape(2, 2, 2, 2).trace(axis1=1, axis2=3)
    inverse = np.linalg.inv(sqrtm(visible))
    inner = np.kron(inverse @ np.diag(oracles.PAIR_TARGET) @ inverse, np.eye(2))
    marginal = (root @ inner @ root).reshape(2, 2, 2, 2).trace(axis1=1, axis2=3)
    np.testing.assert_allclose([marginal[0, 0].real, marginal[0, 1].real], oracles.PETZ, atol=1e-9)


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([1.0, 0.0], "full rank"),
        ([0.5, 0.4], "trace 0.9"),
        ([1.5, -0.5], "eigenvalue -0.5"),
        ([0.5, np.nan], "not finite"),
        ([[0.5, 0.1], [0.2, 0.5]], "not Hermitian"),
        ([0.25] * 4, r"expected \(2, 2\)"),
    ],
)
def test_targets_that_are_no_states_are_named(target, message):
    with pytest.raises(ConfigError, match=message):
        dual.visible_moments(target, PAIR)


def test_unbounded_m_steps_are_found():
    # A machine's m-step has a minimiser unless a visible bit is constant.
    strings = PauliStrings(("ZIII", "IZII", "IIZI", "IIIX", "ZIIX", "IZIZ", "IIZX"))
    for support in itertools.combinations(range(8), 2):
        target = np.zeros(8)
        target[list(support)] = 0.5
        constant = any((support[0] >> k & 1) == (support[1] >> k & 1) for k in range(3))
        found = unbounded_direction(target, strings, (3,))
        assert (found is not None) == constant
    assert unbounded_direction(np.ones(8) / 8, strings, (3,)) is None
    # With a visible coupling equal bits are enough.
    coupled = PauliStrings(("ZI", "IZ", "ZZ"))
    assert "ZZ" in unbounded_direction([0.5, 0, 0, 0.5], coupled)
    assert unbounded_direction([0.5, 0, 0, 0.5], PauliStrings(("ZI", "IZ"))) is None
