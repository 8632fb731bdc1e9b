"""Speed of the primal-dual actor-critic beside a plain numpy loop, and of exact answers.

    NPROC=1 taskset -c 1 python -m benchmarks.cmdp [--works actor_critic program] [--json FILE]

CPU-seconds of one core. `actor_critic` counts transitions per CPU-second of the algorithm with
multilevel Monte Carlo on the problem P1, for several numbers of seeds in one program, beside
the same algorithm written as a loop in numpy, one seed after another. `program` is the linear
program of a thousand states and ten actions, with ten successors and with a thousand.
Compilation is apart.
"""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from jaxlab.core import cli
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions

WORKS = ("actor_critic", "program")
#: Inner updates of both phases, largest factor of a level, inner and outer step sizes.
INNER, T_MAX, GAMMA, ALPHA, BETA = 50, 1024, 0.02, 0.3, 0.03
SLATER_MARGIN = 0.20745565797527377


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """Transitions per CPU-second of the actor-critic, CPU-seconds of exact answers."""

    works: tuple[str, ...] = WORKS
    """What to measure: actor_critic, program."""
    seeds: tuple[int, ...] = (1, 16, 256)
    """Seeds of the actor-critic in one program."""
    steps: int = 5000
    """Transitions of each seed."""
    states: int = 1000
    """States of the linear program."""
    actions: int = 10
    """Its actions."""
    repeats: int = 3
    """Timed repetitions of the actor-critic; the best is reported."""
    json: Path | None = None
    """File for the results."""
    x64: bool = True
    """Compute with 64-bit floats, which exact answers need and numpy uses."""

    def check(self) -> None:
        super().check()
        for name in ("steps", "states", "actions", "repeats"):
            self.at_least(name, 1)
        unknown = set(self.works) - set(WORKS)
        if unknown:
            raise ConfigError(f"--works {', '.join(unknown)}: choose from {', '.join(WORKS)}")
        if not self.seeds or min(self.seeds) < 1:
            raise ConfigError(f"--seeds {self.seeds}: expected numbers of at least 1")


def main(options: Options) -> None:
    """Measure and print."""
    import jax

    from jaxlab.core import reporting

    found: dict[str, Any] = {"provenance": reporting.provenance()}
    device = jax.devices()[0].device_kind
    if "actor_critic" in options.works:
        rows = found["actor_critic"] = actor_critic(options)
        columns = ["seeds", "transitions_per_s", "numpy_per_s", "times_faster"]
        columns += ["reward", "numpy_reward", "compile_s"]
        reporting.print_table(
            columns, [[row[c] for c in columns] for row in rows], title=f"per CPU-second, {device}"
        )
        print("reward: averages over all transitions, which differ by chance alone")
    if "program" in options.works:
        rows = found["program"] = program(options)
        columns = ["successors", "cpu_s", "optimum", "residual"]
        title = f"{options.states} states, {options.actions} actions: exact answer with multipliers"
        reporting.print_table(columns, [[row[c] for c in columns] for row in rows], title=title)
        print("residual: of balance, bound and complementary slackness")
    if options.json is not None:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


def actor_critic(options: Options) -> list[dict[str, Any]]:
    """Our rates by number of seeds, beside numpy's."""
    clock = time.process_time()
    numpy_reward = np.mean([NumpyLoop(seed).run(options.steps) for seed in range(2)])
    numpy_rate = 2 * options.steps / (time.process_time() - clock)
    rows = []
    for seeds in options.seeds:
        best, reward, compile_s = _compiled(seeds, options)
        rate = seeds * options.steps / best
        rows.append(
            {
                "seeds": seeds,
                "transitions_per_s": rate,
                "numpy_per_s": numpy_rate,
                "times_faster": rate / numpy_rate,
                "reward": reward,
                "numpy_reward": float(numpy_reward),
                "compile_s": compile_s,
            }
        )
    return rows


def _compiled(seeds: int, options: Options) -> tuple[float, float, float]:
    """CPU-seconds of the quickest run, its average reward, CPU-seconds of compilation."""
    import jax
    import jax.numpy as jnp

    from jaxlab.agents import pdnac
    from jaxlab.envs.cmdp.environment import params_of, simulator, slack
    from jaxlab.envs.cmdp.problems import hashed

    problem = hashed()
    learner = pdnac.make(
        simulator(problem),
        pdnac.tabular(problem.states, problem.actions),
        pdnac.tabular_critic(problem.states),
        slack,
        pdnac.PDNACConfig("mlmc", critic_steps=INNER, npg_steps=INNER, t_max=T_MAX),
        pdnac.Hyper(ALPHA, BETA, GAMMA, GAMMA, slater_margin=SLATER_MARGIN),
        params=params_of(problem),
    )
    step = jax.vmap(learner.step, (0, None))

    def run(states: Any) -> tuple[Any, jax.Array]:
        def move(carry: Any, t: jax.Array) -> tuple[Any, None]:
            state, total = carry
            state, metrics = step(state, t)
            return (state, total + metrics["reward"].value), None

        steps = jnp.arange(options.steps, dtype=jnp.int32)
        carry, _ = jax.lax.scan(move, (states, jnp.zeros(seeds)), steps)
        return carry

    keys = jax.random.split(jax.random.key(0), seeds)
    states = jax.jit(jax.vmap(learner.init, (0, None)))(keys, None)
    clock = time.process_time()
    compiled = jax.jit(run).lower(states).compile()
    compile_s = time.process_time() - clock
    _, total = jax.block_until_ready(compiled(states))
    best = np.inf
    for _ in range(options.repeats):
        clock = time.process_time()
        jax.block_until_ready(compiled(states))
        best = min(best, time.process_time() - clock)
    return best, float(jnp.mean(total)) / options.steps, compile_s


class NumpyLoop:
    """The same algorithm as a plain loop over transitions, for one seed."""

    def __init__(self, seed: int):
        from jaxlab.envs.cmdp.problems import hashed

        problem = hashed()
        self.rng = np.random.default_rng(seed)
        self.states, self.actions = problem.states, problem.actions
        self.cumulative = np.cumsum(problem.transitions, -1)
        self.signals = np.concatenate([problem.reward[None], problem.slacks])
        self.theta = np.zeros((self.states, self.actions))
        self.multiplier = np.zeros(1)
        self.occupancy = np.zeros((self.states, self.actions))
        self.gains = np.zeros(2)
        self.critic = np.zeros((2, self.states))
        self.direction = np.zeros((2, self.states, self.actions))
        self.state = int(self.rng.integers(self.states))
        self.left = 0
        self.reward = 0.0

    def run(self, steps: int) -> float:
        """Average reward over so many transitions."""
        self.left = steps
        while self.left:
            for _ in range(INNER):
                self._critic_update()
            for _ in range(INNER):
                self._direction_update()
            natural = self.direction[0] + np.tensordot(self.multiplier, self.direction[1:], 1)
            self.theta += ALPHA * natural
            moved = self.multiplier - BETA * self.gains[1:]
            self.multiplier = np.clip(moved, 0.0, 2 / SLATER_MARGIN)
        return self.reward / steps

    def _update(self) -> Any:
        """Transitions of one update with their weights: fewer where the run ends."""
        level = int(self.rng.geometric(0.5))
        level = level if 2**level <= T_MAX else 0
        count = 2**level
        for n in range(min(count, self.left)):
            weight = float(n == 0) + (0 if level == 0 else (-1 if 2 * n < count else 1))
            yield (weight, *self._transition())

    def _transition(self) -> tuple[int, int, np.ndarray, np.ndarray, int]:
        state = self.state
        logits = self.theta[state]
        chances = np.exp(logits - logits.max())
        chances /= chances.sum()
        action = int(np.searchsorted(np.cumsum(chances), self.rng.random()))
        action = min(action, self.actions - 1)
        following = int(np.searchsorted(self.cumulative[state, action], self.rng.random()))
        following = min(following, self.states - 1)
        self.occupancy[state] += chances
        signals = self.signals[:, state, action]
        self.reward += signals[0]
        self.left -= 1
        self.state = following
        return state, action, chances, signals, following

    def _critic_update(self) -> None:
        gains, critic = np.zeros(2), np.zeros((2, self.states))
        for weight, state, _, _, signals, following in self._update():
            ahead = self.critic[:, following] - self.critic[:, state]
            gains += weight * (self.gains - signals)
            critic[:, state] -= weight * (signals - self.gains + ahead)
        self.gains = self.gains - GAMMA * gains
        self.critic = self.critic - GAMMA * critic

    def _direction_update(self) -> None:
        total = np.zeros((2, self.states, self.actions))
        for weight, state, action, chances, signals, following in self._update():
            surprise = signals - self.gains
            surprise = surprise + self.critic[:, following] - self.critic[:, state]
            score = -chances
            score[action] += 1
            along = self.direction[:, state] @ score - surprise
            total[:, state] += weight * along[:, None] * score
        self.direction = self.direction - GAMMA * total


def program(options: Options) -> list[dict[str, Any]]:
    """Exact answers of random processes, sparse and dense."""
    return [_solved(options, n) for n in (min(10, options.states), options.states)]


def _solved(options: Options, successors: int) -> dict[str, Any]:
    from jaxlab.envs.cmdp import linear_programs
    from jaxlab.envs.cmdp.model import cmdp

    rng = np.random.default_rng(0)
    states, actions = options.states, options.actions
    ranks = rng.random((states, actions, states))
    chosen = np.argpartition(ranks, successors - 1, -1)[..., :successors]
    table = np.zeros(ranks.shape)
    np.put_along_axis(table, chosen, rng.exponential(size=chosen.shape), -1)
    table /= table.sum(-1, keepdims=True)
    reward, signal = rng.random((2, states, actions))
    problem = cmdp(table, reward, [signal], [">="], [0.6])
    clock = time.process_time()
    flows = linear_programs.flow_matrix(problem)
    found = linear_programs.maximise(problem, np.asarray(problem.reward), flows)
    spent = time.process_time() - clock
    assert found is not None
    flat = found.measure.reshape(-1)
    balance = flows @ flat
    balance[-1] -= 1.0
    slack = float(np.tensordot(problem.slacks[0], found.measure, 2))
    residual = max(np.abs(balance).max(), -slack, abs(slack * found.multipliers[0]))
    return {
        "successors": successors,
        "cpu_s": spent,
        "optimum": found.value,
        "residual": float(residual),
    }


if __name__ == "__main__":
    cli.main("benchmarks.cmdp", Options, main)
