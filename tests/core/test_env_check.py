"""`check_env` passes what keeps the contract and names what breaks it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct
from jax.custom_batching import custom_vmap

from jaxlab.core import probes
from jaxlab.core.environment import Env, TimeStep, Wrapper
from jaxlab.core.spaces import Box, Discrete, Space, Tree
from jaxlab.core.testing import check_env

PROBES = [
    probes.ConstantReward(),
    probes.ObservationReward(),
    probes.MatchObservation(),
    probes.Bandit(),
    probes.MaskedBandit(),
    probes.CostlyChoice(),
    probes.MatrixGame(),
    probes.DelayedReward(),
    probes.RandomWalk(),
    probes.CoordinationGrid(),
]


@pytest.mark.parametrize("env", PROBES, ids=lambda env: env.name)
def test_probe_environments_conform(env):
    report = check_env(env, steps=60, batch_steps=3)
    assert report.steps == {"float32": 60, "float64": 60}
    assert all(count > 0 for count in report.episodes.values())


def same(state: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
    return state, timestep


@dataclasses.dataclass(frozen=True)
class Broken(Wrapper):
    """A good environment in 32 bit whose resets and steps are changed by a function."""

    on_reset: Callable[..., Any] = same
    on_step: Callable[..., Any] = same
    space: Space | None = None

    @property
    def precisions(self):
        return ("float32",)

    def reset(self, key, params):
        return self.on_reset(*self.env.reset(key, params))

    def step(self, key, state, action, params):
        return self.on_step(*self.env.step(key, state, action, params))

    def observation_space(self, params):
        return self.space or self.env.observation_space(params)


def replaced(**changes: Callable[[TimeStep], Any]) -> Callable[..., Any]:
    """A change of fields of the timestep."""

    def change(state: Any, timestep: TimeStep) -> tuple[Any, TimeStep]:
        new = {name: make(timestep) for name, make in changes.items()}
        return state, dataclasses.replace(timestep, **new)

    return change


def always(**changes: Callable[[TimeStep], Any]) -> dict[str, Any]:
    """The same change at reset and at step."""
    return {"on_reset": replaced(**changes), "on_step": replaced(**changes)}


def on_state(change: Callable[[Any], Any]) -> dict[str, Any]:
    return {"on_step": lambda state, timestep: (change(state), timestep)}


def nan_state(state: Any) -> Any:
    return {"x": jnp.full((), jnp.nan, jnp.float32), "env": state}


def walks_on(state: probes.RandomWalkState, timestep: TimeStep) -> tuple[Any, TimeStep]:
    """Resurrect: set the walker back into the middle once it has been out for a step."""
    back = jnp.where(timestep.last & (timestep.reward == 0), 3, state.position)
    return dataclasses.replace(state, position=back), timestep


@custom_vmap
def batch_dependent(x: jax.Array) -> jax.Array:
    return x


@batch_dependent.def_vmap
def _(axis_size, in_batched, x):
    return x + 1, True


def eager_differs(timestep: TimeStep) -> jax.Array:
    compiled = isinstance(timestep.reward, jax.core.Tracer)
    return timestep.reward if compiled else timestep.reward + 1


def host_noise(timestep: TimeStep) -> jax.Array:
    return timestep.reward + jnp.float32(np.random.default_rng().uniform())


@struct.dataclass
class Counted:
    """A state with a static field: each value of it is a trace of its own."""

    env: Any
    count: int = struct.field(pytree_node=False, default=0)


class SlowCounter:
    """Puts a static 1 into the state from the third trace on."""

    def __init__(self):
        self.calls = 0

    def __call__(self, state, timestep):
        self.calls += 1
        return Counted(state, 1 if self.calls >= 3 else 0), timestep


@dataclasses.dataclass(frozen=True)
class UnwrapCounted(Broken):
    """As `Broken` around an environment whose state is put into `Counted`."""

    def step(self, key, state, action, params):
        return self.on_step(*self.env.step(key, state.env, action, params))


@dataclasses.dataclass(frozen=True)
class UnwrapDict(Broken):
    def step(self, key, state, action, params):
        return self.on_step(*self.env.step(key, state["env"], action, params))


WALK = probes.RandomWalk()
GRID = probes.CoordinationGrid()
COSTLY = probes.CostlyChoice()
MASKED = probes.MaskedBandit()
VOID = jnp.zeros


def cases() -> dict[str, tuple[Env, str]]:
    """Broken environments, and the message that names the break."""
    return {
        "reward shape": (
            Broken(WALK, **always(reward=lambda t: t.reward[None])),
            r"reward has shape \(1,\), expected \(\)",
        ),
        "reward dtype": (
            Broken(WALK, **always(reward=lambda t: t.reward.astype(jnp.int32))),
            "reward has dtype int32",
        ),
        "cost shape": (
            Broken(WALK, **always(cost=lambda t: jnp.zeros((2,), jnp.float32))),
            r"cost has shape \(2,\), expected \(0,\)",
        ),
        "terminated without agents": (
            Broken(GRID, **always(terminated=lambda t: t.terminated[0])),
            r"terminated has shape \(\), expected \(2,\)",
        ),
        "truncated dtype": (
            Broken(WALK, **always(truncated=lambda t: t.truncated.astype(jnp.int32))),
            "truncated has dtype int32",
        ),
        "no timestep": (
            Broken(WALK, on_reset=lambda s, t: (s, t.obs)),
            "reset returns a ",
        ),
        "no pair": (Broken(WALK, on_reset=lambda s, t: s), "reset returns no"),
        "info key": (
            Broken(WALK, **always(info=lambda t: {3: t.reward})),
            "info has a key that is no str",
        ),
        "info differs": (
            Broken(WALK, on_step=replaced(info=lambda t: {"late": t.reward})),
            r"info\['late'\] is present in one of them only",
        ),
        "weak reward": (
            Broken(WALK, on_step=replaced(reward=lambda t: jnp.where(t.last, 1.0, 0.0))),
            "reward is weakly typed",
        ),
        "python number in the state": (
            UnwrapDict(WALK, on_reset=lambda s, t: ({"env": s, "x": 1.0}, t)),
            r"state\['x'\] is weakly typed",
        ),
        "state dtype drifts": (
            Broken(WALK, **on_state(lambda s: s.replace(position=s.position.astype(jnp.int8)))),
            r"state of reset and of step: .*position is .*int32.*int8",
        ),
        "callback": (
            Broken(WALK, **on_state(lambda s: (jax.debug.print("{}", s.position), s)[1])),
            "step calls back to the host",
        ),
        "obs bounds": (
            Broken(WALK, on_step=replaced(obs=lambda t: t.obs * 7)),
            "obs after step 1 is not in .*values from 0.0 to 7.0",
        ),
        "obs dtype": (
            Broken(WALK, **always(obs=lambda t: t.obs.astype(jnp.float16))),
            "obs after reset has dtype float16, its space has float32",
        ),
        "obs shape": (
            Broken(WALK, space=Box(0, 1, (6,))),
            r"obs after reset has shape \(5,\), its space has \(6,\)",
        ),
        "obs fields": (
            Broken(MASKED, space=Tree({"bias": Box(1, 1, (1,))})),
            r"fields \['action_mask', 'bias'\]",
        ),
        "obs is no tree": (Broken(WALK, space=Tree({})), "is no mapping or dataclass"),
        "infinite reward": (
            Broken(WALK, on_step=replaced(reward=lambda t: t.reward + jnp.inf)),
            "reward is not finite after step 1",
        ),
        "nan in the state": (
            UnwrapDict(
                WALK,
                on_reset=lambda s, t: (nan_state(s), t),
                on_step=lambda s, t: (nan_state(s), t),
            ),
            r"state\['x'\] is not finite after reset",
        ),
        "resurrection": (Broken(WALK, on_step=walks_on), "true and then false again"),
        "truncation forgotten": (
            Broken(
                probes.ObservationReward(),
                on_step=replaced(
                    terminated=lambda t: VOID((), bool), truncated=lambda t: t.reward != 0
                ),
            ),
            "a finished episode went on",
        ),
        "reward after the end": (
            Broken(WALK, on_step=replaced(reward=lambda t: t.reward + 1)),
            "reward after termination",
        ),
        "cost after the end": (
            Broken(COSTLY, on_step=replaced(cost=lambda t: t.cost + 1)),
            "cost after termination",
        ),
        "over at once": (
            Broken(WALK, on_reset=replaced(truncated=lambda t: jnp.ones((), bool))),
            "over right after reset",
        ),
        "host randomness": (
            Broken(WALK, on_step=replaced(reward=host_noise)),
            "step 1 twice with one key: .*reward differs",
        ),
        "eager differs": (
            Broken(WALK, on_step=replaced(reward=eager_differs)),
            "step 1, compiled and not: .*reward differs by 1",
        ),
        "batch differs": (
            Broken(WALK, on_step=replaced(info=lambda t: {"x": batch_dependent(t.reward)}),
                   on_reset=replaced(info=lambda t: {"x": t.reward})),
            "step 1, mapped and looped, with params in_axes=0: .*differs by 1",
        ),
        "retrace": (
            UnwrapCounted(WALK, on_reset=lambda s, t: (Counted(s), t), on_step=SlowCounter()),
            "step is traced again",
        ),
        "mask shape": (
            Broken(MASKED, **always(obs=lambda t: {"action_mask": t.obs["action_mask"][:2]})),
            r"action_mask is bool\(2,\), expected bool\(3,\)",
        ),
        "nothing legal": (
            Broken(
                MASKED,
                **always(obs=lambda t: t.obs | {"action_mask": VOID((3,), bool)}),
            ),
            "no action is legal after reset",
        ),
        "step raises": (
            Broken(WALK, on_step=lambda s, t: (s, t.nothing)),
            "step raised AttributeError",
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", cases())
def test_broken_steps_are_named(name):
    env, message = cases()[name]
    with pytest.raises(AssertionError, match=message):
        check_env(env, steps=40, batch_steps=2)


@dataclasses.dataclass(frozen=True)
class Odd(probes.Bandit):
    """A bandit whose static parts and params are changed by class attributes."""

    precisions = ("float32",)
    table: Any = None


class WithAttribute(Odd):
    def __init__(self):
        object.__setattr__(self, "hidden", 3)
        object.__setattr__(self, "table", None)


class NoPrecision(Odd):
    precisions = ()


class QuadPrecision(Odd):
    precisions = ("float128",)


class WeakParams(Odd):
    def sample_params(self, key):
        return {"payoff": 1.0}


class HostParams(Odd):
    def sample_params(self, key):
        return probes.BanditParams(payoff=jnp.asarray(np.random.default_rng().normal(size=3)))


class BatchParams(Odd):
    def sample_params(self, key):
        params = super().sample_params(key)
        return probes.BanditParams(payoff=batch_dependent(params.payoff))


class BranchParams(Odd):
    def sample_params(self, key):
        return super().sample_params(key) if jax.random.bernoulli(key) else None


class NoSpace(Odd):
    def action_space(self, params):
        return 3


class ListSpace(Odd):
    def observation_space(self, params):
        return Box(0.0, 1.0, [1])


class NoAgentAxis(probes.MatrixGame):
    def action_space(self, params):
        return Discrete(3)


class NoAgents(probes.MatrixGame):
    num_agents = 0


@dataclasses.dataclass(frozen=True)
class LongSpace(Discrete):
    """Samples beyond its own end."""

    def sample(self, key, mask=None):
        return jnp.full(self.shape, self.n, self.dtype)


class BadSample(Odd):
    def action_space(self, params):
        return LongSpace(3)


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (WithAttribute(), "hidden is no field"),
        (Odd(table=np.zeros(2)), r"hash\(Odd\) raised TypeError"),
        (NoPrecision(), "precisions is empty"),
        (QuadPrecision(), "'float128', known are float32, float64"),
        (NoAgents(), "num_agents is 0"),
        (WeakParams(), r"params\['payoff'\] is weakly typed"),
        (HostParams(), "sample_params twice with one key"),
        (BatchParams(), "sample_params, mapped and looped"),
        (BranchParams(), "sample_params raised TracerBoolConversionError"),
        (NoSpace(), "action_space is no Space but int"),
        (ListSpace(), r"hash\(observation_space\) raised TypeError"),
        (NoAgentAxis(), "action_space.* has no leading axis of 2 agents"),
        (BadSample(), "sample of action_space is not in .*values from 3 to 3"),
        (object(), "object is not a jaxlab.core.environment.Env"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_broken_statics_params_and_spaces_are_named(env, message):
    with pytest.raises(AssertionError, match=message):
        check_env(env, steps=2, batch_steps=1)


def test_double_precision_is_held_to_double_tolerance():
    class Rough(Wrapper):
        precisions = ("float64",)

        def step(self, key, state, action, params):
            state, timestep = self.env.step(key, state, action, params)
            compiled = isinstance(timestep.reward, jax.core.Tracer)
            reward = timestep.reward.astype(jnp.float64) + (0 if compiled else 1e-9)
            return state, dataclasses.replace(timestep, reward=reward)

        def reset(self, key, params):
            state, timestep = self.env.reset(key, params)
            return state, dataclasses.replace(timestep, reward=jnp.zeros((), jnp.float64))

    with pytest.raises(AssertionError, match=r"random_walk in float64: .*allowed is 1e-12"):
        check_env(Rough(WALK), steps=2)


def test_a_precision_the_environment_lacks_is_named():
    with pytest.raises(AssertionError, match="no precision float16"):
        check_env(probes.Bandit(), precisions=("float16",))
