"""Speed of three-body propagation beside heyoka, diffrax and scipy.

    NPROC=1 taskset -c 1 python -m benchmarks.cr3bp [--count 1024] [--engines jaxlab heyoka diffrax scipy] [--json FILE]

Trajectories per CPU-second of one core, states alone and with state transition matrices:
`dro` are starts around one distant retrograde orbit of Titan over 2 pi; `mix` around seven
published orbits of Saturn-Titan over pi to 2 pi, some with close passes. Errors are
against heyoka at rounding (or the finest of ours without it), compilation is apart.
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

ENGINES = ("jaxlab", "heyoka", "diffrax", "scipy")
#: Published orbits of the mix.
MIX = (
    *("st-butterfly-n", "st-dro", "st-dro-small", "st-l1-halo-n", "st-l1-halo-n-stable"),
    *("st-l2-lyapunov", "st-butterfly-n"),
)
#: Trajectories of scipy, which takes one at a time.
SCIPY_COUNT = 24

Run = Callable[[], tuple[np.ndarray, "np.ndarray | None"]]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """Trajectories per CPU-second, with peers where they are importable."""

    count: int = 1024
    """Trajectories at once."""
    tolerance: float = 1e-12
    """Relative and absolute, of a step."""
    lanes: int = 64
    """Trajectories that our engine works on at a time."""
    engines: tuple[str, ...] = ENGINES
    """What to run: jaxlab, heyoka, diffrax, scipy."""
    repeats: int = 3
    """Timed repetitions; the best is reported."""
    seed: int = 0
    """Of the starts."""
    json: Path | None = None
    """File for the results."""
    x64: bool = True
    """Compute with 64-bit floats, which propagation needs."""

    def check(self) -> None:
        super().check()
        for name in ("count", "lanes", "repeats"):
            self.at_least(name, 1)
        unknown = set(self.engines) - set(ENGINES)
        if unknown:
            raise ConfigError(f"--engines {', '.join(unknown)}: choose from {', '.join(ENGINES)}")


def work(options: Options) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Starts `[count, 6]` and spans `[count]` of both kinds of work."""
    from jaxlab.envs.cr3bp.catalogue import published_orbit

    rng = np.random.default_rng(options.seed)
    drawn = options.count + 64
    noise = rng.normal(size=(2, drawn, 6))
    dro = published_orbit("st-dro").initial() + 1e-3 * noise[0]
    rows = np.stack([published_orbit(name).initial() for name in MIX])
    mix = rows[rng.integers(0, len(rows), drawn)] + 1e-4 * noise[1]
    spans = rng.uniform(np.pi, 2 * np.pi, drawn)
    drawn_work = {"dro": (dro, np.full(drawn, 2 * np.pi)), "mix": (mix, spans)}
    return {kind: _without_collisions(*both, options) for kind, both in drawn_work.items()}


def _without_collisions(
    start: np.ndarray, span: np.ndarray, options: Options
) -> tuple[np.ndarray, np.ndarray]:
    """The first `count` that do not fall into Titan, where engines without a guard never end."""
    import jax.numpy as jnp

    from jaxlab.envs.cr3bp.propagation import Accuracy, propagate
    from jaxlab.envs.cr3bp.systems import get_system

    mu = get_system("saturn-titan").mass_parameter
    guarded = Accuracy(collision_radius=(1e-3, 1e-4))
    arc = propagate(jnp.asarray(start), jnp.asarray(span), mu, accuracy=guarded)
    kept = np.flatnonzero(np.asarray(arc.status) == 0)[: options.count]
    return start[kept], span[kept]


def main(options: Options) -> None:
    """Measure and print."""
    import jax

    from jaxlab.core import reporting
    from jaxlab.envs.cr3bp.systems import get_system

    mu = get_system("saturn-titan").mass_parameter
    missing = [name for name in options.engines if not _importable(name)]
    rows = []
    for kind, (start, span) in work(options).items():
        truth = _truth(start, span, mu)
        for stm in (False, True):
            for engine in options.engines:
                if engine in missing:
                    continue
                for label, make in _engines(engine, options, stm).items():
                    number = min(len(start), SCIPY_COUNT) if engine == "scipy" else len(start)
                    row = measure(make, start[:number], span[:number], mu, options, truth)
                    rows.append({"work": kind, "stm": stm, "engine": label} | row)
    _ratios(rows)
    columns = ["work", "stm", "engine", "per_cpu_s", "ratio", "median_error", "stm_error"]
    columns += ["compile_s"]
    table = [["-" if row.get(c) is None else row[c] for c in columns] for row in rows]
    title = f"Trajectories per CPU-second, {jax.devices()[0].device_kind}"
    reporting.print_table(columns, table, title=title)
    print("ratio: to the fastest peer on the same work")
    if missing:
        print(f"not importable here: {', '.join(missing)}")
    if options.json is not None:
        document = {"rows": rows, "provenance": reporting.provenance()}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def _importable(name: str) -> bool:
    return name == "jaxlab" or importlib.util.find_spec(name) is not None


def _ratios(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        peers = [
            r["per_cpu_s"]
            for r in rows
            if (r["work"], r["stm"]) == (row["work"], row["stm"])
            and not r["engine"].startswith("jaxlab")
        ]
        row["ratio"] = row["per_cpu_s"] / max(peers) if peers else None


def measure(
    make: Any, start: np.ndarray, span: np.ndarray, mu: float, options: Options, truth: Any
) -> dict[str, Any]:
    """Rate and errors of one engine; the first run is not timed."""
    began = time.perf_counter()
    run: Run = make(start, span, mu)
    state, stm = run()
    compile_s = time.perf_counter() - began
    best = np.inf
    for _ in range(options.repeats):
        clock = time.process_time()
        run()
        best = min(best, time.process_time() - clock)
    true_state, true_stm = (part[: len(start)] for part in truth)
    row = {
        "per_cpu_s": len(start) / best,
        "median_error": float(np.median(np.abs(state - true_state).max(1))),
        "max_error": float(np.abs(state - true_state).max()),
        "compile_s": compile_s,
        "stm_error": None,
    }
    if stm is not None:
        scale = np.linalg.norm(true_stm, axis=(1, 2))
        row["stm_error"] = float(np.median(np.linalg.norm(stm - true_stm, axis=(1, 2)) / scale))
    return row


def _engines(name: str, options: Options, stm: bool) -> dict[str, Any]:
    if name == "jaxlab":
        labels = {"jaxlab": "all", "jaxlab, state controls": "state"} if stm else {"jaxlab": "all"}
        return {
            label: lambda *a, control=control: _jaxlab(*a, options, stm, control)
            for label, control in labels.items()
        }
    makers = {"heyoka": _heyoka, "diffrax": _diffrax, "scipy": _scipy}
    return {name: lambda *a: makers[name](*a, options.tolerance, stm)}


def _jaxlab(start: Any, span: Any, mu: float, options: Options, stm: bool, control: str) -> Run:
    import jax
    import jax.numpy as jnp

    from jaxlab.envs.cr3bp.dop853 import Method
    from jaxlab.envs.cr3bp.propagation import Accuracy, propagate

    accuracy = Accuracy(options.tolerance, control, method=Method(lanes=options.lanes))
    program = jax.jit(lambda s, t: propagate(s, t, mu, stm=stm, accuracy=accuracy))
    arguments = jnp.asarray(start), jnp.asarray(span)

    def run() -> Any:
        arc = jax.block_until_ready(program(*arguments))
        return np.asarray(arc.state), None if arc.stm is None else np.asarray(arc.stm)

    return run


def _heyoka(start: Any, span: Any, mu: float, tolerance: float, stm: bool, lanes: int = 4) -> Run:
    import heyoka as hy

    x, y, z, vx, vy, vz = hy.make_vars("x", "y", "z", "vx", "vy", "vz")
    k1 = (1 - mu) * ((x + mu) ** 2 + y**2 + z**2) ** -1.5
    k2 = mu * ((x - (1 - mu)) ** 2 + y**2 + z**2) ** -1.5
    system: Any = [
        *((x, vx), (y, vy), (z, vz)),
        (vx, 2.0 * vy + x - k1 * (x + mu) - k2 * (x - (1 - mu))),
        (vy, -2.0 * vx + y - (k1 + k2) * y),
        (vz, -(k1 + k2) * z),
    ]
    size = 6
    if stm:
        system, size = hy.var_ode_sys(system, hy.var_args.vars, order=1), 42
    # A batch is a multiple of the lanes; what fills it is run and not counted.
    spare = -len(start) % lanes
    y0 = np.concatenate([start, start[:spare]]).T
    spans = np.concatenate([span, span[:spare]])
    begin = np.zeros((size, lanes))
    begin[:6] = y0[:, :lanes]
    if stm:
        begin[6:] = np.eye(6).reshape(36, 1)
    integrator = hy.taylor_adaptive_batch(
        system, begin, tol=tolerance, compact_mode=False, time=[0.0] * lanes
    )
    identity = begin[6:].copy()

    def run() -> Any:
        out = np.empty((size, y0.shape[1]))
        for n in range(0, y0.shape[1], lanes):
            integrator.set_time(0.0)
            integrator.state[:6] = y0[:, n : n + lanes]
            integrator.state[6:] = identity
            integrator.propagate_until(list(spans[n : n + lanes]))
            out[:, n : n + lanes] = integrator.state
        out = out[:, : len(start)].T
        return out[:, :6].copy(), out[:, 6:].reshape(-1, 6, 6) if stm else None

    return run


def _truth(start: Any, span: Any, mu: float) -> tuple[np.ndarray, np.ndarray]:
    """States and matrices to rounding."""
    if _importable("heyoka"):
        state, stm = _heyoka(start, span, mu, 2.3e-16, True)()
    else:
        options = Options(tolerance=1e-15)
        state, stm = _jaxlab(start, span, mu, options, True, "all")()
    assert stm is not None
    return state, stm


def _with_identity(start: np.ndarray, stm: bool) -> np.ndarray:
    if not stm:
        return start
    return np.concatenate([start, np.tile(np.eye(6).ravel(), (len(start), 1))], 1)


def _diffrax(start: Any, span: Any, mu: float, tolerance: float, stm: bool) -> Run:
    import diffrax
    import jax
    import jax.numpy as jnp

    from jaxlab.envs.cr3bp.flows import vector_field

    rates = vector_field(6, stm)
    term, solver = diffrax.ODETerm(lambda t, y, args: rates(y, (mu,))), diffrax.Dopri8()
    controller = diffrax.PIDController(rtol=tolerance, atol=tolerance)

    def one(y: Any, t: Any) -> Any:
        solution = diffrax.diffeqsolve(
            term, solver, 0.0, t, None, y, stepsize_controller=controller, max_steps=None
        )
        return solution.ys[0]

    program = jax.jit(jax.vmap(one))
    arguments = jnp.asarray(_with_identity(start, stm)), jnp.asarray(span)

    def run() -> Any:
        out = np.asarray(jax.block_until_ready(program(*arguments)))
        return out[:, :6], out[:, 6:].reshape(-1, 6, 6) if stm else None

    return run


def _scipy(start: Any, span: Any, mu: float, tolerance: float, stm: bool) -> Run:
    from scipy.integrate import solve_ivp

    def rates(t: float, s: np.ndarray) -> np.ndarray:
        x, y, z, vx, vy = s[:5]
        d = np.array([[x + mu, y, z], [x - 1 + mu, y, z]])
        squares = (d * d).sum(1)
        pull = np.array([1 - mu, mu]) / squares**1.5
        g = np.array([x, y, 0]) - pull @ d + np.array([2 * vy, -2 * vx, 0])
        if not stm:
            return np.concatenate([s[3:6], g])
        hessian = np.diag([1.0, 1, 0]) - pull.sum() * np.eye(3)
        hessian = hessian + np.einsum("n,ni,nj->ij", 3 * pull / squares, d, d)
        matrix = s[6:].reshape(6, 6)
        turn = np.array([[0.0, 2, 0], [-2, 0, 0], [0, 0, 0]])
        bent = hessian @ matrix[:3] + turn @ matrix[3:]
        return np.concatenate([s[3:6], g, matrix[3:].ravel(), bent.ravel()])

    def run() -> Any:
        out = np.stack(
            [
                solve_ivp(rates, (0, t), y, "DOP853", rtol=tolerance, atol=tolerance).y[:, -1]
                for y, t in zip(_with_identity(start, stm), span, strict=True)
            ]
        )
        return out[:, :6], out[:, 6:].reshape(-1, 6, 6) if stm else None

    return run


if __name__ == "__main__":
    cli.main("benchmarks.cr3bp", Options, main)
