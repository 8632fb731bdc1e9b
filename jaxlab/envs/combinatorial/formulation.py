"""Is a decision process equivalent to its problem? The assumptions of Karp and Held, tested.

After Karp and Held (1967), as Davidovich et al. (2025, arXiv:2512.08601) use them:

1. every string ends within the horizon (or all costs of a cyclic process are positive);
2. the mask admits exactly the prefixes of feasible strings;
3. prefixes that lead to one state have the same completions;
4. their costs differ by the same whatever the completion, and increments add up to the cost;
5. costs are finite, and the penalty exceeds what costs differ by.

What is feasible and what it costs is asked of `string_cost`, which knows no states.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import CapacityError
from jaxlab.envs.combinatorial.dynamic_programming import packed_states
from jaxlab.envs.combinatorial.protocol import DecisionProcess

ASSUMPTIONS = (
    "termination",
    "no dead ends",
    "right congruence",
    "cost consistency",
    "bounded costs",
)
#: Strings over the whole alphabet that are asked about.
MOST_STRINGS = 200_000

Word = tuple[int, ...]


class Check(NamedTuple):
    """One assumption.

    Attributes:
      assumption: Its name.
      counter_example: What breaks it, in words; empty where nothing was found.
    """

    assumption: str
    counter_example: str

    @property
    def holds(self) -> bool:
        return not self.counter_example


class Report(NamedTuple):
    """What was found.

    Attributes:
      name: Name of the environment.
      checks: All assumptions in order.
      enumerated: Whether all strings were looked at, or random ones.
      strings: How many feasible strings.
    """

    name: str
    checks: tuple[Check, ...]
    enumerated: bool
    strings: int

    @property
    def equivalent(self) -> bool:
        """Whether every assumption held."""
        return all(check.holds for check in self.checks)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            return next(check for check in self.checks if check.assumption == key)
        return tuple(self)[key]

    def __str__(self) -> str:
        how = "all" if self.enumerated else "random"
        lines = [f"{self.name}: {self.strings} feasible strings, {how} looked at"]
        for number, check in enumerate(self.checks, 1):
            verdict = "holds" if check.holds else f"FAILS: {check.counter_example}"
            lines.append(f"  {number}. {check.assumption}: {verdict}")
        return "\n".join(lines)


class _Prefix(NamedTuple):
    """A string that the process admits: its state, what was paid, whether it is complete."""

    word: Word
    state: Any
    paid: float
    complete: bool


class _Process:
    """The process run from outside, a compiled step at a time."""

    def __init__(self, env: DecisionProcess, params: Any):
        self.env, self.params = env, params

        def look(state: Any) -> tuple[Any, ...]:
            actions = jnp.arange(env.num_actions, dtype=jnp.int32)
            moved, costs = jax.vmap(lambda a: env.move(params, state, a))(actions)
            final = env.final_cost(params, state)
            return env.done(params, state), env.legal(params, state), moved, costs, final

        self._look = jax.jit(look)
        self._seen: dict[Any, tuple[Any, ...]] = {}

    def key(self, state: Any) -> bytes:
        """A state, comparable."""
        return packed_states(jax.tree.map(lambda leaf: np.asarray(leaf)[None], state)).tobytes()

    def look(self, state: Any) -> tuple[Any, ...]:
        """Whether complete, the mask, next states, costs and the terminal cost."""
        key = self.key(state)
        if key not in self._seen:
            self._seen[key] = jax.tree.map(np.asarray, self._look(state))
        return self._seen[key]

    def start(self) -> _Prefix:
        state = jax.tree.map(np.asarray, self.env.initial(self.params))
        return self._prefix((), state, 0.0)

    def _prefix(self, word: Word, state: Any, paid: float) -> _Prefix:
        done, _, _, _, final = self.look(state)
        return _Prefix(word, state, paid + (float(final) if done else 0.0), bool(done))

    def letters(self, prefix: _Prefix) -> list[int]:
        """Legal letters; none where the string is complete."""
        done, mask, *_ = self.look(prefix.state)
        return [] if done else np.flatnonzero(mask).tolist()

    def extend(self, prefix: _Prefix, letter: int) -> _Prefix:
        _, _, moved, costs, _ = self.look(prefix.state)
        state = jax.tree.map(lambda leaf: leaf[letter], moved)
        return self._prefix((*prefix.word, letter), state, prefix.paid + float(costs[letter]))


def check_formulation(
    env: DecisionProcess,
    params: Any = None,
    *,
    seed: int = 0,
    samples: int = 200,
    enumerate_all: bool | None = None,
    tolerance: float = 1e-5,
) -> Report:
    """Test the five assumptions on one instance.

    Args:
      env: The process.
      params: The instance; drawn by `env.sample_params` by default.
      seed: Of the instance and of random strings.
      samples: Random strings where not all are looked at.
      enumerate_all: Look at every string; by default where there are few enough.
      tolerance: Relative difference of costs that counts as none.

    Raises:
      CapacityError: All strings are asked for, and there are too many.
    """
    params = env.sample_params(jax.random.key(seed)) if params is None else params
    words = sum(env.num_actions**n for n in range(env.horizon + 1))
    if enumerate_all and words > MOST_STRINGS:
        raise CapacityError(
            f"{env.name}: {words:.1e} strings are too many to look at all of them; check a smaller "
            "size, or random strings"
        )
    process = _Process(env, params)
    everything = words <= MOST_STRINGS if enumerate_all is None else enumerate_all
    if everything:
        return _all_strings(process, tolerance)
    return _random_strings(process, np.random.default_rng(seed), samples, tolerance)


def _all_strings(process: _Process, tolerance: float) -> Report:
    env, params = process.env, process.params
    feasible: dict[Word, float] = {}
    for length in range(env.horizon + 1):
        for word in itertools.product(range(env.num_actions), repeat=length):
            cost = env.string_cost(params, word)
            if cost is not None:
                feasible[word] = cost
    completions: dict[Word, dict[Word, float]] = {}
    for word, cost in feasible.items():
        for cut in range(len(word) + 1):
            completions.setdefault(word[:cut], {})[word[cut:]] = cost
    prefixes, endless = _reachable(process)
    scale = tolerance * (1 + max(map(abs, feasible.values()), default=0.0))
    checks = (
        endless,
        _dead_ends(process, prefixes, feasible, completions),
        _congruence(process, prefixes, completions),
        _costs(process, prefixes, feasible, completions, scale),
        _bounded(process, list(feasible.values())),
    )
    named = tuple(Check(name, text) for name, text in zip(ASSUMPTIONS, checks, strict=True))
    return Report(env.name, named, True, len(feasible))


def _reachable(process: _Process) -> tuple[list[_Prefix], str]:
    """All strings that the mask admits, and one that does not end."""
    env = process.env
    layer, prefixes, endless = [process.start()], [], ""
    for depth in range(env.horizon + 1):
        prefixes += layer
        onward = [(prefix, letter) for prefix in layer for letter in process.letters(prefix)]
        if depth == env.horizon and onward and not env.cyclic:
            word = (*onward[0][0].word, onward[0][1])
            endless = f"the string {word} is legal, but the horizon is {env.horizon}"
        if depth < env.horizon:
            layer = [process.extend(prefix, letter) for prefix, letter in onward]
    if env.cyclic:
        for prefix in prefixes:
            costs = process.look(prefix.state)[3]
            cheap = [letter for letter in process.letters(prefix) if not costs[letter] > 0]
            if cheap:
                return prefixes, f"after {prefix.word} letter {cheap[0]} costs nothing: a cycle may"
    return prefixes, endless


def _dead_ends(
    process: _Process,
    prefixes: list[_Prefix],
    feasible: dict[Word, float],
    completions: dict[Word, dict[Word, float]],
) -> str:
    horizon, cyclic = process.env.horizon, process.env.cyclic
    admitted = {prefix.word for prefix in prefixes}
    for prefix in prefixes:
        if prefix.complete and prefix.word not in feasible:
            return f"the string {prefix.word} ends, but is not feasible"
        # A walk that goes round in circles is completed by longer strings than these.
        if prefix.word not in completions and not (cyclic and len(prefix.word) > 1):
            return f"the prefix {prefix.word} is legal, but no feasible string begins with it"
    for word in completions:
        if word not in admitted and len(word) <= horizon:
            return f"the prefix {word} can be completed, but is not legal"
    return ""


def _groups(process: _Process, prefixes: list[_Prefix]) -> list[list[_Prefix]]:
    """Prefixes of equal states together."""
    groups: dict[bytes, list[_Prefix]] = {}
    for prefix in prefixes:
        groups.setdefault(process.key(prefix.state), []).append(prefix)
    return [group for group in groups.values() if len(group) > 1]


def _shared(
    process: _Process, x: _Prefix, y: _Prefix, completions: dict[Word, dict[Word, float]]
) -> tuple[dict[Word, float], dict[Word, float]]:
    """Completions of two prefixes; of a cyclic process those that both have room for."""
    mine, other = completions.get(x.word, {}), completions.get(y.word, {})
    if process.env.cyclic:
        room = process.env.horizon - max(len(x.word), len(y.word))
        mine = {z: cost for z, cost in mine.items() if len(z) <= room}
        other = {z: cost for z, cost in other.items() if len(z) <= room}
    return mine, other


def _congruence(
    process: _Process, prefixes: list[_Prefix], completions: dict[Word, dict[Word, float]]
) -> str:
    for group in _groups(process, prefixes):
        for other in group[1:]:
            mine, theirs = _shared(process, group[0], other, completions)
            odd = sorted(set(mine) ^ set(theirs))
            if odd:
                only, without = (group[0], other) if odd[0] in mine else (other, group[0])
                return (
                    f"{only.word} and {without.word} lead to one state, but {odd[0]} completes "
                    "only the first"
                )
    return ""


def _costs(
    process: _Process,
    prefixes: list[_Prefix],
    feasible: dict[Word, float],
    completions: dict[Word, dict[Word, float]],
    scale: float,
) -> str:
    for group in _groups(process, prefixes):
        for other in group[1:]:
            mine, theirs = _shared(process, group[0], other, completions)
            text = _difference(group[0].word, other.word, mine, theirs, scale)
            if text:
                return text
    for prefix in prefixes:
        if prefix.complete and prefix.word in feasible:
            cost = feasible[prefix.word]
            if abs(cost - prefix.paid) > scale:
                return f"the string {prefix.word} costs {cost:g}, its increments {prefix.paid:g}"
    return ""


def _difference(
    x: Word, y: Word, mine: dict[Word, float], theirs: dict[Word, float], scale: float
) -> str:
    common = sorted(set(mine) & set(theirs))
    apart = [mine[z] - theirs[z] for z in common]
    if common and max(apart) - min(apart) > scale:
        z, w = common[int(np.argmax(apart))], common[int(np.argmin(apart))]
        return (
            f"{x} and {y} lead to one state; completed by {z} their costs differ by "
            f"{max(apart):g}, by {w} by {min(apart):g}"
        )
    return ""


def _bounded(process: _Process, costs: list[float]) -> str:
    if not costs:
        return "no string is feasible"
    if not all(map(math.isfinite, costs)):
        return "a cost is not finite"
    penalty = float(process.env.penalty(process.params))
    if penalty <= max(costs) - min(costs):
        return f"the penalty {penalty:g} is below the difference {max(costs) - min(costs):g}"
    return ""


def _random_strings(
    process: _Process, rng: np.random.Generator, samples: int, tolerance: float
) -> Report:
    """The assumptions on random strings: prefixes that meet in a state are kept, and random
    completions from there are tried on both."""
    env, params = process.env, process.params
    texts = dict.fromkeys(ASSUMPTIONS, "")
    met: dict[bytes, list[_Prefix]] = {}
    costs: list[float] = []

    def note(assumption: str, text: str) -> None:
        texts[assumption] = texts[assumption] or text

    def finish(prefix: _Prefix) -> _Prefix | None:
        most = 50 * env.horizon if env.cyclic else env.horizon
        while not prefix.complete:
            letters = process.letters(prefix)
            if not letters:
                note("no dead ends", f"after {prefix.word} no letter is legal")
                return None
            if len(prefix.word) >= most:
                note("termination", f"the string {prefix.word} has not ended at the horizon")
                return None
            met.setdefault(process.key(prefix.state), []).append(prefix)
            prefix = process.extend(prefix, int(rng.choice(letters)))
            if env.cyclic and not process.look(prefix.state)[3].min() > 0:
                note("termination", f"after {prefix.word} a letter costs nothing")
        return prefix

    for _ in range(samples):
        ended = finish(process.start())
        if ended is None:
            continue
        cost = env.string_cost(params, ended.word)
        if cost is None:
            note("no dead ends", f"the string {ended.word} ends, but is not feasible")
            continue
        costs.append(cost)
        if abs(cost - ended.paid) > tolerance * (1 + abs(cost)):
            text = f"the string {ended.word} costs {cost:g}, its increments {ended.paid:g}"
            note("cost consistency", text)
    groups = [group for group in met.values() if len({p.word for p in group}) > 1]
    for group in list(groups)[:samples]:
        x = group[0]
        y = next(prefix for prefix in group if prefix.word != x.word)
        _compare(process, x, y, finish, tolerance, note)
    note("bounded costs", _bounded(process, costs))
    checks = tuple(Check(name, texts[name]) for name in ASSUMPTIONS)
    return Report(env.name, checks, False, len(costs))


def _compare(
    process: _Process, x: _Prefix, y: _Prefix, finish: Any, tolerance: float, note: Any
) -> None:
    """Try some completions of x on y, which leads to the same state."""
    mine: dict[Word, float] = {}
    theirs: dict[Word, float] = {}
    for _ in range(4):
        ended = finish(x)
        if ended is None:
            return
        z = ended.word[len(x.word) :]
        costs = [process.env.string_cost(process.params, (*p.word, *z)) for p in (x, y)]
        if (costs[0] is None) != (costs[1] is None):
            only, other = (x, y) if costs[1] is None else (y, x)
            text = f"{only.word} and {other.word} lead to one state, but {z} completes only the "
            note("right congruence", text + "first")
        elif costs[0] is not None and costs[1] is not None:
            mine[z], theirs[z] = costs[0], costs[1]
    scale = tolerance * (1 + max(map(abs, mine.values()), default=0.0))
    note("cost consistency", _difference(x.word, y.word, mine, theirs, scale))
