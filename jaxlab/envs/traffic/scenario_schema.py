"""Scenarios as JSON: a schema with bounds for people and programs that design them.

Beside the keywords of JSON Schema a property may carry `difficulty`: the ranges from which a
curriculum draws its value at the easy and at the hard end (`jaxlab.shaping.curricula`).
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np

from jaxlab.core.errors import ScenarioError
from jaxlab.core.json_schemas import json_problems
from jaxlab.envs.traffic import scenario as scenarios
from jaxlab.envs.traffic.params import Incidents
from jaxlab.envs.traffic.scenario import INCIDENT_LANES, PROFILE_BINS, SIDES, SURGES, Scenario

if TYPE_CHECKING:
    from jaxlab.envs.traffic.environment import TrafficSignalControl

Json = dict[str, Any]

LARGEST_DEMAND, SMALLEST_DEMAND = 2.5, 0.3
#: Bounds of driver parameters in SI units, those of cMALC-D (CIKM 2025).
DRIVER_BOUNDS = {
    "length": (1.0, 10.0),
    "max_acceleration": (0.5, 5.0),
    "max_deceleration": (0.5, 5.0),
    "usual_acceleration": (1.0, 5.0),
    "usual_deceleration": (1.0, 5.0),
    "min_gap": (1.0, 10.0),
    "max_speed": (3.0, 15.0),
    "headway_time": (1.0, 5.0),
}
#: Multipliers a curriculum draws at the hard end: slower, later, longer.
_HARD_DRIVERS = {
    "length": (1.0, 1.3),
    "max_speed": (0.75, 1.0),
    "headway_time": (1.0, 1.4),
    "usual_acceleration": (0.7, 1.0),
}
_SHARES = {"easy": [0.9, 1.1], "hard": [0.6, 1.5]}


def scenario_schema(env: TrafficSignalControl) -> Json:
    """JSON schema (draft 2020-12) of the scenarios of an environment; absent means nominal."""
    origins, duration = scenarios.origins_of(env), env.duration
    roads = list(env.net.road_ids)
    lanes = int(np.bincount(env.table["lane_road"]).max())
    places = ["everywhere", *(SIDES[n] for n in np.unique(origins.side)), *origins.names]
    demand = (min(SMALLEST_DEMAND, env.max_demand), min(LARGEST_DEMAND, env.max_demand))
    properties = {
        "name": {"type": "string", "maxLength": 100, "description": "Short name."},
        "description": {"type": "string", "maxLength": 2000, "description": "What it is like."},
        "demand": _number(
            *demand,
            "Number of vehicles relative to the nominal demand.",
            easy=[0.5 * min(1.0, env.max_demand)] * 2,
            hard=[0.9 * env.max_demand] * 2,
        ),
        "origins": _object(
            "Multiplier of the vehicles that enter on each road.",
            {
                name: _number(0, 5, f"Vehicles entering on {name}.", **_SHARES)
                for name in origins.names
            },
        ),
        "profile": _profile(duration),
        "turns": _object(
            "Weight of routes by the turns they consist of; the number of vehicles is kept.",
            {
                name: _number(0, 5, f"Weight of {text}.", **_SHARES)
                for name, text in (
                    ("straight", "going straight"),
                    ("left", "left turns"),
                    ("right", "right turns"),
                )
            },
        ),
        "surges": _array(
            "Some origins send more (or fewer) vehicles for a while.",
            SURGES,
            {
                "origin": {"enum": places, "description": "A side, a road of entry, or all."},
                "start": _number(0, duration, "Seconds."),
                "duration": _number(duration / 60, duration / 2, "Seconds."),
                "factor": _number(0, 5, "Multiplier.", easy=[1.2, 1.2], hard=[1.5, 2.5]),
            },
            hard=[0, 2],
        ),
        "incidents": _array(
            f"Closed or slowed lanes, {INCIDENT_LANES} lanes in all.",
            INCIDENT_LANES,
            {
                "road": {"enum": roads, "description": "Where."},
                "lane": {
                    "type": "integer",
                    "minimum": 0,
                    "maximum": lanes - 1,
                    "description": "Lane, 0 innermost; without it all lanes of the road.",
                    "difficulty": {"easy": [0, lanes - 1], "hard": [0, lanes - 1]},
                },
                "start": _number(0, duration, "Seconds."),
                "duration": _number(duration / 60, duration / 3, "Seconds."),
                "speed_factor": _number(
                    0,
                    1,
                    "Multiplier of the speed limit; 0 closes the lane.",
                    easy=[0.6, 0.9],
                    hard=[0, 0.5],
                ),
            },
            optional=("lane",),
            hard=[0, 2],
        ),
        "drivers": _object("Multipliers of the drivers' parameters.", _drivers(env)),
        "signals": _object(
            "Constraints of the signals.",
            {
                "clearance": _number(
                    min(3, env.clearance), max(5, env.clearance), "Seconds at a change of phase."
                ),
                "min_green": _number(
                    min(5, env.min_green),
                    max(15, env.min_green),
                    "Seconds a phase lasts at least, clearance included.",
                ),
            },
        ),
        "sensors": _object(
            "Errors of the detectors.",
            {
                "noise": _number(
                    0,
                    0.5,
                    "Standard deviation of counts, relative.",
                    easy=[0, 0],
                    hard=[0, 0.2],
                ),
                "dropout": _number(
                    0,
                    0.3,
                    "Probability that a lane's detector reads zero.",
                    easy=[0, 0],
                    hard=[0, 0.05],
                ),
            },
        ),
        "seed": {
            "type": "integer",
            "minimum": 0,
            "maximum": 2**31 - 1,
            "description": "Seed of the vehicles drawn.",
            "difficulty": {"easy": [0, 2**31 - 1], "hard": [0, 2**31 - 1]},
        },
    }
    schema = _object("Traffic scenario: changes to the nominal demand and conditions.", properties)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "scenario"} | schema


def _number(
    minimum: float,
    maximum: float,
    description: str,
    *,
    easy: list[float] | None = None,
    hard: list[float] | None = None,
) -> Json:
    schema = {
        "type": "number",
        "minimum": float(minimum),
        "maximum": float(maximum),
        "description": description,
    }
    if easy is None or hard is None:
        return schema
    inside = lambda ends: [float(np.clip(x, minimum, maximum)) for x in ends]  # noqa: E731
    return schema | {"difficulty": {"easy": inside(easy), "hard": inside(hard)}}


def _object(description: str, properties: Json, required: tuple[str, ...] = ()) -> Json:
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


def _array(
    description: str,
    most: int,
    properties: Json,
    *,
    hard: list[int],
    optional: tuple[str, ...] = (),
) -> Json:
    required = tuple(name for name in properties if name not in optional)
    return {
        "type": "array",
        "description": description,
        "maxItems": most,
        "items": _object("One of them.", properties, required),
        "difficulty": {"easy": [0, 0], "hard": hard},
    }


def _profile(duration: float) -> Json:
    level = lambda text: _number(0, 4, text)  # noqa: E731
    moment = _number(0, duration, "Seconds.")
    width = _number(duration / 36, duration / 2, "Half width of a peak, s.")
    height = _number(1, 4, "Top relative to the level far from it.", easy=[1, 1.2], hard=[1.5, 3.0])
    shapes = {
        "flat": {},
        "ramp": {
            "start": level("Multiplier at the beginning."),
            "end": level("Multiplier at the end."),
        },
        "peak": {"time": moment, "width": width, "height": height},
        "double_peak": {"first": moment, "second": moment, "width": width, "height": height},
        "bins": {
            "values": {
                "type": "array",
                "items": level("Multiplier."),
                "minItems": PROFILE_BINS,
                "maxItems": PROFILE_BINS,
                "description": f"Multipliers of {PROFILE_BINS} equal slices of time.",
            }
        },
    }
    options = [
        _object(
            f"{name.replace('_', ' ')} profile.",
            {"shape": {"const": name}, **properties},
            ("shape", *properties),
        )
        for name, properties in shapes.items()
    ]
    drawn = [n for n, name in enumerate(shapes) if name in ("flat", "peak", "double_peak")]
    return {
        "description": "Multiplier of the departures over time.",
        "oneOf": options,
        "difficulty": {"options": drawn},
    }


def _drivers(env: TrafficSignalControl) -> Json:
    """Multipliers that keep every driver type within the bounds, 1 always among them."""
    nominal, properties = env.demand.value["drivers"], {}
    for name, (low, high) in DRIVER_BOUNDS.items():
        # A driver type outside the bounds stays allowed; one at zero cannot be multiplied.
        values = nominal[name][nominal[name] > 0]
        least = min(1.0, low / values.min()) if values.size else 1.0
        most = max(1.0, high / values.max()) if values.size else 1.0
        hard = _HARD_DRIVERS.get(name)
        properties[name] = _number(
            least,
            most,
            f"Multiplier of {name.replace('_', ' ')}.",
            easy=None if hard is None else [1.0, 1.0],
            hard=None if hard is None else list(hard),
        )
    return properties


def scenario_from_json(env: TrafficSignalControl, document: Any) -> Scenario:
    """The scenario that a JSON value describes; `name` and `description` are not part of it.

    Raises:
      ScenarioError: it breaks the schema; the message names the place and the rule.
      CapacityError: it has more vehicles than the environment has room for.
    """
    if problems := json_problems(scenario_schema(env), document):
        raise ScenarioError(f"scenario: {problems[0]}")
    scenario = scenarios.nominal_scenario(env)
    real = np.dtype(scenario.demand.dtype)

    def number(value: Any) -> Any:
        return jnp.asarray(np.asarray(value, real))

    changes: dict[str, Any] = {}
    if "demand" in document:
        changes["demand"] = number(document["demand"])
    if "origins" in document:
        names = scenarios.origins_of(env).names
        changes["origins"] = number([document["origins"].get(name, 1.0) for name in names])
    if "profile" in document:
        changes["profile"] = number(_profile_values(env.duration, document["profile"]))
    if "turns" in document:
        changes["turns"] = number(_turn_weights(document["turns"]))
    if "seed" in document:
        changes["seed"] = jnp.asarray(np.int32(document["seed"]))
    changes["surges"] = _surges(env, document.get("surges", []), number)
    changes["incidents"] = _incidents(env, document.get("incidents", []), number)
    factors = {name: number(value) for name, value in document.get("drivers", {}).items()}
    changes["drivers"] = dataclasses.replace(scenario.drivers, **factors)
    for name, value in document.get("signals", {}).items():
        changes[name] = number(value)
    for name, value in document.get("sensors", {}).items():
        changes[f"sensor_{name}"] = number(value)
    scenario = scenario.replace(**changes)
    scenarios.check_scenario(env, scenario)
    return scenario


def _turn_weights(turns: Json) -> list[float]:
    weights = [turns.get(name, 1.0) for name in ("straight", "left", "right")]
    if not any(weights):
        raise ScenarioError("scenario: turns: all weights are 0; one must be positive")
    return weights


def _profile_values(duration: float, profile: Json) -> np.ndarray:
    shape = profile["shape"]
    if shape == "flat":
        return scenarios.flat()
    if shape == "ramp":
        return scenarios.ramp(profile["start"], profile["end"])
    if shape == "bins":
        return np.array(profile["values"], float)
    times = [profile[name] for name in ("time", "first", "second") if name in profile]
    return scenarios.peaks(
        duration, times=tuple(times), width=profile["width"], height=profile["height"]
    )


def _surges(env: TrafficSignalControl, records: list[Json], number: Any) -> scenarios.Surge:
    nominal = scenarios.nominal_scenario(env).surges
    masks, start, end, factor = (
        np.array(leaf) for leaf in (nominal.origins, nominal.start, nominal.end, nominal.factor)
    )
    for n, record in enumerate(records):
        masks[n] = scenarios.origin_mask(env, record["origin"])
        start[n], end[n] = record["start"], record["start"] + record["duration"]
        factor[n] = record["factor"]
    return scenarios.Surge(jnp.asarray(masks), number(start), number(end), number(factor))


def _incidents(env: TrafficSignalControl, records: list[Json], number: Any) -> Incidents:
    road_of_lane = env.table["lane_road"]
    names = env.net.road_ids
    rows: list[tuple[int, float, float, float]] = []
    for n, record in enumerate(records):
        lanes = np.flatnonzero(road_of_lane == names.index(record["road"]))
        if "lane" in record:
            if record["lane"] >= len(lanes):
                raise ScenarioError(
                    f"scenario: incidents[{n}].lane: {record['road']} has the lanes 0 to "
                    f"{len(lanes) - 1}, not {record['lane']}"
                )
            lanes = lanes[[record["lane"]]]
        end = record["start"] + record["duration"]
        rows += [(int(lane), record["start"], end, record["speed_factor"]) for lane in lanes]
    if len(rows) > INCIDENT_LANES:
        raise ScenarioError(
            f"scenario: incidents: {len(rows)} lanes are concerned, there is room for "
            f"{INCIDENT_LANES}; name single lanes"
        )
    rows += [(-1, 0.0, 0.0, 1.0)] * (INCIDENT_LANES - len(rows))
    lane, start, end, factor = (np.array(column) for column in zip(*rows, strict=True))
    return Incidents(
        lane=jnp.asarray(lane.astype(np.int32)),
        start=number(start),
        end=number(end),
        speed_factor=number(factor),
    )
