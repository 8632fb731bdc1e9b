"""The conformance test of environments."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxlab.core.assertions import (
    Traced,
    attempt,
    fresh,
    leaves_with_paths,
    member,
    naming,
    require,
    require_equal,
    require_member,
    require_no_callback,
    require_same_signature,
    require_strong,
)
from jaxlab.core.environment import Env, PyTree, TimeStep, action_mask
from jaxlab.core.spaces import Discrete, Space

_X64 = {"float32": False, "float64": True}


@dataclasses.dataclass(frozen=True)
class EnvReport:
    """What a check went through: a test may assert that it was enough.

    Attributes:
      steps: Steps taken in each precision.
      episodes: Episodes that ended in each precision; with none, absorption was not tried.
    """

    steps: dict[str, int]
    episodes: dict[str, int]


def check_env(
    env: Any,
    *,
    sample_params: Callable[[jax.Array], PyTree] | None = None,
    seed: int = 0,
    steps: int = 40,
    batch: int = 3,
    batch_steps: int = 5,
    eager_steps: int = 2,
    precisions: Sequence[str] | None = None,
) -> EnvReport:
    """Hold an environment to the contract of `jaxlab.core.environment`.

    In every precision of `env.precisions`, or in those asked for: frozen and hashable;
    spaces contain what is observed and done; explicit dtypes, no weak types; `reset` and `step` agree in
    structure, shapes and dtypes; no host callback; one trace; finite; a finished episode
    stays finished and pays nothing (unless `env.absorbing` is false); the same key gives
    the same bits; compiled equals not compiled and mapped equals looped (integers
    exactly, floats to 1e-5 in 32 bit and 1e-12 in 64), with params mapped or shared.
    Actions are random legal ones.

    Args:
      env: The environment, an `Env`.
      sample_params: Draws params instead of `env.sample_params`.
      seed: Seed of all keys.
      steps: Steps of the compiled run, over as many episodes as fit.
      batch: Members of the mapped run.
      batch_steps: Steps of the mapped run, each compared with a loop.
      eager_steps: Steps compared with a run that is not compiled.
      precisions: Some of the environment's, where a check of all takes too long.

    Raises:
      AssertionError: The environment breaks the contract; the message says where.
    """
    _check_static(env)
    steps_done, episodes = {}, {}
    asked = env.precisions if precisions is None else tuple(precisions)
    unknown = [precision for precision in asked if precision not in env.precisions]
    require(not unknown, f"{env.name} has no precision {', '.join(unknown)}: {env.precisions}")
    for precision in asked:
        with jax.enable_x64(_X64[precision]), naming(f"{env.name} in {precision}"):
            check = _EnvCheck(env, sample_params or env.sample_params, jax.random.key(seed))
            check.params_and_spaces()
            check.signatures()
            episodes[precision] = check.rollout(steps, eager_steps)
            check.mapped(batch, batch_steps)
            steps_done[precision] = steps
    return EnvReport(steps=steps_done, episodes=episodes)


def _check_static(env: Any) -> None:
    kind = type(env).__name__
    require(isinstance(env, Env), f"{kind} is not a jaxlab.core.environment.Env")
    fields = {field.name for field in dataclasses.fields(env)}
    for attribute in vars(env):
        cached = isinstance(getattr(type(env), attribute, None), functools.cached_property)
        require(
            attribute in fields or cached,
            f"{kind}.{attribute} is no field of a frozen dataclass, so equality overlooks it",
        )
    code = attempt(f"hash({kind})", hash, env)
    twin = dataclasses.replace(env)
    require(twin == env and hash(twin) == code, f"{kind} does not equal a copy of itself")
    known = ", ".join(_X64)
    require(env.precisions, f"{kind}.precisions is empty, it must name some of {known}")
    for precision in env.precisions:
        require(precision in _X64, f"{kind}.precisions has {precision!r}, known are {known}")
    agents = env.num_agents
    require(agents is None or agents >= 1, f"{kind}.num_agents is {agents}")


def _random_action(env: Env, params: PyTree, key: jax.Array, obs: PyTree) -> PyTree:
    space, mask = env.action_space(params), action_mask(obs)
    if mask is not None and isinstance(space, Discrete):
        return space.sample(key, mask)
    return space.sample(key)


class _EnvCheck:
    """The checks of one environment in the active precision."""

    def __init__(self, env: Env, sample_params: Callable[[jax.Array], PyTree], key: jax.Array):
        self.env = env
        self.sample_params = sample_params
        self.key = key
        self.reset = Traced(env.reset)
        self.step = Traced(env.step)
        self.inspect = jax.jit(_inspect)
        self.act = jax.jit(lambda params, key, obs: _random_action(env, params, key, obs))

    def _key(self, *path: int) -> jax.Array:
        key = self.key
        for number in path:
            key = jax.random.fold_in(key, number)
        return key

    def params_and_spaces(self) -> None:
        env, key = self.env, self._key(0)
        abstract = attempt("sample_params", jax.eval_shape, self.sample_params, key)
        require_strong("params", abstract)
        self.sample = fresh(self.sample_params)
        self.params = attempt("sample_params", self.sample, key)
        again = fresh(self.sample_params)(key)
        require_equal("sample_params twice with one key", self.params, again, exact=True)
        for name in ("observation_space", "action_space"):
            space = attempt(name, getattr(env, name), self.params)
            require(isinstance(space, Space), f"{name} is no Space but {type(space).__name__}")
            attempt(f"hash({name})", hash, space)
            sample = attempt(f"{name}.sample", space.sample, key)
            require_member(f"sample of {name}", space, sample)
            if env.num_agents is not None:
                for path, leaf in leaves_with_paths(sample):
                    led = leaf.shape[:1] == (env.num_agents,)
                    require(led, f"{name}{path} has no leading axis of {env.num_agents} agents")
        self.observation_space = env.observation_space(self.params)
        self.action_space = env.action_space(self.params)

    def signatures(self) -> None:
        key, params = self._key(1), self.params
        action = self.action_space.sample(key)
        reset = attempt("reset", jax.eval_shape, self.env.reset, key, params)
        require(isinstance(reset, tuple) and len(reset) == 2, "reset returns no (state, timestep)")
        state, timestep = reset
        self._require_timestep("reset", timestep)
        for what, tree in (("state", state), ("timestep", timestep)):
            require_strong(f"reset's {what}", tree)
        stepped = attempt("step", jax.eval_shape, self.env.step, key, state, action, params)
        require(isinstance(stepped, tuple) and len(stepped) == 2, "step returns no pair")
        self._require_timestep("step", stepped[1])
        for what, a, b in zip(("state", "timestep"), reset, stepped, strict=True):
            require_strong(f"step's {what}", b)
            require_same_signature(f"{what} of reset and of step", a, b)
        jaxpr = jax.make_jaxpr(self.env.step)(key, state, action, params)
        require_no_callback("step", jaxpr.jaxpr)
        require_no_callback("reset", jax.make_jaxpr(self.env.reset)(key, params).jaxpr)

    def _require_timestep(self, what: str, timestep: Any) -> None:
        env = self.env
        require(isinstance(timestep, TimeStep), f"{what} returns a {type(timestep).__name__}")
        agents = () if env.num_agents is None else (env.num_agents,)
        costs = ((env.num_costs,), (env.num_costs, *agents))
        floating = jnp.floating
        expected = (
            ("reward", timestep.reward, (agents,), floating),
            ("cost", timestep.cost, costs, floating),
            ("terminated", timestep.terminated, (agents,), jnp.bool_),
            ("truncated", timestep.truncated, ((),), jnp.bool_),
        )
        for name, leaf, shapes, dtype in expected:
            require(hasattr(leaf, "shape"), f"{what}'s {name} is no array")
            allowed = " or ".join(map(str, dict.fromkeys(shapes)))
            require(
                leaf.shape in shapes, f"{what}'s {name} has shape {leaf.shape}, expected {allowed}"
            )
            require(
                jnp.issubdtype(leaf.dtype, dtype),
                f"{what}'s {name} has dtype {leaf.dtype}, expected {dtype.__name__}",
            )
        info = timestep.info
        require(isinstance(info, Mapping), f"{what}'s info is no mapping")
        require(all(isinstance(k, str) for k in info), f"{what}'s info has a key that is no str")
        mask = action_mask(timestep.obs)
        if mask is not None and isinstance(self.action_space, Discrete):
            shape = (*self.action_space.shape, self.action_space.n)
            require(
                mask.shape == shape and mask.dtype == jnp.bool_,
                f"{what}'s action_mask is {mask.dtype}{mask.shape}, expected bool{shape}",
            )

    def _require_sound(self, what: str, state: PyTree, timestep: TimeStep) -> None:
        require_member(f"obs after {what}", self.observation_space, timestep.obs)
        for part, report in self.inspect(state, timestep).items():
            for path, fine in leaves_with_paths(report):
                require(bool(fine), f"{part}{path} is not finite after {what}")
        mask = action_mask(timestep.obs)
        if mask is not None:
            stuck = ~np.asarray(mask).any(-1) & ~np.asarray(timestep.terminated)
            require(not stuck.any(), f"no action is legal after {what}")

    def rollout(self, steps: int, eager_steps: int) -> int:
        """Run episodes one after the other; the number that ended."""
        env, params, episodes = self.env, self.params, 0
        state, before = self._first(0)
        after_end = 0
        for t in range(steps):
            what = f"step {t + 1}"
            key = self._key(3, t)
            action = self.act(params, self._key(4, t), before.obs)
            require_member("action", self.action_space, action)
            args = (key, state, action, params)
            state, timestep = out = attempt("step", self.step, *args)
            require(self.step.traces == 1, "step is traced again at its second call")
            self._require_sound(what, state, timestep)
            if t == 0:
                for run in (self.step, fresh(env.step)):
                    require_equal(f"{what} twice with one key", out, run(*args), exact=True)
            if t < eager_steps:
                eager = attempt("step, not compiled,", env.step, *args)
                require_equal(f"{what}, compiled and not", out, eager)
            if env.absorbing:
                _require_absorbed(what, before, timestep)
            over = bool(timestep.last)
            episodes += over and after_end == 0
            after_end = after_end + 1 if over and env.absorbing else 0
            before = timestep
            if after_end == 3:
                state, before = self._first(t + 1)
                after_end = 0
        return episodes

    def _first(self, number: int) -> tuple[PyTree, TimeStep]:
        key = self._key(2, number)
        state, timestep = out = attempt("reset", self.reset, key, self.params)
        require(self.reset.traces == 1, "reset is traced again at its second call")
        self._require_sound("reset", state, timestep)
        require(not bool(timestep.last), "the episode is over right after reset")
        if number == 0:
            again = fresh(self.env.reset)(key, self.params)
            require_equal("reset twice with one key", out, again, exact=True)
            eager = attempt("reset, not compiled,", self.env.reset, key, self.params)
            require_equal("reset, compiled and not", out, eager)
        return state, timestep

    def mapped(self, batch: int, steps: int) -> None:
        """Mapped equals looped, with params mapped (in_axes 0) and shared (None)."""
        keys = jax.random.split(self._key(5), batch)
        sample = jax.jit(jax.vmap(self.sample_params))
        many = attempt("vmap of sample_params", sample, keys)
        for i, key in enumerate(keys):
            require_equal("sample_params, mapped and looped", member(many, i), self.sample(key))
        for axis, params in ((0, many), (None, self.params)):
            self._mapped(keys, params, axis, steps)

    def _mapped(self, keys: jax.Array, params: PyTree, axis: int | None, steps: int) -> None:
        what = f"with params in_axes={axis}"
        mapped_reset = jax.jit(jax.vmap(self.env.reset, (0, axis)))
        mapped_step = jax.jit(jax.vmap(self.env.step, (0, 0, 0, axis)))
        fold_in = jax.jit(jax.vmap(jax.random.fold_in, (0, None)))
        act = jax.jit(jax.vmap(self.act, (axis, 0, 0)))
        states, timesteps = attempt(f"vmap of reset {what}", mapped_reset, keys, params)
        for i, key in enumerate(keys):
            out = self.reset(key, member(params, i, axis))
            require_equal(f"reset, mapped and looped, {what}", member((states, timesteps), i), out)
        for t in range(steps):
            step_keys = fold_in(keys, t + 1)
            actions = act(params, step_keys, timesteps.obs)
            args = (step_keys, states, actions, params)
            new = attempt(f"vmap of step {what}", mapped_step, *args)
            for i in range(len(keys)):
                one = (*member(args[:3], i), member(params, i, axis))
                require_equal(
                    f"step {t + 1}, mapped and looped, {what}", member(new, i), self.step(*one)
                )
            states, timesteps = new


def _inspect(state: PyTree, timestep: TimeStep) -> dict[str, PyTree]:
    """Whether each floating leaf is finite; states and info may hold infinities, no NaN."""

    def check(test: Callable[[Any], Any], tree: PyTree) -> PyTree:
        def leaf_check(leaf: Any) -> Any:
            inexact = jnp.issubdtype(leaf.dtype, jnp.inexact)
            return jnp.all(test(leaf)) if inexact else jnp.ones((), bool)

        return jax.tree.map(leaf_check, tree)

    finite = {"obs": timestep.obs, "reward": timestep.reward, "cost": timestep.cost}
    loose = {"state": state, "info": timestep.info}
    return {name: check(jnp.isfinite, tree) for name, tree in finite.items()} | {
        name: check(lambda x: ~jnp.isnan(x), tree) for name, tree in loose.items()
    }


def _require_absorbed(what: str, before: TimeStep, after: TimeStep) -> None:
    was, now = np.asarray(before.terminated), np.asarray(after.terminated)
    require(not np.any(was & ~now), f"{what}: terminated is true and then false again")
    over = bool(before.last)
    require(bool(after.last) or not over, f"{what}: a finished episode went on")
    paid = np.asarray(after.reward) != 0
    require(not np.any(was & paid), f"{what}: reward after termination")
    if was.all():
        require(not np.any(np.asarray(after.cost) != 0), f"{what}: cost after termination")
