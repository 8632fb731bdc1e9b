"""What a search has seen: states by their fingerprint, and parts of them.

A state is novel if some place shows a colour that it did not show before: width-one novelty of
Lipovetzky and Geffner, "Width and serialization of classical planning problems" (ECAI 2012),
counted apart for each distance from the goal, as in their best-first width search (AAAI 2017).
"""

from __future__ import annotations

import jax.numpy as jnp
from flax import struct
from jaxtyping import Array, Bool, Float, Int, UInt32

#: Distances from the goal that are told apart; the last row counts all of them.
DISTANCES = 16
#: Places in the tables of fingerprints and of features.
FINGERPRINTS, FEATURES = 1 << 18, 1 << 14


@struct.dataclass
class Seen:
    """Tables of what was seen.

    Attributes:
      fingerprints: The last fingerprint at each place, 0 for none.
      atoms: Whether a place showed a colour, by distance from the goal.
      features: Whether a feature was seen.
    """

    fingerprints: UInt32[Array, " fingerprints"]
    atoms: Bool[Array, "distances places colours"]
    features: Bool[Array, " features"]


def nothing_seen(places: int, colours: int) -> Seen:
    """Tables of a new search."""
    return Seen(
        jnp.zeros(FINGERPRINTS, jnp.uint32),
        jnp.zeros((DISTANCES + 1, places, colours), bool),
        jnp.zeros(FEATURES, bool),
    )


def are_new(
    seen: Seen, fingerprints: UInt32[Array, " states"], valid: Bool[Array, " states"]
) -> tuple[Seen, Bool[Array, " states"]]:
    """Which states were not seen, the first one among equals, and the tables with them.

    A state may pass for new again once another one has taken its place in the table.
    """
    fingerprints = jnp.maximum(fingerprints, 1)
    slots = fingerprints % FINGERPRINTS
    order = jnp.arange(len(fingerprints), dtype=jnp.int32)
    first = jnp.full(FINGERPRINTS, len(fingerprints), jnp.int32)
    first = first.at[slots].min(jnp.where(valid, order, len(fingerprints)))
    new = valid & (first[slots] == order) & (seen.fingerprints[slots] != fingerprints)
    kept = jnp.where(new, slots, FINGERPRINTS)
    table = seen.fingerprints.at[kept].set(fingerprints, mode="drop")
    return seen.replace(fingerprints=table), new  # type: ignore[attr-defined]


def novelty(
    seen: Seen,
    frames: Int[Array, "states places"],
    features: UInt32[Array, "states features"],
    distances: Int[Array, " states"],
    valid: Bool[Array, " states"],
) -> tuple[Seen, Float[Array, " states"]]:
    """How new states are, from 0 to 7, and the tables with them.

    4 for a colour that a place never showed, 2 for one it did not show as near the goal, 1
    for a new feature.
    """
    near = jnp.minimum(distances, DISTANCES - 1)
    places = jnp.arange(frames.shape[1], dtype=jnp.int32)
    ever = ~seen.atoms[DISTANCES, places, frames].all(1)
    here = ~seen.atoms[near[:, None], places, frames].all(1)
    slots = features % FEATURES
    inside = ~seen.features[slots].all(1)
    atoms = seen.atoms.at[near[:, None], places, frames].max(valid[:, None])
    atoms = atoms.at[DISTANCES, places, frames].max(valid[:, None])
    seen = seen.replace(  # type: ignore[attr-defined]
        atoms=atoms,
        features=seen.features.at[slots].max(jnp.broadcast_to(valid[:, None], slots.shape)),
    )
    level = 4.0 * ever + 2.0 * here + 1.0 * inside
    return seen, jnp.where(valid, level, 0).astype(jnp.float32)


def forget_states(seen: Seen) -> Seen:
    """The tables for another search: parts are known, states may be visited again."""
    blank = jnp.zeros_like(seen.fingerprints)
    return seen.replace(fingerprints=blank)  # type: ignore[attr-defined]
