"""Checks formulations and prints what holds."""

from __future__ import annotations

import jax

from experiments.combinatorial.options import CheckOptions
from experiments.combinatorial.problems import process_of_size
from jaxlab.core.errors import ScenarioError
from jaxlab.envs.combinatorial.formulation import check_formulation


def main(options: CheckOptions) -> None:
    """Check on some instances and print reports.

    Raises:
      ScenarioError: An assumption fails.
    """
    env, broken = process_of_size(options.problem, options.size), ""
    for number in range(options.instances):
        params = env.sample_params(jax.random.key(options.seed + number))
        report = check_formulation(env, params, samples=options.samples, seed=options.seed + number)
        print(report)
        broken = broken or ("" if report.equivalent else str(report))
    if broken:
        raise ScenarioError(f"{env.name}: the formulation is not equivalent to the problem")
