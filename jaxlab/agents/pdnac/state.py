"""The state of the primal-dual natural actor-critic."""

from __future__ import annotations

from typing import Any

import jax
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.pdnac.config import Hyper

PyTree = Any


@struct.dataclass
class Inner:
    """What inner updates move; `g = 1 + m` signals, the reward first.

    Attributes:
      gains: Estimated averages, `eta`.
      critic: Parameters of relative values, `zeta`.
      direction: Natural gradients, `omega`.
    """

    gains: Float[Array, " g"]
    critic: Float[Array, "g d"]
    direction: Float[Array, "g p"]


@struct.dataclass
class Counters:
    """Where the state machine is.

    Attributes:
      sample: Transitions of the current update so far.
      level: Its level.
      update: Updates of the current phase so far.
      natural: Whether the phase is that of the natural gradient.
      outer: Outer steps so far, `k`.
    """

    sample: Int[Array, ""]
    level: Int[Array, ""]
    update: Int[Array, ""]
    natural: Bool[Array, ""]
    outer: Int[Array, ""]


@struct.dataclass
class Dual:
    """Multipliers and what their rule remembers.

    Attributes:
      multipliers: `lambda`.
      previous: The slacks by which they moved last.
      integral: Of the controller.
    """

    multipliers: Float[Array, " m"]
    previous: Float[Array, " m"]
    integral: Float[Array, " m"]


@struct.dataclass
class Averages:
    """Results over the run.

    Attributes:
      iterate: A uniformly random one of the policies so far, `[p]`; None unless kept.
      occupancy: For tables: sum of the policies at visited states, `[S, A]`, else None.
      gains: Sum of evaluated gains, reward and slacks; None without an evaluation.
      evaluations: How many.
    """

    iterate: Any
    occupancy: Any
    gains: Any
    evaluations: Float[Array, ""]


@struct.dataclass
class PDNACState:
    """One run.

    Attributes:
      key: Key of the run.
      hyper: Hyper-parameters.
      params: The environment's task; None where all runs share one.
      env_state, obs: Where the environment is.
      theta: Parameters of the policy, `[p]`.
      inner: What inner updates move.
      sums: Accumulators of the current update, shaped as `inner`.
      counters: Where the state machine is.
      dual: Multipliers.
      averages: Results over the run.
    """

    key: jax.Array
    hyper: Hyper
    params: PyTree
    env_state: PyTree
    obs: PyTree
    theta: Float[Array, " p"]
    inner: Inner
    sums: Inner
    counters: Counters
    dual: Dual
    averages: Averages
