"""The WorldTest protocol: explore without reward, then one test in a world derived from it.

A `Session` holds the world and the answer; what an agent may know is in `Observation`, what
it may do is an `Act` of a kind that the observation offers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Int

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.tasks.formats import Family, Mode, Task
from jaxlab.envs.autumn.tasks.running import RunningWorld
from jaxlab.envs.autumn.tasks.trials import Shown, Trial, Verdict, make_trial

Phase = Literal["interaction", "test", "over"]


class Act(NamedTuple):
    """What an agent does: a kind, the place of a click, or in `x` the number of a choice.

    Kinds: those of the language (noop, left, right, up, down, click), reset, go_to_test,
    quit, and in the tests step, rewind, choose_option, found, choose_frame, submit.
    """

    kind: str
    x: int = 0
    y: int = 0


@dataclasses.dataclass(frozen=True)
class Limits:
    """Longest sessions, in acts of all kinds; those of the released harness by default.

    Attributes:
      interaction: Acts before the test begins by itself.
      total: Acts of interaction and test together.
    """

    interaction: int = 300
    total: int = 501

    def __post_init__(self) -> None:
        if not 0 <= self.interaction < self.total:
            raise ConfigError(
                f"expected 0 <= interaction < total, got {self.interaction} and {self.total}"
            )


@dataclasses.dataclass(frozen=True, eq=False, kw_only=True)
class Observation:
    """All that an agent may know.

    Attributes:
      family: Of the test that comes, or is on.
      phase: Where the session is.
      offered: Kinds of acts that may come next.
      frames: What was seen since the last act, `[frames, size, size]`, indices of
        `palette.COLOURS`; one frame unless `stack_frames` is on.
      acts: Acts taken in all phases; `remaining` are left before the session ends.
      number: Number of the last frame of this phase; a reset goes on counting.
      recorded: In a masked-frame test, the action that led to this frame.
      goal, mask: In a planning test, both `[size, size]`.
      choices: In a masked-frame test, `[6, rows, columns]`.
      error: Why the program failed and stands still until a reset.
    """

    family: Family
    phase: Phase
    offered: tuple[str, ...]
    frames: Int[np.ndarray, "frames size size"]
    acts: int
    remaining: int
    number: int
    recorded: Act | None = None
    goal: Int[np.ndarray, "size size"] | None = None
    mask: Int[np.ndarray, "size size"] | None = None
    choices: Int[np.ndarray, "options rows columns"] | None = None
    error: str | None = None

    @property
    def frame(self) -> Int[np.ndarray, "size size"]:
        """What is seen now."""
        return self.frames[-1]

    def require(self, act: Act) -> None:
        """Refuse an act that cannot come next.

        Raises:
          ConfigError: its kind is not offered, or its numbers are out of range.
        """
        if act.kind not in self.offered:
            where = {"over": "the session is over", "test": f"in the {self.family} test"}
            raise ConfigError(
                f"'{act.kind}' is not offered {where.get(self.phase, 'in the interaction')}; "
                f"expected one of {', '.join(self.offered) or 'nothing'}"
            )
        if act.kind == "click":
            size = self.frames.shape[-1]
            if not (0 <= act.x < size and 0 <= act.y < size):
                raise ConfigError(
                    f"the click at {act.x}, {act.y} is outside the grid; x (column) and y (row) "
                    f"are integers from 0 to {size - 1}"
                )
        elif act.kind == "choose_option" and self.choices is not None:
            _in_range("option", act.x, len(self.choices))
        elif act.kind == "choose_frame":
            _in_range("frame", act.x, self.number + 1)


@dataclasses.dataclass(frozen=True)
class Result:
    """How a session ended.

    Attributes:
      task, family: Which test it was.
      score: See `scoring`.
      acts: Acts of both phases; `interaction` of them before the test.
      resets: Resets among them.
      verdict: What the test says beyond the score.
    """

    task: str
    family: Family
    score: float
    acts: int
    interaction: int
    resets: int
    verdict: Verdict


@runtime_checkable
class Agent(Protocol):
    """Takes part in sessions; `begin` is called before each of them."""

    def begin(self, observation: Observation) -> None:
        """Forget what came before; the first observation is the one `act` gets next."""
        ...

    def act(self, observation: Observation) -> Act:
        """The next act, of a kind that is offered."""
        ...


class Session:
    """One task from the first observation to its score.

    Args:
      task: The task.
      mode: As released, or put right.
      limits: Longest interaction and session.
      stack_frames: In the interaction, noops follow each action until as many frames have
        passed as the program shows in a second, all of them seen.
      fresh_seeds: A reset draws a new seed instead of going back to the same one.

    Raises:
      ProgramError: a program of the task cannot be compiled.
      DataError: the task does not fit its program.
    """

    def __init__(
        self,
        task: Task,
        *,
        mode: Mode = "fixed",
        limits: Limits | None = None,
        stack_frames: bool = False,
        fresh_seeds: bool = False,
    ):
        self.task, self.mode = task, mode
        self.limits = limits or Limits()
        self.stack_frames, self.fresh_seeds = stack_frames, fresh_seeds
        self._acts = self._resets = self._interaction = self._number = 0
        self._phase: Phase = "interaction"
        self._world = RunningWorld(task.world)
        self._trial: Trial | None = None
        self.result: Result | None = None
        self._world.restart(self._seed())
        self._shown = Shown(self._world.frame[None], error=self._world.error)
        if self.limits.interaction == 0:
            self._begin_test()

    @property
    def observation(self) -> Observation:
        """What the agent may know now."""
        return Observation(
            family=self.task.family,
            phase=self._phase,
            offered=self._offered(),
            frames=self._shown.frames,
            acts=self._acts,
            remaining=0 if self._phase == "over" else self.limits.total - self._acts,
            number=self._number if self._trial is None else self._shown.number,
            recorded=None if self._shown.recorded is None else Act(*self._shown.recorded),
            goal=self._shown.goal,
            mask=self._shown.mask,
            choices=self._shown.choices,
            error=self._shown.error,
        )

    def act(self, act: Act) -> Observation:
        """Take an act; the observation after it.

        Raises:
          ConfigError: its kind is not offered, or its numbers are out of range. Nothing
            happened then, and another act may be tried.
        """
        self.observation.require(act)
        self._acts += 1
        if act.kind == "quit":
            self._finish()
        elif self._trial is not None:
            self._shown = self._trial.act(act.kind, act.x, act.y)
        elif act.kind == "go_to_test":
            self._begin_test()
        else:
            self._explore(act)
        if self._phase == "test" and self._trial is not None and self._trial.over:
            self._finish()
        if self._phase == "interaction" and self._acts >= self.limits.interaction:
            self._begin_test()
        if self._phase != "over" and self._acts >= self.limits.total:
            self._finish()
        return self.observation

    def _offered(self) -> tuple[str, ...]:
        if self._phase == "over":
            return ()
        if self._trial is None:
            return (*ACTIONS, "reset", "go_to_test", "quit")
        return (*self._trial.offered, "quit")

    def _explore(self, act: Act) -> None:
        if act.kind == "reset":
            self._resets += 1
            self._world.restart(self._seed())
            frames = [self._world.frame]
        else:
            self._world.step((ACTIONS.index(act.kind), act.x, act.y))
            frames = [self._world.frame]
            while self.stack_frames and len(frames) < self._world.compiled.frame_rate:
                self._world.step((0, 0, 0))
                frames.append(self._world.frame)
        self._number += len(frames)
        self._shown = Shown(np.stack(frames), error=self._world.error)

    def _seed(self) -> int:
        """Seed of the exploration; put right, it is not that of the test."""
        if self.mode == "released" and not self.fresh_seeds:
            return self.task.world.seed
        turn = self._resets if self.fresh_seeds else 0
        return int(np.random.SeedSequence([self.task.world.seed, turn]).generate_state(1)[0])

    def _begin_test(self) -> None:
        self._interaction = self._acts
        self._phase = "test"
        self._trial = make_trial(self.task, self.mode)
        self._shown = self._trial.shown()

    def _finish(self) -> None:
        if self._trial is None:
            self._interaction = self._acts
        verdict = Verdict() if self._trial is None else self._trial.verdict()
        self._phase = "over"
        self.result = Result(
            task=self.task.id,
            family=self.task.family,
            score=verdict.score,
            acts=self._acts,
            interaction=self._interaction,
            resets=self._resets,
            verdict=verdict,
        )


def _in_range(what: str, number: int, count: int) -> None:
    if not 0 <= number < count:
        raise ConfigError(f"{what} {number} is not there; expected 0 to {count - 1}")


def run_session(
    session: Session,
    agent: Agent,
    watch: Callable[[Observation, Act], None] | None = None,
) -> Result:
    """Let an agent take a session to its end; `watch` sees each act before it is taken.

    Raises:
      ConfigError: the agent's act is not offered.
    """
    observation = session.observation
    agent.begin(observation)
    while session.result is None:
        act = agent.act(observation)
        if watch is not None:
            watch(observation, act)
        observation = session.act(act)
    return session.result
