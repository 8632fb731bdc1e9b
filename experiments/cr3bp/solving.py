"""Finds a transfer by random search and solution of the best draws, and prints it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cr3bp import transfer_files
from experiments.cr3bp.instance import OBJECTIVE, RELATED, draw_costates
from experiments.cr3bp.propagating import NAMES, digits
from experiments.cr3bp.solve_options import DRAWS, SolveOptions
from jaxlab.agents import random_search
from jaxlab.agents.mcmc import pareto
from jaxlab.core.errors import ConfigError, ConvergenceError
from jaxlab.core.reporting import print_table
from jaxlab.core.runfolder import to_json
from jaxlab.core.training import run
from jaxlab.envs.cr3bp.adjoint_control import AdjointControl
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.homotopy import Path, follow
from jaxlab.envs.cr3bp.low_thrust import Thruster
from jaxlab.envs.cr3bp.objective import departure
from jaxlab.envs.cr3bp.orbits import correct
from jaxlab.envs.cr3bp.propagation import Accuracy, propagate, propagate_low_thrust
from jaxlab.envs.cr3bp.systems import System, get_system
from jaxlab.envs.cr3bp.transfers import Transfer, circular_start, make_transfer, thruster_in_units

#: Radius of the start unless one is given, and where thrust and smoothing begin, by their ends.
RADIUS, BEGIN = 0.85, {"thrust": 0.9, "smoothing": 3.0}
#: What the answer is judged by: finer than what it was found with.
FINE = Accuracy(tolerance=1e-13, collision_radius=OBJECTIVE.accuracy.collision_radius)
#: States of the answer, which are drawn and written.
POINTS = 600
#: Out of the plane by less than this is rounding of published states.
PLANAR = 1e-9
SECONDS_IN_DAY = 86_400.0


class Answer(NamedTuple):
    """A transfer as it is flown, with what is left of its gap.

    Attributes:
      time: `[points]`.
      state: State, mass and their costates there, `[points, 10]` or `[points, 14]`.
      phase_time: Of arrival, on the target orbit.
      target: The state there.
      gaps: In position and velocity at the end.
    """

    time: np.ndarray
    state: np.ndarray
    phase_time: float
    target: np.ndarray
    gaps: tuple[float, float]


def main(options: SolveOptions) -> None:
    """Find the transfer of the options, print it, and write its files.

    Raises:
      ConvergenceError: Nothing that was tried leads to the target; the answer that is printed
        before is the one that comes closest.
      ConfigError, PrecisionError: see the messages.
    """
    make, values = family(options)
    asked = make(values[-1])
    begins = make(values[0])
    path = follow(
        make,
        values,
        search(options, begins),
        OBJECTIVE,
        logarithmic=options.homotopy != "radius",
        rounds=options.rounds,
        tolerance=options.tolerance,
    )
    answer = best(path, asked)
    result = summary(options, path, asked, answer)
    if options.json:
        print(to_json(result))
    else:
        _print(result)
    system = _system(options)
    paths = {name: getattr(options, name) for name in transfer_files.KINDS}
    if system is not None and any(paths.values()):
        transfer_files.write(
            paths,
            answer.time,
            answer.state,
            system,
            options.epoch,
            object_name=f"TO {'AN ORBIT' if options.target_state else options.target}",
            overwrite=options.overwrite,
        )
    if options.png is not None:
        transfer_files.draw(options.png, asked, answer.time, answer.state)
    if not result["converged"]:
        raise ConvergenceError(_advice(options, path, result))


def family(options: SolveOptions) -> tuple[Callable[[float], Transfer], list[float]]:
    """From a value of the parameter to a transfer, and the values to go through.

    Without homotopy the parameter is the mass parameter, which has one value.
    """
    mu, radius = _mass_parameter(options), options.radius or RADIUS
    if options.homotopy in (None, "mu"):
        begin = options.begin or get_system(RELATED).mass_parameter
        values = [mu] if options.homotopy is None else np.geomspace(begin, mu, options.stages)
        return lambda mu: _transfer(options, mu, radius), [*map(float, values)]
    if options.homotopy == "radius":
        begin = options.begin or (radius + 1) / 2
        values = np.linspace(begin, radius, options.stages)
        return lambda radius: _transfer(options, mu, radius), [*map(float, values)]
    asked = _transfer(options, mu, radius)
    begin = options.begin or BEGIN[options.homotopy]
    field = {"thrust": "acceleration", "smoothing": "smoothing"}[options.homotopy]

    def scaled(part: float) -> Transfer:
        changed = {field: part * float(getattr(asked.thruster, field))}
        return asked._replace(thruster=asked.thruster._replace(**changed))

    return scaled, [*map(float, np.geomspace(begin, 1.0, options.stages))]


def _system(options: SolveOptions) -> System | None:
    """The system by name; None for a mass parameter, of which no units are known."""
    if options.mu is not None:
        return None
    if options.system is not None:
        return get_system(options.system)
    return published_orbit(options.target).system


def _mass_parameter(options: SolveOptions) -> float:
    system = _system(options)
    return options.mass_parameter() if system is None else system.mass_parameter


def _thruster(options: SolveOptions) -> Thruster:
    if options.acceleration is not None:
        return Thruster(options.acceleration, options.exhaust, options.smoothing)
    system = _system(options)
    assert system is not None
    return thruster_in_units(
        system,
        thrust=options.thrust,
        mass=options.mass,
        specific_impulse=options.specific_impulse,
        smoothing=options.smoothing,
    )


def _transfer(options: SolveOptions, mu: float, radius: float) -> Transfer:
    """The transfer with a mass parameter and a start."""
    target, period = _target(options, mu)
    flat = np.abs(target[[2, 5]]).max() < PLANAR
    start = options.state or circular_start(mu, radius)
    if len(start) == 4 and options.state and not flat:
        raise ConfigError("--state: 4 numbers are in the plane, the target orbit is not; give 6")
    planar = [0, 1, 3, 4]
    size = 4 if flat and len(start) == 4 and len(options.target_state) != 6 else 6
    if len(start) < size:
        start = np.insert(np.asarray(start, np.float64), 2, 0.0)
        start = np.append(start, 0.0)
    return make_transfer(
        mu,
        np.asarray(start, np.float64),
        _thruster(options),
        target[planar] if size == 4 else target,
        period,
        duration=options.duration,
        weights=options.weights,
    )


def _target(options: SolveOptions, mu: float) -> tuple[np.ndarray, float]:
    """A state on the target orbit `[6]` and its period."""
    if options.target_state:
        state = np.zeros(6)
        places = [0, 1, 3, 4] if len(options.target_state) == 4 else slice(None)
        state[places] = options.target_state
        assert options.target_period is not None
        return state, options.target_period
    row = published_orbit(options.target)
    orbit = correct(row.initial(), row.period, mu, fixed="x")
    return np.asarray(orbit.state), float(orbit.period)


def search(options: SolveOptions, transfer: Transfer) -> np.ndarray:
    """The best draws of all seeds, `[candidates, d]`."""
    size = OBJECTIVE.unknowns(transfer)
    adjoint = AdjointControl()

    def draw(key: jax.Array, count: int) -> jax.Array:
        if options.prior == "costates":
            return draw_costates(key, count, size)
        return adjoint.to_costates(adjoint.sample(key, count, transfer), transfer)

    learner = random_search.make(
        lambda costates: OBJECTIVE.cost(costates, transfer).value,
        draw,
        random_search.RandomSearchConfig(draws=DRAWS, keep=options.candidates),
    )
    result = run(
        learner,
        steps=-(-options.draws // DRAWS),
        seeds=options.seeds,
        seed=options.seed,
        progress=not options.json,
        label="search",
    )
    return np.asarray(result.state.positions).reshape(-1, size)


def best(path: Path, asked: Transfer) -> Answer:
    """The solved transfer of least cost, or what comes closest, flown once more."""
    last = path.stages[-1]
    found = jax.tree.map(np.asarray, last.solved)
    cost = asked.weights.propellant * found.propellant + asked.weights.time * found.time
    gap = np.hypot(found.position_gap, found.velocity_gap)
    order = cost if path.complete else np.where(np.isfinite(gap), gap, np.inf)
    n = int(np.argmin(np.where(last.alive | (not last.alive.any()), order, np.inf)))
    begin = departure(OBJECTIVE, jnp.asarray(found.costates[n])[None], asked)[0]
    times = np.linspace(0, found.time[n], POINTS)
    arc = propagate_low_thrust(
        jnp.broadcast_to(begin, (POINTS, len(begin))),
        times,
        asked.mu,
        asked.thruster,
        accuracy=FINE,
    )
    state, size = np.asarray(arc.state), asked.target.shape[-1]
    phase_time = float(found.phase_time[n])
    there = np.asarray(propagate(asked.target[0], phase_time, asked.mu, accuracy=FINE).state)
    miss = (state[-1, :size] - there).reshape(2, -1)
    position, velocity = np.linalg.norm(miss, axis=1)
    return Answer(times, state, phase_time, there, (float(position), float(velocity)))


def summary(options: SolveOptions, path: Path, asked: Transfer, answer: Answer) -> dict[str, Any]:
    """What is printed, as plain data."""
    system, end = _system(options), answer.state[-1]
    size = asked.target.shape[-1] + 1
    within = all(gap <= most for gap, most in zip(answer.gaps, options.tolerance, strict=True))
    burnt = 1 - float(end[size - 1] / asked.start[-1])
    time = float(answer.time[-1])
    in_kg = None if options.acceleration is not None else burnt * options.mass
    in_days = None if system is None else time * system.time_s / SECONDS_IN_DAY
    result = {
        "converged": path.complete and within,
        "gap_position": answer.gaps[0],
        "gap_velocity": answer.gaps[1],
        "propellant": burnt,
        "propellant_kg": in_kg,
        "time_of_flight": time,
        "time_of_flight_days": in_days,
        "phase_time": answer.phase_time,
        "costate": answer.state[0, size:].tolist(),
        "start_state": answer.state[0, :size].tolist(),
        "final_state": end[:size].tolist(),
        "target_state": answer.target.tolist(),
        "mu": float(asked.mu),
        "thruster": {name: float(v) for name, v in asked.thruster._asdict().items()},
        "draws": -(-options.draws // DRAWS) * DRAWS * options.seeds,
        "candidates": options.candidates * options.seeds,
        "solved": int(np.sum(path.stages[-1].alive)) if path.complete else 0,
        "front": front(path) if path.complete else [],
    }
    if options.homotopy is not None:
        result["homotopy"] = {
            "parameter": options.homotopy,
            "values": [stage.value for stage in path.stages],
            "alive": [int(np.sum(stage.alive)) for stage in path.stages],
            "rejected": path.rejected,
        }
    return result


def front(path: Path) -> list[dict[str, Any]]:
    """Solved transfers that none beats in both propellant and time, the quickest first."""
    last = path.stages[-1]
    found = jax.tree.map(lambda leaf: np.asarray(leaf)[np.asarray(last.alive)], last.solved)
    kept = np.flatnonzero(pareto.non_dominated(np.stack([found.propellant, found.time], 1)))
    return [
        {
            "propellant": float(found.propellant[n]),
            "time_of_flight": float(found.time[n]),
            "phase_time": float(found.phase_time[n]),
            "costate": [*found.costates[n].tolist(), OBJECTIVE.mass_costate],
        }
        for n in kept[np.argsort(found.time[kept])]
    ]


def _advice(options: SolveOptions, path: Path, result: dict[str, Any]) -> str:
    """Why there is no transfer, and what to try."""
    left = f"{result['gap_position']:.1e} in position and {result['gap_velocity']:.1e} in velocity"
    if options.homotopy is not None and path.stages[-1].alive.any():
        return (
            f"no transfer was followed beyond {options.homotopy} {path.stages[-1].value:g} (the "
            f"nearest misses what is asked for by {left}): give more --stages, another --begin, "
            "or more --draws"
        )
    return (
        f"none of {result['candidates']} candidates was solved (the closest misses by {left}): "
        "give more --draws, --candidates or --rounds, another --seed, a longer --duration, or "
        "begin with a related transfer (--homotopy)"
    )


def _print(result: dict[str, Any]) -> None:
    if result["converged"]:
        print(f"{result['solved']} of {result['candidates']} candidates are solved")
    else:
        print("not converged: the candidate that comes closest")
    size = len(result["start_state"])
    names = [*NAMES[size // 2], "m"]
    days, kilograms = result["time_of_flight_days"], result["propellant_kg"]
    rows = [
        (
            "time of flight",
            digits(result["time_of_flight"]),
            "" if days is None else f"{days:.2f} d",
        ),
        (
            "propellant",
            f"{100 * result['propellant']:.4f} %",
            "" if kilograms is None else f"{kilograms:.1f} kg",
        ),
        ("gap in position", f"{result['gap_position']:.2e}", ""),
        ("gap in velocity", f"{result['gap_velocity']:.2e}", ""),
    ]
    print_table(["", "units of the system", ""], rows, title="Transfer")
    columns = ("start_state", "costate", "final_state")
    rows = [(name, *(digits(result[c][n]) for c in columns)) for n, name in enumerate(names)]
    print_table(["", "start", "costate at the start", "end"], rows)
    if result["front"]:
        rows = [
            (digits(f["time_of_flight"], 6), f"{100 * f['propellant']:.4f} %")
            for f in result["front"]
        ]
        print_table(["time of flight", "propellant"], rows, title="Not beaten in both")
    if "homotopy" in result:
        told = result["homotopy"]
        rows = [(digits(v, 6), str(n)) for v, n in zip(told["values"], told["alive"], strict=True)]
        print_table([told["parameter"], "solved"], rows, title="On the way")
