"""Many runs of one world side by side, under given actions or drawn ones.

Lane by lane a run is that of `RunningWorld` from the same seed and actions.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Bool, Int

from jaxlab.core.environment import select
from jaxlab.envs.autumn.checker import RANDOM, expressions_of
from jaxlab.envs.autumn.compiler import CompiledProgram, ProgramState
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.syntax import Variable, names_in, parse, walk
from jaxlab.envs.autumn.tasks.formats import World, table_frames
from jaxlab.envs.autumn.tasks.running import held, start_key, step_key

#: Steps that one compiled call takes.
CHUNK = 16
LANES = 64


@struct.dataclass
class Policy:
    """How actions are drawn.

    Attributes:
      weights: Of the kinds of actions, float `[6]`; all 0 to take the actions that are given.
      aim: Probability that a click goes to a cell that is not of the background.
    """

    weights: jax.Array
    aim: jax.Array


def uniform() -> Policy:
    """Each kind as often, clicks anywhere: the agent that acts at random."""
    return Policy(jnp.ones(len(ACTIONS), jnp.float32), jnp.zeros((), jnp.float32))


def curious(source: str) -> Policy:
    """Of kinds that the program reads, with some noop between, and clicks mostly on objects."""
    names = names_of(source)
    clicks = {"clicked", "click", "objClicked"}
    weights = [2.0, *(1.0 if kind in names else 0.0 for kind in ACTIONS[1:-1])]
    weights.append(3.0 if names & clicks else 0.0)
    return Policy(jnp.array(weights, jnp.float32), jnp.float32(0.6))


def idle() -> Policy:
    """Nothing but noop."""
    return Policy(jnp.eye(len(ACTIONS), dtype=jnp.float32)[0], jnp.zeros((), jnp.float32))


def given() -> Policy:
    """The actions that are given."""
    return Policy(jnp.zeros(len(ACTIONS), jnp.float32), jnp.zeros((), jnp.float32))


@functools.lru_cache(maxsize=256)
def names_of(source: str) -> frozenset[str]:
    """Names that a program mentions."""
    found: set[str] = set()
    for expression in expressions_of(parse(source)):
        for part in walk(expression):
            found |= names_in(part)
            if isinstance(part, Variable):
                found.add(part.name)
    return frozenset(found)


def draws(source: str) -> bool:
    """Whether a program draws random numbers, as far as its text tells."""
    return any(name in names_of(source) for name in RANDOM)


@struct.dataclass
class Lanes:
    """Where the runs stand; all leaves have a leading axis of lanes.

    Attributes:
      state: Of the world.
      held: With a clock: of the world whose clock is held; else the same as `state`.
      before: With a clock: `held` as the first frame that differs began.
      differed: Whether the two have shown different frames.
    """

    state: ProgramState
    held: ProgramState
    before: ProgramState
    differed: jax.Array


@dataclasses.dataclass(frozen=True, eq=False)
class Run:
    """What happened, on the host.

    Attributes:
      actions: `[lanes, steps, 3]`.
      frames: After each action, `[lanes, steps, size, size]`, indices of the table.
      differs: With a clock, whether the frame is not that of the held world.
      failed: Whether the program failed in a lane.
      lanes: To go on from.
    """

    actions: Int[np.ndarray, "lanes steps 3"]
    frames: Int[np.ndarray, "lanes steps size size"]
    differs: Bool[np.ndarray, "lanes steps"]
    failed: Bool[np.ndarray, " lanes"]
    lanes: Lanes


class Rollouts:
    """Runs of a world, `lanes` at a time, by two compiled functions.

    Raises:
      ProgramError: the program cannot be compiled.
      DataError: it has no such clock.
    """

    def __init__(self, world: World, *, clock: str = "", lanes: int = LANES):
        self.world, self.clock, self.count = world, clock, lanes
        self.compiled = world.compiled()
        self._init, self._chunk = _functions(self.compiled, clock)

    def begin(self, seeds: Any) -> Lanes:
        """The start from seeds `[lanes]`, uint32."""
        return self._init(np.asarray(seeds, np.uint32))

    def first_frames(self, lanes: Lanes) -> Int[np.ndarray, "lanes size size"]:
        """What is seen before the first action."""
        return table_frames(self.compiled, lanes.state.frame)

    def run(
        self,
        lanes: Lanes,
        seeds: Any,
        steps: int,
        policy: Policy,
        *,
        start: int = 0,
        choices: Any = None,
        actions: Any = None,
    ) -> Run:
        """Take steps from number `start + 1` on.

        Args:
          lanes: Where to begin.
          seeds: Of the worlds, `[lanes]`.
          steps: How many.
          policy: Draws the actions.
          start: Steps taken before.
          choices: Seeds of what the policy draws, `[lanes]`; those of the worlds by default.
          actions: With `given()`, `[lanes, steps, 3]` or `[steps, 3]`.
        """
        seeds = np.asarray(seeds, np.uint32)
        choices = seeds if choices is None else np.asarray(choices, np.uint32)
        padded = -(-steps // CHUNK) * CHUNK
        rows = np.zeros((len(seeds), padded, 3), np.int32)
        if actions is not None:
            rows[:, :steps] = actions
        parts = []
        for first in range(0, padded, CHUNK):
            part = rows[:, first : first + CHUNK]
            left = np.int32(min(steps - first, CHUNK))
            lanes, out = self._chunk(
                lanes, seeds, choices, np.uint32(start + first), left, part, policy
            )
            parts.append(jax.tree.map(np.asarray, out))
        taken, frames, differs = (
            np.concatenate([part[n] for part in parts], axis=1)[:, :steps] for n in range(3)
        )
        return Run(
            actions=taken,
            frames=table_frames(self.compiled, frames),
            differs=differs,
            failed=np.asarray(lanes.state.error) > 0,
            lanes=lanes,
        )


def spread(lanes: Lanes, index: int, count: int) -> Lanes:
    """One lane as `count` equal ones."""
    return jax.tree.map(lambda leaf: jnp.broadcast_to(leaf[index], (count, *leaf.shape[1:])), lanes)


@functools.lru_cache(maxsize=4)
def _functions(compiled: CompiledProgram, clock: str) -> tuple[Any, Any]:
    def begin(seed: jax.Array) -> Lanes:
        state = jax.tree.map(jnp.asarray, compiled.init(start_key(compiled, seed)))
        other = held(compiled, state, clock) if clock else None
        return Lanes(state, other, other, jnp.zeros((), bool))  # type: ignore[arg-type]

    def act(key: jax.Array, frame: jax.Array, policy: Policy, row: jax.Array) -> jax.Array:
        kinds, whether, where, anywhere = jax.random.split(key, 4)
        kind = jax.random.categorical(kinds, jnp.log(jnp.maximum(policy.weights, 1e-30)))
        objects = (frame != frame_background).reshape(-1)
        aimed = jax.random.categorical(where, jnp.where(objects, 0.0, -1e9))
        at_random = jax.random.randint(anywhere, (), 0, frame.size)
        place = jnp.where(jax.random.uniform(whether) < policy.aim, aimed, at_random)
        size = frame.shape[0]
        drawn = jnp.stack([kind, place % size, place // size]).astype(jnp.int32)
        drawn = jnp.where(kind == ACTIONS.index("click"), drawn, drawn.at[1:].set(0))
        return jnp.where(policy.weights.sum() > 0, drawn, row)

    frame_background = compiled.palette.index(compiled.background)

    def lane(
        lanes: Lanes,
        seed: jax.Array,
        choice: jax.Array,
        start: jax.Array,
        left: jax.Array,
        rows: jax.Array,
        policy: Policy,
    ) -> Any:
        def one(now: Lanes, numbered: tuple[jax.Array, jax.Array]) -> Any:
            index, row = numbered
            number = start + index.astype(jnp.uint32) + jnp.uint32(1)
            key = step_key(seed, number)
            chooser = jax.random.fold_in(step_key(choice, number), 1)
            action = act(chooser, now.state.frame, policy, row)
            if clock:
                # Side by side, so that the program is compiled once.
                both = jax.tree.map(lambda a, b: jnp.stack([a, b]), now.state, now.held)
                both = jax.vmap(lambda one: compiled.step(key, one, action))(both)
                state, other = (jax.tree.map(lambda leaf: leaf[n], both) for n in (0, 1))  # noqa: B023
                differs = (state.frame != other.frame).any()
                before = select(now.differed, now.before, now.held)
                after = Lanes(state, other, before, now.differed | differs)
            else:
                state, differs = compiled.step(key, now.state, action), jnp.zeros((), bool)
                after = now.replace(state=state)  # type: ignore[attr-defined]
            after = select(index < left, after, now)
            return after, (action, after.state.frame.astype(jnp.int16), differs)

        return jax.lax.scan(one, lanes, (jnp.arange(CHUNK), rows))

    chunk = jax.vmap(lane, in_axes=(0, 0, 0, None, None, 0, None))
    return jax.jit(jax.vmap(begin)), jax.jit(chunk)
