"""Options and data of the diffusion learner that cannot work."""

import dataclasses
import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxlab.agents import diffusion
from jaxlab.agents.diffusion import Hyper
from jaxlab.core.errors import ConfigError
from tests.agents.diffusion_toys import (
    SMALL,
    begun,
    small,
    small_data,
)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"x": np.ones(3)}, r"x has shape \(3,\), expected \[rows"),
        ({"x": np.ones((0, 2))}, "at least one row"),
        ({"cond": np.ones((2, 1))}, r"cond has shape \(2, 1\), expected \[3, conditions\]"),
        ({"weights": np.ones(2)}, r"weights have shape \(2,\), expected \[3\]"),
        ({"weights": [1.0, -0.5, 1.0]}, "weights: row 1 has -0.5"),
        ({"weights": [1.0, np.nan, 1.0]}, "weights: row 1 has nan"),
        ({"weights": np.zeros(3)}, "weights are all zero"),
        (
            {"x": np.array([[1.0], [np.nan], [1.0]])},
            "x is not finite in 1 rows, the first of them 1",
        ),
        ({"capacity": 2}, "x has 3 rows, more than the capacity of 2"),
    ],
)
def test_bad_data_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        diffusion.dataset(**({"x": np.ones((3, 2))} | change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"network": "transformer"}, "network is 'transformer', expected one of mlp, unet"),
        ({"schedule": "sigmoid"}, "schedule is 'sigmoid'"),
        ({"prediction": "score"}, "prediction is 'score'"),
        ({"scaling": "log"}, "scaling is 'log'"),
        ({"timesteps": 1}, "timesteps is 1"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"conditions": -1}, "conditions is -1"),
        ({"embedding": 7}, "embedding is 7, expected an even number"),
        ({"clip": 0.0}, "clip is 0.0"),
        ({"conditions": 0, "guidance": 2.0}, "guidance is 2.0, but conditions is 0"),
        ({"shape": [2]}, r"shape is \[2\], expected a tuple"),
        ({"shape": (4, 2)}, r"shape is \(4, 2\), expected \(dim,\)"),
        ({"network": "unet"}, r"shape is \(2,\), expected \(length, channels\)"),
    ],
)
def test_bad_options_are_refused(change, message):
    with pytest.raises(ConfigError, match=message):
        diffusion.make(dataclasses.replace(SMALL, **change))


def test_bad_hyper_parameters_are_refused():
    learner, _, _ = small()
    model = diffusion.model(begun())
    narrow = jax.tree.map(lambda x: x[..., :4], model.params)
    for hyper, message in (
        (Hyper(), "data is NoneType"),
        (Hyper(data=diffusion.dataset(np.ones((3, 5)))), r"shape \(5,\), expected \(2,\)"),
        (Hyper(data=diffusion.dataset(np.ones((3, 2)))), "0 conditions, expected 1"),
        (Hyper(data=small_data(), start=model.params), "start is dict, expected a Model"),
        (Hyper(data=small_data(), start=model.replace(params=narrow)), "another network"),
    ):
        with pytest.raises(ConfigError, match=message):
            learner.init(jax.random.key(0), hyper)


def test_options_are_read_without_jax():
    code = (
        "import sys; from jaxlab.agents.diffusion.config import Hyper, DiffusionConfig; "
        "assert DiffusionConfig().shape and Hyper().ema_decay; "
        "assert not {'jax', 'flax'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_importing_starts_no_backend():
    code = (
        "import jax; from jaxlab.agents import diffusion; "
        "[getattr(diffusion, name) for name in diffusion.__all__]; "
        "jax.config.update('jax_num_cpu_devices', 2); assert len(jax.devices('cpu')) == 2"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
