"""Index tables of a network and its paths as the simulator gathers from them."""

from __future__ import annotations

import numpy as np

from jaxlab.core.environment import Constant
from jaxlab.envs.traffic.demand import Demand
from jaxlab.envs.traffic.roadnet import RIGHT, STRAIGHT, RoadNet
from jaxlab.envs.traffic.signals import green_phases, with_clearance


def network_tables(net: RoadNet) -> Constant:
    """Tables over drivables `[D + 1]` (the last row is nowhere), links, lanes, junctions."""
    lanes = net.num_lanes
    foe = np.where(net.cross_foe >= 0, net.cross_foe, 0)
    present = net.cross_foe >= 0
    foe_distance = np.where(present, net.cross_distance[foe, net.cross_slot], 0)
    fan = np.concatenate([net.lane_links, np.full((1, net.lane_links.shape[1]), -1)])
    incoming = [np.flatnonzero(net.road_end == j) for j in range(net.num_junctions)]
    approach = [np.flatnonzero(np.isin(net.lane_road, roads)) for roads in incoming]
    outgoing = [np.flatnonzero(net.road_start == j) for j in range(net.num_junctions)]
    leaving = [np.flatnonzero(np.isin(net.lane_road, roads)) for roads in outgoing]
    green, clearance = green_phases(net)
    return Constant(
        {
            "length": np.append(net.length, 0.0),
            "max_speed": np.append(net.max_speed, 10_000.0),
            "link_start": net.link_start.astype(np.int32),
            "link_end": net.link_end.astype(np.int32),
            "link_junction": net.link_junction.astype(np.int32),
            "link_movement": net.link_movement.astype(np.int32),
            "link_turns": net.link_rank != STRAIGHT,
            "lane_links": np.where(fan >= 0, fan + lanes, net.num_drivables).astype(np.int32),
            # One row per link, one column per crossing.
            "cross_distance": np.where(present, net.cross_distance, -1.0),
            "cross_foe_distance": foe_distance,
            "cross_foe_rest": net.length[lanes + foe] - foe_distance,
            "cross_word": _cross_words(net, foe, present),
            "phase_allows": with_clearance(net),
            "green_phases": green,
            "clearance_phase": clearance,
            "phase_time": net.phase_time,
            "num_phases": net.num_phases.astype(np.int32),
            "right_turn": net.movement_rank == RIGHT,
            "approach": _padded(approach),
            "exit": _padded(leaving),
            "lane_junction": np.append(net.road_end[net.lane_road], -1).astype(np.int32),
            "neighbours": _padded([net.road_start[roads] for roads in incoming]),
            "movement_rank": net.movement_rank.astype(np.int32),
            "link_end_road": net.lane_road[net.link_end].astype(np.int32),
            "lane_road": net.lane_road.astype(np.int32),
        }
    )


def _cross_words(net: RoadNet, foe: np.ndarray, present: np.ndarray) -> np.ndarray:
    """What is gathered of each crossing, in one word: foe link, rank, foe turns, present."""
    rank = np.sign(net.link_rank[:, None] - net.link_rank[foe]) + 1
    turns = net.link_rank[foe] != STRAIGHT
    return (foe * 16 + rank * 4 + turns * 2 + present).astype(np.int32)


def path_tables(demand: Demand, net: RoadNet) -> Constant:
    """Paths `[paths, hops]` padded with nowhere, and the lanes on which they start."""
    table = demand.paths
    if len(table) == 0:
        table = np.full((1, 2), net.num_drivables, np.int32)
    entry = demand.path_entry if len(demand.path_entry) else np.zeros(1, np.int32)
    lanes = demand.entry_lanes if len(demand.entry_lanes) else np.zeros(1, np.int32)
    return Constant({"paths": table, "entry": entry, "entry_lanes": lanes})


def _padded(groups: list[np.ndarray]) -> np.ndarray:
    table = np.full((len(groups), max([len(g) for g in groups] + [1])), -1, np.int32)
    for row, group in zip(table, groups, strict=True):
        row[: len(group)] = group
    return table
