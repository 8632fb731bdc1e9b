"""Speed of quantum Boltzmann machines beside numpy, qbmkit and scipy.

    NPROC=1 taskset -c 1 python -m benchmarks.qbm [--works experiment gradient dense] [--json FILE]

CPU-seconds of one core. `experiment` is the one of Kimura et al. 2025 (arXiv:2507.21569): machines
of 5 visible and 5 hidden units from 100 starts, by em with gradient m-steps and by gradient
descent, beside the same iterations in numpy, vectorised over starts. `gradient` is the divergence
and its gradient of an XYZ machine of 12 visible and 30 hidden units, beside qbmkit. `dense` is the
density matrix of an Ising chain, beside scipy's eigendecomposition and one product of matrices.
Compilation is apart.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxlab.core import cli
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions

WORKS = ("experiment", "gradient", "dense")
METHODS = ("em_gradient", "gradient")
#: Step size, and the change below which an m-step or a run ends.
LEARNING_RATE, STOP = 0.2, 1e-7


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """CPU-seconds of training and of Gibbs states, with peers where they are importable."""

    works: tuple[str, ...] = WORKS
    """What to measure: experiment, gradient, dense."""
    iterations: int = 50_000
    """Inner iterations of the experiment."""
    seeds: int = 100
    """Starts of the experiment."""
    qubits: tuple[int, ...] = (8, 10, 11)
    """Sizes of dense states."""
    repeats: int = 3
    """Timed repetitions of gradient and dense; the best is reported."""
    json: Path | None = None
    """File for the results."""
    x64: bool = True
    """Compute with 64-bit floats, which Gibbs states need."""

    def check(self) -> None:
        super().check()
        for name in ("iterations", "seeds", "repeats"):
            self.at_least(name, 1)
        unknown = set(self.works) - set(WORKS)
        if unknown:
            raise ConfigError(f"--works {', '.join(unknown)}: choose from {', '.join(WORKS)}")
        if any(not 2 <= n <= 12 for n in self.qubits):
            raise ConfigError(f"--qubits {self.qubits}: expected numbers from 2 to 12")


def main(options: Options) -> None:
    """Measure and print."""
    import jax

    from jaxlab.core import reporting

    measures = {"experiment": experiment, "gradient": gradient, "dense": dense}
    rows = [row for name in options.works for row in measures[name](options)]
    columns = ["work", "jaxlab_s", "peer", "peer_s", "times_faster", "difference", "compile_s"]
    table = [["-" if row.get(c) is None else row[c] for c in columns] for row in rows]
    title = f"CPU-seconds, {jax.devices()[0].device_kind}"
    reporting.print_table(columns, table, title=title)
    print("difference: largest one of the results of both")
    if options.json is not None:
        document = {"rows": rows, "provenance": reporting.provenance()}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def _row(work: str, own: float, compile_s: float, peer: str, other: float | None, gap: Any) -> Any:
    return {
        "work": work,
        "jaxlab_s": own,
        "peer": peer,
        "peer_s": other,
        "times_faster": None if other is None else other / own,
        "difference": None if gap is None else float(gap),
        "compile_s": compile_s,
    }


def _best(run: Callable[[], Any], repeats: int) -> tuple[float, Any]:
    """CPU-seconds of the quickest of some runs, and what it returned."""
    best, result = np.inf, None
    for _ in range(repeats):
        clock = time.process_time()
        result = run()
        best = min(best, time.process_time() - clock)
    return best, result


def experiment(options: Options) -> list[dict[str, Any]]:
    """The experiment by both methods, ours and numpy's from the same starts."""
    from jaxlab.envs.qbm import datasets
    from jaxlab.envs.qbm.restricted import RestrictedModel

    model, target = RestrictedModel(5, 5, "transverse"), datasets.cardinality(5)
    rng = np.random.default_rng(0)
    starts = rng.uniform(-5, 5, (options.seeds, model.size))
    rows = []
    for method in METHODS:
        run, compile_s = _compiled_experiment(model, target, method, starts, options.iterations)
        own, mine = _best(run, 1)
        other, theirs = _best(
            lambda method=method: _NumpyMachine(model, target).train(
                method, starts, options.iterations
            ),
            1,
        )
        rows.append(_row(method, own, compile_s, "numpy", other, np.abs(mine - theirs).max()))
    return rows


def _compiled_experiment(
    model: Any, target: np.ndarray, method: str, starts: np.ndarray, iterations: int
) -> tuple[Callable[[], np.ndarray], float]:
    """A function to the last divergences `[seeds]`, and the seconds of its compilation."""
    import jax
    import jax.numpy as jnp

    from jaxlab.agents import quantum_em
    from jaxlab.envs.qbm import restricted

    problem = quantum_em.Closed(model.size, lambda p: restricted.evaluate(p, model, target))
    config = quantum_em.EMConfig(method, stop=STOP)  # type: ignore[arg-type]
    learner = quantum_em.make(problem, config)

    def train(parameters: Any) -> Any:
        def start(key: Any, row: Any) -> Any:
            hyper = quantum_em.Hyper(learning_rate=LEARNING_RATE, parameters=row)
            return learner.init(key, hyper)

        states = jax.vmap(start)(jax.random.split(jax.random.key(0), len(starts)), parameters)
        step = jax.vmap(learner.step, (0, None))
        counter = jnp.arange(iterations, dtype=jnp.int32)
        states, _ = jax.lax.scan(lambda s, t: (step(s, t)[0], None), states, counter)
        return states.divergence

    began = time.perf_counter()
    program = jax.jit(train).lower(starts).compile()
    compile_s = time.perf_counter() - began
    return lambda: np.asarray(program(starts)), compile_s


class _NumpyMachine:
    """The transverse machine in numpy; all arrays have an axis of starts first."""

    def __init__(self, model: Any, target: np.ndarray):
        from jaxlab.envs.qbm import datasets

        self.n, self.m, self.target = model.visible, model.hidden, target
        self.spins = 1.0 - 2 * datasets.bits_of(model.visible)
        self.entropy = -np.sum(target[target > 0] * np.log(target[target > 0]))

    def split(self, theta: np.ndarray) -> tuple[np.ndarray, ...]:
        n, m = self.n, self.m
        fields = theta[:, n : n + 2 * m].reshape(-1, m, 2)
        return theta[:, :n], fields[:, :, 0], fields[:, :, 1], theta[:, n + 2 * m :]

    def table(self, theta: np.ndarray) -> tuple[np.ndarray, ...]:
        """Log weights `[starts, states]`, Bloch vectors `[starts, states, hidden]` along X, Z."""
        a, gamma, b, w = self.split(theta)
        phi = b[:, None, :] + self.spins @ w.reshape(-1, self.n, self.m)
        length = np.sqrt(phi * phi + gamma[:, None, :] ** 2)
        ratio = np.tanh(length) / length
        potentials = (length + np.log1p(np.exp(-2 * length))).sum(-1)
        return a @ self.spins.T + potentials, ratio * gamma[:, None, :], ratio * phi

    def averages(self, weights: np.ndarray, x: np.ndarray, z: np.ndarray) -> np.ndarray:
        weighted = weights[:, :, None] * z
        hidden = np.stack([(weights[:, :, None] * x).sum(1), weighted.sum(1)], -1)
        coupling = self.spins.T @ weighted
        starts = len(hidden)
        parts = (weights @ self.spins, hidden.reshape(starts, -1), coupling.reshape(starts, -1))
        return np.concatenate(parts, 1)

    def model_side(self, log_weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Potential, divergence and probabilities."""
        top = log_weights.max(1, keepdims=True)
        weights = np.exp(log_weights - top)
        mass = weights.sum(1, keepdims=True)
        psi = top[:, 0] + np.log(mass[:, 0])
        return psi, psi - log_weights @ self.target - self.entropy, weights / mass

    def train(self, method: str, starts: np.ndarray, iterations: int) -> np.ndarray:
        """The last divergences of all starts, with the stopping rules of the paper."""
        return (self._em if method == "em_gradient" else self._descent)(starts, iterations)

    def _descent(self, starts: np.ndarray, iterations: int) -> np.ndarray:
        theta, running = starts, np.ones(len(starts), bool)
        log_weights, x, z = self.table(theta)
        _, divergence, p = self.model_side(log_weights)
        gap = self.averages(self.target - p, x, z)
        for _ in range(iterations):
            trial = theta + LEARNING_RATE * gap
            log_weights, x, z = self.table(trial)
            _, there, p = self.model_side(log_weights)
            running = running & (np.abs(there - divergence) > STOP)
            theta = np.where(running[:, None], trial, theta)
            gap = np.where(running[:, None], self.averages(self.target - p, x, z), gap)
            divergence = np.where(running, there, divergence)
        return divergence

    def _em(self, starts: np.ndarray, iterations: int) -> np.ndarray:
        theta, running = starts, np.ones(len(starts), bool)
        inner = np.zeros(len(starts), int)
        log_weights, x, z = self.table(theta)
        psi, divergence, p = self.model_side(log_weights)
        moments = self.averages(p, x, z)
        goal = self.averages(np.broadcast_to(self.target, p.shape), x, z)
        for _ in range(iterations):
            trial = theta + LEARNING_RATE * (goal - moments)
            log_weights, x, z = self.table(trial)
            there, kl, p = self.model_side(log_weights)
            change = there - (trial * goal).sum(1) - psi + (theta * goal).sum(1)
            small = np.abs(change) <= STOP
            moves = running & ~small
            theta = np.where(moves[:, None], trial, theta)
            psi, divergence = np.where(moves, there, psi), np.where(moves, kl, divergence)
            moments = np.where(moves[:, None], self.averages(p, x, z), moments)
            turns = running & small
            if turns.any():
                _, x, z = self.table(theta[turns])
                q = np.broadcast_to(self.target, (int(turns.sum()), len(self.target)))
                goal = goal.copy()
                goal[turns] = self.averages(q, x, z)
            running = running & ~(small & (inner == 0))
            inner = np.where(small, 0, inner + 1)
        return divergence


def gradient(options: Options) -> list[dict[str, Any]]:
    """Divergence and gradient of the XYZ machine of 12 visible and 30 hidden units."""
    import jax

    from jaxlab.envs.qbm import datasets, restricted

    model, target = restricted.RestrictedModel(12, 30, "XYZ"), datasets.parity(12)
    theta = np.random.default_rng(0).uniform(-1, 1, model.size)

    def slope(parameters: Any) -> Any:
        found = restricted.evaluate(parameters, model, target)
        return found.divergence, -found.gap

    began = time.perf_counter()
    program = jax.jit(slope).lower(theta).compile()
    compile_s = time.perf_counter() - began
    own, mine = _best(lambda: jax.block_until_ready(program(theta)), 5 * options.repeats)
    other, gap = None, None
    if importlib.util.find_spec("qbm") is not None:
        other, theirs = _best(_qbmkit(theta, target), options.repeats)
        gap = np.abs(theirs - np.asarray(mine[1])).max()
    return [_row("gradient XYZ (12, 30)", own, compile_s, "qbmkit", other, gap)]


def _qbmkit(theta: np.ndarray, target: np.ndarray) -> Callable[[], np.ndarray]:
    # Its states are exp(-G) / Z: visible fields have the other sign; hidden ones may keep theirs
    # together with the couplings, since a potential is even in its field.
    from qbm.models.sqrbm import SemiQuantumRBM

    turned = theta.copy()
    turned[:12] *= -1
    machine = SemiQuantumRBM(12, 30, ("X", "Y", "Z"), turned)

    def run() -> np.ndarray:
        state = machine.state()
        slope = state.dlog @ (state.visible_probabilities() - target)
        slope[:12] *= -1
        return slope

    return run


def dense(options: Options) -> list[dict[str, Any]]:
    """Density matrices of an Ising chain in a tilted field, which is complex."""
    import jax
    from scipy.linalg import eigh

    from jaxlab.envs.qbm import gibbs
    from jaxlab.envs.qbm.hamiltonian import chain_strings
    from jaxlab.envs.qbm.pauli import assemble

    rows = []
    for qubits in options.qubits:
        strings = chain_strings(qubits, "ZXY", ("ZZ", "XX"))
        theta = 0.5 * np.sin(np.arange(1, len(strings) + 1))
        exponent = np.asarray(assemble(theta, strings))

        def floor(exponent: np.ndarray = exponent) -> np.ndarray:
            levels, vectors = eigh(exponent, driver="evd", check_finite=False)
            weights = np.exp(levels - levels[-1])
            return (vectors * (weights / weights.sum())) @ vectors.conj().T

        began = time.perf_counter()
        lowered = jax.jit(lambda p, s=strings: gibbs.gibbs_state(p, s).matrix).lower(theta)
        program = lowered.compile()
        compile_s = time.perf_counter() - began
        own, mine = _best(lambda p=program, t=theta: np.asarray(p(t)), options.repeats)
        other, theirs = _best(floor, options.repeats)
        label = f"Gibbs state, {qubits} qubits"
        gap = np.abs(mine - theirs).max()
        rows.append(_row(label, own, compile_s, "scipy eigh + product", other, gap))
    return rows


if __name__ == "__main__":
    cli.main("benchmarks.qbm", Options, main)
