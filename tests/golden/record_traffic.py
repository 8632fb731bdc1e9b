"""Records what CityFlow does on small scenes made by our own generator.

Needs CityFlow's Python module (https://github.com/cityflow-project/CityFlow, commit
81ee0f4 was used):

    python tests/golden/record_traffic.py

writes `traffic/NAME.json.gz` beside it: the scene (`roadnet`, `flow`, `dt`, `seed`,
`steps`, `phase` where phases are set from outside) and under `recorded` what the engine
gave: `att`, `running`, `incomplete` after every step, `count` and `waiting` by lane every
ten seconds, `vehicles` {step: {id: [drivable, m, m/s]}} every 25 steps.
"""

from __future__ import annotations

import gzip
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

import numpy as np

from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.trips import CAR, draw_demand

HERE = pathlib.Path(__file__).parent
Json = dict[str, Any]


def scene(
    roadnet: Json, flow: list[Json], steps: int, dt: float = 1.0, seed: int = 0, phase: Any = None
) -> Json:
    """A scene as it is written."""
    fields = {"roadnet": roadnet, "flow": flow, "steps": steps, "dt": dt, "seed": seed}
    return fields | ({} if phase is None else {"phase": phase})


def busy_junction() -> Json:
    """One junction under the plan of its file, with queues and left turns."""
    roadnet = grid_roadnet(1, 1, row_distance=250.0, column_distance=180.0, green_time=12.0)
    return scene(roadnet, draw_demand(roadnet, 1, trips=240, duration=240), 300)


def drawn_phases() -> Json:
    """Phases drawn every ten seconds; two shared lanes, so that first lanes are drawn too;
    every vehicle with parameters of its own, and a stream that does not end."""
    roadnet = grid_roadnet(
        2,
        2,
        row_distance=(200.0, 150.0, 260.0),
        column_distance=170.0,
        intersection_width=20.0,
        lanes=("left+straight", "straight+right"),
        max_speed=13.9,
    )
    rng = np.random.default_rng(2)
    flow = draw_demand(roadnet, 2, trips=200, duration=200)
    for record in flow:
        record["vehicle"] = {
            "length": round(rng.uniform(3.5, 9.0), 2),
            "width": 2.0,
            "maxPosAcc": round(rng.uniform(1.5, 2.8), 2),
            "maxNegAcc": round(rng.uniform(4.0, 6.0), 2),
            "usualPosAcc": round(rng.uniform(1.2, 2.2), 2),
            "usualNegAcc": round(rng.uniform(3.0, 4.5), 2),
            "minGap": round(rng.uniform(1.5, 3.0), 2),
            "maxSpeed": round(rng.uniform(9.0, 16.0), 2),
            "headwayTime": round(rng.uniform(1.0, 2.2), 2),
        }
    stream = {"vehicle": CAR, "route": flow[0]["route"], "interval": 2.5, "startTime": 20}
    flow.append(stream | {"endTime": -1})
    phase = np.zeros((300, 4), int)
    for n in range(0, 300, 10):
        drawn = rng.integers(1, 9, 4)
        same = n == 0 or drawn == phase[n - 1]
        phase[n : n + 10] = drawn
        phase[n : n + 5] = np.where(same, drawn, 0)
    return scene(roadnet, flow, 300, seed=3, phase=phase.tolist())


def half_seconds() -> Json:
    """Steps of half a second; bent roads, links without points, routes given by their ends."""
    roadnet = grid_roadnet(2, 2, row_distance=160.0, column_distance=160.0, green_time=9.5)
    for road in roadnet["roads"]:
        a, b = road["points"]
        middle = {"x": (a["x"] + b["x"]) / 2 + 3.5, "y": (a["y"] + b["y"]) / 2 - 2.25}
        road["points"] = [a, middle, b]
    for link in (k for i in roadnet["intersections"] for k in i["roadLinks"]):
        for lane_link in link["laneLinks"]:
            del lane_link["points"]
    flow = draw_demand(roadnet, 4, trips=140, duration=110)
    for record in flow:
        record["route"] = [record["route"][0], record["route"][-1]]
    return scene(roadnet, flow, 300, dt=0.5)


SCENES = {f.__name__: f for f in (busy_junction, drawn_phases, half_seconds)}


#: Engines are never destroyed: their destructor can hang.
_alive: list[Any] = []


def run(scene: Json, folder: pathlib.Path) -> Json:
    """What CityFlow does on a scene."""
    import cityflow  # only the recorder needs it

    for name in ("roadnet", "flow"):
        (folder / f"{name}.json").write_text(json.dumps(scene[name]))
    config = {
        "interval": scene["dt"],
        "seed": scene["seed"],
        "dir": f"{folder}/",
        "roadnetFile": "roadnet.json",
        "flowFile": "flow.json",
        "rlTrafficLight": "phase" in scene,
        "laneChange": False,
        "saveReplay": False,
    }
    (folder / "config.json").write_text(json.dumps(config))
    engine = cityflow.Engine(str(folder / "config.json"), 1)
    _alive.append(engine)
    junctions = [i["id"] for i in scene["roadnet"]["intersections"] if not i["virtual"]]
    every = round(10 / scene["dt"])
    names = ("att", "running", "incomplete", "count", "waiting")
    out: Json = {name: [] for name in names} | {"vehicles": {}}
    for n in range(scene["steps"]):
        if "phase" in scene:
            for junction, phase in zip(junctions, scene["phase"][n], strict=True):
                engine.set_tl_phase(junction, phase)
        engine.next_step()
        out["att"].append(engine.get_average_travel_time())
        out["running"].append(engine.get_vehicle_count())
        out["incomplete"].append(len(engine.get_vehicles(include_waiting=True)))
        if (n + 1) % every == 0:
            for name, lanes in (
                ("count", engine.get_lane_vehicle_count()),
                ("waiting", engine.get_lane_waiting_vehicle_count()),
            ):
                out["lanes"] = sorted(lanes)
                out[name].append([lanes[lane] for lane in out["lanes"]])
        if (n + 1) % 25 == 0:
            out["vehicles"][n + 1] = {
                v: [i["drivable"], float(i["distance"]), float(i["speed"])]
                for v in engine.get_vehicles()
                for i in (engine.get_vehicle_info(v),)
            }
    return out


def write(name: str) -> None:
    """Record one scene and leave the process at once."""
    made = SCENES[name]()
    with tempfile.TemporaryDirectory() as folder:
        recorded = run(made, pathlib.Path(folder))
        text = json.dumps(made | {"recorded": recorded}, separators=(",", ":"))
        (HERE / "traffic" / f"{name}.json.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        last = {k: recorded[k][-1] for k in ("att", "running", "incomplete")}
        print(name, last, flush=True)
    os._exit(0)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        write(sys.argv[1])
    for each in SCENES:
        subprocess.run([sys.executable, __file__, each], check=True)
