"""Problems that tests of the learners share."""

from __future__ import annotations

import functools

import numpy as np

from experiments.qbm.problems import dual_problem, restricted_problem
from jaxlab.envs.qbm import datasets
from jaxlab.envs.qbm.pauli import PauliStrings
from jaxlab.envs.qbm.restricted import RestrictedModel
from tests.envs.qbm import oracles

XZ = RestrictedModel(2, 1, "XZ")
PAIR = np.array(oracles.PAIR)
SMALL = RestrictedModel(3, 2, "transverse")


@functools.cache
def pair():
    """Eight parameters, and a target of full support."""
    return restricted_problem(XZ, PAIR)


@functools.cache
def small():
    """The machine of Kimura et al. with three visible and two hidden units, even parity."""
    return restricted_problem(SMALL, datasets.parity(3))


@functools.cache
def noncommuting():
    """One visible and one hidden qubit with operators that do not commute."""
    return dual_problem(PauliStrings(oracles.PAIR_TERMS), (1,), oracles.PAIR_TARGET)
