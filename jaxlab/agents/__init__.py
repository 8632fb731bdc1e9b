"""Learners: pairs of pure functions that know environments only by their contract."""
