"""The study as a pipeline of runs, one for each arm."""

from __future__ import annotations

import dataclasses
import functools
import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cmdp.solving import read, warnings_on_stderr
from experiments.cmdp.study_options import StudyOptions
from jaxlab.agents import pdnac
from jaxlab.agents.pdnac import Hyper, PDNACConfig
from jaxlab.core.environment import Constant
from jaxlab.core.errors import ConfigError, ScenarioError
from jaxlab.core.learner import Learner
from jaxlab.core.stages import Results, Stage, run_stages
from jaxlab.envs.cmdp import cartpole
from jaxlab.envs.cmdp.environment import Fleet, params_of, simulator, slack
from jaxlab.envs.cmdp.evaluation import evaluate, slack_gains
from jaxlab.envs.cmdp.generators import GarnetCMDP
from jaxlab.envs.cmdp.model import CMDP
from jaxlab.envs.cmdp.problems import hashed, queue, riverswim
from jaxlab.envs.cmdp.solving import Solution, solve

#: Transitions at which `--alpha` and `--beta` hold.
REFERENCE = 1_000_000
#: By estimator: configuration and inner step size.
INNER = {
    "mlmc": (PDNACConfig("mlmc", t_max=1024), 0.02),
    "mlmc_batch": (
        PDNACConfig("mlmc", critic_steps=20, npg_steps=20, batch=8, t_max=64),
        0.05,
    ),
    "mlmc_reset": (PDNACConfig("mlmc", critic_steps=200, npg_steps=200, reset=True), 0.02),
    "batch": (PDNACConfig("batch", critic_steps=20, npg_steps=20, batch=16), 0.1),
    "sample": (PDNACConfig("sample", critic_steps=300, npg_steps=300), 0.01),
}
REMEDIES = ("optimistic", "regularised", "pid")
#: Chunks of a run: points of its curves.
CHUNKS = 50
#: Copies of the process in a fleet: 5^6 = 15625 states of P1.
COPIES = 6
#: Random instances, one for each seed.
GARNET = GarnetCMDP(states=10, actions=3, branching=3, signals=2, margin=0.1)
EFFORT_FEATURES = 5


@dataclasses.dataclass(frozen=True, eq=False)
class Arm:
    """One run of the study.

    Attributes:
      name: Its name.
      part: The part of the study it belongs to.
      learner: What is run.
      steps: Steps of the learner.
      samples: Transitions in a step.
      solution: The exact answer it is measured against, where there is one for all seeds.
      problem: Its process, likewise.
      horizon: Transitions, for arms of the rates.
    """

    name: str
    part: str
    learner: Learner
    steps: int
    samples: float = 1.0
    solution: Solution | None = None
    problem: CMDP | None = None
    horizon: int = 0


@dataclasses.dataclass(frozen=True, eq=False)
class Study:
    """All arms.

    Attributes:
      options: As given.
      problem: The process that most arms run on.
      solution: Its exact answer.
      arms: By name.
    """

    options: StudyOptions
    problem: CMDP
    solution: Solution
    arms: dict[str, Arm]


def exact_gains(problem: CMDP) -> Any:
    """Exact averages of reward and slacks of a softmax table, as `pdnac.make` takes them."""

    def gains(theta: jax.Array, params: Any) -> jax.Array:
        table = theta.reshape(problem.states, problem.actions)
        return signal_gains(params.problem, jax.nn.softmax(table))

    return gains


def signal_gains(problem: CMDP, policy: jax.Array) -> jax.Array:
    """Averages of reward and slacks `[1 + m]` of a policy `[S, A]`."""
    gains = evaluate(problem, policy).gains
    return jnp.concatenate([gains[:1], slack_gains(problem, gains)])


def tabular_learner(problem: CMDP, config: PDNACConfig, hyper: Hyper) -> Learner:
    """The actor-critic with tables on the simulator of a process, evaluated exactly."""
    config = dataclasses.replace(config, evaluate_every=max(1, round(config.outer_samples)))
    return pdnac.make(
        simulator(problem),
        pdnac.tabular(problem.states, problem.actions),
        pdnac.tabular_critic(problem.states),
        slack,
        config,
        hyper,
        params=params_of(problem),
        evaluate=exact_gains(problem),
    )


def build(options: StudyOptions) -> Study:
    """All arms of the options.

    Raises:
      ConfigError: The model has no constraint, or its bounds do not fit.
      DataError, ScenarioError: See `experiments.cmdp.solving.main`.
    """
    problem = read(options.model)
    if options.bound:
        try:
            problem = problem.with_bounds(options.bound)
        except ScenarioError as error:
            raise ConfigError(f"--bound: {error}") from None
    if not problem.signals:
        raise ConfigError(f"--model {options.model}: has no cost signal, so nothing is constrained")
    with warnings_on_stderr():
        study = Study(options, problem, solve(problem), {})
    builders = {
        "estimators": _estimators,
        "rates": _rates,
        "baselines": _baselines,
        "remedies": _remedies,
        "problems": _problems,
        "instances": _instances,
        "cartpole": _cartpole,
    }
    for part in options.parts:
        for arm in builders[part](study):
            study.arms[arm.name] = arm
    return study


def _hyper(study: Study, gamma: float, scale: float = 1.0) -> Hyper:
    return Hyper(
        alpha=study.options.alpha * scale,
        beta=study.options.beta * scale,
        gamma_critic=gamma,
        gamma_npg=gamma,
        slater_margin=study.solution.slater_margin,
    )


def _tabular(study: Study, part: str, name: str, config: PDNACConfig, hyper: Hyper) -> Arm:
    learner = tabular_learner(study.problem, config, hyper)
    steps = study.options.steps
    return Arm(name, part, learner, steps, 1.0, study.solution, study.problem)


def _estimators(study: Study) -> list[Arm]:
    return [
        _tabular(study, "estimators", name, INNER[name][0], _hyper(study, INNER[name][1]))
        for name in study.options.estimators
    ]


def _rates(study: Study) -> list[Arm]:
    """Horizons with steps of `T^(-1/2)`; inner steps constant, or a power of the horizon."""
    base, gamma = INNER["batch"]
    arms = []
    for kind in ("known", "unknown"):
        for horizon in study.options.horizons:
            if kind == "unknown" and horizon > study.options.unknown_horizon:
                continue
            inner = base.critic_steps
            if kind == "unknown":
                inner = max(1, round(horizon**study.options.epsilon))
            config = dataclasses.replace(base, critic_steps=inner, npg_steps=inner)
            hyper = _hyper(study, gamma, math.sqrt(REFERENCE / horizon))
            learner = tabular_learner(study.problem, config, hyper)
            name = f"{kind}_{horizon}"
            arms.append(
                Arm(name, "rates", learner, horizon, 1.0, study.solution, study.problem, horizon)
            )
    return arms


def _baselines(study: Study) -> list[Arm]:
    problem, (config, gamma) = study.problem, INNER["batch"]
    hyper, arguments = _hyper(study, gamma), (study.solution, study.problem)
    outer = round(config.outer_samples)
    rounds = max(4, study.options.steps // outer)

    def advantages(policy: jax.Array) -> tuple[jax.Array, jax.Array]:
        found = evaluate(problem.cast(), policy)
        signs = jnp.concatenate([jnp.ones(1), jnp.asarray(problem.senses)])
        gains = jnp.concatenate([found.gains[:1], slack_gains(problem, found.gains)])
        return gains, signs[:, None, None] * found.advantages

    shape = (problem.states, problem.actions)
    ppo = pdnac.make_ppo_lagrangian(
        simulator(problem),
        pdnac.tabular(*shape),
        pdnac.tabular_critic(problem.states),
        slack,
        pdnac.PPOLagrangianConfig(rollout=outer),
        hyper,
        params=params_of(problem),
        evaluate=exact_gains(problem),
    )
    switching = dataclasses.replace(config, method="switching")
    exact = pdnac.make_exact(advantages, shape, hyper)
    return [
        _tabular(study, "baselines", "switching", switching, hyper),
        Arm("ppo_lagrangian", "baselines", ppo, rounds, outer, *arguments),
        Arm("exact", "baselines", exact, rounds, outer, *arguments),
    ]


def _remedies(study: Study) -> list[Arm]:
    config, gamma = INNER["batch"]
    hyper = dataclasses.replace(_hyper(study, gamma), pull=0.02, proportional=2.0)
    return [
        _tabular(study, "remedies", name, dataclasses.replace(config, dual=name), hyper)
        for name in REMEDIES
    ]


def _problems(study: Study) -> list[Arm]:
    """The river with restarts, the queue with two constraints, and a fleet of P1."""
    config, _ = INNER["batch"]
    arms = []
    for name, problem, alpha, beta, gamma in (
        ("river", riverswim(), 1.0, 0.05, 0.2),
        ("queue", queue(), 0.6, 0.25, 0.2),
    ):
        solution = solve(problem)
        hyper = Hyper(alpha, beta, gamma, gamma, slater_margin=solution.slater_margin)
        learner = tabular_learner(problem, config, hyper)
        # Queues are long at first: of a short run's average that would be a good part.
        steps = study.options.steps * (2 if name == "queue" else 1)
        arms.append(Arm(name, "problems", learner, steps, 1.0, solution, problem))
    return [*arms, _fleet(study, config)]


def _fleet(study: Study, config: PDNACConfig) -> Arm:
    """One rule for all copies, which is enough for the optimum; its exact averages are known."""
    problem = hashed()
    solution = solve(problem)
    states, actions = problem.states, problem.actions

    def each(obs: jax.Array) -> jax.Array:
        return jax.nn.one_hot(obs, states, dtype=jnp.float64)

    learner = pdnac.make(
        Fleet(Constant(problem), COPIES),
        pdnac.linear(each, states, actions, 1.0),
        pdnac.linear_critic(lambda obs: jnp.mean(each(obs), 0), states, 1.0),
        slack,
        dataclasses.replace(config, evaluate_every=round(config.outer_samples)),
        # A share of the reward is one copy's: the step makes up for it.
        Hyper(0.3 * COPIES, 0.03, 0.1, 0.05, slater_margin=solution.slater_margin),
        params=params_of(problem),
        evaluate=exact_gains(problem),
    )
    return Arm("fleet", "problems", learner, study.options.steps, 1.0, solution, problem)


def _instances(study: Study) -> list[Arm]:
    """A random process for each seed, in one program."""
    config, gamma = INNER["batch"]
    learner = pdnac.make(
        GARNET,
        pdnac.tabular(GARNET.states, GARNET.actions),
        pdnac.tabular_critic(GARNET.states),
        slack,
        dataclasses.replace(config, evaluate_every=round(config.outer_samples)),
        _hyper(study, gamma).replace(slater_margin=GARNET.margin),  # type: ignore[attr-defined]
        evaluate=lambda theta, params: signal_gains(
            params.problem, jax.nn.softmax(theta.reshape(GARNET.states, GARNET.actions))
        ),
    )
    return [Arm("garnet", "instances", learner, study.options.steps)]


def _cartpole(study: Study) -> list[Arm]:
    """A neural policy and critic; the constraint on effort is known to be feasible."""

    def features(obs: jax.Array) -> jax.Array:
        return obs

    learner = pdnac.make(
        cartpole.ConstrainedCartPole(),
        pdnac.gaussian(features, EFFORT_FEATURES, 1, (32,)),
        pdnac.neural_critic(features, EFFORT_FEATURES, (32,)),
        cartpole.slack,
        PDNACConfig("batch", critic_steps=20, npg_steps=20, batch=16, keep_random_iterate=False),
        # Doing nothing has the slack 0.1.
        Hyper(0.05, 0.3, 0.05, 0.005, slater_margin=0.1),
    )
    return [Arm("cartpole", "cartpole", learner, study.options.steps)]


def run_study(options: StudyOptions) -> tuple[Study, Results]:
    """Run all arms."""
    study = build(options)
    arguments = options.run_arguments()
    arguments.pop("steps")
    stages = []
    for name, arm in study.arms.items():
        chunk = chunk_of(arm)
        whole = arm.steps - arm.steps % chunk
        cut = {"chunk": chunk, "thin": chunk}
        make = functools.partial(_learner, arm)
        stages.append(Stage(name, make, whole, options=cut))
    return study, run_stages(stages, checkpoint_every=CHUNKS // 5, **arguments)


def _learner(arm: Arm, results: Results) -> Learner:
    return arm.learner


def chunk_of(arm: Arm) -> int:
    """Steps of a chunk: some `CHUNKS` of them, each with evaluations, at least two."""
    least = 1 if arm.samples > 1 else 2000
    return min(max(arm.steps // CHUNKS, least), max(1, arm.steps // 2))


def optima(study: Study, result: Any) -> list[tuple[CMDP, Solution]]:
    """The process of each seed of a run on random instances, with its exact answer."""
    problems = jax.tree.map(np.asarray, result.state.params.problem)
    seeds = study.options.seeds
    each = [jax.tree.map(lambda leaf, n=n: leaf[n], problems) for n in range(seeds)]
    return [(problem, solve(problem)) for problem in each]
