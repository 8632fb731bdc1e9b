"""Conformance tests of the contracts: `check_env` and `check_learner`.

They ship with the library, so that an environment or learner written elsewhere can be
held to the same contract. Each raises an AssertionError that names what is wrong.
"""

from jaxlab.core.env_check import EnvReport, check_env
from jaxlab.core.learner_check import check_learner

__all__ = ["EnvReport", "check_env", "check_learner"]
