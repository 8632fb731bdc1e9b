"""Microscopic traffic simulation and signal control on CityFlow's network format."""
