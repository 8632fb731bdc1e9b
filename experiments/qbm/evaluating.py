"""Evaluates one model and prints what its Gibbs state is like."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.qbm.models import PauliModel, read_model
from experiments.qbm.options import EvaluateOptions
from experiments.qbm.problems import problem_of
from jaxlab.agents.quantum_em import EMConfig, em_steps
from jaxlab.core.errors import ConfigError
from jaxlab.core.reporting import print_table
from jaxlab.core.runfolder import to_json
from jaxlab.envs.qbm import conditional, gibbs
from jaxlab.envs.qbm.conditional import ConditionalModel, commutes_visibly
from jaxlab.envs.qbm.evaluation import relative_entropy_of_bits
from jaxlab.envs.qbm.metrics import state_metric
from jaxlab.envs.qbm.pauli import expectations
from jaxlab.envs.qbm.registers import visible_probabilities

#: Iterations of an m-step at most; an m-step with a minimiser needs some ten.
MOST_INNER = 2000
#: Gaps of moments above this are told.
SOLVED = 1e-9


def main(options: EvaluateOptions) -> None:
    """Evaluate the model of the options and print the answer.

    Raises:
      DataError, CapacityError, ConfigError, PrecisionError: See the messages.
    """
    assert options.model is not None
    model = read_model(options.model)
    if options.em_steps and model.target is None:
        raise ConfigError(f"--em-steps: {options.model} has no target; give it one")
    result = summary(model)
    if options.em_steps:
        result |= em_summary(model, options.em_steps)
    if options.json:
        print(to_json(result))
    else:
        _print(model, result)


def summary(model: PauliModel) -> dict[str, Any]:
    """What is printed of the model's Gibbs state, as plain data."""
    commuting = commutes_visibly(model.strings, model.hidden)
    psi, probabilities, moments, populations, metric = (_by_blocks if commuting else _dense)(model)
    kl = None
    if model.target is not None:
        kl = float(relative_entropy_of_bits(model.target, probabilities))
    return {
        "log_partition": float(psi),
        "probabilities": np.asarray(probabilities).tolist(),
        "expectations": np.asarray(moments).tolist(),
        "kl": kl,
        "entropy": float(psi - model.parameters @ moments),
        "purity": float(np.sum(np.asarray(populations) ** 2)),
        "metric_eigenvalues": np.linalg.eigvalsh(np.asarray(metric)).tolist(),
    }


def _by_blocks(model: PauliModel) -> tuple[Any, ...]:
    """Potential, probabilities of visible bits, moments, eigenvalues of the state and metric.

    Blocks of the visible bits keep the digits of probabilities that a matrix of all would lose.
    """
    structure = ConditionalModel(model.strings, model.hidden)
    found = jax.jit(lambda p: conditional.blocks(p, structure))(model.parameters)
    psi = jax.nn.logsumexp(found.log_weights)
    probabilities = jnp.exp(found.log_weights - psi)
    metric = jax.jit(lambda p: conditional.metric(p, structure))(model.parameters)
    populations = jnp.exp(found.states.levels - psi)
    return psi, probabilities, probabilities @ found.features, populations, metric


def _dense(model: PauliModel) -> tuple[Any, ...]:
    """As `_by_blocks`, from the matrix of the whole state."""
    state = jax.jit(lambda p: gibbs.gibbs_state(p, model.strings))(model.parameters)
    matrix = state.matrix
    metric = jax.jit(lambda s: state_metric(s, model.strings))(state)
    moments = expectations(matrix, model.strings)
    return state.log_partition, _bits(matrix, model), moments, state.populations, metric


def _bits(matrix: Any, model: PauliModel) -> Any:
    """Probabilities of visible bits in a density matrix; what rounding left below zero is cut."""
    found = jnp.maximum(visible_probabilities(matrix, model.visible), 0.0)
    return found / jnp.sum(found)


def em_summary(model: PauliModel, count: int) -> dict[str, Any]:
    """Divergences of visible bits after each em step, as plain data."""
    problem = problem_of(model.strings, model.hidden, model.target)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        trace = em_steps(problem, model.parameters, count, EMConfig(most_inner=MOST_INNER))
    for warning in caught:
        print(f"warning: {warning.message}", file=sys.stderr)
    residual = np.asarray(trace.residual)
    if not np.all(residual <= SOLVED):
        step = int(np.flatnonzero(~(residual <= SOLVED))[0])
        print(
            f"warning: the m-step of em step {step + 1} is not solved after {MOST_INNER} "
            f"iterations: a moment differs by {residual[step]:.3g} from its goal",
            file=sys.stderr,
        )

    if commutes_visibly(model.strings, model.hidden):
        return {"em_kl": np.asarray(trace.divergence).tolist()}

    def divergence(parameters: Any) -> Any:
        matrix = gibbs.gibbs_state(parameters, model.strings).matrix
        return relative_entropy_of_bits(model.target, _bits(matrix, model))

    return {"em_kl": np.asarray(jax.lax.map(divergence, trace.parameters)).tolist()}


def _print(model: PauliModel, result: dict[str, Any]) -> None:
    rows: list[list[str]] = [
        [name, "-" if result[key] is None else f"{result[key]:.15g}"]
        for name, key in (
            *(("log Z", "log_partition"), ("entropy (nats)", "entropy"), ("purity", "purity")),
            ("KL of visible bits (nats)", "kl"),
        )
    ]
    eigenvalues = result["metric_eigenvalues"]
    rows.append(["BKM metric, least eigenvalue", f"{eigenvalues[0]:.15g}"])
    rows.append(["BKM metric, largest eigenvalue", f"{eigenvalues[-1]:.15g}"])
    print_table(["", "value"], rows, title=f"Gibbs state of {model.strings.qubits} qubits")
    terms = zip(model.strings.labels, model.parameters, result["expectations"], strict=True)
    table = [[label, f"{p:.10g}", f"{eta:.12g}"] for label, p, eta in terms]
    print_table(["term", "parameter", "expectation"], table)
    width = len(model.visible)
    bits = [[f"{v:0{width}b}", f"{p:.12g}"] for v, p in enumerate(result["probabilities"])]
    print_table(["bits", "probability"], bits)
    if "em_kl" in result:
        steps = [[str(n + 1), f"{kl:.12g}"] for n, kl in enumerate(result["em_kl"])]
        print_table(["em step", "KL"], steps)
