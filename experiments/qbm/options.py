"""Options of the commands of quantum Boltzmann machines; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import pathlib

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class EvaluateOptions(DeviceOptions):
    """Evaluate any model of up to 12 qubits given as Pauli terms, by its dense Gibbs state.

    The model is a JSON file:

    {"qubits": 3, "hidden": [2], "sign": 1, "terms": [["ZII", 0.42], ["ZIX", -0.1]],
    "target": [0.1, 0.4, 0.4, 0.1]}

    The state is exp(sign H) / Z, H being the sum of the terms. Qubit 0 is the leftmost letter
    and the most significant bit; the target has the probabilities of the visible bits in the
    order of their binary numbers. "hidden", "sign" and "target" may be left out.
    """

    model: pathlib.Path | None = None
    """JSON file of the model."""
    json: bool = False
    """Print one JSON object instead of tables."""
    em_steps: int = 0
    """Also so many steps of the em algorithm with exact m-steps, from the model's parameters to
    the target: the divergence of visible bits after each."""
    x64: bool = True
    """Compute with 64-bit floats, which Gibbs states need."""

    def check(self) -> None:
        super().check()
        if self.model is None:
            raise ConfigError("--model: is missing; give the JSON file of a model")
        self.at_least("em_steps", 0)
