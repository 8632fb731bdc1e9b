"""Routes on a road network: shortest paths between anchors, and the lanes they use.

A *route* is a list of roads. A *path* is what a vehicle drives: lane, link, lane, ...
Lane choice is CityFlow's: among the links to the next road keep those whose end lane
goes on to the road after it, then take the end lane nearest to the current index.
"""

from __future__ import annotations

import heapq

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
        lanes, roads = net.num_lanes, len(net.road_ids)
        self.links_of_lane = [[k for k in row if k >= 0] for row in net.lane_links]
        self.end_road = net.lane_road[net.link_end] if net.num_links else np.zeros(0, int)
        self.lanes_of_road = [np.flatnonzero(net.lane_road == r) for r in range(roads)]
        self.road_length = [float(np.mean(net.length[of])) for of in self.lanes_of_road]
        self.next_roads: list[list[int]] = [[] for _ in range(roads)]
        for lane in range(lanes):
            for k in self.links_of_lane[lane]:
                successors = self.next_roads[net.lane_road[lane]]
                if self.end_road[k] not in successors:
                    successors.append(int(self.end_road[k]))
        self._routes: dict[tuple[int, ...], tuple[int, ...]] = {}
        self._paths: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}

    def links_to(self, lane: int, road: int) -> list[int]:
        """Links from a lane to a road, in file order."""
        return [k for k in self.links_of_lane[lane] if self.end_road[k] == road]

    def complete(self, anchors: tuple[int, ...], where: str) -> tuple[int, ...]:
        """Fill the gaps between anchor roads by shortest paths (Dijkstra on road length)."""
        if anchors not in self._routes:
            route = [anchors[0]]
            for a, b in zip(anchors[:-1], anchors[1:], strict=True):
                if a != b:
                    route += self._shortest(a, b, where)
            if len(route) < 2:
                raise DataError(f"{where}: the route stays on one road; it needs two or more")
            self._routes[anchors] = tuple(route)
        return self._routes[anchors]

    def _shortest(self, start: int, end: int, where: str) -> list[int]:
        best, origin = {start: 0.0}, {}
        queue, done = [(0.0, 0, start)], set()
        order = 0
        while queue:
            distance, _, road = heapq.heappop(queue)
            if road == end:
                break
            if road in done:
                continue
            done.add(road)
            for successor in self.next_roads[road]:
                candidate = distance + self.road_length[successor]
                if successor not in best or candidate < best[successor]:
                    best[successor], origin[successor] = candidate, road
                    order += 1
                    heapq.heappush(queue, (candidate, order, successor))
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
            self._unserved(route[0], route[1], where)
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
                    self._unserved(route[n - 1], route[n], where)
                index = self.net.lane_index
                link = min(links, key=lambda k: abs(index[self.net.link_end[k]] - index[lane]))
                lane = int(self.net.link_end[link])
                drivables += [self.net.num_lanes + link, lane]
            self._paths[key] = tuple(drivables)
        return self._paths[key]

    def _unserved(self, a: int, b: int, where: str) -> None:
        names = self.net.road_ids
        raise DataError(
            f"{where}: no lane of road '{names[a]}' leads to '{names[b]}' on the way of this "
            "route; the junction between them has no such movement"
        )
