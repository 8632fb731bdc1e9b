"""Quantum Boltzmann machines: Gibbs states of Pauli Hamiltonians, their metrics, and data."""
