"""Constrained decision processes with average reward: exact answers, primal-dual actor-critic."""
