"""Recordings of three signal policies, made up: what they go through in an hour."""

import numpy as np

from jaxlab.shaping.reward_checks import Recording

STEPS, AGENTS = 200, 3


def recorded(seed, *, queue, speed, age):
    """Features in the order of the test catalogue around given means; a reward of the queue."""
    rng = np.random.default_rng(seed)
    means = np.array([queue, speed, 0.0, age])
    spread = rng.normal(0, 0.08, (STEPS, AGENTS, 4))
    features = np.clip(means + spread, [0, 0, -1, 0], 1).astype(np.float32)
    return Recording(features, -features[..., 0] + rng.normal(0, 0.02, (STEPS, AGENTS)))


#: The good policy keeps queues short with phases of middling length.
RECORDINGS = {
    "max_pressure": recorded(0, queue=0.15, speed=0.7, age=0.4),
    "random": recorded(1, queue=0.45, speed=0.4, age=0.15),
    "never_switch": recorded(2, queue=0.75, speed=0.2, age=0.95),
}
