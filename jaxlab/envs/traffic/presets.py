"""Built-in scenarios: networks and demand that need no file."""

from __future__ import annotations

from typing import Any

import numpy as np

from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.trips import draw_demand

#: Vehicles entering the Gudang district of Hangzhou in each ten minutes of one hour
#: (16 April 2018), as published with the 4 x 4 benchmark.
HANGZHOU_PROFILE = (514, 659, 488, 445, 453, 424)
#: The same vehicles by the road on which they enter.
HANGZHOU_ORIGINS = {
    "road_0_1_0": 398,
    "road_0_2_0": 214,
    "road_0_4_0": 729,
    "road_1_0_1": 187,
    "road_4_0_1": 207,
    "road_1_5_3": 187,
    "road_5_2_2": 214,
    "road_5_3_2": 230,
    "road_5_4_2": 617,
}
#: Movements made at the sixteen junctions.
HANGZHOU_TURNS = {"go_straight": 6620, "turn_right": 3184, "turn_left": 1093}
#: Trips that end inside the district rather than at its border, and on how many roads.
HANGZHOU_INNER_TRIPS, HANGZHOU_INNER_DESTINATIONS = 55, 23


def default_scenario(seed: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A network like Hangzhou's with an hour of demand drawn from published totals.

    The network is a 4 x 4 grid of 800 m east-west and 600 m north-south roads with three
    lanes (left, straight, right). Of the 2,983 vehicles, the numbers per ten minutes and per entry
    road are exactly the published ones; departures within ten minutes, routes and the
    destinations inside the district are drawn, with the published numbers of movements
    as expectation.

    Args:
      seed: Seed of the demand; the network is always the same.

    Returns:
      Road network and flows in CityFlow's JSON formats.
    """
    roadnet = grid_roadnet(4, 4, row_distance=800.0, column_distance=600.0)
    trips = sum(HANGZHOU_PROFILE)
    rng = np.random.default_rng([seed, 1])
    virtual = {i["id"] for i in roadnet["intersections"] if i["virtual"]}
    inner = [
        road["id"]
        for road in roadnet["roads"]
        if virtual.isdisjoint((road["startIntersection"], road["endIntersection"]))
    ]
    chosen = rng.permutation(inner)[:HANGZHOU_INNER_DESTINATIONS].tolist()
    spare = rng.choice(chosen, HANGZHOU_INNER_TRIPS - len(chosen)).tolist()
    flows = draw_demand(
        roadnet,
        seed,
        trips=trips,
        duration=3600,
        profile=HANGZHOU_PROFILE,
        origins=HANGZHOU_ORIGINS,
        destinations={road: 1 + spare.count(road) for road in chosen},
        turns=HANGZHOU_TURNS,
        movements_per_trip=sum(HANGZHOU_TURNS.values()) / trips,
    )
    return roadnet, flows
