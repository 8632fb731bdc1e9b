"""Options of the diffusion model: what fixes shapes and programs, and numbers a sweep varies.

This file imports neither jax nor flax, so that command lines can show it quickly.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Literal


@dataclasses.dataclass(frozen=True)
class DiffusionConfig:
    """Shapes and switches; changing one compiles a new program."""

    shape: tuple[int, ...] = (5,)
    """Shape of one row of data: `(dim,)`, or `(length, channels)` for the U-Net."""
    conditions: int = 0
    """Numbers that a sample is conditioned on; 0 for none."""
    network: Literal["mlp", "unet"] = "mlp"
    """Residual perceptron, or 1-D U-Net."""
    width: int = 256
    """Width of the perceptron's layers; channels of the U-Net's first level."""
    depth: int = 4
    """Residual blocks of the perceptron."""
    multipliers: tuple[int, ...] = (1, 2, 4)
    """Channels of each level of the U-Net, in units of `width`; each level halves the length."""
    groups: int = 4
    """Groups of the U-Net's normalisation."""
    heads: int = 4
    """Heads of the attention in the middle of the U-Net."""
    embedding: int = 64
    """Width of the embedding of time and condition; even."""

    timesteps: int = 300
    """Noise levels T of the forward process."""
    schedule: Literal["cosine", "linear"] = "cosine"
    """Noise schedule: Nichol and Dhariwal (2021), or Ho et al. (2020)."""
    prediction: Literal["velocity", "noise"] = "velocity"
    """What the network predicts: v of Salimans and Ho (2022), or the noise as in Ho et al. (2020).
    Small errors of a predicted noise grow without bound where little signal is left, which
    DDIM never corrects: on a toy with deviation 0.1, after 1000 steps, 50 DDIM steps gave
    0.28 to 0.45 from noise and 0.09 to 0.10 from v; DDPM gave 0.08 to 0.10 from both."""

    batch_size: int = 512
    """Rows per gradient step."""
    scaling: Literal["standardise", "range", "none"] = "standardise"
    """Affine map of each coordinate before training: to mean 0 and deviation 1, to [-1, 1]."""
    clip: float | None = None
    """Bound on the predicted noiseless data, in scaled units, while sampling; by default 5 for
    standardised data, 1 for data in [-1, 1], none otherwise."""
    sample_steps: int = 50
    """DDIM steps of `act`; no more than T are taken."""
    guidance: float = 1.0
    """Guidance scale of `act`: 0 ignores the condition, 1 is the conditional model."""
    dtype: Literal["float32", "float64"] = "float32"
    """Precision of parameters, data and samples; float64 needs x64 switched on."""


@dataclasses.dataclass(frozen=True)
class Hyper:
    """Numbers, data and a model to start from; a pytree once the learner is imported."""

    learning_rate: float = 5e-4
    """Step size of Adam after warm-up."""
    warmup_steps: float = 100.0
    """Steps over which the step size rises linearly from zero."""
    max_gradient_norm: float = 1.0
    """Bound on the norm of the gradient."""
    ema_decay: float = 0.995
    """Decay per step of the averaged parameters, which samples are drawn with."""
    drop_probability: float = 0.1
    """Probability of training a row without its condition, for guidance."""
    data: Any = None
    """`Data` to train on, from `dataset`."""
    start: Any = None
    """`Model` to go on from, with its scaling; None begins afresh."""
