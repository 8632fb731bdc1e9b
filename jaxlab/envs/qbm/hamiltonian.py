"""Hamiltonians as pytrees of named Pauli terms, and families of them.

States are `exp(sign * H) / Z`. With sign 1 (the default here) a coefficient is the natural
parameter of its term; with sign -1 it is an energy, and the parameter is its negative.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.qbm.pauli import PauliStrings, single

#: Hidden operators by name: those of the fields and those of the couplings to visible Z.
HIDDEN_OPERATORS = {
    "Z": ("Z", "Z"),
    "XZ": ("XZ", "XZ"),
    "XYZ": ("XYZ", "XYZ"),
    "transverse": ("XZ", "Z"),
}


@struct.dataclass
class Hamiltonian:
    """A Hamiltonian as a pytree: coefficients by name, strings static.

    Attributes:
      coefficients: By name, `[strings of that name]` each.
      strings: By name, in the order of the parameter vector.
      sign: +1 for `exp(H) / Z`, -1 for `exp(-H) / Z`.
    """

    coefficients: dict[str, Array]
    strings: tuple[tuple[str, tuple[str, ...]], ...] = struct.field(pytree_node=False)
    sign: int = struct.field(pytree_node=False, default=1)

    @property
    def terms(self) -> PauliStrings:
        """All strings, in the order of the parameters."""
        return PauliStrings(tuple(itertools.chain.from_iterable(s for _, s in self.strings)))

    @property
    def parameters(self) -> Float[Array, " terms"]:
        """Natural parameters: the state is `exp(sum_a parameters_a F_a) / Z`."""
        parts = [jnp.ravel(jnp.asarray(self.coefficients[name])) for name, _ in self.strings]
        return self.sign * jnp.concatenate(parts)

    def with_parameters(self, parameters: Any) -> Hamiltonian:
        """The same terms with other natural parameters `[terms]`."""
        ends = np.cumsum([len(strings) for _, strings in self.strings])
        parts = jnp.split(self.sign * jnp.asarray(parameters), ends[:-1])
        names = [name for name, _ in self.strings]
        return dataclasses.replace(self, coefficients=dict(zip(names, parts, strict=True)))


def hamiltonian(
    terms: Mapping[str, Any] | Iterable[tuple[str, Any]],
    strings: Mapping[str, Sequence[str]] | None = None,
    *,
    sign: int = 1,
) -> Hamiltonian:
    """A Hamiltonian of named terms.

    Args:
      terms: Coefficients by name, or pairs of both.
      strings: The Pauli strings of each name, as many as it has coefficients; without them a
        name is itself a string, with one coefficient.
      sign: +1 for `exp(H) / Z`, -1 for `exp(-H) / Z`.

    Raises:
      ConfigError: A string is unknown or comes twice, names or numbers do not match, a
        coefficient is not a finite real number (such an operator would not be Hermitian).
    """
    pairs = list(terms.items() if isinstance(terms, Mapping) else terms)
    if sign not in (1, -1):
        raise ConfigError(f"sign is {sign!r}, expected 1 for exp(H) / Z or -1 for exp(-H) / Z")
    names = [name for name, _ in pairs]
    if strings is None:
        strings = {name: (name,) for name in names}
        PauliStrings(tuple(names))
    if sorted(strings) != sorted(names):
        raise ConfigError(f"terms are {', '.join(names)}, but strings {', '.join(strings)}")
    coefficients = {name: _checked(name, value, len(strings[name])) for name, value in pairs}
    result = Hamiltonian(coefficients, tuple((n, tuple(strings[n])) for n in names), sign)
    _ = result.terms
    return result


def _checked(name: str, value: Any, count: int) -> Any:
    """Coefficients `[count]` of one name; what is being traced passes as it is."""
    values = jnp.atleast_1d(value) if hasattr(value, "aval") else np.atleast_1d(value)
    if values.shape != (count,):
        raise ConfigError(f"term {name!r} has coefficients {values.shape}, expected ({count},)")
    if not isinstance(values, np.ndarray):
        return values
    if values.dtype.kind not in "iuf":
        raise ConfigError(
            f"term {name!r} has coefficient {value!r}: expected a real number, since the "
            "Hamiltonian would not be Hermitian"
        )
    if not np.all(np.isfinite(values)):
        raise ConfigError(f"term {name!r} has coefficient {value!r}, expected a finite number")
    return values.astype(np.float64)


def semi_quantum_strings(visible: int, hidden: int, operators: str = "XZ") -> PauliStrings:
    """Strings of a semi-quantum restricted Boltzmann machine; visible qubits come first.

    In the order of its parameters: Z of the visible units; the fields of hidden unit 1, of
    hidden unit 2, ...; the couplings of visible unit 1 to the operators of all hidden units, of
    visible unit 2, ...

    Raises:
      ConfigError: The operators are unknown.
    """
    fields, couplings = hidden_operators(operators)
    qubits, units = visible + hidden, range(visible, visible + hidden)
    labels = [single(qubits, Z=i) for i in range(visible)]
    labels += [single(qubits, **{p: j}) for j in units for p in fields]
    for i, j, p in itertools.product(range(visible), units, couplings):
        word = list(single(qubits, Z=i))
        word[j] = p
        labels.append("".join(word))
    return PauliStrings(tuple(labels))


def hidden_operators(operators: str) -> tuple[str, str]:
    """Letters of the hidden fields and of the couplings.

    Raises:
      ConfigError: There is no such family.
    """
    if operators not in HIDDEN_OPERATORS:
        raise ConfigError(
            f"hidden operators are {operators!r}, expected one of {', '.join(HIDDEN_OPERATORS)}"
        )
    return HIDDEN_OPERATORS[operators]


def chain_strings(qubits: int, fields: str = "ZX", couplings: Sequence[str] = ("ZZ",)) -> Any:
    """Strings of a chain: fields on every qubit, couplings of neighbours.

    `chain_strings(n, "X", ("ZZ",))` is the transverse-field Ising chain.
    """
    labels = [single(qubits, **{p: q}) for p in fields for q in range(qubits)]
    for pair, q in itertools.product(couplings, range(qubits - 1)):
        labels.append("I" * q + pair + "I" * (qubits - q - 2))
    return PauliStrings(tuple(labels))
