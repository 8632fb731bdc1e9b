"""Constrained Markov decision processes with average reward: exact answers and simulators."""
