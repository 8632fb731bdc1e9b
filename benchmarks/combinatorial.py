"""Speed of combinatorial environments and of dynamic programming.

    NPROC=1 taskset -c 1 python -m benchmarks.combinatorial [--works steps dp] [--json FILE]

CPU-seconds of one core. `steps`: whole episodes of random instances under one policy (the first
legal action), beside jumanji's TSP and Knapsack: an episode is drawing the instance, the reset and
the steps, in both. `dp`: Held and Karp's dynamic programme over about 10^6 states beside the same
in numpy, vectorised over the sets of a size. Compilation is apart.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxlab.core import cli
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions

WORKS = ("steps", "dp")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """Environment steps per CPU-second beside jumanji, dynamic programming beside numpy."""

    works: tuple[str, ...] = WORKS
    """What to measure: steps, dp."""
    batches: tuple[int, ...] = (1, 64, 1024)
    """Environments side by side."""
    cities: int = 20
    """Of tours that are stepped through."""
    items: int = 50
    """Of knapsacks that are stepped through."""
    states: int = 17
    """Cities of the dynamic programme: 17 have 1.05e6 states."""
    work: int = 100_000
    """Environment steps of a timed run, about."""
    repeats: int = 5
    """Timed repetitions; the best is reported."""
    json: Path | None = None
    """File for the results."""

    def check(self) -> None:
        super().check()
        for name in ("cities", "items", "states"):
            self.at_least(name, 3)
        for name in ("work", "repeats"):
            self.at_least(name, 1)
        unknown = set(self.works) - set(WORKS)
        if unknown:
            raise ConfigError(f"--works {', '.join(unknown)}: choose from {', '.join(WORKS)}")


def main(options: Options) -> None:
    """Measure and print."""
    import jax

    from jaxlab.core import reporting

    measures: dict[str, Callable[[Options], list[dict[str, Any]]]] = {"steps": steps, "dp": dp}
    rows = [row for name in options.works for row in measures[name](options)]
    columns = ["work", "batch", "unit", "jaxlab", "peer", "peer_rate", "ratio", "difference"]
    title = f"Rates per CPU-second, {jax.devices()[0].device_kind}"
    reporting.print_table(columns, [[row[c] for c in columns] for row in rows], title=title)
    if options.json is not None:
        document = {"rows": rows, "provenance": reporting.provenance()}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def _best(runs: dict[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """CPU-seconds of the quickest of some runs of each, taken in turn."""
    best = dict.fromkeys(runs, np.inf)
    for _ in range(repeats):
        for name, run in runs.items():
            clock = time.process_time()
            run()
            best[name] = min(best[name], time.process_time() - clock)
    return best


def steps(options: Options) -> list[dict[str, Any]]:
    """Episodes of tours and knapsacks, ours and jumanji's."""
    from jumanji.environments import TSP as TheirTSP
    from jumanji.environments import Knapsack as TheirKnapsack
    from jumanji.environments.packing.knapsack.generator import RandomGenerator
    from jumanji.environments.routing.tsp.generator import UniformGenerator

    from jaxlab.envs.combinatorial.knapsack import Knapsack
    from jaxlab.envs.combinatorial.tours import TSP

    n, items = options.cities, options.items
    pairs = {
        f"tsp {n}": (TSP(n), TheirTSP(UniformGenerator(n)), n - 1, n),
        f"knapsack {items}": (
            Knapsack(items),
            TheirKnapsack(RandomGenerator(items, total_budget=12.5)),
            items // 2,
            items // 2,
        ),
    }
    rows = []
    for work, (ours, theirs, own_length, their_length) in pairs.items():
        for batch in options.batches:
            episodes = max(1, options.work // (batch * own_length))
            runs = {
                "ours": _compiled(_our_episode(ours, own_length), batch, episodes),
                "theirs": _compiled(_their_episode(theirs, their_length), batch, episodes),
            }
            seconds = _best(runs, options.repeats)
            own = batch * episodes * own_length / seconds["ours"]
            other = batch * episodes * their_length / seconds["theirs"]
            rows.append(_row(work, batch, "steps", own, "jumanji", other))
    return rows


def _row(
    work: str, batch: int, unit: str, own: float, peer: str, other: float, difference: Any = "-"
) -> dict[str, Any]:
    return {
        "work": work,
        "batch": batch,
        "unit": unit,
        "jaxlab": own,
        "peer": peer,
        "peer_rate": other,
        "ratio": own / other,
        "difference": difference,
    }


def _our_episode(env: Any, length: int) -> Callable[[Any], Any]:
    """From a key to what an episode leaves, so that nothing of it is optimised away."""
    import jax
    import jax.numpy as jnp

    def episode(key: Any) -> Any:
        params = env.sample_params(key)

        def step(carry: Any, _: None) -> tuple[Any, Any]:
            state, obs = carry
            action = jnp.argmax(obs["action_mask"]).astype(jnp.int32)
            state, timestep = env.step(key, state, action, params)
            return (state, timestep.obs), timestep.reward

        state, timestep = env.reset(key, params)
        (_, obs), rewards = jax.lax.scan(step, (state, timestep.obs), None, length)
        return rewards.sum(), obs

    return episode


def _their_episode(env: Any, length: int) -> Callable[[Any], Any]:
    import jax
    import jax.numpy as jnp

    def episode(key: Any) -> Any:
        def step(carry: Any, _: None) -> tuple[Any, Any]:
            state, obs = carry
            action = jnp.argmax(obs.action_mask).astype(jnp.int32)
            state, timestep = env.step(state, action)
            return (state, timestep.observation), timestep.reward

        state, timestep = env.reset(key)
        (_, obs), rewards = jax.lax.scan(step, (state, timestep.observation), None, length)
        return rewards.sum(), obs

    return episode


def _compiled(episode: Callable[[Any], Any], batch: int, episodes: int) -> Callable[[], Any]:
    """A function that runs so many episodes, a batch at a time."""
    import jax

    def run(key: Any) -> Any:
        def one(carry: Any, number: Any) -> tuple[Any, Any]:
            keys = jax.random.split(jax.random.fold_in(key, number), batch)
            rewards, obs = jax.vmap(episode)(keys)
            return obs, rewards.sum()

        first = jax.vmap(episode)(jax.random.split(key, batch))[1]
        return jax.lax.scan(one, first, np.arange(episodes))

    key = jax.random.key(0)
    program = jax.jit(run).lower(key).compile()
    return lambda: jax.block_until_ready(program(key))


def dp(options: Options) -> list[dict[str, Any]]:
    """Held and Karp's dynamic programme, ours and numpy's, in the same precision."""
    import jax
    import jax.numpy as jnp

    from jaxlab.envs.combinatorial import held_karp

    n = options.states
    points = np.random.default_rng(0).uniform(size=(n, 2)).astype(np.float32)
    distances = np.sqrt(np.square(points[:, None] - points).sum(-1))
    successors = tuple(map(jnp.asarray, held_karp._successors(n)))
    program = held_karp.sweep_tours.lower(jnp.asarray(distances), successors).compile()
    sets = _sets(n)
    runs = {
        "ours": lambda: jax.block_until_ready(program(jnp.asarray(distances), successors)),
        "theirs": lambda: _numpy_held_karp(distances, sets),
    }
    seconds = _best(runs, options.repeats)
    states = 2 ** (n - 1) * (n - 1)
    gap = abs(float(runs["ours"]()[0]) - float(_numpy_held_karp(distances, sets)))
    own, other = states / seconds["ours"], states / seconds["theirs"]
    return [_row(f"dynamic programme {n}", 1, "states", own, "numpy", other, gap)]


def _sets(n: int) -> list[np.ndarray]:
    """Sets of the cities 1 .. n - 1 by their size, as bits."""
    every = np.arange(2 ** (n - 1))
    sizes = np.bitwise_count(every)
    return [every[sizes == k] for k in range(n)]


def _numpy_held_karp(distances: np.ndarray, sets: list[np.ndarray]) -> Any:
    """Lengths of paths from city 0 through each set to each of its cities, all sets of a size at
    once."""
    m = len(distances) - 1
    inner = distances[1:, 1:]
    best = np.full((m, 2**m), np.inf, distances.dtype)
    for city in range(m):
        best[city, 1 << city] = distances[0, city + 1]
    for members in sets[2:]:
        for city in range(m):
            inside = members[(members >> city & 1) == 1]
            before = best[:, inside ^ (1 << city)]
            best[city, inside] = (before + inner[:, city, None]).min(0)
    return (best[:, -1] + distances[1:, 0]).min()


if __name__ == "__main__":
    cli.main("benchmarks.combinatorial", Options, main)
