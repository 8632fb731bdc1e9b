"""`check_learner` passes a learner that keeps the contract and names what breaks it."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.custom_batching import custom_vmap

from jaxlab.core import learner as metrics
from jaxlab.core.learner import Learner
from jaxlab.core.testing import check_learner


@custom_vmap
def batch_dependent(x: jax.Array) -> jax.Array:
    return x


@batch_dependent.def_vmap
def _(axis_size, in_batched, x):
    return x + 1, True


@struct.dataclass
class SgdState:
    key: jax.Array
    rate: jax.Array
    x: jax.Array
    count: jax.Array


def sgd(
    *,
    on_state: Callable[[SgdState], Any] = lambda state: state,
    on_metrics: Callable[[dict], Any] = lambda found: found,
    on_init: Callable[[SgdState], Any] = lambda state: state,
    branch: Callable[[SgdState, jax.Array], jax.Array] = lambda state, t: t,
) -> Learner:
    """Noisy gradient descent on a parabola; every second step by `branch` is doubled."""

    def init(key, hyper):
        rate = jnp.asarray(hyper, jnp.float32)
        return on_init(SgdState(key, rate, jnp.ones((), jnp.float32), jnp.zeros((), jnp.int32)))

    def step(state, t):
        noise = jax.random.normal(jax.random.fold_in(state.key, t), (), jnp.float32)
        x = state.x - state.rate * (2 * state.x + noise)
        x = jax.lax.cond(branch(state, t) % 2 == 0, lambda: x * 2, lambda: x)
        found = {"x": metrics.last(x), "loss": metrics.mean(x * x)}
        return on_state(state.replace(x=x, count=state.count + 1)), on_metrics(found)

    return Learner(init=init, step=step)


def test_good_learner_conforms():
    found = check_learner(sgd(), 0.1)
    assert sorted(found) == ["loss", "x"]


def host_metric(found: dict) -> dict:
    return found | {"noise": metrics.last(jnp.float32(np.random.default_rng().normal()))}


@pytest.mark.parametrize(
    ("learner", "message"),
    [
        (sgd(on_init=lambda s: s.replace(x=1.0)), r"init's state\.x is weakly typed"),
        (sgd(on_init=lambda s: s.nothing), "init raised AttributeError"),
        (
            sgd(on_state=lambda s: s.replace(x=s.x.astype(jnp.float16))),
            r"state of init and of step: \.x is .*float32.*float16",
        ),
        (
            sgd(on_state=lambda s: s.replace(count=jnp.where(s.count > 0, 1, 0))),
            r"step's state\.count is weakly typed",
        ),
        (sgd(on_metrics=lambda m: [m]), "metrics are no mapping: list"),
        (sgd(on_metrics=lambda m: m | {"y": m["x"].value}), "metric 'y' is no Metric"),
        (
            sgd(on_metrics=lambda m: m | {"y": m["x"].replace(reduce="median")}),
            "metric 'y': 'median' not in",
        ),
        (
            sgd(on_metrics=lambda m: m | {"y": metrics.last(m["x"].value / 0)}),
            r"metric 'y'\.value is not finite",
        ),
        (sgd(on_metrics=host_metric), "step twice from one state"),
        (
            sgd(on_state=lambda s: (jax.debug.print("{}", s.x), s)[1]),
            "step calls back to the host",
        ),
        (sgd(branch=lambda state, t: state.count), "1 of 1 lax.cond in step become selects"),
        (
            sgd(on_state=lambda s: s.replace(x=batch_dependent(s.x))),
            "step, seeds mapped and alone",
        ),
    ],
)
def test_broken_learners_are_named(learner, message):
    with pytest.raises(AssertionError, match=message):
        check_learner(learner, 0.1)


def test_branches_on_the_state_can_be_allowed():
    check_learner(sgd(branch=lambda state, t: state.count), 0.1, branches_on_t=False)
