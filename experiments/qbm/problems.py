"""Problems of training: models of `jaxlab.envs.qbm` for the learners of `quantum_em`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from jaxlab.agents.quantum_em import Closed, Dual, Sampled
from jaxlab.envs.qbm import conditional, dual, gibbs, metrics, restricted, sampling
from jaxlab.envs.qbm.boundedness import unbounded_direction
from jaxlab.envs.qbm.conditional import ConditionalModel, commutes_visibly
from jaxlab.envs.qbm.datasets import check_probabilities
from jaxlab.envs.qbm.dual import DualModel
from jaxlab.envs.qbm.evaluation import Evaluation, shannon_entropy
from jaxlab.envs.qbm.pauli import PauliStrings, expectations
from jaxlab.envs.qbm.restricted import RestrictedModel


def unbounded_reason(target: Any, strings: PauliStrings, hidden: Sequence[int] = ()) -> str | None:
    """Why the m-step has no finite minimiser, in words."""
    direction = unbounded_direction(target, strings, hidden)
    if direction is None:
        return None
    terms = " + ".join(f"{c:.3g} {label}" for label, c in list(direction.items())[:3])
    more = " + ..." if len(direction) > 3 else ""
    return f"{terms}{more} is constant on the data and nowhere higher"


def restricted_problem(model: RestrictedModel, target: Any) -> Closed:
    """A semi-quantum restricted Boltzmann machine and a target `[2^visible]`, in closed form."""
    target = check_probabilities(target, model.visible)
    hidden = range(model.visible, model.visible + model.hidden)
    return Closed(
        model.size,
        lambda parameters: restricted.evaluate(parameters, model, target),
        lambda parameters: restricted.metric(parameters, model),
        unbounded_reason(target, model.strings, tuple(hidden)),
    )


def conditional_problem(strings: PauliStrings, hidden: Sequence[int], target: Any) -> Closed:
    """A model whose visible operators commute, and a target of its visible bits."""
    model = ConditionalModel(strings, tuple(hidden))
    target = check_probabilities(target, len(model.visible))
    return Closed(
        model.size,
        lambda parameters: conditional.evaluate(parameters, model, target),
        lambda parameters: conditional.metric(parameters, model),
        unbounded_reason(target, strings, hidden),
    )


def visible_problem(strings: PauliStrings, state: Any) -> Closed:
    """A model without hidden qubits, and a target state (or probabilities of a diagonal one)."""
    matrix = np.asarray(state)
    matrix = np.diag(matrix) if matrix.ndim == 1 else matrix
    dual.require_density_matrix(matrix, strings.dimension)
    goal = expectations(matrix.astype(strings.dtype), strings)
    populations = np.linalg.eigvalsh(matrix)
    entropy = shannon_entropy(np.maximum(populations, 0.0))

    def evaluate(parameters: Any) -> Evaluation:
        spectrum = gibbs.gibbs_state(parameters, strings)
        psi, moments = spectrum.log_partition, expectations(spectrum.matrix, strings)
        divergence = psi - jnp.asarray(parameters) @ goal - entropy
        return Evaluation(psi, moments, goal - moments, divergence)

    return Closed(len(strings), evaluate, lambda parameters: metrics.metric(parameters, strings))


def dual_problem(strings: PauliStrings, hidden: Sequence[int], target: Any) -> Dual:
    """A model with hidden qubits whose visible operators do not commute; the target is a state
    of the visible register, or probabilities of its bits, and has full rank."""
    model = DualModel(strings, tuple(hidden))
    return Dual(
        model.size,
        lambda point: dual.potential(point, model),
        lambda point: dual.metric(point, model),
        dual.visible_moments(target, model),
    )


def problem_of(strings: PauliStrings, hidden: Sequence[int], target: Any) -> Closed | Dual:
    """The problem of a model given by its terms, with the cheapest e-step that is exact."""
    if commutes_visibly(strings, hidden):
        return conditional_problem(strings, hidden, target)
    if not hidden:
        return visible_problem(strings, target)
    return dual_problem(strings, hidden, target)


def sampled_problem(
    model: RestrictedModel,
    spins: Any,
    weights: Any,
    *,
    chains: int = 100,
    sweeps: int = 1,
    block: int = 1,
) -> Sampled:
    """A machine of any number of visible units, and data as distinct spins with weights."""
    spins, weights = np.asarray(spins), np.asarray(weights)
    return Sampled(
        model.size,
        lambda key: sampling.random_spins(key, model, chains),
        lambda key, state, parameters: sampling.persistent_contrast(
            key, state, parameters, model, spins, weights, sweeps=sweeps, block=block
        ),
    )
