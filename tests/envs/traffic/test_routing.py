"""Routes: shortest paths, the engine's choice among equal ones, and lanes."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from jaxlab.core.errors import DataError
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.roadnet import load_roadnet
from jaxlab.envs.traffic.routing import Router


@pytest.fixture(scope="module")
def router():
    """Uneven distances: shortest routes are unique or nearly so."""
    grid = grid_roadnet(
        3,
        3,
        row_distance=(210.0, 130.0, 170.0, 250.0),
        column_distance=(190.0, 110.0, 150.0, 230.0),
    )
    return Router(load_roadnet(grid))


@pytest.fixture(scope="module")
def even():
    """All blocks alike: many shortest routes of one length."""
    return Router(load_roadnet(grid_roadnet(3, 3, row_distance=100.0, column_distance=100.0)))


def names(router, route):
    return [router.net.road_ids[r] for r in route]


def roads(router, *ids):
    return tuple(router.net.road_ids.index(name) for name in ids)


def distances(router):
    """Shortest distances between roads; entering a road costs its length."""
    pairs = [(a, b) for a, after in enumerate(router.next_roads) for b in after]
    tail, head = np.array(pairs).T
    cost = np.array(router.road_length)[head]
    size = len(router.road_length)
    return dijkstra(csr_array((cost, (tail, head)), (size, size)))


@pytest.mark.parametrize("which", ["router", "even"])
def test_completed_routes_are_shortest(which, request):
    router = request.getfixturevalue(which)
    shortest = distances(router)
    entries = np.flatnonzero(router.net.road_start < 0)
    exits = np.flatnonzero(router.net.road_end < 0)
    for a, b in itertools.product(entries.tolist(), exits.tolist()):
        if not np.isfinite(shortest[a, b]):
            continue
        route = router.complete((a, b), "here")
        assert (route[0], route[-1]) == (a, b)
        assert all(y in router.next_roads[x] for x, y in itertools.pairwise(route))
        length = sum(router.road_length[r] for r in route[1:])
        assert length == pytest.approx(shortest[a, b])


def test_full_routes_stay_as_they_are(router):
    ids = ("road_0_1_0", "road_1_1_0", "road_2_1_1", "road_2_2_1", "road_2_3_1")
    route = roads(router, *ids)
    assert router.complete(route, "here") == route


def test_anchors_are_passed_in_their_order(router):
    anchors = roads(router, "road_0_1_0", "road_1_1_1", "road_2_2_3", "road_3_1_0")
    route = router.complete(anchors, "here")
    places = [route.index(anchor) for anchor in anchors]
    assert places == sorted(places)
    # The same anchor twice in a row counts once.
    twice = (anchors[0], *anchors)
    assert router.complete(twice, "here") == route


@pytest.mark.parametrize(
    "route",
    [
        "0_1_0 1_1_0 2_1_1 2_2_1 2_3_0 3_3_1",
        "1_0_1 1_1_0 2_1_1 2_2_1 2_3_0 3_3_0",
        "0_3_0 1_3_0 2_3_3 2_2_0 3_2_3 3_1_0",
        "4_3_2 3_3_3 3_2_2 2_2_2 1_2_3 1_1_2",
        "2_4_3 2_3_2 1_3_3 1_2_3 1_1_3",
    ],
)
def test_of_equal_routes_the_engines_is_taken(even, route):
    """Routes recorded from the engine between their ends."""
    ids = [f"road_{name}" for name in route.split()]
    assert names(even, even.complete(roads(even, ids[0], ids[-1]), "here")) == ids


def test_what_cannot_be_reached_is_named(router):
    with pytest.raises(
        DataError, match="here: road 'road_0_1_0' cannot be reached from 'road_1_1_"
    ):
        router.complete(roads(router, "road_1_1_0", "road_0_1_0"), "here")


def test_a_route_needs_two_roads(router):
    with pytest.raises(DataError, match="here: the route stays on one road"):
        router.complete(roads(router, "road_0_1_0"), "here")


@given(data=st.data())
def test_paths_follow_links_from_lane_to_lane(router, data):
    entries = np.flatnonzero(router.net.road_start < 0).tolist()
    route = [data.draw(st.sampled_from(entries))]
    while router.next_roads[route[-1]] and len(route) < 8:
        route.append(data.draw(st.sampled_from(router.next_roads[route[-1]])))
    (lane,) = router.first_lanes(tuple(route), "here")
    path = router.path(tuple(route), lane, "here")
    net = router.net
    lanes, links = path[::2], [k - net.num_lanes for k in path[1::2]]
    assert [int(net.lane_road[n]) for n in lanes] == route
    assert [int(net.link_start[k]) for k in links] == list(lanes[:-1])
    assert [int(net.link_end[k]) for k in links] == list(lanes[1:])
    # One lane for each movement: where to be is given by where to go.
    kinds = {3: 1, 2: 0, 1: 2}
    assert [int(net.lane_index[n]) for n in lanes[:-1]] == [
        kinds[int(net.link_rank[k])] for k in links
    ]


def test_the_nearest_lane_is_taken_the_first_on_ties():
    grid = grid_roadnet(1, 2, lanes=("left+straight", "straight", "straight+right"))
    router = Router(load_roadnet(grid))
    route = roads(router, "road_0_1_0", "road_1_1_0", "road_2_1_0")
    lanes = router.first_lanes(route, "here")
    index = router.net.lane_index
    for lane in lanes:
        path = router.path(route, lane, "here")
        assert {int(index[n]) for n in path[::2]} == {int(index[lane])}
    # From the middle lane both outer lanes are as near; only they lead on to a turn.
    turning = roads(router, "road_0_1_0", "road_1_1_0", "road_2_1_1")
    path = router.path(turning, lanes[1], "here")
    assert [int(index[n]) for n in path[::2]] == [1, 0, 0]


def test_movements_that_do_not_exist_are_named(router):
    route = roads(router, "road_0_1_0", "road_3_3_0")
    with pytest.raises(
        DataError, match="from road 'road_0_1_0' into 'road_3_3_0', but no junction"
    ):
        router.first_lanes(route, "here")


def test_what_would_take_a_lane_change_is_refused():
    grid = grid_roadnet(1, 2, lanes=("left", "straight", "right"))
    place = next(i for i in grid["intersections"] if i["id"] == "intersection_1_1")
    for link in place["roadLinks"]:
        # Each lane leads to the lane of its own index only.
        link["laneLinks"] = [
            k for k in link["laneLinks"] if k["startLaneIndex"] == k["endLaneIndex"]
        ]
    router = Router(load_roadnet(grid))
    straight = roads(router, "road_0_1_0", "road_1_1_0", "road_2_1_0")
    (lane,) = router.first_lanes(straight, "here")
    assert len(router.path(straight, lane, "here")) == 5
    left = roads(router, "road_0_1_0", "road_1_1_0", "road_2_1_1")
    with pytest.raises(DataError, match=r"from .road_0_1_0_1. no lanes lead on .* lane change"):
        router.path(left, lane, "here")
