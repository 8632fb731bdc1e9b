"""Simulates a scene, prints what came of it and writes the files that were asked for."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from experiments.traffic.options import Options
from experiments.traffic.scene import Scene, build, resolve
from jaxlab.core.errors import CapacityError, ConfigError, DataError
from jaxlab.core.reporting import print_table
from jaxlab.envs.traffic.controllers import Controller, make_controller
from jaxlab.envs.traffic.demand import DRIVER_FIELDS, load_flow
from jaxlab.envs.traffic.detectors import totals
from jaxlab.envs.traffic.environment import TrafficSignalControl
from jaxlab.envs.traffic.frames import Frame, frame_of_state
from jaxlab.envs.traffic.recording import TOTALS, VEHICLE_FIELDS, Chunk, record
from jaxlab.envs.traffic.rollout import for_controller
from jaxlab.envs.traffic.signals import plan_phases

#: Seconds between two rows of lane counts in a dump.
DUMP_INTERVAL = 10.0
#: Pictures in an animation, at most.
PICTURES = 240


def main(options: Options) -> None:
    """Simulate the scene of the options.

    Raises:
      DataError, ConfigError, CapacityError: see the messages.
    """
    scene = resolve(options)
    env = build(scene, options)
    controller = make_controller(
        options.controller,
        env.simulator.network,
        dt=scene.dt,
        interval=options.interval,
        clearance=options.clearance,
        num_phases=options.phases,
        green_time=options.green_time,
    )
    run = Run(scene, for_controller(env, controller), controller, options)
    result, last = run.simulate()
    run.draw(last)
    if options.json:
        print(json.dumps(result))
    else:
        print_table(["", "value", "unit"], [[*row] for row in _rows(result)])


class Run:
    """One scene under one controller: every pass over it is the same simulation."""

    def __init__(
        self, scene: Scene, env: TrafficSignalControl, controller: Controller, options: Options
    ):
        self.scene, self.env, self.controller, self.options = scene, env, controller, options
        self.params = env.nominal_params()
        self.sampled = options.dump is not None
        self.drawn = options.replay is not None or options.gif is not None
        if self.sampled and abs(DUMP_INTERVAL / scene.dt - self.dump_steps) > 1e-6:
            raise ConfigError(f"--dump: dt of {scene.dt:g} s does not divide {DUMP_INTERVAL:g} s")

    @property
    def dump_steps(self) -> int:
        """Steps between two rows of lane counts."""
        return max(round(DUMP_INTERVAL / self.scene.dt), 1)

    def chunks(self) -> Iterator[Chunk]:
        """The simulation from its start.

        Raises:
          CapacityError: more vehicles were on the road at once than there is room for.
        """
        try:
            yield from record(
                jax.random.key(self.scene.seed),
                self.env,
                self.controller,
                self.params,
                self.scene.steps,
                totals=self.sampled,
                lanes=self.sampled,
                vehicles=self.drawn,
            )
        except CapacityError as error:
            raise CapacityError(
                f"{error} with --capacity (now {self.env.simulator.capacity}; "
                f"{len(self.params.depart_step)} vehicles depart in all)"
            ) from None

    def simulate(self) -> tuple[dict[str, Any], Chunk]:
        """What came of it, and the last chunk; writes the dump."""
        rows: list[dict[str, np.ndarray]] = []
        for chunk in self.chunks():
            last = chunk
            if self.sampled:
                rows.append(self._dump_rows(chunk))
        if self.options.dump is not None:
            write_dump(self.options.dump, self._dump(rows))
        total = totals(last.state.traffic, self.params, self.scene.dt)
        result = {
            "controller": self.options.controller,
            "duration": self.scene.steps * self.scene.dt,
            "average_travel_time": float(total.average_travel_time),
            **{name: int(getattr(total, name)) for name in TOTALS[1:]},
            "mean_queue": last.mean_queue,
        }
        return result, last

    def _dump_rows(self, chunk: Chunk) -> dict[str, np.ndarray]:
        count = len(chunk.steps["phase"])
        due = (chunk.first + 1 + np.arange(count)) % self.dump_steps == 0
        steps = chunk.steps
        return {
            "lane_count_10s": steps["count"][due],
            "lane_wait_10s": steps["waiting"][due],
            "att": steps["average_travel_time"].astype(float),
            "running": steps["running"],
            "incomplete": steps["running"] + steps["waiting_to_enter"],
            "phase": steps["phase"].astype(np.int8),
        }

    def _dump(self, rows: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
        """Arrays by name in the order of the lanes' names."""
        arrays = {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}
        lanes = np.array(self.env.net.lane_ids)
        order = np.argsort(lanes, kind="stable")
        for name in ("lane_count_10s", "lane_wait_10s"):
            arrays[name] = arrays[name][:, order]
        if self.options.controller == "plan":  # its phases are in the network file
            arrays["phase"] = np.zeros(0, np.int8)
        return {"lanes": lanes[order], **arrays, "interval": np.array(self.scene.dt)}

    def draw(self, last: Chunk) -> None:
        """Write the picture, the animation and the replay files."""
        if self.options.png is None and not self.drawn:
            return
        # Pictures need PIL, which simulations do without.
        from jaxlab.envs.traffic.animation import save_animation, save_picture
        from jaxlab.envs.traffic.rendering import Renderer
        from jaxlab.envs.traffic.replay import write_replay

        self._prepare_frames()
        title = f"{self.options.controller.replace('_', ' ')}"
        if self.options.png is not None:
            frame = self._frame(last.state.traffic, np.asarray(last.steps["phase"][-1]))
            save_picture(self.options.png, Renderer(self.env.net, title=title).draw(frame))
        if self.options.gif is not None:
            renderer = Renderer(self.env.net, title=title)
            every = -(-self.scene.steps // PICTURES)
            pictures = (renderer.draw(frame) for frame in self._frames(every))
            save_animation(self.options.gif, pictures)
        if self.options.replay is not None:
            folder = self.options.replay
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise DataError(f"--replay {folder}: cannot be made ({error})") from None
            files = folder / "roadnet.json", folder / "replay.txt"
            write_replay(*files, self.env.net, self._frames(1))

    def _prepare_frames(self) -> None:
        scene, net = self.scene, self.env.net
        demand = load_flow(scene.flow, net, duration=scene.duration, dt=scene.dt, seed=scene.seed)
        self.vehicle_ids = demand.vehicle_ids
        self.width = demand.drivers[:, list(DRIVER_FIELDS).index("width")]

    def _frame(self, traffic: Any, phase: np.ndarray) -> Frame:
        return frame_of_state(
            self.env.net,
            traffic,
            phase,
            dt=self.scene.dt,
            vehicle_length=np.asarray(self.params.drivers.length),
            vehicle_width=self.width,
            vehicle_ids=self.vehicle_ids,
        )

    def _frames(self, every: int) -> Iterator[Frame]:
        """A frame after every `every`-th step."""
        plan = None
        if self.options.controller == "plan":
            # The engine logs a step after its plan has moved on.
            plan = plan_phases(self.env.net, self.scene.steps + 1, self.scene.dt)
        for chunk in self.chunks():
            count = len(chunk.steps["phase"])
            for n in range(-(chunk.first + 1) % every, count, every):
                traffic = SimpleNamespace(**{f: chunk.steps[f][n] for f in VEHICLE_FIELDS})
                phase = chunk.steps["phase"][n]
                yield self._frame(traffic, phase if plan is None else plan[chunk.first + n + 1])


def write_dump(path: Path, arrays: dict[str, np.ndarray]) -> None:
    """Write arrays to a file that appears complete or not at all.

    Raises:
      DataError: the file cannot be written.
    """
    temporary = path.with_name(f".{path.name}.tmp.npz")
    try:
        np.savez_compressed(temporary, **arrays)
        temporary.replace(path)
    except (OSError, zipfile.BadZipFile) as error:
        raise DataError(f"--dump {path}: cannot be written ({error})") from None
    finally:
        temporary.unlink(missing_ok=True)


def _rows(result: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    units = {"duration": "s", "average_travel_time": "s", "mean_queue": "vehicles per junction"}
    for name, value in result.items():
        unit = units.get(name, "" if isinstance(value, str) else "vehicles")
        shown = f"{value:.2f}" if isinstance(value, float) else str(value)
        yield name.replace("_", " "), shown, unit
