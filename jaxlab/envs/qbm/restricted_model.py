"""Structure of semi-quantum restricted Boltzmann machines: units, operators, parameters."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from jaxlab.core.errors import ConfigError
from jaxlab.envs.qbm.hamiltonian import hidden_operators, semi_quantum_strings
from jaxlab.envs.qbm.pauli import PauliStrings


@struct.dataclass
class Fields:
    """Natural parameters by their meaning.

    Attributes:
      visible: Fields along Z of visible units, `[visible]`.
      hidden: Fields of hidden units along each of their operators, `[hidden, operators]`.
      coupling: Couplings of visible Z to operators of hidden units,
        `[visible, hidden, operators]`; Z only for "transverse".
    """

    visible: Float[Array, " visible"]
    hidden: Float[Array, "hidden fields"]
    coupling: Float[Array, "visible hidden couplings"]


@dataclasses.dataclass(frozen=True)
class RestrictedModel:
    """Structure of a semi-quantum restricted Boltzmann machine.

    Attributes:
      visible: Number of visible units.
      hidden: Number of hidden units.
      operators: Hidden operators: "Z" (the classical machine), "XZ", "XYZ", or "transverse"
        (fields along X and Z, couplings to Z only; Kimura et al. 2025, arXiv:2507.21569).

    Raises:
      ConfigError: There is no unit of a kind, or no such operators.
    """

    visible: int
    hidden: int
    operators: str = "XZ"

    def __post_init__(self) -> None:
        for name in ("visible", "hidden"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}, expected at least 1 unit")
        hidden_operators(self.operators)

    @property
    def fields(self) -> str:
        """Letters of the operators in hidden fields."""
        return hidden_operators(self.operators)[0]

    @property
    def couplings(self) -> str:
        """Letters of the operators in couplings."""
        return hidden_operators(self.operators)[1]

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """Shapes of the three parts of the parameters."""
        n, m = self.visible, self.hidden
        return (n,), (m, len(self.fields)), (n, m, len(self.couplings))

    @property
    def size(self) -> int:
        """Number of parameters."""
        return sum(int(np.prod(shape)) for shape in self.shapes)

    @property
    def strings(self) -> PauliStrings:
        """The terms in the order of the parameters, for dense states of the same model."""
        return semi_quantum_strings(self.visible, self.hidden, self.operators)

    def split(self, parameters: Any) -> Fields:
        """Natural parameters `[size]` by their meaning.

        Raises:
          ConfigError: There are not `size` of them.
        """
        parameters = jnp.asarray(parameters)
        if parameters.shape != (self.size,):
            raise ConfigError(
                f"parameters are {parameters.shape}, expected ({self.size},) for {self}"
            )
        ends = np.cumsum([int(np.prod(shape)) for shape in self.shapes])
        parts = jnp.split(parameters, ends[:-1])
        return Fields(*(part.reshape(s) for part, s in zip(parts, self.shapes, strict=True)))

    def join(self, fields: Fields) -> Float[Array, " size"]:
        """The parameter vector of fields; the inverse of `split`."""
        return jnp.concatenate(
            [jnp.ravel(part) for part in (fields.visible, fields.hidden, fields.coupling)]
        )
