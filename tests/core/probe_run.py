"""A command line around the probe learner, for tests that start, stop and kill processes."""

from __future__ import annotations

import dataclasses
import time

from jaxlab.core import cli

PRESETS = {"smoke": {"steps": 40}, "quick": {"steps": 200}, "paper": {"steps": 4000}}


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(cli.RunOptions):
    """Noisy gradient descent."""

    chunk: int = 10
    """Steps per chunk."""
    size: int = 4
    """Number of weights."""
    pause: float = 0.0
    """Time to wait between chunks [s]."""
    learning_rate: float = 0.1
    """Step size of the descent."""
    loads: tuple[int, ...] = (1, 2)
    """Numbers that nothing reads."""

    volatile = cli.RunOptions.volatile | {"pause"}


def train(options: Options) -> None:
    """Run, and leave the final state as `final.npz`."""
    import numpy as np

    from jaxlab.core import devices, figures, reporting
    from jaxlab.core.training import run
    from tests.core import probes

    def between(state, metrics, host):
        time.sleep(options.pause)
        metrics["bonus"] = np.array([host["calls"]] * options.seeds)
        return state, {"calls": host["calls"] + 1}

    result = run(
        probes.noisy_descent(options.size),
        hyper=probes.Hyper(learning_rate=options.learning_rate),
        chunk=options.chunk,
        thin=2,
        between=between,
        host={"calls": 0},
        **options.run_arguments(),
    )
    state = devices.fetch(result.state)
    if devices.is_primary():
        np.savez(options.run_dir / "final.npz", **reporting.flatten_records(state))
        figures.learning_curves(options.run_dir, result.metrics, {"loss": "loss"})
        norm = float(np.mean(result.metrics["norm"][-1]))
        reporting.write_summary(options.run_dir, {"norm": norm}, result.performance)
        reporting.print_table(["metric", "value"], [["norm", norm]])
        print(options.run_dir)


def evaluate(options: Options) -> None:
    """Print the action of the trained policy for the observation of ones."""
    import jax
    import jax.numpy as jnp

    from jaxlab.core.policies import load_policy
    from tests.core import probes

    def build(saved, host):
        hyper = probes.Hyper(learning_rate=saved["learning_rate"])
        return probes.noisy_descent(saved["size"]), hyper

    policy = load_policy(options.evaluate, build)
    print("action", float(policy(jnp.ones(options.size), jax.random.key(0))))


if __name__ == "__main__":
    cli.main("probe", Options, train, presets=PRESETS, evaluate=evaluate)
