"""Options of the commands `solve` and `check`; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import math
import pathlib
from typing import Literal

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions

Problem = Literal[
    *("tsp", "atsp", "maxcut", "qubo", "mis", "mvc", "knapsack"),
    *("cvrp", "jobshop", "colouring", "shortest_path"),
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SolveOptions(DeviceOptions):
    """Solve an instance: exactly, by dynamic programming, by heuristics, or by a learnt value.

    Files are TSPLIB's (tsp, atsp, cvrp; plain `x y` lines do for tsp), graphs in rudy's format
    (`n m`, then `i j weight`: maxcut, mis, mvc, colouring), `n m` and `i j q` (qubo: minimise
    x^T Q x, a pair standing for both of its entries), `n capacity` and `value weight` lines
    (knapsack), `jobs machines` and lines of `machine duration` pairs (jobshop), `n m source
    target` and `from to weight` lines (shortest_path).

    Solutions count from 0: cities in their order (tsp, atsp), the side of each vertex (maxcut),
    bits (qubo), vertices chosen (mis, mvc), items (knapsack), a walk with 0 for the depot (cvrp),
    a job for each operation in the order of scheduling (jobshop), the colour of each vertex
    (colouring), vertices of the path (shortest_path).
    """

    problem: Problem = "tsp"
    """What is asked."""
    instance: pathlib.Path | None = None
    """File of the instance."""
    method: Literal["exact", "dp", "heuristic", "learned"] = "exact"
    """exact: by --solver, and heuristics beside it; dp: dynamic programming alone; learned: with a
    value that is learnt on this instance, or by the run --policy."""
    solver: Literal["auto", "dp", "milp", "cp_sat"] = "auto"
    """Of exact: auto takes dp where that is quick, then cp_sat if OR-Tools is installed, else
    milp (HiGHS)."""
    time_limit: float = 60.0
    """Seconds of the solver."""
    effort: int = 20_000
    """Steps of tabu search (maxcut, qubo)."""
    policy: pathlib.Path | None = None
    """Folder of a run of `train` on this kind of problem."""
    learning_steps: int = 300
    """Gradient steps where the value is learnt on this instance."""
    beam: int = 32
    """Strings kept at each letter where a learnt value guides."""
    seed: int = 0
    """Of what is random in heuristics and learning."""
    picture: pathlib.Path | None = None
    """PNG file for a picture of the solution (tsp with places, cvrp, maxcut, jobshop)."""
    json: bool = False
    """Print one JSON object instead of a table."""
    x64: bool = True
    """Compute with 64-bit floats."""

    def check(self) -> None:
        super().check()
        if self.instance is None:
            raise ConfigError("--instance: is missing; give the file of an instance")
        if not 0 < self.time_limit < math.inf:
            raise ConfigError(f"--time-limit {self.time_limit:g}: expected positive seconds")
        for name in ("effort", "learning_steps", "beam"):
            self.at_least(name, 1)
        self.at_least("seed", 0)
        if self.policy is not None and self.method != "learned":
            raise ConfigError(f"--policy: is for --method learned, not {self.method}")


@dataclasses.dataclass(frozen=True, kw_only=True)
class CheckOptions(DeviceOptions):
    """Check that a formulation as a decision process is equivalent to its problem."""

    problem: Problem = "tsp"
    """Which one."""
    size: int = 5
    """Cities, vertices, items, customers or jobs of the instances, which are random."""
    samples: int = 200
    """Random strings where there are too many for all of them."""
    instances: int = 3
    """Random instances."""
    seed: int = 0
    """Of the first."""
    x64: bool = True
    """Compute with 64-bit floats."""

    def check(self) -> None:
        super().check()
        self.at_least("size", 2)
        self.at_least("samples", 1)
        self.at_least("instances", 1)
        self.at_least("seed", 0)
