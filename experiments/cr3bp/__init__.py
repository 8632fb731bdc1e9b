"""Spacecraft in the three-body problem: arcs, low thrust, periodic orbits and their families."""
