"""Training Boltzmann machines: the quantum em algorithm, and descent by several gradients.

    problem = quantum_em.Closed(size, evaluate, metric)
    learner = quantum_em.make(problem, quantum_em.EMConfig("em"))
    result = run(learner, steps=4000, seeds=100, hyper=quantum_em.Hyper(width=5.0))

A problem is functions of a parameter vector, so that any exponential family with hidden units
can be trained. The options in `config` can be had without jax; other names are imported when
they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxlab.agents.quantum_em.config import METHODS, EMConfig, Hyper

if TYPE_CHECKING:
    from jaxlab.agents.quantum_em.contrastive import make_contrastive as make_contrastive
    from jaxlab.agents.quantum_em.learner import EMState as EMState
    from jaxlab.agents.quantum_em.learner import best_start as best_start
    from jaxlab.agents.quantum_em.learner import fit as fit
    from jaxlab.agents.quantum_em.learner import make as make
    from jaxlab.agents.quantum_em.problem import Closed as Closed
    from jaxlab.agents.quantum_em.problem import Dual as Dual
    from jaxlab.agents.quantum_em.problem import Sampled as Sampled
    from jaxlab.agents.quantum_em.problem import Values as Values
    from jaxlab.agents.quantum_em.solving import EMTrace as EMTrace
    from jaxlab.agents.quantum_em.solving import em_steps as em_steps

__all__ = [
    "METHODS",
    "Closed",
    "Dual",
    "EMConfig",
    "EMState",
    "EMTrace",
    "Hyper",
    "Sampled",
    "Values",
    "best_start",
    "em_steps",
    "fit",
    "make",
    "make_contrastive",
]

_HOMES = {
    "Closed": "problem",
    "Dual": "problem",
    "EMState": "learner",
    "EMTrace": "solving",
    "Sampled": "problem",
    "Values": "problem",
    "best_start": "learner",
    "em_steps": "solving",
    "fit": "learner",
    "make": "learner",
    "make_contrastive": "contrastive",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
