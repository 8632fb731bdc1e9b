"""The planner in the three kinds of tests: hidden frames, goals, changed rules.

Each class takes pictures and gives indices of actions, a number, or a frame; who talks to the test
translates.
"""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

from jaxlab.agents.simulator_planner.beliefs import BeliefFilter, Evidence, option_weights
from jaxlab.agents.simulator_planner.config import PlannerConfig
from jaxlab.agents.simulator_planner.search import Goal, Plan, Search
from jaxlab.agents.simulator_planner.simulator import Simulator, State

#: Runs by the old rules that surprises are held against.
REPLICAS = 3


class Planner:
    """An exact simulator and what it takes to use it; compiled once for each world."""

    def __init__(self, simulator: Simulator, config: PlannerConfig | None = None):
        self.simulator, self.config = simulator, config or PlannerConfig()
        self.filter = BeliefFilter(simulator, self.config)
        self.search = Search(simulator, self.config)
        self._show = jax.jit(jax.vmap(simulator.frame))
        self._show_one, self._step = jax.jit(simulator.frame), jax.jit(simulator.step)

    def follow(self, key: jax.Array, frame: Any, visible: Any | None = None) -> Follower:
        """A filter that begins with a frame."""
        return Follower(self, key, frame, visible)

    def frames(self, particles: State) -> np.ndarray:
        """What particles show, `[particles, rows, columns]`."""
        return np.asarray(self._show(particles))

    def frame(self, state: State) -> np.ndarray:
        """What one state shows, `[rows, columns]`."""
        return np.asarray(self._show_one(state))

    def step(self, key: jax.Array, state: State, action: int) -> State:
        """One state after an action, an index, with all that is random drawn from the key."""
        fresh, key = jax.random.split(key)
        state = self.simulator.refresh(fresh, state)
        return self._step(key, state, self.simulator.actions[action])

    def pick(self, particles: State, number: int) -> State:
        """One particle."""
        return jax.tree.map(lambda leaf: leaf[number % self.config.particles], particles)

    def choose(self, follower: Follower, options: Any, mask: Any) -> np.ndarray:
        """Probabilities of what may be behind a mask, `[options]`.

        Args:
          follower: Has seen the frames.
          options: `[options, height, width]`, for the rectangle around the mask.
          mask: Where the last frame is masked, bool `[rows, columns]`.
        """
        mask = np.asarray(mask, bool)
        rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
        inside = mask[rows[0] : rows[-1] + 1, columns[0] : columns[-1] + 1]
        corner = np.array([rows[0], columns[0]], np.int32)
        frames = self.frames(follower.particles)
        weights = option_weights(
            frames, np.asarray(options), corner, inside, sharpness=self.config.sharpness
        )
        return np.asarray(weights)


class Follower:
    """What is believed of a world while it is watched.

    Attributes:
      particles: Samples of the hidden state.
      frame: What was seen last.
      step: Steps that were followed.
    """

    def __init__(self, planner: Planner, key: jax.Array, frame: Any, visible: Any | None = None):
        self._planner, self._key = planner, key
        self.step = 0
        self.frame = np.asarray(frame, np.int32)
        self.particles = planner.filter.begin(self.key(0), self.frame, _visible(frame, visible))

    def key(self, purpose: int) -> jax.Array:
        """A key for this step: 0 is the filter's."""
        return jax.random.fold_in(jax.random.fold_in(self._key, purpose), self.step)

    def see(self, action: int, frame: Any, visible: Any | None = None) -> Evidence:
        """Take in what is seen after an action, an index of the simulator's table."""
        self.step += 1
        self.frame = np.asarray(frame, np.int32)
        row = self._planner.simulator.actions[action]
        self.particles, evidence = self._planner.filter.update(
            self.key(0), self.particles, row, self.frame, _visible(frame, visible)
        )
        return evidence


class _Walk:
    """A plan on its way, and what was visited.

    Attributes:
      follower: What is believed of the world.
      simulated: Steps that searches took.
      failures: Plans that did not come true.
    """

    def __init__(self, planner: Planner, key: jax.Array, frame: Any):
        self._planner = planner
        self.follower = planner.follow(key, frame)
        self.simulated = self.failures = 0
        self._plan: Plan | None = None
        self._at = 0
        self._seen = planner.search.nothing_seen()
        self._remember()

    @property
    def done(self) -> bool:
        """Whether there is no action left to take."""
        return self._plan is None or self._at >= len(self._plan.actions)

    def next(self) -> int:
        """The next action; any at all where no plan has one."""
        if self.done or self._plan is None:
            count = len(self._planner.simulator.actions)
            return int(jax.random.randint(self.follower.key(4), (), 0, count))
        return int(self._plan.actions[self._at])

    def find(self, goal: Goal, iterations: int, horizon: int) -> None:
        """Plan anew for a goal."""
        self._search(1, goal, iterations, horizon)

    def explore(self, iterations: int, horizon: int) -> None:
        """Plan to what was not seen; where there is nothing of that kind, all of it once more."""
        nowhere = Goal(self.follower.frame, np.zeros(self.follower.frame.shape, bool))
        self._search(2, nowhere, iterations, horizon, self._seen)
        if self.done:
            self._seen = self._planner.search.nothing_seen()
            self._remember()
            self._search(3, nowhere, iterations, horizon, self._seen)

    def _search(
        self, purpose: int, goal: Goal, iterations: int, horizon: int, seen: Any = None
    ) -> None:
        follower, planner = self.follower, self._planner
        self._plan = planner.search.find(
            follower.key(purpose),
            planner.pick(follower.particles, self.failures),
            goal,
            iterations=iterations,
            horizon=max(horizon, 1),
            seen=seen,
        )
        self._at = 0
        self.simulated += self._plan.simulated

    def see(self, action: int, frame: Any) -> Evidence:
        """What came of an action; a plan that did not come true is dropped."""
        evidence = self.follower.see(action, frame)
        if not self.done:
            assert self._plan is not None
            if (self._plan.frames[self._at] != self.follower.frame).any():
                self._plan = None
                self.failures += 1
        self._at += 1
        self._remember()
        return evidence

    def _remember(self) -> None:
        state = self._planner.pick(self.follower.particles, self.follower.step)
        self._seen = self._planner.search.see(self._seen, state)


class GoalSeeker:
    """Acts towards a goal: plans, follows the plan while it comes true, plans again.

    Where a search comes no nearer, what was not seen yet is visited first.
    """

    def __init__(self, planner: Planner, key: jax.Array, frame: Any, goal: Goal, horizon: int):
        self._config, self._goal, self._left = planner.config, goal, horizon
        self._walk = _Walk(planner, key, frame)

    @property
    def simulated(self) -> int:
        """Steps that were simulated in searches."""
        return self._walk.simulated

    def act(self) -> int:
        """The next action."""
        walk, config = self._walk, self._config
        if walk.done:
            first = walk.follower.step == 0
            walk.find(self._goal, config.iterations if first else config.replanning, self._left)
        if walk.done:
            walk.explore(config.exploring, self._left)
        return walk.next()

    def see(self, action: int, frame: Any) -> None:
        """What came of an action."""
        self._left -= 1
        self._walk.see(action, frame)


class ChangeFinder:
    """Explores a world that may have changed until what is seen cannot be by its old rules.

    An observation is a surprise if it is farther from all predictions than these are from each
    other, or shows more places in colours that no prediction has there. Where all predictions
    agree one surprise is enough, and also where the frame before was one that was predicted and
    this one has such places. Elsewhere, once there are `confirmations` within `window` frames,
    the same actions are simulated by the old rules a few times and followed in the same way: it is
    a change if none of these runs comes to as many. It is dated to the first surprise beyond
    those that came in such a run.

    Attributes:
      report: The first frame that shows the change, counted from 0 at the start.
    """

    def __init__(self, planner: Planner, key: jax.Array, frame: Any):
        self._config = planner.config
        self._walk = _Walk(planner, key, frame)
        self._surprises: list[int] = []
        self._fits = True
        self._needed = planner.config.confirmations
        self._planner, self._first = planner, self._walk.follower.particles
        self._actions: list[int] = []
        self.report: int | None = None

    def act(self, left: int) -> int:
        """The next action, with so many left."""
        if self._walk.done:
            self._walk.explore(self._config.exploring, left)
        return self._walk.next()

    def see(self, action: int, frame: Any) -> int | None:
        """What came of an action; the report, where a change is certain enough."""
        evidence = self._walk.see(action, frame)
        self._actions.append(action)
        if evidence.surprising:
            now, config = self._walk.follower.step, self._config
            self._surprises = [s for s in self._surprises if s > now - config.window] + [now]
            sharp = self._fits and evidence.unheard > evidence.usually_unheard
            if evidence.certain or sharp:
                self.report = now if sharp else self._surprises[0]
            elif len(self._surprises) >= self._needed:
                usual = self._most_surprises(len(self._surprises))
                self._needed = usual + 1
                if len(self._surprises) > usual:
                    # As many as are usual came before the change.
                    self.report = self._surprises[usual]
        self._fits = evidence.distance == 0
        return self.report

    def _most_surprises(self, enough: int) -> int:
        """Most surprises within `window` frames by the old rules, or `enough` as soon as so many."""
        planner, most = self._planner, 0
        for replica in range(REPLICAS):
            key = self._walk.follower.key(10 + replica)
            state = planner.pick(self._first, replica)
            follower = planner.follow(key, planner.frame(state))
            surprises: list[int] = []
            for step, action in enumerate(self._actions, 1):
                state = planner.step(jax.random.fold_in(key, step), state, action)
                if follower.see(action, planner.frame(state)).surprising:
                    window = step - planner.config.window
                    surprises = [s for s in surprises if s > window] + [step]
                    most = max(most, len(surprises))
                if most >= enough:
                    return most
        return most

    @property
    def suspicion(self) -> int | None:
        """The first surprise of late, if there is one."""
        return self._surprises[0] if self._surprises else None


def _visible(frame: Any, visible: Any | None) -> np.ndarray:
    shape = np.shape(frame)
    return np.ones(shape, bool) if visible is None else np.asarray(visible, bool)
