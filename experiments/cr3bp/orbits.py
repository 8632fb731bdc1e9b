"""Corrects a periodic orbit, follows its family and prints both."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cr3bp.options import OrbitOptions
from experiments.cr3bp.propagating import digits
from jaxlab.core.reporting import print_table
from jaxlab.core.runfolder import to_json
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.orbits import (
    FINE,
    PeriodicOrbit,
    continue_family,
    correct,
    monodromy,
    multipliers,
    stability_index,
)
from jaxlab.envs.cr3bp.propagation import propagate

#: Steps of Newton's method at most; the same everywhere, so that it is compiled once.
ITERATIONS = 30


def main(options: OrbitOptions) -> None:
    """Correct the orbit of the options, follow its family, and print them.

    Raises:
      ConvergenceError: the guess leads to no orbit, or the family cannot be followed so far.
      ConfigError, PrecisionError: see the messages.
    """
    state, period, mu = guess(options)
    orbit = correct(state, period, mu, fixed=options.fixed, iterations=ITERATIONS)
    if options.members is not None:
        # The first of the stack is the orbit itself.
        orbit = continue_family(orbit, options.members, options.step, iterations=ITERATIONS)
    else:
        orbit = jax.tree.map(lambda leaf: jnp.asarray(leaf)[None], orbit)._replace(mu=mu)
    first, *others = summaries(orbit)
    result = first | ({} if options.members is None else {"family": others})
    if options.json:
        print(to_json(result))
    else:
        _print(result)


def guess(options: OrbitOptions) -> tuple[np.ndarray, float, float]:
    """The start `[6]`, period and mass parameter that the correction begins with."""
    if options.orbit is not None:
        row = published_orbit(options.orbit)
        return row.initial(), row.period, row.system.mass_parameter
    state = np.zeros(6)
    state[[0, 1, 3, 4] if len(options.state) == 4 else slice(None)] = options.state
    assert options.period is not None
    return state, options.period, options.mass_parameter()


def summaries(orbits: PeriodicOrbit) -> list[dict[str, Any]]:
    """What is printed of each of a stack of orbits, as plain data."""
    matrices = np.asarray(monodromy(orbits))
    # With matrices although they are not needed: that program is compiled already.
    ends = propagate(orbits.state, orbits.period, orbits.mu, stm=True, accuracy=FINE).state
    closure = np.linalg.norm(ends - orbits.state, axis=-1)
    values, index = multipliers(matrices), stability_index(matrices)
    return [
        {
            "state": np.asarray(orbits.state[n]).tolist(),
            "period": float(orbits.period[n]),
            "jacobi": float(orbits.jacobi[n]),
            "multipliers": [[value.real, value.imag] for value in values[n].tolist()],
            "stability_index": float(index[n]),
            "closure": float(closure[n]),
            "mu": float(orbits.mu),
        }
        for n in range(len(matrices))
    ]


def _print(result: dict[str, Any]) -> None:
    rows = [
        *zip(("x", "y", "z", "vx", "vy", "vz"), map(digits, result["state"]), strict=True),
        *((name, digits(result[name])) for name in ("period", "jacobi", "mu")),
        *((f"multiplier {n + 1}", _complex(*v)) for n, v in enumerate(result["multipliers"])),
        ("stability index", digits(result["stability_index"])),
        ("closure", f"{result['closure']:.2e}"),
    ]
    print_table(["", "value"], rows, title="Periodic orbit, in units of the system")
    if "family" in result:
        members = [
            [
                *(digits(member["state"][n], 10) for n in (0, 2, 4)),
                *(digits(member[name], 10) for name in ("period", "jacobi")),
                member["stability_index"],
                member["closure"],
            ]
            for member in result["family"]
        ]
        columns = ["x", "z", "vy", "period", "jacobi", "stability", "closure"]
        print_table(columns, members, title="Family")


def _complex(real: float, imaginary: float) -> str:
    return f"{real:.10g}" if imaginary == 0 else f"{real:.10g} {imaginary:+.10g}i"
