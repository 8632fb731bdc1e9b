"""Options of the command `train`; imports nothing heavy."""

from __future__ import annotations

import dataclasses
import pathlib
from typing import Any, Literal

from jaxlab.agents.dqn.config import DQNConfig, FittedConfig
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import RunOptions

#: Problems that values are learnt for, with the embeddings each has.
LEARNT = {
    "tsp": ("linear", "features", "s2v", "attention"),
    "atsp": ("linear", "features", "s2v", "attention"),
    "knapsack": ("linear", "features", "s2v", "attention"),
    "mis": ("linear", "features", "s2v", "attention"),
    "mvc": ("linear", "features", "s2v", "attention"),
    "cvrp": ("s2v", "attention"),
    "maxcut": ("s2v", "attention"),
}


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainOptions(RunOptions):
    """Learn values of a combinatorial problem, decode with them, and certify the result.

    fitted is projected value iteration with growing batches, dqn deep Q-learning. Max-cut is
    learnt by dqn in its reversible form, where vertices are flipped back and forth. The test set
    is drawn afresh; optima are proved by an integer programme, or are the best of long tabu
    searches (maxcut).
    """

    problem: Literal["tsp", "atsp", "knapsack", "mis", "mvc", "cvrp", "maxcut"] = "tsp"
    """What is learnt."""
    size: int = 20
    """Cities, items, vertices or customers."""
    graphs: Literal["er", "ba"] = "er"
    """Random graphs: Erdos and Renyi (p = 0.15) or Barabasi and Albert (m = 4)."""
    algorithm: Literal["auto", "fitted", "dqn"] = "auto"
    """How; auto is dqn for maxcut and fitted for the others."""
    embedding: Literal["auto", "linear", "features", "s2v", "attention"] = "auto"
    """linear in hand-made features with lower bounds; a small network on these (features);
    structure2vec, or attention, on the graph. auto is features where fitted has them, else s2v."""
    steps: int = 2000
    """Gradient steps; those of fitted are divided among its iterations."""
    iterations: int = 20
    """Iterations of fitted value iteration."""
    first_batch: int = 1024
    """States of its first iteration."""
    batch_growth: float = 1.3
    """Factor of states from one iteration to the next."""
    steps_growth: float = 1.0
    """Factor of gradient steps from one iteration to the next."""
    minibatch: int = 64
    """States or transitions of a gradient step."""
    instances: int = 0
    """Instances that fitted averages over; 0 draws new ones all the time."""
    learning_rate: float = 5e-4
    """Of Adam."""
    radius: float = 100.0
    """Of the ball that parameters are projected to (fitted)."""
    width: int = 64
    """Of networks."""
    num_envs: int = 32
    """Environments side by side (dqn)."""
    n_step: int = 1
    """Rewards added up before a value is asked (dqn)."""
    test: int = 100
    """Instances of the test set."""
    beam: int = 16
    """Width of beam search."""
    episodes: int = 20
    """Starts of each test instance of maxcut; the best counts."""
    time_limit: float = 20.0
    """Seconds for the optimum of a test instance."""
    certificate_states: int = 512
    """States in which the error of values is estimated."""
    instance: tuple[pathlib.Path, ...] = ()
    """Further instances to evaluate on, of this problem and no larger than the size."""
    ablate: Literal["none", "schedule"] = "none"
    """schedule: also runs without growth of batches, and with one gradient step in ten (fitted),
    and with linear features."""

    def check(self) -> None:
        super().check()
        for name in ("iterations", "first_batch", "minibatch", "width", "num_envs", "n_step"):
            self.at_least(name, 1)
        for name in ("test", "beam", "episodes", "certificate_states"):
            self.at_least(name, 1)
        self.at_least("size", 3)
        self.at_least("instances", 0)
        self.at_least("batch_growth", 1.0)
        self.at_least("steps_growth", 1.0)
        for name in ("learning_rate", "radius", "time_limit"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"--{name.replace('_', '-')}: expected a positive number")
        self.resolved()._check_choices()

    def resolved(self) -> TrainOptions:
        """The options with what auto stands for in its place."""
        algorithm, embedding = self.algorithm, self.embedding
        if algorithm == "auto":
            algorithm = "dqn" if self.problem == "maxcut" else "fitted"
        if embedding == "auto":
            by_hand = algorithm == "fitted" and "features" in LEARNT[self.problem]
            embedding = "features" if by_hand else "s2v"
        return dataclasses.replace(self, algorithm=algorithm, embedding=embedding)

    def _check_choices(self) -> None:
        if self.embedding not in LEARNT[self.problem]:
            names = ", ".join(LEARNT[self.problem])
            raise ConfigError(
                f"--embedding {self.embedding}: {self.problem} has {names}; choose one of them"
            )
        if self.algorithm == "dqn" and self.embedding in ("linear", "features"):
            raise ConfigError("--algorithm dqn: needs --embedding s2v or attention")
        if self.algorithm == "fitted" and self.problem == "maxcut":
            raise ConfigError(
                "--algorithm fitted: maxcut is learnt in its reversible form, which has cycles; "
                "use --algorithm dqn --embedding s2v"
            )
        if self.ablate != "none" and (
            self.algorithm != "fitted" or self.embedding not in ("linear", "features")
        ):
            raise ConfigError("--ablate: is for --algorithm fitted on features")
        if self.iterations > self.steps:
            raise ConfigError(f"--iterations {self.iterations}: expected at most --steps")

    @property
    def fitted(self) -> FittedConfig:
        """Schedules that add up to about `steps` gradient steps."""
        growth = sum(self.steps_growth**k for k in range(self.iterations))
        return FittedConfig(
            iterations=self.iterations,
            first_batch=self.first_batch,
            batch_growth=self.batch_growth,
            first_steps=max(1, int(self.steps / growth)),
            steps_growth=self.steps_growth,
            minibatch=self.minibatch,
            optimizer="adam",
            instances=self.instances,
        )

    @property
    def dqn(self) -> DQNConfig:
        """Shapes of deep Q-learning."""
        return DQNConfig(
            num_envs=self.num_envs,
            batch_size=self.minibatch,
            buffer_size=max(5000, self.num_envs, self.minibatch),
            warmup=max(2, min(20, self.steps // 10)),
            n_step=self.n_step,
            target_period=max(1, min(200, self.steps // 10)),
            network="attention" if self.embedding == "attention" else "s2v",
            width=self.width,
            exploration_steps=max(1, self.steps // 2),
        )


PRESETS: dict[str, dict[str, Any]] = {
    "smoke": {
        "size": 6,
        "steps": 8,
        "iterations": 2,
        "first_batch": 16,
        "minibatch": 4,
        "width": 8,
        "num_envs": 4,
        "test": 4,
        "beam": 2,
        "episodes": 2,
        "certificate_states": 16,
    },
    "quick": {},
    "paper": {"steps": 40_000, "iterations": 40, "test": 1000, "certificate_states": 4096},
}
