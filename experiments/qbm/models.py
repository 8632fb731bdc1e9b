"""Models as JSON files of Pauli terms."""

from __future__ import annotations

import json
import pathlib
from typing import Any, NamedTuple

import numpy as np

from jaxlab.core.errors import CapacityError, ConfigError, DataError
from jaxlab.envs.qbm.datasets import check_probabilities
from jaxlab.envs.qbm.hamiltonian import hamiltonian
from jaxlab.envs.qbm.pauli import PauliStrings
from jaxlab.envs.qbm.precision import require_dense
from jaxlab.envs.qbm.registers import visible_qubits

KEYS = ("qubits", "hidden", "sign", "terms", "target")


class PauliModel(NamedTuple):
    """A model as a file gives it.

    Attributes:
      strings: Terms.
      hidden: Hidden qubits, ascending.
      sign: +1 or -1.
      parameters: Natural parameters `[terms]`: the sign times the coefficients.
      target: Probabilities of visible bits, if there are any.
    """

    strings: PauliStrings
    hidden: tuple[int, ...]
    sign: int
    parameters: np.ndarray
    target: np.ndarray | None

    @property
    def visible(self) -> tuple[int, ...]:
        return visible_qubits(self.strings.qubits, self.hidden)


def read_model(path: pathlib.Path) -> PauliModel:
    """Read and check a model.

    Raises:
      DataError: The file is missing, no JSON, or no model; says which part.
      CapacityError: It has too many qubits for a dense state; says how much it would take.
    """
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"--model {path}: cannot be read ({error})") from None
    except (json.JSONDecodeError, RecursionError) as error:
        raise DataError(f"--model {path}: is no JSON ({error})") from None
    try:
        return parse_model(document)
    except CapacityError as error:
        raise CapacityError(f"--model {path}: {error}") from None
    except ConfigError as error:
        raise DataError(f"--model {path}: {error}") from None


def parse_model(document: Any) -> PauliModel:
    """A model from the contents of its file.

    Raises:
      ConfigError, CapacityError: See `read_model`.
    """
    if not isinstance(document, dict):
        raise ConfigError(f"expected an object with the keys {', '.join(KEYS)}")
    unknown = [key for key in document if key not in KEYS]
    if unknown:
        raise ConfigError(f"key {unknown[0]!r} is unknown; expected {', '.join(KEYS)}")
    for key in ("qubits", "terms"):
        if key not in document:
            raise ConfigError(f"key {key!r} is missing")
    qubits = document["qubits"]
    if isinstance(qubits, bool) or not isinstance(qubits, int) or qubits < 1:
        raise ConfigError(f"qubits is {qubits!r}, expected a positive integer")
    labels, coefficients = _terms(document["terms"], qubits)
    sign = document.get("sign", 1)
    if isinstance(sign, bool) or sign not in (1, -1):
        raise ConfigError(f"sign is {sign!r}, expected 1 for exp(H) / Z or -1 for exp(-H) / Z")
    operator = hamiltonian(zip(labels, coefficients, strict=True), sign=int(sign))
    strings = operator.terms
    require_dense(qubits, real=strings.real)
    hidden = document.get("hidden", [])
    if not isinstance(hidden, list):
        raise ConfigError(f"hidden is {hidden!r}, expected a list of qubits")
    visible = visible_qubits(qubits, hidden)
    target = document.get("target")
    if target is not None:
        target = check_probabilities(target, len(visible))
    parameters = sign * np.array(coefficients, np.float64)
    return PauliModel(strings, tuple(sorted(hidden)), int(sign), parameters, target)


def _terms(terms: Any, qubits: int) -> tuple[list[str], list[float]]:
    """Labels and coefficients of the list of terms."""
    if not isinstance(terms, list) or not terms:
        raise ConfigError('terms: expected a list of pairs such as ["ZII", 0.42], at least one')
    for n, term in enumerate(terms):
        if not isinstance(term, list) or len(term) != 2:
            raise ConfigError(f'term {n + 1} is {term!r}, expected a pair such as ["ZII", 0.42]')
        label, coefficient = term
        if not isinstance(label, str) or len(label) != qubits:
            raise ConfigError(
                f"term {n + 1} is {label!r}, expected a Pauli string of {qubits} letters"
            )
        if isinstance(coefficient, bool) or not isinstance(coefficient, int | float):
            raise ConfigError(
                f"term {label!r} has coefficient {coefficient!r}: expected a real number, since "
                "the Hamiltonian would not be Hermitian"
            )
    return [label for label, _ in terms], [coefficient for _, coefficient in terms]
