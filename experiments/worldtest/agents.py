"""Agents that take part in WorldTest sessions: at random, and with the exact simulator."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from experiments.worldtest.simulators import action_table, simulator_of
from jaxlab.agents.simulator_planner.agent import ChangeFinder, Follower, GoalSeeker, Planner
from jaxlab.agents.simulator_planner.config import PlannerConfig
from jaxlab.agents.simulator_planner.search import Goal
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.tasks.formats import MASKED, World
from jaxlab.envs.autumn.tasks.protocol import Act, Observation

#: Of a random agent: share of its acts that end the interaction, and that report a change.
HASTE = 0.02


def act_of(row: Any) -> Act:
    """A row `[kind, x, y]` as an act."""
    kind, x, y = (int(number) for number in row)
    return Act(ACTIONS[kind], x, y) if ACTIONS[kind] == "click" else Act(ACTIONS[kind])


def row_of(act: Act) -> np.ndarray:
    """An act of the language as a row `[kind, x, y]`."""
    return np.array([ACTIONS.index(act.kind), act.x, act.y], np.int32)


def masked(observation: Observation) -> np.ndarray:
    """Where the frame is masked, bool `[size, size]`."""
    return np.asarray(observation.frame) == MASKED


class RandomAgent:
    """Acts at random: kinds of the language alike, clicks anywhere; answers at random."""

    def __init__(self, seed: int):
        self._generator = np.random.default_rng(seed)

    def begin(self, observation: Observation) -> None:
        del observation

    def act(self, observation: Observation) -> Act:
        offered, draw = observation.offered, self._generator
        if observation.phase == "interaction":
            return Act("go_to_test")
        if "choose_option" in offered:
            assert observation.choices is not None
            return Act("choose_option", int(draw.integers(len(observation.choices))))
        for kind in ("step", "submit"):
            if kind in offered:
                return Act(kind)
        if "found" in offered and draw.random() < HASTE:
            return Act("found")
        kind = ACTIONS[int(draw.integers(len(ACTIONS)))]
        if kind == "click":
            x, y = draw.integers(observation.frame.shape[0], size=2).tolist()
            return Act("click", x, y)
        return Act(kind)


class SimulatorAgent:
    """Knows the program, not the seed, and goes to the test at once.

    Args:
      world: The program as it is explored; its seed is not looked at.
      config: Sizes of the planner.
      seed: Of the agent's own choices.
    """

    def __init__(self, world: World, config: PlannerConfig, seed: int):
        self._planner = Planner(simulator_of(world.compiled()), config)
        self._actions = self._planner.simulator.actions
        self._seed = seed
        self._forget()

    def begin(self, observation: Observation) -> None:
        self._forget()

    def _forget(self) -> None:
        self._key = jax.random.key(self._seed)
        self._last: int | None = None
        self._chosen = False
        self._follower: Follower | None = None
        self._seeker: GoalSeeker | None = None
        self._finder: ChangeFinder | None = None
        #: Probabilities of the options, where they were weighed.
        self.weights: np.ndarray | None = None

    def act(self, observation: Observation) -> Act:
        if observation.phase == "interaction":
            return Act("go_to_test")
        families = {
            "masked_frame_prediction": self._fill_in,
            "planning": self._seek,
            "change_detection": self._find,
        }
        return families[observation.family](observation)

    def _fill_in(self, observation: Observation) -> Act:
        frame, visible = observation.frame, ~masked(observation)
        if observation.recorded is None:
            self._follower = self._planner.follow(self._key, frame, visible)
        else:
            assert self._follower is not None
            self._follower.see(self._index(observation.recorded), frame, visible)
        if "step" in observation.offered:
            return Act("step")
        assert observation.choices is not None
        assert self._follower is not None
        self.weights = self._planner.choose(self._follower, observation.choices, ~visible)
        return Act("choose_option", int(self.weights.argmax()))

    def _seek(self, observation: Observation) -> Act:
        if self._seeker is None:
            assert observation.goal is not None
            assert observation.mask is not None
            goal = Goal(observation.goal.astype(np.int32), observation.mask.astype(bool))
            self._seeker = GoalSeeker(
                self._planner, self._key, observation.frame, goal, observation.remaining
            )
        else:
            assert self._last is not None
            self._seeker.see(self._last, observation.frame)
        self._last = self._seeker.act()
        return act_of(self._actions[self._last])

    def _find(self, observation: Observation) -> Act:
        if "submit" in observation.offered:
            return self._report(observation)
        if self._finder is None:
            self._finder = ChangeFinder(self._planner, self._key, observation.frame)
        elif self._last is not None:
            self._finder.see(self._last, observation.frame)
        # Three acts are left for the report.
        left = observation.remaining - 3
        known = self._finder.report is not None or (
            left <= 0 and self._finder.suspicion is not None
        )
        if known and "found" in observation.offered:
            self._last = None
            return Act("found")
        self._last = self._finder.act(max(left, 1))
        return act_of(self._actions[self._last])

    def _report(self, observation: Observation) -> Act:
        assert self._finder is not None
        if not self._chosen:
            self._chosen = True
            report, suspicion = self._finder.report, self._finder.suspicion
            frame = report if report is not None else suspicion
            assert frame is not None
            return Act("choose_frame", frame)
        return Act("submit")

    def _index(self, act: Act) -> int:
        """The index of an act in the table of actions."""
        size = self._planner.search.columns
        if act.kind != "click":
            return ACTIONS.index(act.kind)
        return ACTIONS.index("click") + act.y * size + act.x


__all__ = ["RandomAgent", "SimulatorAgent", "act_of", "action_table", "masked", "row_of"]
