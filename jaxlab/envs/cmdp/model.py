"""Finite constrained Markov decision processes as pytrees.

Maximise the average reward subject to bounds on averages of cost signals (Altman,
"Constrained Markov decision processes", 1999). No discount, no horizon: what counts is the
long-run average, the gain.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float

from jaxlab.core.errors import ScenarioError

#: Sums of probabilities may differ from one by so much, for numbers of 64 and of 32 bits.
ROW_TOLERANCE = {"float64": 1e-9, "float32": 1e-6}
SENSES = {">=": 1.0, "<=": -1.0}


@struct.dataclass
class CMDP:
    """A finite constrained decision process.

    Attributes:
      transitions: Probability of the next state by state and action.
      reward: What is maximised on average.
      costs: Signals whose averages are bounded.
      senses: +1 for a signal that is to be at least its bound, -1 for one at most.
      bounds: Bounds on the averages of signals.
      minimise: Whether the problem's own objective is the negative of the reward.
    """

    transitions: Float[Array, "states actions states"]
    reward: Float[Array, "states actions"]
    costs: Float[Array, "signals states actions"]
    senses: Float[Array, " signals"]
    bounds: Float[Array, " signals"]
    minimise: bool = struct.field(pytree_node=False, default=False)

    @property
    def states(self) -> int:
        return self.reward.shape[-2]

    @property
    def actions(self) -> int:
        return self.reward.shape[-1]

    @property
    def signals(self) -> int:
        return self.costs.shape[-3]

    @property
    def slacks(self) -> Any:
        """Signals with the bounds absorbed, `[m, S, A]`: their averages are to be at least zero."""
        return self.senses[:, None, None] * (self.costs - self.bounds[:, None, None])

    def own(self, gain: Any) -> Any:
        """A gain of the reward in the sense of the problem's own objective."""
        # Adding zero keeps a gain of zero from becoming -0.
        return 0.0 - gain if self.minimise else gain

    def with_bounds(self, bounds: Sequence[float]) -> CMDP:
        """The same problem with other bounds.

        Raises:
          ScenarioError: There are more or fewer bounds than signals, or one is not finite.
        """
        values = np.asarray(bounds, np.float64)
        if values.shape != (self.signals,):
            raise ScenarioError(
                f"{len(bounds)} bounds for {self.signals} cost signals: give one for each signal"
            )
        if not np.all(np.isfinite(values)):
            raise ScenarioError(f"bounds {values.tolist()}: expected finite numbers")
        return self.replace(bounds=values)  # type: ignore[attr-defined]

    def cast(self) -> CMDP:
        """The same as JAX arrays of the active precision."""
        dtype = jax.dtypes.canonicalize_dtype(np.float64)
        return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), self)


def cmdp(
    transitions: Any,
    reward: Any,
    costs: Any = (),
    senses: Sequence[str] = (),
    bounds: Any = (),
    *,
    minimise: bool = False,
) -> CMDP:
    """Build and check a decision process; rows are normalised to the last digit.

    Args:
      transitions: Probabilities `[S, A, S]`.
      reward: `[S, A]`; in the sense of the objective, so costs where `minimise` is true.
      costs: Signals `[m, S, A]`.
      senses: `>=` or `<=` for each signal.
      bounds: `[m]`.
      minimise: The objective is to be small.

    Raises:
      ScenarioError: Says which number is wrong, and what was expected.
    """
    table = _numbers("P", transitions)
    rewards = _numbers("r", reward)
    if table.ndim != 3 or table.shape[0] != table.shape[2] or 0 in table.shape:
        raise ScenarioError(
            f"P has shape {list(table.shape)}, expected [S, A, S]: state, action, next state"
        )
    if rewards.shape != table.shape[:2]:
        raise ScenarioError(
            f"r has shape {list(rewards.shape)}, expected [S, A] = {list(table.shape[:2])}"
        )
    signals = _numbers("c", costs) if np.size(costs) else np.zeros((0, *rewards.shape))
    if signals.ndim != 3 or signals.shape[1:] != rewards.shape:
        raise ScenarioError(
            f"c has shape {list(signals.shape)}, expected [m, S, A] = "
            f"[m, {rewards.shape[0]}, {rewards.shape[1]}]"
        )
    signs = _senses(senses, len(signals))
    limits = _numbers("b", bounds).reshape(-1) if np.size(bounds) else np.zeros(0)
    if limits.shape != (len(signals),):
        raise ScenarioError(
            f"b has {limits.size} bounds for {len(signals)} cost signals: give one for each"
        )
    # Arrays of numpy until a simulator or an evaluation needs those of JAX.
    arrays: dict[str, Any] = {
        "transitions": _probabilities(table, np.asarray(transitions).dtype),
        "reward": -rewards if minimise else rewards,
        "costs": signals,
        "senses": signs,
        "bounds": limits,
    }
    return CMDP(**arrays, minimise=minimise)


def _numbers(name: str, values: Any) -> np.ndarray:
    try:
        array = np.asarray(values)
        numeric = array.dtype.kind in "fiu"
    except ValueError:
        numeric = False
    if not numeric:
        raise ScenarioError(f"{name}: expected a full array of real numbers")
    array = array.astype(np.float64)
    if not np.all(np.isfinite(array)):
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise ScenarioError(f"{name}{where} is {array[tuple(where)]}, expected a finite number")
    return array


def _senses(senses: Sequence[str], count: int) -> np.ndarray:
    if len(senses) != count:
        raise ScenarioError(
            f"sense has {len(senses)} entries for {count} cost signals: give one for each"
        )
    for number, sense in enumerate(senses):
        if sense not in SENSES:
            raise ScenarioError(f"sense[{number}] is {str(sense)!r}, expected '>=' or '<='")
    return np.array([SENSES[str(sense)] for sense in senses])


def _probabilities(table: np.ndarray, dtype: np.dtype) -> np.ndarray:
    if np.any(table < 0):
        s, a, t = np.argwhere(table < 0)[0].tolist()
        raise ScenarioError(f"P[{s}, {a}, {t}] is {table[s, a, t]}: a probability is not negative")
    sums = table.sum(-1)
    wrong = np.abs(sums - 1) > ROW_TOLERANCE.get(dtype.name, ROW_TOLERANCE["float64"])
    if np.any(wrong):
        s, a = np.argwhere(wrong)[0].tolist()
        raise ScenarioError(
            f"P[{s}, {a}, :] sums to {sums[s, a]:.12g}, expected 1 "
            f"({int(wrong.sum())} of {wrong.size} rows do not)"
        )
    return table / sums[..., None]
