"""The scene that a command line asks for: files, seeds and times resolved."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from experiments.traffic.options import Options
from jaxlab.core.errors import ConfigError
from jaxlab.envs.traffic.construction import make_environment
from jaxlab.envs.traffic.environment import TrafficSignalControl
from jaxlab.envs.traffic.json_files import member, number, read_json
from jaxlab.envs.traffic.presets import default_scenario

SECONDS = {"smoke": 300.0, "quick": 3600.0, "paper": 3600.0}


@dataclasses.dataclass(frozen=True)
class Scene:
    """What is simulated: sources of network and flow, seconds, seconds per step, seed."""

    roadnet: Path | dict[str, Any]
    flow: Path | list[Any]
    duration: float
    dt: float
    seed: int

    @property
    def steps(self) -> int:
        """Simulation steps that cover the duration."""
        return max(-int(-(self.duration / self.dt - 1e-9) // 1), 1)


def resolve(options: Options) -> Scene:
    """The scene of the options, of the configuration file they name, or the built-in one.

    Raises:
      DataError: the configuration file is missing or malformed.
      ConfigError: it asks for lane changing.
    """
    settings = {} if options.config is None else _read_config(options.config)
    dt = options.dt or settings.get("dt", 1.0)
    seed = settings.get("seed", 0) if options.seed is None else options.seed
    duration = options.duration or SECONDS[options.preset]
    roadnet = options.roadnet or settings.get("roadnet")
    flow = options.flow or settings.get("flow")
    if roadnet is None:
        roadnet, flow = default_scenario(seed)
    return Scene(roadnet, flow, duration, dt, seed)


def _read_config(path: Path) -> dict[str, Any]:
    """Settings of an engine configuration of CityFlow."""
    where, record = str(path), read_json(path)
    if "laneChange" in record and member(record, "laneChange", bool, where):
        raise ConfigError(
            f"{path}: laneChange is true, but lane changing is not simulated; set it to false"
        )
    folder = member(record, "dir", str, where)
    files = {
        name: _find(path, folder + member(record, field, str, where))
        for name, field in (("roadnet", "roadnetFile"), ("flow", "flowFile"))
    }
    dt = number(record, "interval", where)
    if dt <= 0:
        raise ConfigError(f"{path}: interval is {dt:g} s; expected a positive number")
    return {**files, "dt": dt, "seed": member(record, "seed", int, where)}


def _find(config: Path, name: str) -> Path:
    """A file named relative to the working directory, as the engine has it, or to the file."""
    beside = config.parent / name
    return beside if beside.exists() and not Path(name).exists() else Path(name)


def build(scene: Scene, options: Options) -> TrafficSignalControl:
    """The environment of a scene; its controller sets the interval between decisions."""
    return make_environment(
        scene.roadnet,
        scene.flow,
        duration=scene.duration,
        dt=scene.dt,
        seed=scene.seed,
        capacity=options.capacity,
        min_green=options.min_green,
        decision_interval=scene.dt,
    )
