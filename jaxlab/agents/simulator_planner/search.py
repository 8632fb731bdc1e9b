"""Batched best-first search on an exact simulator: for a goal, or for what is new.

Each expansion steps `beam * branches` states in one compiled call. A quarter of the states expanded are those
closest to the goal, a quarter those of the shortest way there if each step mends one place, half the most novel ones; states seen before are dropped by their fingerprint. What
is random is drawn once for each depth, so that a plan is one for the noise of this search.
"""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Bool, Float, Int

from jaxlab.agents.simulator_planner.config import PlannerConfig
from jaxlab.agents.simulator_planner.novelty import (
    Seen,
    are_new,
    forget_states,
    nothing_seen,
    novelty,
)
from jaxlab.agents.simulator_planner.simulator import Simulator, State

#: What a step costs, in places that differ from the goal, for those closest to it.
STEP_COST = 0.125
#: The same for the shortest ways.
WHOLE_COST = 1.0
#: How much a step takes from what is gained by novelty.
STEP_LOSS = 0.2


class Goal(NamedTuple):
    """What a picture shall show.

    Attributes:
      picture: Colours, int32 `[rows, columns]`.
      mask: Where they count, bool `[rows, columns]`; nowhere if there is no goal.
    """

    picture: Any
    mask: Any

    def distance(self, frames: jax.Array) -> jax.Array:
        """Number of places that differ, int32 `[...]`."""
        wrong = (frames != jnp.asarray(self.picture)) & jnp.asarray(self.mask, bool)
        return wrong.sum((-2, -1), dtype=jnp.int32)


class Plan(NamedTuple):
    """What a search found.

    Attributes:
      actions: Indices of actions, `[steps]`.
      frames: What they are expected to show, `[steps, rows, columns]`.
      reached: Whether the last frame meets the goal.
      distance: Places of the last frame that differ from the goal.
      simulated: Steps that were simulated.
    """

    actions: np.ndarray
    frames: np.ndarray
    reached: bool
    distance: int
    simulated: int


@struct.dataclass
class Pool:
    """States that may be expanded, and what is known of the search.

    `states`, `node`, `depth`, `distance`, `level`, `gain` and `waits` are `[pool, ...]`; `node` numbers
    the states of the search, `waits` says which are to be expanded.
    """

    states: State
    node: Int[Array, " pool"]
    depth: Int[Array, " pool"]
    distance: Int[Array, " pool"]
    level: Float[Array, " pool"]
    gain: Float[Array, " pool"]
    waits: Bool[Array, " pool"]
    seen: Seen


class Found(NamedTuple):
    """What an expansion leaves for the host.

    Attributes:
      parents: Nodes that were expanded, `[beam]`.
      actions: Indices of actions tried, `[beam * branches]`.
      nearest: Node and distance of the best child by distance.
      newest: Node and gain of the best child by gain.
      waiting: How many states wait.
    """

    parents: jax.Array
    actions: jax.Array
    nearest: tuple[jax.Array, jax.Array]
    newest: tuple[jax.Array, jax.Array]
    waiting: jax.Array


class Search:
    """A search in one world; compiled once."""

    def __init__(self, simulator: Simulator, config: PlannerConfig):
        self.simulator, self.config = simulator, config
        self.rows, self.columns = simulator.shape
        self.branches = min(config.branches, len(simulator.actions))
        self.children = config.beam * self.branches
        self._begin = jax.jit(self._first_pool)
        self._expand = jax.jit(self._expansion, donate_argnums=0)
        self._see = jax.jit(self._seeing)
        self._forget = jax.jit(forget_states)
        self._trace = jax.jit(self._frames_of)

    def nothing_seen(self) -> Seen:
        """Tables that know nothing."""
        return nothing_seen(self.rows * self.columns, self.simulator.colours)

    def see(self, seen: Seen, state: State) -> Seen:
        """The tables with one state, which was visited."""
        return self._see(seen, state)

    def find(
        self,
        key: jax.Array,
        state: State,
        goal: Goal,
        *,
        iterations: int,
        horizon: int,
        seen: Seen | None = None,
    ) -> Plan:
        """A plan to a goal, or as near it as the search came; without a goal, to what is new.

        Args:
          key: Of this search: which actions are tried, and what is random in the world.
          state: Where it begins, without a leading axis.
          goal: What to reach.
          iterations: Most expansions.
          horizon: Most steps of a plan.
          seen: What is not new any more, from `see`.
        """
        wanted = bool(np.any(goal.mask))
        act_key, noise = jax.random.split(key)
        tables = self.nothing_seen() if seen is None else self._forget(seen)
        pool, start = self._begin(state, goal, tables)
        best, least, gain = 0, int(start), 0.0
        parents, actions = [], []
        for iteration in range(iterations):
            pool, found = self._expand(
                pool, jax.random.fold_in(act_key, iteration), noise, goal, iteration, horizon
            )
            found = jax.device_get(found)
            parents.append(found.parents)
            actions.append(found.actions)
            if wanted and found.nearest[1] < least:
                best, least = int(found.nearest[0]), int(found.nearest[1])
            if not wanted and found.newest[1] > gain:
                best, gain = int(found.newest[0]), float(found.newest[1])
            if (wanted and least == 0 and best) or not found.waiting:
                break
        path = self._path(best, parents, actions)
        frames = self._followed(state, path, noise)
        return Plan(
            path, frames, wanted and least == 0 and best > 0, least, len(parents) * self.children
        )

    def _path(self, node: int, parents: list[np.ndarray], actions: list[np.ndarray]) -> np.ndarray:
        """Actions from the root to a node."""
        path: list[int] = []
        while node > 0:
            iteration, child = divmod(node - 1, self.children)
            path.append(int(actions[iteration][child]))
            node = int(parents[iteration][child // self.branches])
        return np.array(path[::-1], np.int32)

    def _followed(self, state: State, path: np.ndarray, noise: jax.Array) -> np.ndarray:
        """Frames along a path."""
        if not len(path):
            return np.zeros((0, self.rows, self.columns), np.int32)
        # Few lengths are compiled.
        length = 1 << (len(path) - 1).bit_length()
        padded = np.zeros(max(length, 16), np.int32)
        padded[: len(path)] = path
        return np.asarray(self._trace(state, padded, noise))[: len(path)]

    def _frames_of(self, state: State, path: jax.Array, noise: jax.Array) -> jax.Array:
        def one(carry: State, entry: tuple[jax.Array, jax.Array]) -> tuple[State, jax.Array]:
            depth, action = entry
            key = jax.random.fold_in(noise, depth)
            after = self.simulator.step(key, carry, jnp.asarray(self.simulator.actions)[action])
            return after, self.simulator.frame(after)

        depths = jnp.arange(path.shape[0], dtype=jnp.int32)
        return jax.lax.scan(one, state, (depths, path))[1]

    def _seeing(self, seen: Seen, state: State) -> Seen:
        frame = self.simulator.frame(state).reshape(1, -1)
        features = self.simulator.features(state)[None]
        return novelty(seen, frame, features, jnp.zeros(1, jnp.int32), jnp.ones(1, bool))[0]

    def _first_pool(self, state: State, goal: Goal, seen: Seen) -> tuple[Pool, jax.Array]:
        size = self.config.pool
        states = jax.tree.map(lambda leaf: jnp.repeat(leaf[None], size, 0), state)
        distance = goal.distance(self.simulator.frame(state))
        seen, _ = are_new(seen, self.simulator.fingerprint(state)[None], jnp.ones(1, bool))
        pool = Pool(
            states=states,
            node=jnp.zeros(size, jnp.int32),
            depth=jnp.zeros(size, jnp.int32),
            distance=jnp.full(size, distance, jnp.int32),
            level=jnp.zeros(size, jnp.float32),
            gain=jnp.zeros(size, jnp.float32),
            waits=jnp.arange(size) == 0,
            seen=self._seeing(seen, state),
        )
        return pool, distance

    def _chosen(self, pool: Pool, horizon: jax.Array) -> jax.Array:
        """Which states are expanded, `[beam]`."""
        quarter = self.config.beam // 4
        counts = (quarter, quarter, self.config.beam - 2 * quarter)
        open_ = pool.waits & (pool.depth < horizon)
        chosen = []
        for priority, count in zip(_priorities(pool), counts, strict=True):
            _, best = jax.lax.top_k(jnp.where(open_, priority, -jnp.inf), count)
            open_ = open_.at[best].set(False)
            chosen.append(best)
        return jnp.concatenate(chosen)

    def _tried(self, key: jax.Array, frames: jax.Array, goal: Goal) -> jax.Array:
        """Actions to try, `[beam, branches]`.

        Those without a place come first; of the others, each colour in sight is as likely as the
        next, and what differs from the goal counts as one and a half colours more.
        """
        places = jnp.asarray(self.simulator.places)
        flat = frames.reshape(frames.shape[0], -1)
        counts = jax.nn.one_hot(flat, self.simulator.colours, dtype=jnp.float32).sum(1)
        weights = 1 / jnp.take_along_axis(counts, flat, 1)
        wrong = (frames != jnp.asarray(goal.picture)) & jnp.asarray(goal.mask, bool)
        wrong = wrong.reshape(flat.shape).astype(jnp.float32)
        weights = weights + 1.5 * wrong / jnp.maximum(wrong.sum(1, keepdims=True), 1)
        likely = jnp.where(places < 0, jnp.inf, jnp.log(weights[:, jnp.maximum(places, 0)]))
        noise = jax.random.gumbel(key, likely.shape, jnp.float32)
        return jax.lax.top_k(likely + noise, self.branches)[1].astype(jnp.int32)

    def _expansion(
        self,
        pool: Pool,
        key: jax.Array,
        noise: jax.Array,
        goal: Goal,
        iteration: jax.Array,
        horizon: jax.Array,
    ) -> tuple[Pool, Found]:
        simulator, branches = self.simulator, self.branches
        chosen = self._chosen(pool, horizon)
        alive = pool.waits[chosen] & (pool.depth[chosen] < horizon)
        parents = jax.tree.map(lambda leaf: leaf[chosen], pool.states)
        tried = self._tried(key, jax.vmap(simulator.frame)(parents), goal).reshape(-1)
        spread = functools.partial(jnp.repeat, repeats=branches, axis=0)
        keys = jax.vmap(jax.random.fold_in, (None, 0))(noise, spread(pool.depth[chosen]))
        rows = jnp.asarray(simulator.actions)[tried]
        states = jax.vmap(simulator.step)(keys, jax.tree.map(spread, parents), rows)

        frames = jax.vmap(simulator.frame)(states)
        distance = goal.distance(frames)
        valid = spread(alive) & ~jax.vmap(simulator.failed)(states)
        seen, valid = are_new(pool.seen, jax.vmap(simulator.fingerprint)(states), valid)
        seen, level = novelty(
            seen,
            frames.reshape(len(tried), -1),
            jax.vmap(simulator.features)(states),
            distance,
            valid,
        )
        children = Pool(
            states=states,
            node=1 + iteration * self.children + jnp.arange(len(tried), dtype=jnp.int32),
            depth=spread(pool.depth[chosen]) + 1,
            distance=distance,
            level=level,
            gain=spread(pool.gain[chosen]) + level - STEP_LOSS,
            waits=valid,
            seen=seen,
        )
        found = self._found(pool.node[chosen], tried, children)
        waits = pool.waits.at[chosen].set(False)
        pool = pool.replace(waits=waits)  # type: ignore[attr-defined]
        pool = self._kept(pool, children)
        return pool, found._replace(waiting=pool.waits.sum())

    def _found(self, parents: jax.Array, tried: jax.Array, children: Pool) -> Found:
        far = jnp.where(children.waits, children.distance, jnp.iinfo(jnp.int32).max)
        gain = jnp.where(children.waits, children.gain, -jnp.inf)
        nearest, newest = jnp.argmin(far), jnp.argmax(gain)
        return Found(
            parents,
            tried,
            (children.node[nearest], far[nearest]),
            (children.node[newest], gain[newest]),
            jnp.zeros((), jnp.int32),
        )

    def _kept(self, pool: Pool, children: Pool) -> Pool:
        """The pool with the best children in the places of its worst states."""
        count = min(self.children, max(self.config.pool // 4, 1))
        _, best = jax.lax.top_k(-_standing(children), count)
        _, worst = jax.lax.top_k(_standing(pool), count)

        def written(old: jax.Array, new: jax.Array) -> jax.Array:
            return old.at[worst].set(new[best])

        old, new = (part.replace(seen=()) for part in (pool, children))  # type: ignore[attr-defined]
        mixed = jax.tree.map(written, old, new)
        return mixed.replace(seen=children.seen)


def _priorities(pool: Pool) -> tuple[jax.Array, ...]:
    """By which states are expanded, more first: distance, length of the way, novelty."""
    near = pool.distance + STEP_COST * pool.depth
    whole = pool.distance + WHOLE_COST * pool.depth
    return -near, -whole, pool.level - 0.001 * near


def _standing(pool: Pool) -> jax.Array:
    """The best of a state's ranks; those that do not wait come last."""

    def rank(priority: jax.Array) -> jax.Array:
        order = jnp.argsort(jnp.where(pool.waits, -priority, jnp.inf))
        places = jnp.arange(len(order), dtype=jnp.int32)
        return jnp.zeros(len(order), jnp.int32).at[order].set(places)

    ranks = jnp.stack([rank(priority) for priority in _priorities(pool)])
    return jnp.where(pool.waits, ranks.min(0), ranks.shape[1] + 1).astype(jnp.float32)
