"""Samples of a diffusion model: the reverse process with DDPM or DDIM steps."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jaxtyping import Array, Float, Int

from jaxlab.agents.diffusion.config import DiffusionConfig
from jaxlab.agents.diffusion.data import Scaling
from jaxlab.agents.diffusion.networks import predict
from jaxlab.agents.diffusion.schedules import Schedule, along_rows, make_schedule
from jaxlab.core.errors import ConfigError

PyTree = Any

#: `(x [n, *shape], t []) -> x_0 [n, *shape]`: the noiseless data expected behind noisy rows.
Denoise = Callable[[jax.Array, jax.Array], jax.Array]

#: DDIM steps where none are given.
DEFAULT_STEPS = 50
#: Bounds on predicted data by kind of scaling, where the configuration names none.
DEFAULT_CLIP = {"standardise": 5.0, "range": 1.0, "none": None}


@struct.dataclass
class Model:
    """What samples are drawn with.

    Attributes:
      params: Parameters of the network.
      scaling: Maps between units of the data and units of the network.
    """

    params: PyTree
    scaling: Scaling


def sample(
    config: DiffusionConfig,
    model: Model,
    key: jax.Array,
    n: int,
    cond: Any = None,
    *,
    guidance: Any = 1.0,
    method: str = "ddim",
    steps: int | None = None,
    eta: Any = None,
) -> Float[Array, "n *shape"]:
    """Draw samples in units of the data.

    A pure function, compiled once per configuration, `n`, method and steps. `ddpm` is
    ancestral sampling with the posterior variance (Ho et al. 2020, algorithm 2); `ddim`
    is Song et al. (2021), eq. 12, which `eta = 1` makes the same process.

    Guidance (Ho and Salimans 2022, eq. 6, with scale = 1 + w) predicts
    `null + guidance * (conditional - null)`: 0 ignores the condition, 1 is the conditional
    model, larger values sharpen. Any number but exactly 1 costs two passes a step.

    Args:
      config: The configuration of the model.
      model: From `model(state)`.
      key: Key of all random numbers.
      n: Number of samples.
      cond: Conditions in units of the data, `[conditions]` for all or `[n, conditions]`;
        None where the model has none.
      guidance: Guidance scale; may be traced.
      method: `ddpm` or `ddim`.
      steps: Steps of the reverse process; by default T of `ddpm` and at most 50 of `ddim`.
      eta: Share of noise in a DDIM step, `[]`, at least 0; by default 0, deterministic.

    Raises:
      ConfigError: An argument is wrong, or the shape of the conditions or of the model's
        scaling does not match the configuration.
    """
    steps, eta = _check_method(config, method, steps, eta)
    if n < 1:
        raise ConfigError(f"n is {n}, expected at least 1 sample")
    dtype = jnp.dtype(config.dtype)
    cond = _check_cond(config, cond, n, dtype)
    check_model(config, model)
    plain = _is_number(guidance) and guidance == 1
    if config.conditions == 0 and not plain:
        raise ConfigError(
            f"guidance is {guidance}, but the model has no conditions to be guided by; leave it at "
            "1, or set conditions in the configuration"
        )
    noiseless = _is_number(eta) and eta == 0
    return _sample(
        config,
        model,
        key,
        cond,
        None if plain else jnp.asarray(guidance, dtype),
        None if noiseless else jnp.asarray(eta, dtype),
        n=n,
        steps=steps,
    )


@functools.partial(jax.jit, static_argnums=0, static_argnames=("n", "steps"))
def _sample(
    config: DiffusionConfig,
    model: Model,
    key: jax.Array,
    cond: Float[Array, "n conditions"],
    guidance: Float[Array, ""] | None,
    eta: Float[Array, ""] | None,
    *,
    n: int,
    steps: int,
) -> Float[Array, "n *shape"]:
    schedule = make_schedule(config.schedule, config.timesteps)
    denoise = denoiser(config, schedule, model, cond, guidance)
    x = reverse_process(
        denoise, schedule, key, (n, *config.shape), steps=steps, eta=eta, dtype=config.dtype
    )
    return model.scaling.from_network(x)


def denoiser(
    config: DiffusionConfig,
    schedule: Schedule,
    model: Model,
    cond: Float[Array, "n conditions"],
    guidance: Float[Array, ""] | None,
) -> Denoise:
    """The model as a function from noisy to noiseless rows, both in units of the network.

    Args:
      config: The configuration of the model.
      schedule: Its noise schedule.
      model: Parameters and scaling.
      cond: Conditions in units of the data.
      guidance: Guidance scale; None is the conditional model by itself.
    """
    scaled = model.scaling.condition(cond)
    kept = jnp.ones(len(cond), bool)
    bound = DEFAULT_CLIP[config.scaling] if config.clip is None else config.clip

    def denoise(x: jax.Array, t: jax.Array) -> jax.Array:
        network = functools.partial(predict, config, model.params)
        times = jnp.full(len(x), t)
        if guidance is None:
            out = network(x, times, scaled, kept)
        else:
            twice = [jnp.concatenate([part, part]) for part in (x, times, scaled)]
            given, null = jnp.split(network(*twice, jnp.concatenate([kept, ~kept])), 2)
            out = null + guidance * (given - null)
        clean = to_clean(config.prediction, schedule, x, times, out)
        return clean if bound is None else jnp.clip(clean, -bound, bound)

    return denoise


def to_clean(
    prediction: str,
    schedule: Schedule,
    x: Float[Array, "n *shape"],
    t: Int[Array, " n"],
    out: Float[Array, "n *shape"],
) -> Float[Array, "n *shape"]:
    """The noiseless data that a predicted noise or velocity stands for.

    Noise: Ho et al. (2020), eq. 15. Velocity: Salimans and Ho (2022), appendix D.
    """
    signal, noise = (along_rows(level, x) for level in schedule.levels(t, x.dtype))
    if prediction == "velocity":
        return signal * x - noise * out
    return (x - noise * out) / signal


def reverse_process(
    denoise: Denoise,
    schedule: Schedule,
    key: jax.Array,
    shape: tuple[int, ...],
    *,
    steps: int,
    eta: Float[Array, ""] | float | None = None,
    dtype: str = "float32",
) -> Float[Array, "n *shape"]:
    """Run the reverse process from noise to data, one compiled loop.

    Each step goes from time t to an earlier time s along Song et al. (2021), eq. 12:
    `sqrt(ab_s) x_0 + sqrt(1 - ab_s - sigma^2) noise(x, x_0) + sigma z` with
    `sigma^2 = eta^2 (1 - ab_s) / (1 - ab_t) (1 - ab_t / ab_s)` (eq. 16).

    Args:
      denoise: Expectation of the noiseless data given noisy data and their time.
      schedule: Noise schedule.
      key: Key of the first noise and of that of every step.
      shape: Samples first, `(n, *shape)`.
      steps: Steps, evenly spread over the times T to 0.
      eta: Share of noise; None is 0, without drawing any.
      dtype: Precision of the samples.

    Raises:
      ConfigError: More steps than noise levels, or fewer than one.
    """
    check_steps(steps, schedule.timesteps)
    kind = jnp.dtype(dtype)
    times = np.round(np.linspace(0, schedule.timesteps, steps + 1)).astype(np.int32)[::-1]
    kept = schedule.alpha_bar[times]
    before, after = kept[:-1], kept[1:]
    # In 64 bits on the host: differences of numbers near one. ab_t / ab_s <= 1 <= 1 / ab_s.
    spread = (1 - after) / (1 - before) * (1 - before / after)
    table = {
        "signal": np.sqrt(before),
        "noise": np.sqrt(1 - before),
        "next_signal": np.sqrt(after),
        "next_variance": 1 - after,
        "spread": spread,
    }
    first_key, step_key = jax.random.split(key)

    def step(x: jax.Array, row: tuple[jax.Array, dict[str, jax.Array]]) -> tuple[jax.Array, None]:
        t, level = row
        clean = denoise(x, t)
        # From the clean data rather than from the network, so that both agree if it was clipped.
        direction = (x - level["signal"] * clean) / level["noise"]
        variance = 0.0 if eta is None else level["spread"] * jnp.square(jnp.asarray(eta, kind))
        remaining = jnp.maximum(level["next_variance"] - variance, 0)
        x = level["next_signal"] * clean + jnp.sqrt(remaining) * direction
        if eta is not None:
            drawn = jax.random.normal(jax.random.fold_in(step_key, t), shape, kind)
            x = x + jnp.sqrt(variance) * drawn
        return x, None

    rows = (jnp.asarray(times[:-1]), {name: jnp.asarray(v, kind) for name, v in table.items()})
    x, _ = jax.lax.scan(step, jax.random.normal(first_key, shape, kind), rows)
    return x


def check_steps(steps: int, timesteps: int) -> None:
    """Refuse more steps than there are noise levels.

    Raises:
      ConfigError: The number is not within 1 to T.
    """
    if not 1 <= steps <= timesteps:
        raise ConfigError(
            f"steps is {steps}, expected 1 to {timesteps}, the number of noise levels (timesteps)"
        )


def check_model(config: DiffusionConfig, model: Model) -> None:
    """Refuse a model of another shape.

    Raises:
      ConfigError: Names the shape of the data and of the conditions, found and expected.
    """
    found = (*jnp.shape(model.scaling.shift), *jnp.shape(model.scaling.cond_shift))
    expected = (*config.shape, config.conditions)
    if found != expected:
        raise ConfigError(
            f"the model is for data and conditions of shape {found[:-1]} and {found[-1:]}, the "
            f"configuration says {config.shape} and ({config.conditions},); use the configuration "
            "that the model was trained with (one seed of a run is `run().seed_state(i)`)"
        )


def _check_method(
    config: DiffusionConfig, method: str, steps: int | None, eta: Any
) -> tuple[int, Any]:
    """Steps and eta with their defaults filled in."""
    if method not in ("ddpm", "ddim"):
        raise ConfigError(f"method is {method!r}, expected one of ddpm, ddim")
    if method == "ddpm":
        if eta is not None:
            raise ConfigError(
                f"eta is {eta}, but ddpm fixes the noise of a step; leave eta out, or use ddim"
            )
        eta = 1.0
        steps = config.timesteps if steps is None else steps
    else:
        eta = 0.0 if eta is None else eta
        steps = min(DEFAULT_STEPS, config.timesteps) if steps is None else steps
    # Beyond 1 a step's noise may exceed the variance it should arrive at.
    if _is_number(eta) and not 0 <= eta <= 1:
        raise ConfigError(f"eta is {eta}, expected a number from 0 to 1")
    check_steps(steps, config.timesteps)
    return steps, eta


def _check_cond(config: DiffusionConfig, cond: Any, n: int, dtype: jnp.dtype) -> jax.Array:
    """Conditions as `[n, conditions]`."""
    if cond is None and config.conditions == 0:
        return jnp.zeros((n, 0), dtype)
    expected = f"[{config.conditions}] or [{n}, {config.conditions}]"
    if cond is None:
        raise ConfigError(
            f"cond is missing, expected {expected}; guidance=0 samples without looking at it"
        )
    cond = jnp.asarray(cond, dtype)
    if cond.shape not in ((config.conditions,), (n, config.conditions)):
        raise ConfigError(f"cond has shape {cond.shape}, expected {expected}")
    return jnp.broadcast_to(cond, (n, config.conditions))


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.integer, np.floating))
