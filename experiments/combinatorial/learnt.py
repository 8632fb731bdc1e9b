"""What is learnt for which problem: processes, families of values, learners, scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

from experiments.combinatorial.problems import process_of_size
from experiments.combinatorial.train_options import TrainOptions
from jaxlab.agents.dqn import approximators, fitted, networks, qlearning
from jaxlab.agents.dqn.approximators import Approximator
from jaxlab.agents.dqn.config import DQNConfig
from jaxlab.agents.dqn.decoding import Score
from jaxlab.agents.dqn.process import Fixed
from jaxlab.core.learner import Learner
from jaxlab.envs.combinatorial.cuts import MaxCutFlip
from jaxlab.envs.combinatorial.distributions import RandomGraph
from jaxlab.envs.combinatorial.features import features_of

#: Discount where cuts are flipped back and forth, as of ECO-DQN; strings have none.
FLIP_DISCOUNT = 0.95


class Learnt(NamedTuple):
    """A problem with what its values are learnt by.

    Attributes:
      env: The environment.
      learner: Its learner.
      steps: Steps to run it for.
      hyper: Numbers of the learner.
      approximator: The family of values of states; None where values of actions are learnt.
      score: From parameters to a score of letters; see `jaxlab.agents.dqn.decoding`.
    """

    env: Any
    learner: Learner
    steps: int
    hyper: Any
    approximator: Approximator | None
    score: Callable[[Any], Score]


def environment(options: TrainOptions) -> Any:
    """The environment of the options."""
    if options.problem == "maxcut":
        kind = RandomGraph(options.graphs, 0.15, signed=True)
        return MaxCutFlip(options.size, kind)
    return process_of_size(options.problem, options.size)


def family(env: Any, options: TrainOptions) -> Approximator:
    """The family of values of states that the options name."""
    if options.embedding in ("linear", "features"):
        features, size = features_of(env)
        if options.embedding == "linear":
            return approximators.linear(features, size, base=0)
        hidden = (options.width, options.width)
        return approximators.perceptron(features, size, hidden=hidden, base=0)
    network = networks.make_network(_network(options), pooled=True)
    params = env.sample_params(jax.random.key(0))
    example = env.graph(params, env.initial(params))
    return approximators.graph_network(env.graph, network, example)


def _network(options: TrainOptions) -> DQNConfig:
    kind = "attention" if options.embedding == "attention" else "s2v"
    return DQNConfig(network=kind, width=options.width)  # type: ignore[arg-type]


def learnt(options: TrainOptions, env: Any = None, only: Any = None) -> Learnt:
    """What the options ask for.

    Args:
      options: Of training.
      env: The environment, in place of that of the options.
      only: Params of the one instance that is learnt from; random ones by default.
    """
    env = environment(options) if env is None else env
    source = env if only is None else Fixed(env, only)
    if options.algorithm == "fitted":
        approximator = family(env, options)
        config = options.fitted

        def score(theta: Any) -> Score:
            return lambda params, decision: fitted.values_after(
                env, approximator, theta, params, decision
            )

        hyper = fitted.FittedHyper(options.learning_rate, options.radius)
        learner = fitted.make_fitted(source, approximator, config)
        return Learnt(env, learner, config.steps, hyper, approximator, score)

    view = view_of(env)
    values = qlearning.action_values(env, view, options.dqn)

    def negative(theta: Any) -> Score:
        """Costs are rewards negated; states of decision processes lie inside the environment's."""

        def of_letters(params: Any, decision: Any) -> Any:
            state = env.reset(jax.random.key(0), params)[0].replace(decision=decision)
            return jnp.where(env.legal(params, decision), -values(theta, params, state), jnp.inf)

        return of_letters

    gamma = FLIP_DISCOUNT if isinstance(env, MaxCutFlip) else 1.0
    hyper = qlearning.Hyper(options.learning_rate, gamma)
    learner = qlearning.make(source, view, options.dqn)
    return Learnt(env, learner, options.steps, hyper, None, negative)


def view_of(env: Any) -> qlearning.View:
    """States of an environment as graphs."""
    if isinstance(env, MaxCutFlip):
        return env.graph
    return lambda params, state: env.graph(params, state.decision)
