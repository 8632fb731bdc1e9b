"""Options of the traffic simulation; imports nothing heavy."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Literal

from jaxlab.core.errors import ConfigError
from jaxlab.core.options import DeviceOptions

ControllerName = Literal[
    "plan", "fixed_time", "max_pressure", "max_pressure_queue", "sotl", "random"
]


@dataclasses.dataclass(frozen=True, kw_only=True)
class Options(DeviceOptions):
    """Simulate traffic on a road network under a signal controller.

    Without files: a 4 x 4 grid of Hangzhou's geometry with an hour of demand. Networks and
    flows are CityFlow's JSON files; travel times are by CityFlow's definition: the mean over
    all vehicles that departed, trip time of the arrived and age of the others, waiting to
    enter included.
    """

    roadnet: Path | None = None
    """Road network in CityFlow's format; needs --flow."""
    flow: Path | None = None
    """Flow in CityFlow's format; needs --roadnet."""
    config: Path | None = None
    """Engine configuration of CityFlow naming both; --roadnet, --flow, --dt and --seed go first.
    Lane changing is not simulated: a configuration that asks for it is refused."""
    controller: ControllerName = "max_pressure"
    """Signal controller: plan is the one in the network file."""
    preset: Literal["smoke", "quick", "paper"] = "quick"
    """Sets the default of --duration: 300 s for smoke, else the benchmarks' hour."""
    duration: float | None = None
    """Seconds to simulate; 3600 by default."""
    dt: float | None = None
    """Seconds per simulation step; 1 by default."""
    seed: int | None = None
    """Seed of what is random: entry lanes where several will do, the built-in demand, the
    random controller; 0 by default."""
    interval: float | None = None
    """Seconds between decisions; 10 by default, every step for the plan."""
    clearance: float | None = None
    """Seconds without right of way (but right turns) at a change of phase; 5 by default, none
    for the plan, which has clearance phases of its own."""
    phases: int | None = None
    """Use only the first so many green phases of each junction."""
    green_time: float = 30.0
    """Seconds per phase of fixed_time, clearance included."""
    min_green: float = 0.0
    """Seconds a phase lasts at least, clearance included."""
    capacity: int | None = None
    """Vehicles that fit on the road at once; by default with room for all."""
    json: bool = False
    """Print one JSON object instead of a table."""
    dump: Path | None = None
    """File (.npz) for vehicles and waiting vehicles per lane every 10 s, travel time and numbers
    of vehicles every step, and the phases of all controllers but the plan."""
    replay: Path | None = None
    """Folder for roadnet.json and replay.txt, which CityFlow's viewer shows."""
    gif: Path | None = None
    """File for an animation (.gif, or .mp4 where ffmpeg is installed)."""
    png: Path | None = None
    """File for a picture of the end of the simulation."""

    def check(self) -> None:
        super().check()
        if self.config is None and (self.roadnet is None) != (self.flow is None):
            given, missing = ("roadnet", "flow") if self.flow is None else ("flow", "roadnet")
            raise ConfigError(
                f"--{given} needs --{missing} as well; without both the built-in network is used"
            )
        for name in ("duration", "dt", "interval", "green_time"):
            value = getattr(self, name)
            if value is not None and not 0 < value < float("inf"):
                raise ConfigError(
                    f"--{name.replace('_', '-')} {value:g}: expected a positive number of seconds"
                )
        for name in ("clearance", "min_green", "seed"):
            self.at_least(name, 0)
        for name in ("phases", "capacity"):
            self.at_least(name, 1)
        if self.gif is not None and self.gif.suffix.lower() not in (".gif", ".mp4"):
            raise ConfigError(f"--gif {self.gif}: expected a file ending in .gif or .mp4")
        for name, ending in (("dump", ".npz"), ("png", ".png")):
            path = getattr(self, name)
            if path is not None and path.suffix.lower() != ending:
                raise ConfigError(f"--{name} {path}: expected a file ending in {ending}")
        for name in ("dump", "gif", "png"):
            path = getattr(self, name)
            if path is not None and not path.parent.is_dir():
                raise ConfigError(
                    f"--{name} {path}: there is no folder {path.parent}; make it first"
                )
