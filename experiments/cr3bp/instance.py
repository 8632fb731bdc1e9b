"""The two transfers of the study, and how good initial costates are for them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.cr3bp.study_options import StudyOptions
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.objective import Objective
from jaxlab.envs.cr3bp.orbits import correct
from jaxlab.envs.cr3bp.rendezvous import Cost
from jaxlab.envs.cr3bp.systems import get_system
from jaxlab.envs.cr3bp.transfers import Transfer, circular_start, make_transfer, thruster_in_units

#: Where the transfer that is asked about ends, and the system with the mass ratio of the other.
TARGET, RELATED = "st-dro", "jupiter-europa"
#: Of the spacecraft: kg and seconds.
MASS, SPECIFIC_IMPULSE = 25_000.0, 7365.0
#: Deviations of the costates that random search draws, log-uniform between these.
DEVIATIONS = (0.03, 0.3)
#: Values at once on the host.
BATCH = 1024
OBJECTIVE = Objective()


class Instance(NamedTuple):
    """A transfer, and what a model is conditioned on: the logarithm of the mass parameter."""

    transfer: Transfer
    condition: np.ndarray


def instance(options: StudyOptions, related: bool) -> Instance:
    """The transfer asked about, or the related one.

    Both have the same start, target size and spacecraft in units of the system; the target orbit
    is corrected for the mass parameter.
    """
    row = published_orbit(TARGET)
    mu = (get_system(RELATED) if related else row.system).mass_parameter
    orbit = correct(row.initial(), row.period, mu, fixed="x")
    thruster = thruster_in_units(
        row.system, thrust=options.thrust, mass=MASS, specific_impulse=SPECIFIC_IMPULSE
    )
    transfer = make_transfer(
        mu,
        circular_start(mu, options.radius),
        thruster,
        np.asarray(orbit.state)[[0, 1, 3, 4]],
        float(orbit.period),
        duration=options.duration,
        weights=options.weights,
    )
    return Instance(transfer, np.array([np.log10(mu)]))


def draw_costates(key: jax.Array, count: int, size: int = 4) -> jax.Array:
    """Costates for random search, `[count, size]`: normal, of a deviation drawn for each."""
    scale_key, key = jax.random.split(key)
    low, high = np.log(DEVIATIONS)
    scale = jnp.exp(jax.random.uniform(scale_key, (count, 1), minval=low, maxval=high))
    return scale * jax.random.normal(key, (count, size))


def density_with_metric(transfer: Transfer) -> Callable[[jax.Array, jax.Array], Any]:
    """-J* of costates `[4]`, its gradient and a metric `[4, 4]` for an inverse temperature.

    beta A^T A / (gap + 1 / beta) + 1 / s^2 with A the gap's derivative, which comes with the
    gradient: beta J* bends like that across a valley of small gaps. s is the largest deviation
    that random search draws.
    """

    def value(costates: jax.Array, beta: jax.Array) -> Any:
        cost, slope = OBJECTIVE.cost_and_slope(costates, transfer)
        stiff = beta / (cost.gap + 1 / beta)
        prior = jnp.eye(len(costates)) / DEVIATIONS[1] ** 2
        return -cost.value, -slope.gradient, stiff * slope.gap.T @ slope.gap + prior

    return value


@functools.cache
def _cost() -> Any:
    return jax.jit(OBJECTIVE.cost)


def costs(costates: Any, transfer: Transfer) -> Cost:
    """Costs of any number of costates `[..., 4]`, compiled once for all numbers."""
    costates = np.asarray(costates, np.float64)
    flat = costates.reshape(-1, costates.shape[-1])
    padding = -len(flat) % BATCH
    # Filled up with the last: a row that costs much would keep the others waiting.
    padded = np.concatenate([flat, np.repeat(flat[-1:], padding, 0)])
    parts = [_cost()(jnp.asarray(part), transfer) for part in padded.reshape(-1, BATCH, 4)]
    joined = jax.tree.map(lambda *leaves: np.concatenate(leaves)[: len(flat)], *parts)
    return jax.tree.map(lambda leaf: leaf.reshape((*costates.shape[:-1], *leaf.shape[1:])), joined)
