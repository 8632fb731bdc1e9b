"""The diffusion model as a learner: a step is one gradient step on a minibatch."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import chex
import jax
import jax.numpy as jnp
import optax
from flax import struct
from jaxtyping import Array, Float, Int

from jaxlab.agents.diffusion.config import DiffusionConfig, Hyper
from jaxlab.agents.diffusion.data import (
    Data,
    Scaling,
    apply_scaling,
    draw_rows,
    fit_scaling,
)
from jaxlab.agents.diffusion.networks import init_params, predict
from jaxlab.agents.diffusion.sampling import Model, check_model, sample
from jaxlab.agents.diffusion.schedules import Schedule, along_rows, make_schedule
from jaxlab.core.errors import ConfigError, PrecisionError
from jaxlab.core.learner import Learner, Metrics, last, mean

PyTree = Any

jax.tree_util.register_dataclass(
    Hyper, data_fields=[field.name for field in dataclasses.fields(Hyper)], meta_fields=[]
)


@struct.dataclass
class DiffusionState:
    """State of the learner.

    Attributes:
      hyper: The numbers, without data and start.
      params: Parameters of the network.
      ema: Their average, which samples are drawn with.
      optimiser: Moments of Adam.
      data: Data in units of the network; replace them with `with_data`.
      scaling: Maps between units of the data and units of the network.
    """

    key: jax.Array
    hyper: Hyper
    params: PyTree
    ema: PyTree
    optimiser: PyTree
    data: Data
    scaling: Scaling


def make(
    config: DiffusionConfig, *, data: Data | None = None, start: Model | None = None
) -> Learner:
    """Build the learner of a diffusion model (Ho et al. 2020, algorithm 1).

    `init` begins with the data to train on, which fix the scaling, or goes on from a model,
    whose scaling then holds. Both may come with `Hyper` (one for each seed where its
    leaves have an axis of seeds) or with `make` (a stage built from results before it).
    A step draws rows uniformly and minimises the mean of
    `weight * |target - network(x_t, t, condition)|^2 / size`, t uniform in 1 to T; the
    target is the noise (eq. 14) or the velocity (Salimans and Ho 2022). Conditions are
    dropped at random (Ho and Salimans 2022, algorithm 1).

    Metrics: `loss`; `gradient_norm` before clipping; `learning_rate`;
    `effective_sample_size` of the data's weights.

    Args:
      config: Shapes and switches.
      data: Data to train on where `Hyper` brings none.
      start: Model to go on from where `Hyper` brings none.

    Returns:
      A learner whose `act(state, cond, key)` draws one sample `[*shape]` in units of
      the data, by DDIM with the averaged parameters; `cond` is `[conditions]`, or None.

    Raises:
      ConfigError: An option is wrong; from `init`, data or start are missing or of another
        shape.
      PrecisionError: 64 bits are asked for and switched off.
    """
    check_config(config)
    schedule = make_schedule(config.schedule, config.timesteps)
    agent = _Diffusion(config, schedule, data, start)
    return Learner(agent.init, agent.step, agent.act)


def model(state: DiffusionState, *, averaged: bool = True) -> Model:
    """The trained model; of states `[seeds, ...]`, models `[seeds, ...]`.

    Args:
      state: State of the learner.
      averaged: With averaged parameters, or else with the newest.
    """
    return Model(state.ema if averaged else state.params, state.scaling)


def with_data(state: DiffusionState, data: Data) -> DiffusionState:
    """The state with other data to train on, keeping parameters, moments and scaling.

    Pure, so it may be mapped over seeds. Give `dataset` a capacity to keep the shape.

    Args:
      state: State of the learner.
      data: New data in their own units.

    Raises:
      ConfigError: The data are of another shape, which would need another program.
    """
    data = _cast(data, state.data.x.dtype)
    for name in ("x", "cond", "weights"):
        new, old = jnp.shape(getattr(data, name)), jnp.shape(getattr(state.data, name))
        if new != old:
            raise ConfigError(
                f"data.{name} has shape {new}, expected {old} as before; give dataset the same "
                "capacity, or begin a new run with Hyper(data=..., start=model(state))"
            )
    return state.replace(data=apply_scaling(data, state.scaling))


def check_config(config: DiffusionConfig) -> None:
    """Refuse options that cannot work.

    Raises:
      ConfigError: Names the option, what was expected and what to do.
      PrecisionError: 64 bits are asked for and switched off.
    """
    choices = {
        "network": ("mlp", "unet"),
        "schedule": ("cosine", "linear"),
        "prediction": ("noise", "velocity"),
        "scaling": ("standardise", "range", "none"),
        "dtype": ("float32", "float64"),
    }
    for name, allowed in choices.items():
        if getattr(config, name) not in allowed:
            raise ConfigError(
                f"{name} is {getattr(config, name)!r}, expected one of {', '.join(allowed)}"
            )
    for name in ("width", "depth", "groups", "heads", "batch_size", "sample_steps"):
        if getattr(config, name) < 1:
            raise ConfigError(f"{name} is {getattr(config, name)}, expected at least 1")
    if config.conditions < 0:
        raise ConfigError(f"conditions is {config.conditions}, expected 0 or more")
    if config.embedding < 4 or config.embedding % 2:
        raise ConfigError(f"embedding is {config.embedding}, expected an even number from 4 on")
    if config.clip is not None and not config.clip > 0:
        raise ConfigError(f"clip is {config.clip}, expected a number above 0, or None")
    if config.conditions == 0 and config.guidance != 1:
        raise ConfigError(
            f"guidance is {config.guidance}, but conditions is 0; leave guidance at 1"
        )
    for name in ("shape", "multipliers"):
        if not isinstance(getattr(config, name), tuple):
            raise ConfigError(f"{name} is {getattr(config, name)!r}, expected a tuple of integers")
    axes, meaning = (1, "(dim,)") if config.network == "mlp" else (2, "(length, channels)")
    if len(config.shape) != axes or min(config.shape) < 1:
        raise ConfigError(
            f"shape is {config.shape}, expected {meaning} for network {config.network!r}"
        )
    if config.network == "unet":
        _check_unet(config)
    if config.dtype == "float64" and not jax.config.jax_enable_x64:
        raise PrecisionError(
            "dtype is 'float64', but x64 is off; set JAX_ENABLE_X64=1, or use float32"
        )


def _check_unet(config: DiffusionConfig) -> None:
    if not config.multipliers or min(config.multipliers) < 1:
        raise ConfigError(f"multipliers is {config.multipliers}, expected numbers of at least 1")
    if config.width % config.groups:
        raise ConfigError(
            f"width is {config.width}, expected a multiple of groups = {config.groups}"
        )
    last_width = config.width * config.multipliers[-1]
    if last_width % config.heads:
        raise ConfigError(
            f"heads is {config.heads}, expected a divisor of the channels of the last level, "
            f"width * multipliers[-1] = {last_width}"
        )


def noisy_rows(
    schedule: Schedule,
    prediction: str,
    x: Float[Array, "batch *shape"],
    noise: Float[Array, "batch *shape"],
    t: Int[Array, " batch"],
) -> tuple[Float[Array, "batch *shape"], Float[Array, "batch *shape"]]:
    """Rows with noise (Ho et al. 2020, eq. 4) and what the network should say of them.

    The target is the noise, or `sqrt(ab) noise - sqrt(1 - ab) x` (Salimans and Ho 2022).
    """
    signal, spread = (along_rows(level, x) for level in schedule.levels(t, x.dtype))
    target = noise if prediction == "noise" else signal * noise - spread * x
    return signal * x + spread * noise, target


def weighted_loss(
    output: Float[Array, "*shape"], target: Float[Array, "*shape"], weight: Float[Array, ""]
) -> Float[Array, ""]:
    """Weighted mean square error of one row; the mean is over its coordinates."""
    chex.assert_rank(weight, 0)
    chex.assert_equal_shape([output, target])
    return weight * jnp.mean(jnp.square(output - target))


def _cast(data: Data, dtype: Any) -> Data:
    """Data with floats of a dtype."""
    rows = jnp.asarray(data.rows, jnp.int32)
    return jax.tree.map(lambda leaf: jnp.asarray(leaf, dtype), data).replace(rows=rows)


@dataclasses.dataclass(frozen=True, eq=False)
class _Diffusion:
    config: DiffusionConfig
    schedule: Schedule
    data: Data | None
    start: Model | None

    def init(self, key: jax.Array, hyper: Hyper) -> DiffusionState:
        """Scaled data, and parameters afresh or of the start."""
        dtype = jnp.dtype(self.config.dtype)
        data = self._checked_data(self.data if hyper.data is None else hyper.data)
        start = self.start if hyper.start is None else hyper.start
        # The state holds scaled data once; the numbers alone stay in its hyper-parameters.
        hyper = dataclasses.replace(hyper, data=None, start=None)
        hyper = jax.tree.map(lambda x: jnp.asarray(x, dtype), hyper)
        run_key, network_key = jax.random.split(key)
        if start is None:
            params = init_params(self.config, network_key)
            scaling = fit_scaling(data, self.config.scaling)
        else:
            params, scaling = self._checked_start(start, network_key)
        return DiffusionState(
            key=run_key,
            hyper=hyper,
            params=params,
            # A copy: the state is donated, and one buffer cannot be given up twice.
            ema=jax.tree.map(jnp.copy, params),
            optimiser=optax.scale_by_adam().init(params),
            data=apply_scaling(data, scaling),
            scaling=scaling,
        )

    def _checked_data(self, data: Any) -> Data:
        config = self.config
        if not isinstance(data, Data):
            raise ConfigError(
                f"data is {type(data).__name__}, expected the data to train on: give "
                "dataset(x, cond, weights) to Hyper(data=...) or make(config, data=...)"
            )
        found, expected = jnp.shape(data.x)[1:], config.shape
        if found != expected:
            raise ConfigError(
                f"rows of data have shape {found}, expected {expected}; set shape in the "
                "configuration to that of the data"
            )
        found = jnp.shape(data.cond)[1:]
        if found != (config.conditions,):
            raise ConfigError(
                f"rows of data have {found[0]} conditions, expected {config.conditions}; set "
                "conditions in the configuration to the number of columns"
            )
        return _cast(data, jnp.dtype(config.dtype))

    def _checked_start(self, start: Any, key: jax.Array) -> tuple[PyTree, Scaling]:
        if not isinstance(start, Model):
            raise ConfigError(
                f"start is {type(start).__name__}, expected a Model, such as model(state)"
            )
        check_model(self.config, start)
        fresh = jax.eval_shape(functools.partial(init_params, self.config), key)
        shapes = [jax.tree.map(jnp.shape, params) for params in (fresh, start.params)]
        if shapes[0] != shapes[1]:
            raise ConfigError(
                "start holds parameters of another network than the configuration's; use "
                "the configuration that it was trained with"
            )
        return jax.tree.map(
            lambda x: jnp.asarray(x, self.config.dtype), (start.params, start.scaling)
        )

    def step(self, state: DiffusionState, t: jax.Array) -> tuple[DiffusionState, Metrics]:
        """One gradient step."""
        key = jax.random.fold_in(state.key, t)
        loss, gradient = jax.value_and_grad(self._loss)(state.params, state, key)
        hyper = state.hyper
        norm = optax.tree.norm(gradient)
        clip = optax.clip_by_global_norm(hyper.max_gradient_norm)
        gradient, _ = clip.update(gradient, clip.init(state.params))
        change, optimiser = optax.scale_by_adam().update(gradient, state.optimiser)
        warm = (t + 1).astype(norm.dtype) / jnp.maximum(hyper.warmup_steps, 1)
        rate = hyper.learning_rate * jnp.minimum(warm, 1)
        params = jax.tree.map(lambda p, c: p - rate * c, state.params, change)
        ema = optax.incremental_update(params, state.ema, 1 - hyper.ema_decay)
        metrics = {
            "loss": mean(loss),
            "gradient_norm": mean(norm),
            "learning_rate": last(rate),
            "effective_sample_size": last(state.data.effective_sample_size),
        }
        return state.replace(params=params, ema=ema, optimiser=optimiser), metrics

    def _loss(self, params: PyTree, state: DiffusionState, key: jax.Array) -> jax.Array:
        """Mean loss of a minibatch drawn with the key."""
        config, data = self.config, state.data
        count, dtype = config.batch_size, data.x.dtype
        row_key, time_key, noise_key, drop_key = jax.random.split(key, 4)
        index = draw_rows(row_key, data.rows, count)
        x, cond, weight = data.x[index], data.cond[index], data.weights[index]
        times = jax.random.randint(time_key, (count,), 1, config.timesteps + 1, jnp.int32)
        noise = jax.random.normal(noise_key, x.shape, dtype)
        keep = jax.random.uniform(drop_key, (count,), dtype) >= state.hyper.drop_probability
        noisy, target = noisy_rows(self.schedule, config.prediction, x, noise, times)
        output = predict(config, params, noisy, times, cond, keep)
        return jnp.mean(jax.vmap(weighted_loss)(output, target, weight))

    def act(self, state: DiffusionState, cond: Any, key: jax.Array) -> jax.Array:
        """One sample under a condition."""
        config = self.config
        return sample(
            config,
            model(state),
            key,
            1,
            cond,
            guidance=config.guidance,
            steps=min(config.sample_steps, config.timesteps),
        )[0]
