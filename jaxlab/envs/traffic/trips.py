"""Demand drawn from a seed: trips over shortest routes whose turns have given shares.

Works on a road network in CityFlow's JSON form and returns flows in CityFlow's JSON
form, so that what is generated can be saved, read by other tools and loaded again.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from scipy.optimize import minimize
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from jaxlab.core.errors import ScenarioError
from jaxlab.envs.traffic.generator import MOVEMENTS

Json = dict[str, Any]

#: A passenger car in CityFlow's terms: metres, m/s, m/s^2, seconds.
CAR = {
    "length": 5.0,
    "width": 2.0,
    "maxPosAcc": 2.0,
    "maxNegAcc": 4.5,
    "usualPosAcc": 2.0,
    "usualNegAcc": 4.5,
    "minGap": 2.5,
    "maxSpeed": 11.111,
    "headwayTime": 2.0,
}
#: Lengths of two routes that differ by less are equal, m.
_LENGTH_TOLERANCE = 1e-6
#: Keep the fit finite where no shortest routes have the wanted movements.
_RIDGE, _LARGEST_LOG_FACTOR = 1e-4, 20.0
_KINDS = tuple(MOVEMENTS.values())


def draw_demand(
    roadnet: Json,
    seed: int,
    *,
    trips: int,
    duration: int = 3600,
    profile: Sequence[float] = (1.0,),
    origins: Mapping[str, float] | None = None,
    destinations: Mapping[str, int] | None = None,
    turns: Mapping[str, float] | None = None,
    movements_per_trip: float | None = None,
    vehicle: Mapping[str, float] | None = None,
) -> list[Json]:
    """Draw one-vehicle flows in CityFlow's format, sorted by departure.

    Totals are exact: trips are shared among the origins, and among the equal slices of
    `duration` that `profile` stands for, by largest remainders of the weights, so weights
    that add up to `trips` are met to the vehicle. Within a slice departures are whole
    seconds, uniformly at random, never two in one second from one origin into one first
    movement; where each lane serves one movement, that is one vehicle per lane and second.

    A trip takes a shortest route by length. Among all shortest routes from its origin to
    its destination (or to any border road if it has none) it draws one with probability
    proportional to a product of one factor per movement. The factors are those of the
    distribution of largest entropy with the expected movements asked for (A. G. Wilson,
    Entropy in Urban and Regional Modelling, 1970, ch. 2); what no shortest routes can
    give is approached.

    Args:
      roadnet: Road network, CityFlow's roadnet JSON.
      seed: Seed of `numpy.random.default_rng`.
      trips: Number of vehicles.
      duration: Length of the period of departures, s.
      profile: Weights of equal slices of `duration`.
      origins: Weight of each road on which trips start; by default every road that
        comes in from the border, with the same weight.
      destinations: Number of trips that end on each named road, whatever their origin;
        all others end on a road that leaves the network, where their route takes them.
      turns: Weights of `go_straight`, `turn_left`, `turn_right` among the movements made;
        by default every shortest route is as likely as any other.
      movements_per_trip: Mean number of junctions passed, used with `turns`.
      vehicle: Fields of CityFlow's vehicle record that differ from `CAR`.

    Raises:
      ScenarioError: for unknown roads, weights that are not positive, destinations that
        cannot be reached, or more departures from a road than a slice has seconds.
    """
    routes = _Routes(roadnet)
    rng = np.random.default_rng(seed)
    if trips < 0 or duration < 1:
        raise ScenarioError(f"trips and duration must be positive, got {trips} and {duration}")
    starts = routes.named(origins, "origins", routes.entries)
    origin = _shared_out(rng, trips, starts)
    target = _targets(rng, trips, routes.named(destinations or {}, "destinations", []))
    seconds = _slices(duration, profile)
    slot = _shared_out(rng, trips, dict(enumerate(_weights(profile, "profile"))))
    factors = routes.turn_factors(turns, movements_per_trip, starts)
    driven = routes.draw(rng, origin, target, factors)
    departure = _departures(rng, slot, [tuple(route[:2]) for route in driven], seconds)
    record = {**CAR, **(vehicle or {})}
    return [
        {
            "vehicle": dict(record),
            "route": [routes.names[r] for r in driven[n]],
            "interval": 1.0,
            "startTime": int(departure[n]),
            "endTime": int(departure[n]),
        }
        for n in np.lexsort((np.arange(trips), departure))
    ]


def _weights(values: Sequence[float], name: str) -> list[float]:
    weights = [float(v) for v in values]
    if not weights or any(not (0 <= w < np.inf) for w in weights) or sum(weights) <= 0:
        raise ScenarioError(f"{name}: weights must be finite, not negative and not all zero")
    return weights


def _shared_out(rng: np.random.Generator, trips: int, weights: Mapping[int, float]) -> np.ndarray:
    """A random order of keys in which each appears as often as its weight commands."""
    keys, shares = np.array(list(weights)), np.array(list(weights.values()))
    exact = trips * shares / shares.sum()
    # Nine decimals: a share that is whole but for rounding must not lose its vehicle.
    count = np.floor(np.round(exact, 9)).astype(int)
    rest = np.argsort(count - exact, kind="stable")[: trips - count.sum()]
    count[rest] += 1
    return rng.permutation(np.repeat(keys, count))


def _targets(rng: np.random.Generator, trips: int, destinations: Mapping[int, float]) -> np.ndarray:
    """Destination of each trip in a random order, -1 for those without."""
    fixed = np.repeat(np.array(list(destinations), int), [int(n) for n in destinations.values()])
    if len(fixed) > trips:
        raise ScenarioError(f"destinations: {len(fixed)} trips are asked for, but trips is {trips}")
    return rng.permutation(np.concatenate([fixed, np.full(trips - len(fixed), -1)]))


def _slices(duration: int, profile: Sequence[float]) -> np.ndarray:
    edges = np.arange(len(profile) + 1) * duration // max(len(profile), 1)
    if len(profile) > duration:
        raise ScenarioError(f"profile: {len(profile)} slices in {duration} s; one needs a second")
    return edges


def _departures(
    rng: np.random.Generator,
    slot: np.ndarray,
    entrance: list[tuple[int, ...]],
    seconds: np.ndarray,
) -> np.ndarray:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for n, key in enumerate(zip(slot.tolist(), entrance, strict=True)):
        groups.setdefault(key, []).append(n)
    departure = np.zeros(len(slot), int)
    for (s, _), members in sorted(groups.items()):
        first, last = seconds[s], seconds[s + 1]
        if len(members) > last - first:
            raise ScenarioError(
                f"demand: {len(members)} vehicles would enter one lane within {last - first} s; "
                "draw fewer trips or a longer duration"
            )
        departure[members] = first + rng.choice(last - first, len(members), replace=False)
    return departure


class _Routes:
    """All shortest routes of a network, as weights on the movements that lie on one.

    `tail`, `head`, `kind` are the movements: from road, to road, index into `_KINDS`.
    """

    def __init__(self, roadnet: Json):
        self.names = [road["id"] for road in roadnet["roads"]]
        self.index = {name: n for n, name in enumerate(self.names)}
        virtual = {i["id"] for i in roadnet["intersections"] if i["virtual"]}
        self.entries = [
            n for n, r in enumerate(roadnet["roads"]) if r["startIntersection"] in virtual
        ]
        self.exits = [n for n, r in enumerate(roadnet["roads"]) if r["endIntersection"] in virtual]
        links = [link for i in roadnet["intersections"] for link in i["roadLinks"]]
        self.tail = np.array([self.index[link["startRoad"]] for link in links], int)
        self.head = np.array([self.index[link["endRoad"]] for link in links], int)
        self.kind = np.array([_KINDS.index(link["type"]) for link in links], int)
        length = np.array([_length(road["points"]) for road in roadnet["roads"]])
        size = (len(self.names),) * 2
        # Road to road; what a movement costs is the length of the road it leads to.
        graph = csr_array((length[self.head], (self.tail, self.head)), size)
        self.distance = dijkstra(graph)
        self.step = length[self.head]

    def named(
        self, weights: Mapping[str, float] | None, what: str, default: list[int]
    ) -> dict[int, float]:
        if weights is None:
            if not default:
                raise ScenarioError(f"{what}: no road comes in from the border; name some")
            return dict.fromkeys(default, 1.0)
        if not weights:
            return {}
        for name in weights:
            if name not in self.index:
                raise ScenarioError(f"{what}: road '{name}' is not in the network")
        values = _weights(list(weights.values()), what)
        return {self.index[n]: w for n, w in zip(weights, values, strict=True) if w > 0}

    def on_shortest(self, targets: Sequence[int]) -> np.ndarray:
        """Whether a movement lies on a shortest route to each target, `[targets, movements]`."""
        remaining = self.distance[:, targets].T
        reached = np.isfinite(remaining)[:, self.head]
        ahead = np.where(reached, remaining[:, self.head], 0.0) + self.step
        return reached & (remaining[:, self.tail] > ahead - _LENGTH_TOLERANCE)

    def route_weights(self, targets: Sequence[int], weight: np.ndarray) -> tuple[np.ndarray, ...]:
        """Sum over shortest routes from each road to each target of the product of weights.

        Args:
          weight: Weight of each movement, `[movements]`.

        Returns:
          The sums `[targets, roads]`, and the same sums with each route times its number of
          movements of each kind, `[kinds, targets, roads]`.
        """
        allowed = self.on_shortest(targets)
        total = np.zeros((len(targets), len(self.names)))
        total[np.arange(len(targets)), targets] = 1.0
        base, counted = total.copy(), np.zeros((len(_KINDS), *total.shape))
        for _ in range(len(self.names)):
            flow = allowed * weight * total[:, self.head]
            found = base.copy()
            np.add.at(found.T, self.tail, flow.T)
            number = np.zeros_like(counted)
            for k, kind in enumerate(number):
                along = allowed * weight * counted[k][:, self.head] + flow * (self.kind == k)
                np.add.at(kind.T, self.tail, along.T)
            if np.array_equal(found, total) and np.array_equal(number, counted):
                break
            total, counted = found, number
        return total, counted

    def turn_factors(
        self,
        turns: Mapping[str, float] | None,
        per_trip: float | None,
        origins: Mapping[int, float],
    ) -> np.ndarray:
        """Factor of each movement kind, fitted to the wanted movements, `[kinds]`."""
        if turns is None:
            return np.ones(len(_KINDS))
        if unknown := set(turns) - set(_KINDS):
            raise ScenarioError(f"turns: '{min(unknown)}' is none of {', '.join(_KINDS)}")
        share = np.array(_weights([turns.get(kind, 0.0) for kind in _KINDS], "turns"))
        share /= share.sum()
        lead_out = [r for r in origins if np.isfinite(self.distance[r, self.exits]).any()]
        if not lead_out:
            return np.ones(len(_KINDS))
        start = np.array(lead_out)
        mass = np.array([origins[r] for r in lead_out])
        mass = mass / mass.sum()
        if per_trip is None:  # statistics n_k - share_k n, to be zero on average
            statistic, wanted = np.eye(len(_KINDS)) - share[:, None], np.zeros(len(_KINDS))
        else:  # statistics n_k
            statistic, wanted = np.eye(len(_KINDS)), share * per_trip

        def dual(theta: np.ndarray) -> tuple[float, np.ndarray]:
            factors = np.exp(theta @ statistic)
            total, counted = self.route_weights(self.exits, factors[self.kind])
            z = total[:, start].sum(0) - np.isin(start, self.exits)  # a route has a movement
            expected = statistic @ (counted[:, :, start].sum(1) / z @ mass)
            value = mass @ np.log(z) - theta @ wanted + 0.5 * _RIDGE * theta @ theta
            return float(value), expected - wanted + _RIDGE * theta

        bounds = [(-_LARGEST_LOG_FACTOR, _LARGEST_LOG_FACTOR)] * len(_KINDS)
        best = minimize(dual, np.zeros(len(_KINDS)), jac=True, method="L-BFGS-B", bounds=bounds)
        return np.exp(best.x @ statistic)

    def draw(
        self,
        rng: np.random.Generator,
        origin: np.ndarray,
        target: np.ndarray,
        factors: np.ndarray,
    ) -> list[list[int]]:
        """One route per trip; target -1 lets the trip end on any road that leaves the network."""
        targets = sorted({*self.exits, *target[target >= 0].tolist()})
        leaves = np.isin(targets, self.exits)
        weight = factors[self.kind]
        total, _ = self.route_weights(targets, weight)
        allowed = self.on_shortest(targets)
        moves = [np.flatnonzero(self.tail == r) for r in range(len(self.names))]
        row_of = {t: n for n, t in enumerate(targets)}
        routes = []
        for start, end in zip(origin.tolist(), target.tolist(), strict=True):
            goals = leaves if end < 0 else np.equal(targets, end)
            reach = total[:, start] * goals * np.not_equal(targets, start)
            if reach.sum() == 0:
                goal = f"road '{self.names[end]}'" if end >= 0 else "a road out of the network"
                raise ScenarioError(f"demand: no route leads from '{self.names[start]}' to {goal}")
            row = _pick(rng, reach)
            route = [start]
            while row_of.get(route[-1]) != row:
                out = moves[route[-1]]
                chance = allowed[row, out] * weight[out] * total[row, self.head[out]]
                route.append(int(self.head[out[_pick(rng, chance)]]))
            routes.append(route)
        return routes


def _pick(rng: np.random.Generator, weights: np.ndarray) -> int:
    cumulative = np.cumsum(weights)
    return int(np.searchsorted(cumulative, rng.random() * cumulative[-1], side="right"))


def _length(points: list[Json]) -> float:
    return sum(
        float(np.hypot(b["x"] - a["x"], b["y"] - a["y"])) for a, b in itertools.pairwise(points)
    )
