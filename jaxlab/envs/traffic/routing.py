"""Routes on a road network: shortest paths between anchors, and the lanes they use.

A *route* is a list of roads. A *path* is what a vehicle drives: lane, link, lane, ...
Lane choice is CityFlow's: among the links to the next road keep those whose end lane
goes on to the road after it, then take the end lane nearest to the current index.

Grids are full of shortest routes of equal length. Which one is taken follows from the
order in which roads leave the queue, so the queue is the binary heap of the C++ library
that the engine is built with, and neighbours are tried in the order of the file.
"""

from __future__ import annotations

import itertools
from typing import NoReturn

import numpy as np

from jaxlab.core.errors import DataError
from jaxlab.envs.traffic.roadnet import RoadNet


class Router:
    """Turns routes into paths, remembering what it has worked out.

    Raises:
      DataError: when a destination cannot be reached or no lane serves a movement.
    """

    def __init__(self, net: RoadNet):
        self.net = net
        roads = len(net.road_ids)
        self.links_of_lane = [[k for k in row if k >= 0] for row in net.lane_links]
        self.end_road = net.lane_road[net.link_end] if net.num_links else np.zeros(0, int)
        self.lanes_of_road = [np.flatnonzero(net.lane_road == r) for r in range(roads)]
        lengths = net.length.tolist()
        self.road_length = [
            sum(lengths[n] for n in of.tolist()) / len(of) for of in self.lanes_of_road
        ]
        self.next_roads = self._successors()
        self._routes: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._paths: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}

    def _successors(self) -> list[list[int]]:
        """Roads one can turn into from each road, in the order the junction's record lists them."""
        reach = [
            {int(self.end_road[k]) for n in lanes.tolist() for k in self.links_of_lane[n]}
            for lanes in self.lanes_of_road
        ]
        successors: list[list[int]] = [[] for _ in reach]
        for place in self.net.intersections:
            for road, starts in zip(place["ends"], place["starts"], strict=True):
                if not starts:
                    successors[road] = [r for r in place["roads"] if r in reach[road]]
        return successors

    def links_to(self, lane: int, road: int) -> list[int]:
        """Links from a lane to a road, in file order."""
        return [k for k in self.links_of_lane[lane] if self.end_road[k] == road]

    def complete(self, anchors: tuple[int, ...], where: str) -> tuple[int, ...]:
        """Fill the gaps between anchor roads by shortest paths (Dijkstra on road length)."""
        if anchors not in self._routes:
            route = [anchors[0]]
            for a, b in itertools.pairwise(anchors):
                if a != b:
                    route += self._shortest(a, b, where)
            if len(route) < 2:
                raise DataError(f"{where}: the route stays on one road; it needs two or more")
            self._routes[anchors] = tuple(route)
        return self._routes[anchors]

    def _shortest(self, start: int, end: int, where: str) -> list[int]:
        best: dict[int, float] = {start: 0.0}
        origin: dict[int, int] = {}
        done: set[int] = set()
        heap: list[tuple[float, int]] = []
        _push(heap, (0.0, start))
        while heap:
            road = heap[0][1]
            if road == end:
                break
            _pop(heap)
            if road in done:
                continue
            done.add(road)
            for successor in self.next_roads[road]:
                distance = best[road] + self.road_length[successor]
                if successor not in best or distance < best[successor]:
                    best[successor], origin[successor] = distance, road
                    _push(heap, (distance, successor))
        else:
            names = self.net.road_ids
            raise DataError(
                f"{where}: road '{names[end]}' cannot be reached from '{names[start]}'; "
                "check the route and the movements of the junctions between them"
            )
        roads = [end]
        while origin[roads[-1]] != start:
            roads.append(origin[roads[-1]])
        return roads[::-1]

    def first_lanes(self, route: tuple[int, ...], where: str) -> list[int]:
        """Lanes of the first road that lead to the second."""
        lanes = [n for n in self.lanes_of_road[route[0]] if self.links_to(n, route[1])]
        if not lanes:
            self._unserved(route[:2], None, where)
        return lanes

    def path(self, route: tuple[int, ...], first_lane: int, where: str) -> tuple[int, ...]:
        """Drivables of a route that starts on `first_lane`: lane, link, ..., lane."""
        key = (route, int(first_lane))
        if key not in self._paths:
            drivables, lane = [int(first_lane)], int(first_lane)
            for n in range(1, len(route)):
                links = self.links_to(lane, route[n])
                if n + 1 < len(route):
                    links = [
                        k for k in links if self.links_to(int(self.net.link_end[k]), route[n + 1])
                    ]
                if not links:
                    self._unserved(route[n - 1 : n + 2], lane, where)
                index = self.net.lane_index
                link = min(links, key=lambda k: abs(index[self.net.link_end[k]] - index[lane]))
                lane = int(self.net.link_end[link])
                drivables += [self.net.num_lanes + link, lane]
            self._paths[key] = tuple(drivables)
        return self._paths[key]

    def _unserved(self, roads: tuple[int, ...], lane: int | None, where: str) -> NoReturn:
        """Say why nobody gets through consecutive `roads`, starting on `lane` of the first."""
        names = self.net.road_ids
        for a, b in itertools.pairwise(roads):
            if b not in self.next_roads[a]:
                raise DataError(
                    f"{where}: the route turns from road '{names[a]}' into '{names[b]}', but no "
                    "junction has a movement between them; correct the route or add the movement"
                )
        way = "', '".join(names[r] for r in roads[1:])
        start = names[roads[0]] if lane is None else self.net.lane_ids[lane]
        raise DataError(
            f"{where}: from '{start}' no lanes lead on to '{way}' without a lane change, and "
            "lane changes are not simulated; correct the route or the lane links"
        )


def _push(heap: list[tuple[float, int]], item: tuple[float, int]) -> None:
    """Add an item to a heap ordered by distance alone."""
    heap.append(item)
    _rise(heap, len(heap) - 1)


def _rise(heap: list[tuple[float, int]], place: int) -> None:
    item = heap[place]
    while place > 0 and heap[parent := (place - 1) // 2][0] > item[0]:
        heap[place] = heap[parent]
        place = parent
    heap[place] = item


def _pop(heap: list[tuple[float, int]]) -> None:
    """Remove the nearest item.

    The gap at the top sinks to the bottom, on ties to the right; the last item fills it
    and rises again. Items of equal distance therefore come out in this heap's own order.
    """
    item = heap.pop()
    if not heap:
        return
    gap, child = 0, 2
    while child <= len(heap):
        if child == len(heap) or heap[child][0] > heap[child - 1][0]:
            child -= 1
        heap[gap] = heap[child]
        gap, child = child, 2 * child + 2
    heap[gap] = item
    _rise(heap, gap)
