"""Propagates one arc and prints where it ends."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from experiments.cr3bp.options import PropagateOptions
from jaxlab.core.errors import ConfigError
from jaxlab.core.reporting import print_table
from jaxlab.core.runfolder import to_json
from jaxlab.envs.cr3bp.dop853 import Status
from jaxlab.envs.cr3bp.dynamics import jacobi_constant, primary_distances
from jaxlab.envs.cr3bp.low_thrust import Thruster, hamiltonian
from jaxlab.envs.cr3bp.propagation import Accuracy, Arc, propagate, propagate_low_thrust

#: Names of the components of a state, of its mass and of their costates.
NAMES = {2: ("x", "y", "vx", "vy"), 3: ("x", "y", "z", "vx", "vy", "vz")}
#: How the ends of arcs are told in words.
ENDINGS = {
    Status.DONE: "complete",
    Status.STEP_LIMIT: "stopped early: too many steps",
    Status.STEP_TOO_SMALL: "stopped early: no step is small enough for the tolerance",
}


def main(options: PropagateOptions) -> None:
    """Propagate the arc of the options and print it.

    Raises:
      ConfigError, PrecisionError: see the messages.
    """
    _require_outside(options)
    arc = arcs(options)
    result = summary(options, arc)
    if options.json:
        print(to_json(result))
    else:
        _print(options, result)


def _require_outside(options: PropagateOptions) -> None:
    """The engine looks for collisions after a step, of which there may be none."""
    for which, distance, radius in _distances(options, options.state):
        if distance <= radius:
            raise ConfigError(
                f"--state: the start is {distance:.3g} from the centre of the {which} primary, "
                f"within its radius of {radius:g} (--collision-radius); start further out"
            )
    if not math.isfinite(invariant(options, start(options))):
        raise ConfigError("--state: the start is too far out or too fast for 64-bit floats")


def _distances(options: PropagateOptions, state: Sequence[float]) -> list[tuple[str, float, float]]:
    """Name, distance and collision radius of each primary as seen from a state."""
    position = jnp.asarray(state[: len(options.state) // 2], jnp.float64)
    both = primary_distances(position, options.mass_parameter())
    return list(zip(("larger", "smaller"), map(float, both), options.collision_radius, strict=True))


def start(options: PropagateOptions) -> np.ndarray:
    """The first state: `[6]` or `[4]`; with mass and costates `[14]` or `[10]`."""
    extra = (options.mass, *options.costate) if options.low_thrust else ()
    return np.array([*options.state, *extra], np.float64)


def thruster(options: PropagateOptions) -> Thruster:
    """The thruster of the options, in units of the system."""
    return Thruster(options.thrust, options.exhaust, options.smoothing)


def arcs(options: PropagateOptions) -> Arc:
    """Arcs `[samples or 1, ...]` from the same start to equal times, the last being the whole."""
    count = options.samples or 1
    # The last factor is 1, so that the last time is the one that was asked for.
    times = jnp.asarray(options.time) * (jnp.arange(1, count + 1) / count)
    first = start(options)
    states = jnp.broadcast_to(jnp.asarray(first), (count, first.size))
    # The matrix counts for itself here: its error is to follow the tolerance too.
    accuracy = Accuracy(
        options.tolerance,
        control="all" if options.stm else "state",
        collision_radius=options.collision_radius,
    )
    mu, keywords = options.mass_parameter(), {"stm": options.stm, "accuracy": accuracy}
    if options.low_thrust:
        return propagate_low_thrust(states, times, mu, thruster(options), **keywords)
    return propagate(states, times, mu, **keywords)


def summary(options: PropagateOptions, arc: Arc) -> dict[str, Any]:
    """What is printed, as plain data; of an arc that ends early, the samples up to there."""
    end = np.asarray(arc.state[-1])
    status = Status(int(arc.status[-1]))
    size = len(options.state)
    if options.low_thrust:
        result = {"state": end[: size + 1].tolist(), "costate": end[size + 1 :].tolist()}
    else:
        result = {"state": end.tolist()}
    if options.stm:
        result["stm"] = np.asarray(arc.stm[-1]).tolist()
    result |= {
        _invariant_name(options): invariant(options, end),
        "steps": int(arc.steps[-1]),
        "status": status.name.lower(),
        "time": float(arc.time[-1]),
    }
    if options.samples is not None:
        reached = np.asarray(arc.status) == Status.DONE
        rows = np.column_stack([arc.time, arc.state])[reached]
        result["trajectory"] = rows.tolist()
    return result


def _invariant_name(options: PropagateOptions) -> str:
    return "hamiltonian" if options.low_thrust else "jacobi"


def invariant(options: PropagateOptions, state: np.ndarray) -> float:
    """What is constant along the arc: the Hamiltonian under low thrust, or Jacobi's constant."""
    if options.low_thrust:
        return float(hamiltonian(jnp.asarray(state), options.mass_parameter(), thruster(options)))
    return float(jacobi_constant(jnp.asarray(state), options.mass_parameter()))


def ending(options: PropagateOptions, result: dict[str, Any]) -> str:
    """How the arc ended, in words."""
    if result["status"] != Status.COLLISION.name.lower():
        words = ENDINGS[Status[result["status"].upper()]]
    else:
        which = min(_distances(options, result["state"]), key=lambda d: d[1] - d[2])[0]
        words = f"collision with the {which} primary"
    return f"{words}, at t = {digits(result['time'])} of {digits(options.time)}"


def names(options: PropagateOptions) -> list[str]:
    """Names of the components, in the order of the state."""
    of_state = [*NAMES[len(options.state) // 2], *(["m"] if options.low_thrust else [])]
    return of_state + [f"costate of {name}" for name in of_state if options.low_thrust]


def _print(options: PropagateOptions, result: dict[str, Any]) -> None:
    labels, first = names(options), start(options)
    last = [*result["state"], *result.get("costate", ())]
    title = "Hamiltonian" if options.low_thrust else "Jacobi constant"
    rows = [
        *zip(labels, map(digits, first), map(digits, last), strict=True),
        (title, digits(invariant(options, first)), digits(result[_invariant_name(options)])),
        ("t", "0", digits(result["time"])),
        ("steps", "", str(result["steps"])),
    ]
    print(ending(options, result))
    print_table(["", "start", "end"], rows)
    if options.stm:
        matrix = [[label, *row] for label, row in zip(labels, result["stm"], strict=True)]
        print_table(["", *labels], matrix, title="End by start (--json has all digits)")
    if result.get("trajectory"):
        size = len(options.state)
        samples = [[digits(v, 10) for v in row[: size + 1]] for row in result["trajectory"]]
        print_table(["t", *labels[:size]], samples, title="On the way")


def digits(value: float, count: int = 15) -> str:
    """A number with so many digits, by default nearly all it has."""
    return f"{value:.{count}g}"
