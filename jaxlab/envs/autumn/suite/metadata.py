"""What a program of the suite does, found out by running it.

All findings come from `explore`, which takes batches of random actions through the compiled
program. A yes is a certain finding; a no says that the search met no case.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib.resources
import json
from collections import defaultdict
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import ConfigError
from jaxlab.envs.autumn.compiler import CompiledProgram, ProgramState
from jaxlab.envs.autumn.stepping import ACTIONS
from jaxlab.envs.autumn.suite.catalogue import load

#: Worlds that run side by side, and steps that they take in one call.
LANES, STEPS = 256, 8
#: Calls from the start, of random actions.
CALLS = 10
#: Calls that look for hidden state; of a random program one pair a call, and three times as many.
SEARCHES = 8
#: Standard errors by which two shares of runs, those with a colour at a place, must differ
#: before they count as different odds: some 10^5 are compared for each program.
MARGIN = 5.5


@dataclasses.dataclass(frozen=True)
class Metadata:
    """What is known of a program from running it.

    Attributes:
      grid_size: Rows, and columns.
      colours: Names of those that were seen, in alphabetical order.
      drifts: Whether the picture changes without input.
      random: Whether two seeds show different pictures after the same actions.
      hidden: Whether two states with one picture were found that the same actions lead to
        different pictures (for random programs, to different odds of them).
      occludes: Whether something is painted over with another colour.
      actions: Kinds of action that make a difference to a noop.
    """

    grid_size: int
    colours: tuple[str, ...]
    drifts: bool
    random: bool
    hidden: bool
    occludes: bool
    actions: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Exploration:
    """Metadata, pictures from the start of a run on, `[steps, size, size]`, and their palette."""

    metadata: Metadata
    frames: np.ndarray
    palette: tuple[str, ...]
    errors: tuple[str, ...]


def stored() -> dict[str, Metadata]:
    """The metadata of all programs, as they were last computed."""
    file = importlib.resources.files(__package__) / "metadata.json"
    return {name: decoded(row) for name, row in json.loads(file.read_text("utf-8")).items()}


def decoded(row: dict[str, Any]) -> Metadata:
    """Metadata from JSON."""
    lists = {name: tuple(row[name]) for name in ("colours", "actions")}
    return Metadata(**{**row, **lists})


def metadata(name: str) -> Metadata:
    """The stored metadata of a program.

    Raises:
      ConfigError: there is no such program.
    """
    try:
        return _stored()[name]
    except KeyError:
        raise ConfigError(
            f"program '{name}' has no metadata; expected one of {', '.join(_stored())}"
        ) from None


_stored = functools.cache(stored)


def explore(name: str) -> Exploration:
    """Run a program and find out what it does.

    Raises:
      ConfigError: there is no such program.
    """
    (compiled,) = load(name).compiled
    return _Explorer(compiled).exploration()


@dataclasses.dataclass
class _Explorer:
    compiled: CompiledProgram

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(0)
        self.init = jax.jit(jax.vmap(lambda seed: self.compiled.init(jax.random.key(seed))))
        self.go = jax.jit(self._go)
        self.errors: set[int] = set()

    def _go(self, states: ProgramState, seeds: jax.Array, rows: jax.Array) -> Any:
        """`STEPS` steps: all states, `[STEPS, LANES, ...]`, and whether something is covered."""

        def one(state: ProgramState, seed: jax.Array, row: jax.Array) -> Any:
            after = self.compiled.step(jax.random.key(seed), state, row)
            cells, size = self.compiled.cells(after), self.compiled.grid_size
            on_grid = (cells.x >= 0) & (cells.x < size) & (cells.y >= 0) & (cells.y < size)
            shown = after.frame[jnp.clip(cells.y, 0, size - 1), jnp.clip(cells.x, 0, size - 1)]
            return after, (cells.exists & on_grid & (shown != cells.colour)).any()

        def each(states: ProgramState, row: Any) -> Any:
            after, covered = jax.vmap(one)(states, *row)
            return after, (after, covered.any())

        return jax.lax.scan(each, states, (seeds, rows))[1]

    def run(self, states: Any, seeds: np.ndarray, rows: np.ndarray) -> tuple[Any, bool]:
        """Run on the host's arrays: seeds `[STEPS, LANES]`, actions `[STEPS, LANES, 3]`."""
        after, covered = jax.tree.map(np.asarray, self.go(states, seeds, rows))
        self.errors |= set(np.unique(after.error).tolist()) - {0}
        return after, bool(covered.any())

    def exploration(self) -> Exploration:
        half = LANES // 2
        # Lanes of the second half take the actions of the first from other seeds.
        seeds = np.arange(1, LANES + 1, dtype=np.uint32)
        start = self.init(seeds)
        first = jax.tree.map(lambda leaf: np.asarray(leaf)[None], start)
        parts, covered, states = [first], False, start
        for call in range(CALLS):
            rows = self.actions(parts[-1].frame[-1])
            rows[:, half:] = rows[:, :half]
            rows[:, [0, half]] = 0
            numbers = (call * STEPS + np.arange(STEPS, dtype=np.uint32)) * np.uint32(LANES)
            after, over = self.run(states, numbers[:, None] + seeds, rows)
            covered |= over
            parts.append(after)
            states = jax.tree.map(lambda leaf: leaf[-1], after)
        visited = jax.tree.map(lambda *leaves: np.concatenate(leaves), *parts)
        frames = visited.frame
        is_random = bool((frames[:, :half] != frames[:, half:]).any())
        shown = [self.compiled.palette[colour] for colour in np.unique(frames)]
        found = Metadata(
            grid_size=self.compiled.grid_size,
            colours=tuple(sorted(shown)),
            drifts=bool((frames[1:, [0, half]] != frames[:1, [0, half]]).any()),
            random=is_random,
            hidden=self.hides(visited, is_random),
            occludes=covered,
            actions=self.effective(visited),
        )
        errors = tuple(self.compiled.messages[code] for code in sorted(self.errors))
        return Exploration(found, frames[:, 1], self.compiled.palette, errors)

    def actions(self, frames: np.ndarray) -> np.ndarray:
        """Random actions `[STEPS, LANES, 3]`: half clicks, most of them on what is seen.

        In every third lane one arrow is held, which takes what it moves further.
        """
        size = self.compiled.grid_size
        shape = (STEPS, LANES)
        kinds = self.rng.integers(0, 2 * len(ACTIONS) - 2, shape)
        rows = np.minimum(kinds, ACTIONS.index("click"))[..., None]
        rows = np.concatenate([rows, self.rng.integers(0, size, (*shape, 2))], axis=-1)
        for lane, frame in enumerate(frames):
            flat = frame.reshape(-1)
            y, x = np.nonzero(frame != np.bincount(flat).argmax())
            if len(x):
                aimed = self.rng.random(STEPS) < 0.7
                which = self.rng.integers(0, len(x), STEPS)
                rows[aimed, lane, 1] = x[which[aimed]]
                rows[aimed, lane, 2] = y[which[aimed]]
        rows[:, ::3, 0] = self.rng.integers(1, ACTIONS.index("click"), rows[0, ::3, 0].shape)
        rows[rows[..., 0] != ACTIONS.index("click"), 1:] = 0
        return rows.astype(np.int32)

    def _pick(self, visited: Any, lanes: np.ndarray) -> Any:
        """States by their number among all that were visited."""
        return jax.tree.map(lambda leaf: leaf.reshape(-1, *leaf.shape[2:])[lanes], visited)

    def hides(self, visited: Any, is_random: bool) -> bool:
        """Whether two states with one picture have different futures."""
        pairs = self.twins(visited)
        half = LANES // 2
        searches = SEARCHES * (3 if is_random else 1)
        for _ in range(searches if len(pairs) else 0):
            each = pairs[self.rng.integers(0, len(pairs), half)]
            if is_random:
                each[:] = each[0]
            states = self._pick(visited, np.concatenate([each[:, 0], each[:, 1]]))
            rows = self.actions(states.frame)
            if is_random:
                # Not the first lane, in which an arrow is held.
                rows[:] = rows[:, 1:2]
            rows[:, half:] = rows[:, :half]
            # Each run has draws of its own: one particle for another is no hidden state.
            seeds = self.rng.integers(0, 2**32, (STEPS, LANES), np.uint32)
            frames = self.run(states, seeds, rows)[0].frame
            left, right = frames[:, :half], frames[:, half:]
            if not is_random and (left != right).any():
                return True
            if is_random and any(
                _odds_differ((left == c).mean(1), (right == c).mean(1), half)
                for c in np.unique(frames)
            ):
                return True
        return False

    def twins(self, visited: Any) -> np.ndarray:
        """Pairs of different states with one picture, `[pairs, 2]`."""
        leaves = jax.tree.leaves((visited.values, visited.present))
        count = visited.frame.shape[0] * visited.frame.shape[1]
        groups: dict[bytes, dict[bytes, int]] = defaultdict(dict)
        flat = [leaf.reshape(count, -1) for leaf in leaves]
        for number, frame in enumerate(visited.frame.reshape(count, -1)):
            whole = b"".join(leaf[number].tobytes() for leaf in flat)
            groups[frame.tobytes()].setdefault(whole, number)
        pairs = []
        for group in groups.values():
            numbers = np.array(list(group.values()))
            if len(numbers) > 1:
                others = np.roll(numbers, int(self.rng.integers(1, len(numbers))))
                pairs.append(np.stack([numbers, others], axis=-1))
        return np.concatenate(pairs) if pairs else np.zeros((0, 2), int)

    def effective(self, visited: Any) -> tuple[str, ...]:
        """Kinds of action after which the same further actions show something else."""
        half = LANES // 2
        count = visited.frame.shape[0] * visited.frame.shape[1]
        kinds = np.arange(half) % (len(ACTIONS) - 1) + 1
        found: set[int] = set()
        for _ in range(4):
            lanes = self.rng.integers(0, count, half)
            states = self._pick(visited, np.concatenate([lanes, lanes]))
            rows = self.actions(states.frame)
            spots = rows[0].copy()
            clicks = self.actions(states.frame)[:, :half]
            for lane in np.flatnonzero(kinds == ACTIONS.index("click")):
                hits = clicks[clicks[:, lane, 0] == ACTIONS.index("click"), lane]
                if len(hits):
                    spots[lane] = hits[0]
            rows[:, half:] = rows[:, :half]
            rows[0, half:] = 0
            rows[0, :half] = 0
            rows[0, :half, 0] = kinds
            is_click = kinds == ACTIONS.index("click")
            rows[0, :half, 1:] = np.where(is_click[:, None], spots[:half, 1:], 0)
            seeds = self.rng.integers(0, 2**32, (STEPS, half), np.uint32)
            frames = self.run(states, np.concatenate([seeds, seeds], 1), rows)[0].frame
            differ = (frames[:, :half] != frames[:, half:]).any(axis=(0, 2, 3))
            found |= set(kinds[differ].tolist())
        return tuple(ACTIONS[kind] for kind in sorted(found))


def _odds_differ(left: np.ndarray, right: np.ndarray, runs: int) -> bool:
    """Whether any two shares of so many runs each differ by more than chance allows."""
    pooled = (left + right) / 2
    error = np.sqrt(2 * pooled * (1 - pooled) / runs)
    return bool((np.abs(left - right) > MARGIN * error)[error > 0].any())
