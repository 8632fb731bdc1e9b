"""Diffusion models of vectors and sequences: training, sampling, reward-weighted fine-tuning.

    config = diffusion.DiffusionConfig(shape=(5,), conditions=1)
    data = diffusion.dataset(costates, thrusts)
    learner = diffusion.make(config)
    state = learner.init(jax.random.key(0), diffusion.Hyper(data=data))
    state, metrics = learner.step(state, jnp.int32(0))
    new = diffusion.sample(config, diffusion.model(state), key, 512, thrust)

Fine-tuning goes on from a model with rewarded data of the same or another kind: give
`Hyper(data=..., start=model)` to a new run, or `with_data(state, data)` between chunks.

Names are imported when they are first used, so that the options in `config` can be had
without importing jax.
"""

import importlib
from typing import TYPE_CHECKING, Any

from jaxlab.agents.diffusion.config import DiffusionConfig, Hyper

if TYPE_CHECKING:
    from jaxlab.agents.diffusion.data import Data as Data
    from jaxlab.agents.diffusion.data import Scaling as Scaling
    from jaxlab.agents.diffusion.data import dataset as dataset
    from jaxlab.agents.diffusion.data import effective_sample_size as effective_sample_size
    from jaxlab.agents.diffusion.data import reward_weights as reward_weights
    from jaxlab.agents.diffusion.learner import DiffusionState as DiffusionState
    from jaxlab.agents.diffusion.learner import make as make
    from jaxlab.agents.diffusion.learner import model as model
    from jaxlab.agents.diffusion.learner import with_data as with_data
    from jaxlab.agents.diffusion.sampling import Model as Model
    from jaxlab.agents.diffusion.sampling import reverse_process as reverse_process
    from jaxlab.agents.diffusion.sampling import sample as sample
    from jaxlab.agents.diffusion.schedules import Schedule as Schedule
    from jaxlab.agents.diffusion.schedules import make_schedule as make_schedule

_HOMES = {
    "Data": "data",
    "DiffusionState": "learner",
    "Model": "sampling",
    "Scaling": "data",
    "Schedule": "schedules",
    "dataset": "data",
    "effective_sample_size": "data",
    "make": "learner",
    "make_schedule": "schedules",
    "model": "learner",
    "reverse_process": "sampling",
    "reward_weights": "data",
    "sample": "sampling",
    "with_data": "learner",
}

__all__ = [
    "Data",
    "DiffusionConfig",
    "DiffusionState",
    "Hyper",
    "Model",
    "Scaling",
    "Schedule",
    "dataset",
    "effective_sample_size",
    "make",
    "make_schedule",
    "model",
    "reverse_process",
    "reward_weights",
    "sample",
    "with_data",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
