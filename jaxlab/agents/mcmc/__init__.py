"""Markov chain Monte Carlo on any log density: chains, parallel tempering, SMC, diagnostics.

    learner = mcmc.make(log_density, mcmc.MCMCConfig("mala", warmup=500), initial=positions)
    result = run(learner, steps=2000, hyper=mcmc.Hyper(step_size=0.1), thin=5)
    samples = diagnostics.by_chain(result.records()["chain/position"][100:])

Kernels are BlackJAX's where it has them. Names are imported when they are first used:
BlackJAX starts a backend when it is imported, and the options in `config` can be had
without jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxlab.agents.mcmc.config import (
    SAMPLERS,
    Hyper,
    MCMCConfig,
    ParallelTemperingConfig,
    SMCConfig,
)

if TYPE_CHECKING:
    from jaxlab.agents.mcmc.learner import MCMCState as MCMCState
    from jaxlab.agents.mcmc.learner import make as make
    from jaxlab.agents.mcmc.parallel_tempering import (
        ParallelTemperingState as ParallelTemperingState,
    )
    from jaxlab.agents.mcmc.parallel_tempering import (
        make_parallel_tempering as make_parallel_tempering,
    )
    from jaxlab.agents.mcmc.smc import SMCState as SMCState
    from jaxlab.agents.mcmc.smc import make_smc as make_smc
    from jaxlab.agents.mcmc.target import check_state as check_state

__all__ = [
    "SAMPLERS",
    "Hyper",
    "MCMCConfig",
    "MCMCState",
    "ParallelTemperingConfig",
    "ParallelTemperingState",
    "SMCConfig",
    "SMCState",
    "check_state",
    "make",
    "make_parallel_tempering",
    "make_smc",
]

_HOMES = {
    "MCMCState": "learner",
    "ParallelTemperingState": "parallel_tempering",
    "SMCState": "smc",
    "check_state": "target",
    "make": "learner",
    "make_parallel_tempering": "parallel_tempering",
    "make_smc": "smc",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
