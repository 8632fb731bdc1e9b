"""Signal controllers: decisions worked out by hand, and whole hours against CityFlow."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxlab.core.errors import ConfigError
from jaxlab.envs.traffic.construction import make_environment
from jaxlab.envs.traffic.controllers import Controller, make_controller
from jaxlab.envs.traffic.detectors import Detectors
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.recording import record
from jaxlab.envs.traffic.roadnet import load_roadnet
from jaxlab.envs.traffic.rollout import for_controller, simulate
from jaxlab.envs.traffic.signals import plan_phases
from jaxlab.envs.traffic.tables import network_tables
from jaxlab.envs.traffic.trips import draw_demand

#: Lanes of a junction by where they come from and where they lead.
WEST, SOUTH, EAST, NORTH = "road_0_1_0", "road_1_0_1", "road_2_1_2", "road_1_2_3"
LEFT, STRAIGHT, RIGHT = 0, 1, 2
TO_EAST, TO_NORTH = "road_1_1_0", "road_1_1_1"


@pytest.fixture(scope="module")
def net():
    return load_roadnet(grid_roadnet(1, 1))


def lanes(net, vehicles):
    """Vehicles per lane from {(road, lane index): number}."""
    count = np.zeros(net.num_lanes, np.int32)
    for (road, index), number in vehicles.items():
        count[net.lane_ids.index(f"{road}_{index}")] = number
    return jnp.asarray(count)


def decide(net, name, *, count=None, waiting=None, phase=1, age=10, step=0, **options):
    junctions = net.num_junctions
    controller = make_controller(name, network_tables(net), **options)
    each = lambda x: jnp.full(junctions, x, jnp.int32)  # noqa: E731
    detectors = Detectors(
        count=lanes(net, count or {}),
        waiting=lanes(net, waiting or {}),
        phase=each(phase),
        age=each(age),
        clearing=each(0),
        step=jnp.int32(step),
    )
    return controller.act(jax.random.key(0), controller.init(), detectors)[1].tolist()


@pytest.mark.parametrize(
    ("count", "options", "phase"),
    [
        ({}, {}, 1),
        # Phases 1 (straight on from west and east) and 5 (all from the west): the first wins.
        ({(WEST, STRAIGHT): 4}, {}, 1),
        ({(WEST, STRAIGHT): 4, (WEST, LEFT): 1}, {}, 5),
        ({(WEST, STRAIGHT): 4, (EAST, STRAIGHT): 1}, {}, 1),
        ({(WEST, LEFT): 4, (EAST, LEFT): 4, (SOUTH, STRAIGHT): 7}, {}, 3),
        # Each approach lane leads to three exit lanes: 3 x 4 less their vehicles.
        ({(WEST, STRAIGHT): 4, (TO_EAST, 0): 7, (NORTH, STRAIGHT): 2}, {}, 2),
        ({(WEST, STRAIGHT): 4, (TO_EAST, 0): 5, (NORTH, STRAIGHT): 2}, {}, 1),
        # The exit lanes of right turns weigh on all phases alike.
        ({(WEST, STRAIGHT): 1, ("road_1_1_3", 0): 9}, {}, 1),
        ({(SOUTH, STRAIGHT): 2, (SOUTH, LEFT): 9}, {}, 7),
        ({(SOUTH, STRAIGHT): 2, (SOUTH, LEFT): 9}, {"num_phases": 4}, 4),
    ],
)
def test_max_pressure(net, count, options, phase):
    assert decide(net, "max_pressure", count=count, **options) == [phase]


@pytest.mark.parametrize(
    ("waiting", "phase"),
    [
        ({(WEST, STRAIGHT): 4, (EAST, STRAIGHT): 1}, 1),
        # Nobody turning right counts.
        ({(WEST, RIGHT): 40, (NORTH, LEFT): 1}, 4),
        # 4 against all 5 on the road ahead: -1 a link; then nothing is better than that.
        ({(WEST, STRAIGHT): 4, (TO_EAST, RIGHT): 5, (SOUTH, STRAIGHT): 1}, 2),
    ],
)
def test_max_pressure_on_queues(net, waiting, phase):
    assert decide(net, "max_pressure_queue", waiting=waiting) == [phase]


@pytest.mark.parametrize(
    ("waiting", "state", "phase"),
    [
        # Up to three at green and more than six at red.
        ({(WEST, STRAIGHT): 3, (SOUTH, STRAIGHT): 7}, {}, 2),
        ({(WEST, STRAIGHT): 3, (SOUTH, STRAIGHT): 6}, {}, 1),
        ({(WEST, STRAIGHT): 4, (SOUTH, STRAIGHT): 70}, {}, 1),
        # Nobody at green and somebody at red.
        ({(SOUTH, STRAIGHT): 1}, {}, 2),
        ({}, {}, 1),
        # Lanes of right turns are at green always.
        ({(SOUTH, STRAIGHT): 1, (NORTH, RIGHT): 1}, {}, 1),
        ({(SOUTH, STRAIGHT): 1}, {"age": 9}, 1),
        ({(SOUTH, STRAIGHT): 1}, {"age": 20, "dt": 0.5}, 2),
        ({(SOUTH, STRAIGHT): 1}, {"age": 19, "dt": 0.5}, 1),
        ({(EAST, STRAIGHT): 1}, {"phase": 8}, 1),
        ({(EAST, STRAIGHT): 1}, {"phase": 4, "num_phases": 4}, 1),
    ],
)
def test_sotl(net, waiting, state, phase):
    assert decide(net, "sotl", waiting=waiting, **state) == [phase]


def test_fixed_time(net):
    shown = [decide(net, "fixed_time", step=n)[0] for n in range(0, 300, 10)]
    assert shown == [1 + n // 30 % 8 for n in range(0, 300, 10)]
    four = [
        decide(net, "fixed_time", step=n, dt=0.5, green_time=15.0, num_phases=4)[0]
        for n in range(0, 300, 10)
    ]
    assert four == [1 + n // 30 % 4 for n in range(0, 300, 10)]


@pytest.mark.parametrize(
    ("name", "options", "interval"),
    [
        ("plan", {"dt": 0.5}, 0.5),
        ("max_pressure", {}, 10.0),
        ("fixed_time", {}, 10.0),
        ("fixed_time", {"green_time": 15.0}, 5.0),
        ("fixed_time", {"green_time": 7.5, "dt": 0.5}, 2.5),
        ("sotl", {"interval": 4.0}, 4.0),
    ],
)
def test_decision_intervals(net, name, options, interval):
    controller = make_controller(name, network_tables(net), **options)
    assert controller.interval == pytest.approx(interval)
    assert controller.clearance == (0.0 if name == "plan" else 5.0)


def test_random_draws_every_green_phase_alike():
    roadnet = grid_roadnet(1, 2)
    # The second junction has three phases: clearance and two greens.
    second = [i for i in roadnet["intersections"] if not i["virtual"]][1]
    del second["trafficLight"]["lightphases"][3:]
    net = load_roadnet(roadnet)
    controller = make_controller("random", network_tables(net))
    none = jnp.zeros(net.num_lanes, jnp.int32), jnp.zeros(2, jnp.int32)
    detectors = Detectors(none[0], none[0], none[1], none[1], none[1], jnp.int32(0))
    keys = jax.random.split(jax.random.key(1), 4000)
    phase = jax.vmap(lambda key: controller.act(key, (), detectors)[1])(keys)
    for junction, greens in enumerate((8, 2)):
        drawn, number = np.unique(phase[:, junction], return_counts=True)
        assert drawn.tolist() == list(range(1, greens + 1))
        expected = 4000 / greens
        assert ((number - expected) ** 2 / expected).sum() < 26  # chi-squared, 1 in 1000


def test_names_and_numbers_that_do_not_fit(net):
    tables = network_tables(net)
    with pytest.raises(ConfigError, match="'greedy' is unknown; choose from plan, fixed_time"):
        make_controller("greedy", tables)
    with pytest.raises(ConfigError, match="num_phases is 9; the network has 1 to 8"):
        make_controller("sotl", tables, num_phases=9)
    for wrong in ({"interval": 0.0}, {"clearance": -1.0}, {"green_time": 0.0}):
        with pytest.raises(ConfigError, match="must be positive and clearance not negative"):
            make_controller("fixed_time", tables, **wrong)


@pytest.fixture(scope="module")
def small():
    roadnet = grid_roadnet(1, 2, row_distance=200.0, column_distance=150.0, green_time=7.0)
    return make_environment(roadnet, draw_demand(roadnet, 5, trips=60, duration=120), duration=150)


def recorded(env, controller, steps):
    env = for_controller(env, controller)
    chunks = list(
        record(jax.random.key(3), env, controller, env.nominal_params(), steps, totals=True)
    )
    return np.concatenate([c.steps["phase"] for c in chunks]), chunks[-1]


def test_the_plan_is_that_of_the_file(small):
    plan = make_controller("plan", small.simulator.network)
    phase, _ = recorded(small, plan, 150)
    np.testing.assert_array_equal(phase, plan_phases(small.net, 150))
    # 5 s of clearance, 7 s of each green phase.
    assert phase[:24, 0].tolist() == [0] * 5 + [1] * 7 + [2] * 7 + [3] * 5


@pytest.mark.parametrize("name", ["fixed_time", "random"])
def test_a_change_costs_the_clearance(small, name):
    controller = make_controller(name, small.simulator.network, clearance=3.0)
    phase, _ = recorded(small, controller, 150)
    for junction in phase.T:
        shown = 0
        for n in range(0, 150, 10):
            green = junction[n + 3]
            assert (junction[n + 3 : n + 10] == green).all()
            changes = green != (junction[n - 1] if n else 1)  # all start in phase 1
            assert (junction[n : n + 3] == (0 if changes else green)).all()
            shown += changes
        assert shown >= 4


def test_recordings_agree_with_simulate(small):
    controller = make_controller("random", small.simulator.network)
    env = for_controller(small, controller)
    params = env.nominal_params()
    key = jax.random.key(3)
    state, history = jax.jit(lambda: simulate(key, env, controller, params, 15))()
    _, last = recorded(small, controller, 150)
    traffic = last.state.traffic
    np.testing.assert_array_equal(traffic.vehicle, state.traffic.vehicle)
    np.testing.assert_allclose(traffic.position, state.traffic.position, rtol=1e-5)
    np.testing.assert_allclose(
        last.steps["average_travel_time"][9::10], history.info["average_travel_time"], rtol=1e-6
    )
    assert last.mean_queue == pytest.approx(float(history.info["mean_queue"][-1]), rel=1e-5)


#: Average travel time (s) and arrivals in an hour of CityFlow: Hangzhou, Jinan.
HOURS = {
    ("plan",): ((525.28, 2508), (444.84, 5256)),
    ("fixed_time",): ((575.56, 2422), (514.14, 4963)),
    ("fixed_time", ("num_phases", 4)): ((568.87, 2439), (506.96, 4934)),
    ("fixed_time", ("num_phases", 4), ("green_time", 15.0)): ((614.98, 2319), (586.51, 4616)),
    ("max_pressure",): ((365.06, 2707), (374.56, 5500)),
    ("max_pressure", ("num_phases", 4)): ((402.93, 2661), (389.84, 5490)),
    ("max_pressure", ("clearance", 0.0)): ((347.49, 2720), (306.16, 5717)),
    ("max_pressure_queue", ("num_phases", 4), ("interval", 15.0)): ((334.22, 2734), (321.13, 5674)),
    ("max_pressure_queue", ("num_phases", 4), ("interval", 30.0)): ((365.84, 2702), (327.82, 5691)),
    ("sotl",): ((354.13, 2717), (369.64, 5567)),
}
#: Those of which step by step recordings are among the shared data.
RECORDED = (("plan",), ("fixed_time",), ("max_pressure",))


def one_of(controllers, dt):
    """A controller whose memory says which of some controllers it is: one program for all."""
    every = np.array([round(c.interval / dt) for c in controllers], np.int32)

    def act(key, memory, detectors):
        which, memories = memory
        acted = [c.act(key, m, detectors) for c, m in zip(controllers, memories, strict=True)]
        due = detectors.step % jnp.asarray(every)[which] == 0
        phase = jnp.stack([phase for _, phase in acted])[which]
        return (which, [m for m, _ in acted]), jnp.where(due, phase, detectors.phase)

    return Controller(dt, 0.0, lambda: [c.init() for c in controllers], act)


@pytest.mark.parametrize(
    ("city", "x64"),
    [
        ("hangzhou_4x4", True),
        pytest.param("jinan_3x4", True, marks=pytest.mark.slow),
        pytest.param("hangzhou_4x4", False, marks=pytest.mark.slow),
        pytest.param("jinan_3x4", False, marks=pytest.mark.slow),
    ],
)
def test_hours_of_the_shared_data_are_those_of_the_engine(city, x64, shared_data):
    """In 32 bits within 1 s for the hours that were recorded, else (docs/traffic.md) 1 %."""
    files = [shared_data(f"traffic/{city}/{part}.json") for part in ("roadnet", "flow")]
    with jax.enable_x64(x64):
        info = hours(make_environment(*files))
    column = ["hangzhou_4x4", "jinan_3x4"].index(city)
    assert not info["overflow"].any()
    for n, (controller, expected) in enumerate(HOURS.items()):
        time, finished = expected[column]
        tolerance = 0.01 if x64 else 1.0 if controller in RECORDED else 0.01 * time
        assert float(info["average_travel_time"][n]) == pytest.approx(time, abs=tolerance)
        assert int(info["finished"][n]) == pytest.approx(finished, rel=0 if x64 else 0.005)


def hours(env):
    """What became of all `HOURS`, side by side."""
    network = env.simulator.network
    controllers = [make_controller(name, network, **dict(options)) for name, *options in HOURS]
    combined = one_of(controllers, 1.0)
    env = for_controller(env, combined)
    params = env.nominal_params()

    @jax.jit
    def hour(which, clearance):
        one = combined._replace(init=lambda: (which, combined.init()))
        params_here = params.replace(clearance=clearance)
        _, history = simulate(jax.random.key(0), env, one, params_here, 3600)
        return jax.tree.map(lambda x: x[-1], history.info)

    clearance = jnp.array([c.clearance for c in controllers], params.clearance.dtype)
    return jax.vmap(hour)(jnp.arange(len(HOURS), dtype=jnp.int32), clearance)
