"""Options of the studies of in-context extrapolation; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import itertools
import math
import pathlib
from typing import Annotated, Any, Literal

import tyro

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import RunOptions

ProblemName = Literal[
    "allen_cahn",
    "fisher_kpp",
    "heat_dirichlet",
    "heat_neumann",
    "wave",
    "burgers",
    "kuramoto_sivashinsky",
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class SeriesOptions(RunOptions):
    """Options that all studies share."""

    model: Annotated[tuple[pathlib.Path, ...], tyro.conf.UseAppendAction] = ()
    """A checkpoint: a Hugging Face folder or a GGUF file; repeat it for several. Without one
    the embedded SmolLM2-135M."""
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Of the weights and activations of the models."""
    problem: ProblemName = "allen_cahn"
    """The equation."""
    coefficient: float | None = None
    """Diffusion k, or speed c of the wave equation, in place of the problem's own."""
    columns: int = 4
    """Points in space (N_X), as numbers of a row."""
    duration: float | None = None
    """Time span; by default that of the problem."""
    seeds: int = 10
    """Number of initial conditions; the seeds of their splines follow --seed."""
    steps: int = 1
    """Rows to forecast."""
    grammar: Literal["strict", "free"] = "strict"
    """strict: separators stand where they belong; free: the paper's, where malformed rows are
    drawn again up to ten times."""
    temperature: float = 0.0
    """Of sampling; 0 takes the most likely token."""
    top_p: float = 1.0
    """Of nucleus sampling."""
    top_k: int = 0
    """Most tokens kept in sampling; 0 for all. Hugging Face's default, the paper's, is 50."""
    context_only: bool = False
    """Scale by the rows of the context; by default by the target as well, as the paper does."""
    batch: int = 10
    """Prompts read at once."""
    x64: bool = True
    """Solve the equations with 64-bit floats; the models keep --dtype."""

    def check(self) -> None:
        super().check()
        for name in ("columns", "batch"):
            self.at_least(name, 1)
        self.at_least("temperature", 0)
        self.at_least("top_k", 0)
        if not 0 < self.top_p <= 1:
            raise ConfigError(f"--top-p {self.top_p}: expected a number in (0, 1]")
        for name in ("coefficient", "duration"):
            value = getattr(self, name)
            if value is not None and not 0 < value < math.inf:
                raise ConfigError(f"--{name} {value}: expected a positive, finite number")
        if self.grammar == "free" and self.temperature == 0:
            raise ConfigError(
                "--grammar free draws malformed rows again, so it needs --temperature above 0"
            )
        missing = [path for path in self.model if not path.expanduser().exists()]
        if missing:
            raise ConfigError(f"--model {missing[0]}: not there; expected a folder or .gguf file")


@dataclasses.dataclass(frozen=True, kw_only=True)
class ContextOptions(SeriesOptions):
    """One-step errors and entropies by the length of the context (E1, E5).

    The time span stays the same, so that a longer context is a finer step: N_T rows are
    shown and row N_T is asked for.
    """

    contexts: tuple[int, ...] = (2, 3, 5, 10, 20, 40)
    """Rows of the context (N_T)."""

    def check(self) -> None:
        super().check()
        _ascending("contexts", self.contexts, 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class ResolutionOptions(SeriesOptions):
    """One-step errors and entropies by the number of points in space (E2, E5)."""

    resolutions: tuple[int, ...] = (2, 4, 6)
    """Points in space (N_X); --columns does not matter here."""
    rows: int = 50
    """Rows of the context (N_T)."""

    def check(self) -> None:
        super().check()
        _ascending("resolutions", self.resolutions, 1)
        self.at_least("rows", 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CoefficientOptions(SeriesOptions):
    """One-step errors by the diffusion k or the speed c (E10)."""

    coefficients: tuple[float, ...] = (0.01, 0.03, 0.09)
    """Values of k, or c of the wave equation."""
    rows: int = 40
    """Rows of the context (N_T)."""
    problem: ProblemName = "heat_dirichlet"
    """The equation."""

    def check(self) -> None:
        super().check()
        _ascending("coefficients", self.coefficients, 0)
        self.at_least("rows", 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class RolloutOptions(SeriesOptions):
    """Errors, entropy, bias, spread and integral of roll-outs by the step (E3, E7, E9).

    The model's own rows are appended to its context. Of several samples, errors are means over
    samples, then over initial conditions.
    """

    steps: int = 10
    """Rows to forecast."""
    rows: int = 16
    """Rows of the context."""
    total: int = 25
    """Steps that the time span is divided into (N_T); at least rows + steps - 1."""
    samples: int = 1
    """Continuations of each initial condition; more than one needs --temperature."""
    sampling: Literal["uniform", "chebyshev"] = "uniform"
    """Points in space: equidistant, or Chebyshev points."""
    bounds: tuple[float, float] | None = None
    """Between which nodes of initial conditions are drawn, in place of the problem's."""
    first_fitted: int = 4
    """First step of the fitted power law."""

    def check(self) -> None:
        super().check()
        for name in ("samples", "first_fitted"):
            self.at_least(name, 1)
        self.at_least("rows", 2)
        if self.total < self.rows + self.steps - 1:
            raise ConfigError(
                f"--total {self.total}: expected at least --rows + --steps - 1 = "
                f"{self.rows + self.steps - 1}, to have a truth for every row"
            )
        if self.samples > 1 and self.temperature == 0:
            raise ConfigError("--samples: more than one needs --temperature above 0")


@dataclasses.dataclass(frozen=True, kw_only=True)
class LongOptions(RolloutOptions):
    """Roll-outs of fifteen steps with all baselines (E4)."""

    steps: int = 15
    """Rows to forecast."""
    rows: int = 31
    """Rows of the context."""
    total: int = 50
    """Steps that the time span is divided into (N_T)."""
    duration: float | None = 1.0
    """Time span."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ConservationOptions(RolloutOptions):
    """Roll-outs of the heat equation without flux, whose integral must stay (E7)."""

    problem: ProblemName = "heat_neumann"
    """The equation."""
    bounds: tuple[float, float] | None = (0.0, 1.0)
    """Between which nodes of initial conditions are drawn."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class ChebyshevOptions(RolloutOptions):
    """Roll-outs of solutions at Chebyshev points (E8)."""

    sampling: Literal["uniform", "chebyshev"] = "chebyshev"
    """Points in space."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class UncertaintyOptions(RolloutOptions):
    """Bias and spread of sampled roll-outs, step by step (E9)."""

    samples: int = 8
    """Continuations of each initial condition."""
    temperature: float = 0.6
    """Of sampling."""
    top_p: float = 0.9
    """Of nucleus sampling."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class TokenOptions(SeriesOptions):
    """Distributions of the next number and separators for one initial condition (E6)."""

    contexts: tuple[int, ...] = (2, 5, 20)
    """Rows of the context (N_T)."""
    seeds: int = 1
    """Number of initial conditions."""
    seed: int = 1
    """The seed of the initial condition."""
    top: int = 8
    """Most likely numbers that are told."""

    def check(self) -> None:
        super().check()
        _ascending("contexts", self.contexts, 2)
        self.at_least("top", 1)


@dataclasses.dataclass(frozen=True, kw_only=True)
class CurveOptions(SeriesOptions):
    """Likelihood and entropy of every row of a trajectory, in one pass (teacher forcing)."""

    rows: int = 41
    """Rows of the trajectory."""

    def check(self) -> None:
        super().check()
        self.at_least("rows", 2)


@dataclasses.dataclass(frozen=True, kw_only=True)
class DifferenceOptions(RunOptions):
    """Integer differences in time of serialised solutions (E10); needs no model."""

    problem: ProblemName = "allen_cahn"
    """The equation."""
    columns: int = 14
    """Points in space (N_X)."""
    total: int = 25
    """Steps (N_T)."""
    seeds: int = 50
    """Number of initial conditions."""
    x64: bool = True
    """Solve the equations with 64-bit floats."""

    def check(self) -> None:
        super().check()
        self.at_least("columns", 1)


def _ascending(name: str, values: tuple[float, ...], least: float) -> None:
    if not values or any(b <= a for a, b in itertools.pairwise(values)):
        raise ConfigError(f"--{name} {values}: expected ascending numbers")
    if not (values[0] >= least and values[0] > 0 and math.isfinite(values[-1])):
        raise ConfigError(f"--{name} {values}: expected numbers of at least {least}")


_PAPER: dict[str, Any] = {
    "columns": 14,
    "seeds": 50,
    "grammar": "free",
    "temperature": 0.6,
    "top_p": 0.9,
    "top_k": 50,
}
_SMOKE: dict[str, Any] = {"seeds": 2, "columns": 2}
_ROLLOUT_SMOKE = _SMOKE | {"steps": 2, "rows": 3, "total": 4, "first_fitted": 1}
_ROLLOUT_PAPER = _PAPER | {"seeds": 20, "samples": 20}

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "context": {
        "smoke": _SMOKE | {"contexts": (2, 3)},
        "quick": {},
        "paper": _PAPER | {"contexts": tuple(range(2, 41, 2))},
    },
    "resolution": {
        "smoke": {"seeds": 2, "resolutions": (1, 2), "rows": 3},
        "quick": {},
        "paper": _PAPER | {"resolutions": tuple(range(2, 41, 2))},
    },
    "coefficients": {
        "smoke": _SMOKE | {"coefficients": (0.01, 0.02), "rows": 3},
        "quick": {},
        "paper": _PAPER
        | {"coefficients": tuple(round(0.01 * n, 2) for n in range(1, 10)), "rows": 40},
    },
    "rollout": {"smoke": _ROLLOUT_SMOKE, "quick": {}, "paper": _ROLLOUT_PAPER},
    "long": {"smoke": _ROLLOUT_SMOKE, "quick": {}, "paper": _ROLLOUT_PAPER},
    "conservation": {
        "smoke": _ROLLOUT_SMOKE,
        "quick": {},
        "paper": _ROLLOUT_PAPER | {"samples": 1},
    },
    "chebyshev": {"smoke": _ROLLOUT_SMOKE, "quick": {}, "paper": _ROLLOUT_PAPER},
    "uncertainty": {"smoke": _ROLLOUT_SMOKE | {"samples": 2}, "quick": {}, "paper": _ROLLOUT_PAPER},
    "tokens": {
        "smoke": {"columns": 2, "contexts": (2, 3)},
        "quick": {},
        "paper": {"columns": 14},
    },
    "curve": {
        "smoke": _SMOKE | {"rows": 3},
        "quick": {},
        "paper": {"columns": 14, "seeds": 50},
    },
    "differences": {
        "smoke": {"columns": 3, "total": 4, "seeds": 2},
        "quick": {},
        "paper": {},
    },
}
