"""MAESTRO: MADDPG learns to share green time under a curriculum of traffic scenarios.

policy = load_policy("runs/maestro/<run>")
actions = policy(timestep.obs, key)
"""

from __future__ import annotations

from typing import Any


def load_policy(run_dir: Any, *, seed_index: int = 0) -> Any:
    """The greedy policy of one seed of a run, as `policy(obs, key) -> action [junctions]`.

    Raises:
      CheckpointError: the folder holds no run of this experiment.
    """
    from experiments.maestro.training import build
    from jaxlab.core import policies

    return policies.load_policy(run_dir, build, seed_index=seed_index)
