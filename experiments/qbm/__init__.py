"""Quantum Boltzmann machines: Gibbs states of Pauli terms, and training them by em."""
