"""Speed of PDE solvers beside the same schemes in numpy and scipy.

    NPROC=1 taskset -c 1 python -m benchmarks.pde [--works allen_cahn_ftcs ...] [--json FILE]

CPU-seconds of one core for the same time steps of 1,024 initial conditions on the reference's grid
of 149 interior points: jaxlab, numpy and scipy (`solve_banded`) vectorised over the batch, and the same
numpy program in a loop over initial conditions, of which a few are timed and scaled up. Compilation
is apart. The cubic term is written as products in all of them, since numpy's power is slower.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxlab.core import cli
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions

#: Works by name: problem and scheme.
WORKS = {
    "allen_cahn_ftcs": ("allen_cahn", "ftcs"),
    "allen_cahn_imex": ("allen_cahn", "imex"),
    "heat_btcs": ("heat_dirichlet", "btcs"),
    "wave_leapfrog": ("wave", "leapfrog"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """CPU-seconds of solvers beside numpy and scipy."""

    works: tuple[str, ...] = tuple(WORKS)
    """What to measure: allen_cahn_ftcs, allen_cahn_imex, heat_btcs, wave_leapfrog."""
    batch: int = 1024
    """Initial conditions."""
    points: int = 149
    """Interior points."""
    steps: int = 200
    """Time steps."""
    looped: int = 8
    """Initial conditions of the loop that are timed; the rest is taken to cost the same."""
    repeats: int = 3
    """Timed repetitions; the best is reported."""
    json: Path | None = None
    """File for the results."""
    x64: bool = True
    """Compute with 64-bit floats."""

    def check(self) -> None:
        super().check()
        for name in ("batch", "points", "steps", "looped", "repeats"):
            self.at_least(name, 1)
        unknown = set(self.works) - set(WORKS)
        if unknown:
            raise ConfigError(f"--works {', '.join(unknown)}: choose from {', '.join(WORKS)}")


def main(options: Options) -> None:
    """Measure and print."""
    import jax

    from jaxlab.core import reporting

    rows = [measure(name, options) for name in options.works]
    columns = ["work", "jaxlab_s", "numpy_s", "loop_s", "than_numpy", "than_loop", "difference"]
    table = [[row[c] for c in columns] for row in rows]
    title = f"CPU-seconds, {options.batch} initial conditions, {jax.devices()[0].device_kind}"
    reporting.print_table(columns, table, title=title)
    print("difference: largest one between the last fields; than_: times faster")
    if options.json is not None:
        document = {"rows": rows, "provenance": reporting.provenance()}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def measure(work: str, options: Options) -> dict[str, Any]:
    """One work by all three."""
    import jax

    from jaxlab.envs.pde.initial import draw_nodes, initial_values
    from jaxlab.envs.pde.problems import Scheme, problem
    from jaxlab.envs.pde.schemes import stepper
    from jaxlab.envs.pde.stability import check_stable

    name, scheme = WORKS[work]
    equation = problem(name)
    dt, dx = 0.5 / (10 * 111), equation.length / (options.points + 1)
    check_stable(equation, Scheme(scheme), dx, dt)
    nodes = draw_nodes(equation, range(options.batch))
    fields = np.asarray(initial_values(equation, nodes, options.points))

    @jax.jit
    def run(u: Any) -> Any:
        own = stepper(equation, Scheme(scheme), options.points, dt, equation.coefficients())
        state = own.start(u, None)
        step = lambda _, s: own.advance(s, 0.0)  # noqa: E731
        state = jax.lax.fori_loop(0, options.steps, step, state, unroll=2)
        return own.field(state)

    began = time.process_time()
    program = run.lower(fields).compile()
    compile_s = time.process_time() - began
    own_s, mine = _best(lambda: np.asarray(program(fields)), options.repeats)
    peer = _PEERS[scheme](equation, dt, dx)
    numpy_s, theirs = _best(lambda: peer(fields, options.steps), options.repeats)
    few = fields[: options.looped]
    loop_s, _ = _best(lambda: [peer(u[None], options.steps) for u in few], 1)
    loop_s *= options.batch / len(few)
    return {
        "work": work,
        "jaxlab_s": own_s,
        "numpy_s": numpy_s,
        "loop_s": loop_s,
        "than_numpy": numpy_s / own_s,
        "than_loop": loop_s / own_s,
        "difference": float(np.abs(mine - theirs).max()),
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


Peer = Callable[[np.ndarray, int], np.ndarray]


def _reaction(equation: Any, u: np.ndarray) -> np.ndarray | float:
    return equation.rate * (u - u * u * u) if equation.rate else 0.0


def _ftcs(equation: Any, dt: float, dx: float) -> Peer:
    """Walls are two more columns, so that nothing is copied to hold them."""

    def run(fields: np.ndarray, steps: int) -> np.ndarray:
        u = np.pad(fields, ((0, 0), (1, 1)), constant_values=equation.wall_value)
        for _ in range(steps):
            inner = u[:, 1:-1]
            bent = u[:, 2:] - 2 * inner + u[:, :-2]
            u[:, 1:-1] = inner + dt * (
                equation.diffusion / dx**2 * bent + _reaction(equation, inner)
            )
        return u[:, 1:-1]

    return run


def _implicit(equation: Any, dt: float, dx: float) -> Peer:
    from scipy.linalg import solve_banded

    alpha = equation.diffusion * dt / dx**2

    def run(fields: np.ndarray, steps: int) -> np.ndarray:
        u = fields.T.copy()
        bands = np.full((3, len(u)), -alpha)
        bands[1] = 1 + 2 * alpha
        for _ in range(steps):
            known = u + dt * _reaction(equation, u)
            known[[0, -1]] += alpha * equation.wall_value
            u = solve_banded((1, 1), bands, known, overwrite_b=True, check_finite=False)
        return u.T

    return run


def _leapfrog(equation: Any, dt: float, dx: float) -> Peer:
    square = (equation.speed * dt / dx) ** 2

    def run(fields: np.ndarray, steps: int) -> np.ndarray:
        u = np.pad(fields, ((0, 0), (1, 1)), constant_values=equation.wall_value)
        before = u.copy()
        before[:, 1:-1] += square / 2 * (u[:, 2:] - 2 * u[:, 1:-1] + u[:, :-2])
        for _ in range(steps):
            inner = u[:, 1:-1]
            after = 2 * inner - before[:, 1:-1] + square * (u[:, 2:] - 2 * inner + u[:, :-2])
            before[:, 1:-1] = after
            before, u = u, before
        return u[:, 1:-1]

    return run


_PEERS: dict[str, Callable[[Any, float, float], Peer]] = {
    "ftcs": _ftcs,
    "imex": _implicit,
    "btcs": _implicit,
    "leapfrog": _leapfrog,
}


if __name__ == "__main__":
    cli.main("benchmarks.pde", Options, main)
