"""The environment contract's own pieces: constants, time steps, masks, awkward dtypes."""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxlab.core import probes
from jaxlab.core.environment import Constant, Env, TimeStep, action_mask, select
from jaxlab.core.spaces import Box, Discrete, Tree
from jaxlab.core.testing import check_env
from jaxlab.core.views import FlattenObservation
from jaxlab.core.wrappers import AutoReset, LogEpisode, NormalizeObservation, TimeLimit


def test_constants_are_hashed_by_content():
    table = {"a": np.arange(6.0).reshape(2, 3), "b": np.array([True])}
    first, second = Constant(table), Constant({k: v.copy() for k, v in table.items()})
    assert first == second
    assert hash(first) == hash(second)
    assert repr(first) == repr(second)


@pytest.mark.parametrize(
    "other",
    [
        {"a": np.zeros(3)},
        {"a": np.arange(3, dtype=np.float32)},
        {"a": np.arange(3, dtype=np.float64).reshape(1, 3)},
        {"b": np.arange(3, dtype=np.float64)},
        [np.arange(3, dtype=np.float64)],
    ],
    ids=["value", "dtype", "shape", "name", "structure"],
)
def test_constants_of_other_content_differ(other):
    constant = Constant({"a": np.arange(3, dtype=np.float64)})
    assert constant != Constant(other)
    assert hash(constant) != hash(Constant(other))
    assert constant != other


def test_constants_cannot_be_written_and_do_not_follow_their_source():
    source = np.arange(3)
    constant = Constant(source)
    source[0] = 7
    assert constant.value[0] == 0
    with pytest.raises(ValueError, match="read-only"):
        constant.value[0] = 1


def test_equal_constants_share_a_compilation():
    traces = []

    def total(constant, x):
        traces.append(1)
        return x + jnp.asarray(constant.value).sum()

    compiled = jax.jit(total, static_argnums=0)
    assert compiled(Constant(np.arange(3)), 1) == compiled(Constant(np.arange(3)), 1) == 4
    assert len(traces) == 1
    assert compiled(Constant(np.arange(4)), 1) == 7


def timestep(terminated, truncated):
    zero = jnp.zeros((), jnp.float32)
    return TimeStep(
        obs=zero,
        reward=zero,
        cost=zero[None],
        terminated=jnp.asarray(terminated),
        truncated=jnp.asarray(truncated),
        info={},
    )


@pytest.mark.parametrize(
    ("terminated", "truncated", "last"),
    [
        (False, False, False),
        (True, False, True),
        (False, True, True),
        ([True, False], False, False),
        ([True, True], False, True),
        ([False, False], True, True),
        # Stacks of steps: of one agent, and of two.
        ([True, False, True], [False, False, True], [True, False, True]),
        ([[True, True], [True, False]], [False, False], [True, False]),
        ([[[True, True]], [[True, False]]], [[False], [True]], [[True], [True]]),
    ],
)
def test_an_episode_is_over_when_all_are_terminated_or_it_is_cut(terminated, truncated, last):
    np.testing.assert_array_equal(timestep(terminated, truncated).last, last)


@struct.dataclass
class Seen:
    action_mask: jax.Array


def test_masks_are_found_in_any_kind_of_observation():
    mask = jnp.ones(2, bool)
    assert action_mask({"action_mask": mask}) is mask
    assert action_mask(Seen(mask)) is mask
    assert action_mask({"other": mask}) is None
    assert action_mask(mask) is None


def test_select_keeps_typed_keys():
    a, b = jax.random.key(0), jax.random.key(1)
    chosen = select(jnp.array(False), {"key": a, "x": 1.0}, {"key": b, "x": 2.0})
    assert chosen["key"] == b
    assert chosen["x"] == 2


@struct.dataclass
class Inner:
    flag: jax.Array
    byte: jax.Array


@struct.dataclass
class AwkwardObs:
    """Booleans, bytes, halves and a count, nested."""

    inner: Inner
    half: jax.Array
    count: jax.Array


@struct.dataclass
class AwkwardState:
    obs: AwkwardObs
    key: jax.Array
    empty: jax.Array


@dataclasses.dataclass(frozen=True)
class Awkward(Env[AwkwardState, probes.NoParams]):
    """Legal in every way that the probes are not; `agents` of them, each with two levers."""

    name: ClassVar[str] = "awkward"
    agents: int = 1

    @property
    def num_agents(self):
        return self.agents

    @property
    def num_costs(self):
        return 2

    def sample_params(self, key):
        return probes.NoParams()

    def _look(self, key, obs, reward):
        state = AwkwardState(obs=obs, key=key, empty=jnp.zeros((0, 3), jnp.float32))
        cost = jnp.stack([reward, reward * 2])
        over = obs.count >= 3
        return state, TimeStep(obs, reward, cost, over, jnp.zeros((), bool), {"nest": {"t": over}})

    def reset(self, key, params):
        inner = Inner(jnp.zeros((self.agents, 2), bool), jnp.full((self.agents,), 255, jnp.uint8))
        half, count = jnp.zeros((self.agents, 1), jnp.bfloat16), jnp.zeros(self.agents, jnp.int32)
        return self._look(key, AwkwardObs(inner, half, count), jnp.zeros(self.agents, jnp.float32))

    def step(self, key, state, action, params):
        obs, pull = state.obs, action["lever"]
        going = obs.count < 3
        count = jnp.where(going, obs.count + 1, obs.count)
        noise = jax.random.uniform(key, obs.half.shape, jnp.float32).astype(jnp.bfloat16)
        inner = Inner(pull > 0, (obs.inner.byte + 1).astype(jnp.uint8))
        reward = jnp.where(going, pull.sum(-1).astype(jnp.float32) + action["force"], 0)
        return self._look(state.key, AwkwardObs(inner, noise, count), reward)

    def observation_space(self, params):
        inner = {
            "flag": Box(0, 1, (self.agents, 2), "bool"),
            "byte": Box(0, 255, (self.agents,), "uint8"),
        }
        half = Box(0, 1, (self.agents, 1), "bfloat16")
        return Tree({"inner": Tree(inner), "half": half, "count": Discrete(4, (self.agents,))})

    def action_space(self, params):
        lever = Discrete(2, (self.agents, 2), "int8")
        return Tree({"lever": lever, "force": Box(-1, 1, (self.agents,))})


# A leaf whose dtype was left to JAX shows itself in 64 bit; a check compiles some ninety programs.
@pytest.mark.parametrize("precision", ["float64", pytest.param("float32", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "env",
    [
        Awkward(),
        Awkward(agents=3),
        LogEpisode(NormalizeObservation(AutoReset(Awkward(), "pool", pool_size=2))),
        FlattenObservation(AutoReset(TimeLimit(Awkward(agents=2), 2), "next_step")),
    ],
    ids=["one agent", "three agents", "pool", "flat"],
)
def test_awkward_but_legal_environments_conform(env, precision):
    report = check_env(env, steps=14, batch=1, batch_steps=4, precisions=(precision,))
    assert all(count > 0 for count in report.episodes.values())


def test_unwrapped_and_absorbing_go_through_wrappers():
    env = Awkward()
    assert env.unwrapped is env
    assert LogEpisode(TimeLimit(env, 3)).unwrapped is env
    assert TimeLimit(env, 3).absorbing
    assert not LogEpisode(AutoReset(env)).absorbing
    assert LogEpisode(AutoReset(env)).num_costs == 2


def test_no_picture_is_an_error_that_says_so():
    with pytest.raises(NotImplementedError, match="Awkward has no picture"):
        Awkward().render(None, probes.NoParams())
