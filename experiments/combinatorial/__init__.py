"""Combinatorial problems: exact solvers, heuristics, and values learnt by reinforcement."""
