"""Speed of the traffic simulator, with CityFlow beside it where it is installed.

    python -m benchmarks.traffic [--roadnet R --flow F] [--batches 1 16 256] [--json FILE]

Simulated seconds per CPU-second of one core, the plan of the network file and max
pressure, from an empty network over `--duration` seconds; compile time and memory apart.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from jaxlab.core import cli
from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions

#: Seconds for which a part of the vehicle slots is chosen, as the environment does.
BLOCK = 10


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """Simulated seconds per CPU-second, batched and not, with CityFlow where it is importable."""

    roadnet: Path | None = None
    """Road network in CityFlow's format; the built-in one by default."""
    flow: Path | None = None
    """Flow in CityFlow's format."""
    batches: tuple[int, ...] = (1, 16, 256)
    """Copies simulated at once."""
    group: int = 16
    """Copies laid side by side; larger batches are mapped over groups, which stay in the cache."""
    duration: float = 3600.0
    """Simulated seconds per copy at batch 1; larger batches do a tenth of them."""
    repeats: int = 3
    """Timed repetitions; the best and the median are reported."""
    json: Path | None = None
    """File for the results."""

    def check(self) -> None:
        super().check()
        if (self.roadnet is None) != (self.flow is None):
            raise ConfigError("--roadnet and --flow go together")
        for batch in self.batches:
            if batch < 1 or (batch > self.group and batch % self.group):
                raise ConfigError(f"--batches {batch}: expected a multiple of {self.group} or less")


def main(options: Options) -> None:
    """Measure and print."""
    import jax

    from jaxlab.core import reporting
    from jaxlab.envs.traffic.construction import make_environment
    from jaxlab.envs.traffic.presets import default_scenario

    if options.roadnet is None or options.flow is None:
        network, flow = default_scenario(0)
        name = "built-in 4x4"
    else:
        network, flow = options.roadnet, options.flow
        name = options.roadnet.parent.name or options.roadnet.name
    env = make_environment(network, flow, duration=options.duration)
    rows: list[dict[str, Any]] = []
    for controller in ("plan", "max_pressure"):
        phases = None if controller == "plan" else max_pressure_phases(env, int(options.duration))
        peer = cityflow(network, flow, int(options.duration), phases)
        for batch in options.batches:
            rows.append(
                {"controller": controller, "batch": batch}
                | measure(options, env, controller, batch)
            )
            # Against the same stretch of the same scene.
            stretch = "hour" if batch == 1 else "middle"
            rows[-1]["ratio"] = rows[-1]["best"] / peer[stretch]["best"] if peer else None
        for stretch, row in (peer or {}).items():
            rows.append({"controller": controller, "batch": f"CityFlow, {stretch}"} | row)
    title = f"Simulated seconds per CPU-second, {name}, {jax.devices()[0].device_kind}"
    columns = ["controller", "batch", "best", "median", "ratio", "compile_s", "memory_mib"]
    columns.append("travel_time_s")
    table = [["-" if row.get(c) is None else row[c] for c in columns] for row in rows]
    reporting.print_table(columns, table, title=title)
    if peer is None:
        print("CityFlow is not importable here, so there is no ratio")
    if options.json is not None:
        document = {"network": name, "rows": rows, "provenance": reporting.provenance()}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


def whole(duration: float) -> int:
    """A duration in whole blocks (s)."""
    return int(duration) // BLOCK * BLOCK


def middle(duration: float) -> tuple[int, int]:
    """Beginning and length (s) of what larger batches simulate: a tenth, when roads are full."""
    return whole(min(1200, duration / 3)), whole(max(duration / 10, 60))


def measure(options: Options, env: Any, name: str, batch: int) -> dict[str, Any]:
    """Time one controller at one batch size."""
    import jax
    import jax.numpy as jnp

    from jaxlab.envs.traffic.controllers import make_controller
    from jaxlab.envs.traffic.detectors import totals
    from jaxlab.envs.traffic.rollout import for_controller
    from jaxlab.envs.traffic.signals import plan_phases

    warm, seconds = (0, whole(options.duration)) if batch == 1 else middle(options.duration)
    simulator, params = env.simulator, env.nominal_params()
    plan = jnp.asarray(plan_phases(env.net, warm + seconds, simulator.dt))
    controller = make_controller("max_pressure", simulator.network)
    fitted = for_controller(env, controller)

    def steps(state, phases):
        def block(simulator, state, phases):
            return jax.lax.scan(lambda s, p: (simulator.step(s, p, params), None), state, phases)

        def blocks(state, phases):
            run = functools.partial(block, phases=phases)
            return simulator.within(state, params, BLOCK, run)

        phases = phases.reshape(-1, BLOCK, phases.shape[-1])
        return jax.lax.scan(blocks, state, phases)[0]

    start = (
        jax.jit(steps)(simulator.reset(params), plan[:warm]) if warm else simulator.reset(params)
    )

    def under_plan(state):
        return totals(steps(state, plan[warm:]), params, simulator.dt).average_travel_time

    def under_max_pressure(state):
        first, _ = fitted.reset(jax.random.key(0), params)
        first = first.replace(traffic=state)

        def decide(state, n):
            _, phase = controller.act(jax.random.key(0), (), fitted.detectors(state))
            return fitted.advance(jax.random.key(0), state, phase, params)[0], None

        decisions = jnp.arange(seconds // int(controller.interval))
        state = jax.lax.scan(decide, first, decisions)[0].traffic
        return totals(state, params, simulator.dt).average_travel_time

    one = under_plan if name == "plan" else under_max_pressure
    groups, size = max(batch // options.group, 1), min(batch, options.group)
    states = jax.tree.map(lambda x: jnp.broadcast_to(x, (groups, size, *x.shape)), start)
    run = jax.jit(lambda states: jax.lax.map(jax.vmap(one), states))
    began = time.perf_counter()
    program = run.lower(states).compile()
    compile_seconds = time.perf_counter() - began
    travel_time = jax.block_until_ready(program(states))
    rates = []
    for _ in range(options.repeats):
        began = time.process_time()
        jax.block_until_ready(program(states))
        rates.append(seconds * batch / (time.process_time() - began))
    memory = program.memory_analysis()
    used = memory.temp_size_in_bytes + memory.argument_size_in_bytes + memory.output_size_in_bytes
    return _rates(rates) | {
        "compile_s": compile_seconds,
        "memory_mib": used / 2**20,
        # Of the whole hour, to see that the engines simulate the same scene.
        "travel_time_s": float(travel_time.mean()) if batch == 1 else None,
    }


def max_pressure_phases(env: Any, seconds: int) -> list[list[tuple[str, int]]]:
    """Phases that max pressure changes to, by junction and second, for an engine that replays them."""
    import jax
    import jax.numpy as jnp
    import numpy as np

    from jaxlab.envs.traffic.controllers import make_controller
    from jaxlab.envs.traffic.rollout import for_controller

    controller = make_controller("max_pressure", env.simulator.network)
    fitted, params = for_controller(env, controller), env.nominal_params()
    interval = int(controller.interval)

    def decide(state, n):
        _, phase = controller.act(jax.random.key(0), (), fitted.detectors(state))
        shown = fitted.phase_shown(state, phase, params)
        return fitted.advance(jax.random.key(0), state, phase, params)[0], (shown, phase)

    first, _ = fitted.reset(jax.random.key(0), params)
    _, (shown, phase) = jax.jit(
        lambda first: jax.lax.scan(decide, first, jnp.arange(seconds // interval))
    )(first)
    by_second = np.repeat(np.asarray(phase), interval, 0)
    clearance = np.arange(len(by_second)) % interval < controller.clearance
    by_second[clearance] = np.repeat(np.asarray(shown), interval, 0)[clearance]
    changed = np.diff(by_second, axis=0, prepend=-1) != 0
    names = env.net.junction_ids
    return [
        [(names[j], int(now[j])) for j in np.flatnonzero(change)]
        for now, change in zip(by_second, changed, strict=True)
    ]


_PEER = """
import json, os, sys, time
import cityflow
engine, steps = cityflow.Engine(sys.argv[1], thread_num=1), int(sys.argv[2])
phases = json.load(open(sys.argv[3]))
first, count = int(sys.argv[4]), int(sys.argv[5])
clock = [time.process_time()]
for n in range(steps):
    if n in (first, first + count):
        clock.append(time.process_time())
    for junction, phase in phases[n] if n < len(phases) else ():
        engine.set_tl_phase(junction, phase)
    engine.next_step()
clock.append(time.process_time())
spent = [clock[-1] - clock[0], clock[2] - clock[1]]
print(json.dumps([*spent, engine.get_average_travel_time()]), flush=True)
os._exit(0)  # the engine's destructor can hang
"""


def cityflow(
    network: Any,
    flow: Any,
    steps: int,
    phases: list[list[tuple[str, int]]] | None,
    repeats: int = 5,
) -> dict[str, dict[str, Any]] | None:
    """The same hour by CityFlow, and its middle, in processes of its own; None without it.

    Under the plan of the file, or with `phases` that it only replays: what a controller
    would cost there is left out.
    """
    try:
        import importlib.util

        if importlib.util.find_spec("cityflow") is None:
            return None
    except ImportError:
        return None
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for label, source in (("roadnet.json", network), ("flow.json", flow)):
            text = Path(source).read_text() if isinstance(source, Path) else json.dumps(source)
            (Path(folder) / label).write_text(text)
            files.append(label)
        config = {
            "interval": 1.0,
            "seed": 0,
            "dir": folder + os.sep,
            "roadnetFile": files[0],
            "flowFile": files[1],
            "rlTrafficLight": phases is not None,
            "laneChange": False,
            "saveReplay": False,
        }
        path = Path(folder) / "config.json"
        path.write_text(json.dumps(config))
        changes = Path(folder) / "phases.json"
        changes.write_text(json.dumps(phases or []))
        warm, seconds = middle(steps)
        arguments = [str(path), str(steps), str(changes), str(warm), str(seconds)]
        hours, middles = [], []
        for _ in range(repeats):
            done = subprocess.run(
                [sys.executable, "-c", _PEER, *arguments],
                capture_output=True,
                text=True,
                check=True,
            )
            hour, part, travel_time = json.loads(done.stdout.strip().splitlines()[-1])
            hours.append(steps / hour)
            middles.append(seconds / part)
    return {"hour": _rates(hours) | {"travel_time_s": travel_time}, "middle": _rates(middles)}


def _rates(rates: list[float]) -> dict[str, Any]:
    return {"best": max(rates), "median": sorted(rates)[len(rates) // 2]}


if __name__ == "__main__":
    cli.main("benchmarks.traffic", Options, main)
