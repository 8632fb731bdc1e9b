"""Simulators: pure functions over arrays, one package per field."""
