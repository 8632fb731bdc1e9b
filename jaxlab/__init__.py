"""Simulators and learners of many fields as pure, compiled JAX functions.

Importing this package is cheap and starts no accelerator backend: the wings
(`jaxlab.envs`, `jaxlab.agents`, ...) are imported by name when they are needed.
"""

__version__ = "0.1.0"
