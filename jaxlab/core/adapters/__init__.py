"""Adapters to and from the environment interfaces of other libraries, one file each.

The foreign library is imported when an adapter is called, not before: some of them start
the backend when imported.
"""

from jaxlab.core.adapters.gymnasium import to_gymnasium, to_gymnasium_vector
from jaxlab.core.adapters.gymnax import to_gymnax
from jaxlab.core.adapters.jaxmarl import to_jaxmarl
from jaxlab.core.adapters.jumanji import from_jumanji, to_jumanji
from jaxlab.core.adapters.pettingzoo import to_pettingzoo

__all__ = [
    "from_jumanji",
    "to_gymnasium",
    "to_gymnasium_vector",
    "to_gymnax",
    "to_jaxmarl",
    "to_jumanji",
    "to_pettingzoo",
]
