"""`python -m experiments.traffic`: what it prints and writes, and what it refuses."""

import gzip
import json
import os
import pathlib
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from experiments.traffic.__main__ import body
from experiments.traffic.options import ControllerName, Options
from experiments.traffic.scene import resolve
from experiments.traffic.simulation import write_dump
from jaxlab.core.cli import main, parse
from jaxlab.core.errors import ConfigError, DataError
from jaxlab.envs.traffic.controllers import CONTROLLERS
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.trips import draw_demand

ROOT = pathlib.Path(__file__).parents[2]
RECORDED = ROOT / "tests" / "golden" / "traffic" / "busy_junction.json.gz"
KEYS = ("average_travel_time", "finished", "running", "waiting_to_enter", "mean_queue")


@pytest.fixture(scope="module")
def scene():
    """A recorded scene: its network, flow and what the engine gave."""
    return json.loads(gzip.decompress(RECORDED.read_bytes()))


@pytest.fixture(scope="module")
def files(scene, tmp_path_factory):
    folder = tmp_path_factory.mktemp("scene")
    for name in ("roadnet", "flow"):
        (folder / f"{name}.json").write_text(json.dumps(scene[name]))
    return folder


def arguments(files, *more):
    source = ["--roadnet", str(files / "roadnet.json"), "--flow", str(files / "flow.json")]
    return [*source, *more]


def run_here(*argv):
    main("traffic", Options, body, argv=argv)


def command(*argv, **environment):
    """The command in a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "experiments.traffic", *argv],
        cwd=ROOT,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


def refused(capsys, *argv):
    """The one line on standard error of a command that ends with exit code 2."""
    with pytest.raises(SystemExit) as end:
        run_here(*argv)
    assert end.value.code == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    return error


def test_a_process_gives_the_engines_numbers(scene, files, tmp_path):
    dump = tmp_path / "dump.npz"
    options = ("--controller", "plan", "--duration", "300", "--x64", "--json", "--dump", str(dump))
    # With optimised code, unlike the other tests: its bits are those that users get.
    done = command(*arguments(files, *options), XLA_FLAGS="--xla_cpu_multi_thread_eigen=false")
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    recorded = scene["recorded"]
    assert set(KEYS) <= set(result)
    assert result["average_travel_time"] == pytest.approx(recorded["att"][-1], abs=1e-9)
    assert result["running"] == recorded["running"][-1]
    assert result["waiting_to_enter"] == recorded["incomplete"][-1] - recorded["running"][-1]
    assert result["finished"] == len(scene["flow"]) - recorded["incomplete"][-1]
    assert result["mean_queue"] > 0
    with np.load(dump) as written:
        assert written["lanes"].tolist() == recorded["lanes"]
        for name, theirs in (
            ("lane_count_10s", "count"),
            ("lane_wait_10s", "waiting"),
            ("running", "running"),
            ("incomplete", "incomplete"),
        ):
            np.testing.assert_array_equal(written[name], recorded[theirs])
        np.testing.assert_allclose(written["att"], recorded["att"], atol=1e-6)
        assert written["phase"].shape == (0,)
        assert written["lane_count_10s"].dtype == np.int16
        assert written["att"].dtype == float


def test_pictures_replay_and_a_table(files, tmp_path, capsys):
    output = {name: tmp_path / f"out.{name}" for name in ("gif", "png", "npz")}
    run_here(
        *arguments(files, "--controller", "fixed_time", "--duration", "25", "--interval", "5"),
        *("--replay", str(tmp_path / "replay"), "--gif", str(output["gif"])),
        *("--png", str(output["png"]), "--dump", str(output["npz"])),
    )
    table = capsys.readouterr().out
    assert "average travel time" in table
    assert "vehicles per junction" in table
    with Image.open(output["gif"]) as animation:
        assert animation.n_frames == 25
    with Image.open(output["png"]) as picture:
        assert picture.size[0] > 300
    lines = (tmp_path / "replay" / "replay.txt").read_text().splitlines()
    assert len(lines) == 25
    with np.load(output["npz"]) as written:
        assert [line.count(" 0 5.0 2.0,") for line in lines] == written["running"].tolist()
        assert written["phase"].tolist() == [[1]] * 25
    network = json.loads((tmp_path / "replay" / "roadnet.json").read_text())
    assert len(network["static"]["nodes"]) == 5


def test_help_is_quick_and_names_every_option():
    start = time.process_time(), os.times()
    done = command("--help")
    used = os.times().children_user - start[1].children_user
    assert done.returncode == 0
    assert used < 2.0
    for name in ("--roadnet", "--flow", "--config", "--capacity", "--dump", "--x64", "--phases"):
        assert name in done.stdout


def test_options_import_nothing_heavy():
    code = (
        "import sys, experiments.traffic.__main__ as m\n"
        "from jaxlab.core.cli import parse\n"
        "parse('traffic', m.Options, None, [])\n"
        "print([n for n in ('jax', 'flax', 'matplotlib', 'scipy') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n", done.stderr


def test_controllers_of_the_command_line_are_those_there_are():
    assert set(ControllerName.__args__) == set(CONTROLLERS)


def test_the_built_in_network_needs_no_file():
    scene = resolve(parse("traffic", Options, None, ["--preset", "smoke", "--seed", "3"]))
    assert len([i for i in scene.roadnet["intersections"] if not i["virtual"]]) == 16
    assert len(scene.flow) == 2983
    assert (scene.duration, scene.dt, scene.seed, scene.steps) == (300.0, 1.0, 3, 300)
    assert resolve(Options()).steps == 3600
    assert resolve(Options(duration=10.2, dt=0.5)).steps == 21


def write_config(folder, **changes):
    settings = {
        "interval": 0.5,
        "seed": 4,
        "dir": "",
        "roadnetFile": "roadnet.json",
        "flowFile": "flow.json",
        "rlTrafficLight": True,
        "laneChange": False,
    }
    path = folder / "config.json"
    path.write_text(json.dumps(settings | changes))
    return path


def test_engine_configurations(files, tmp_path):
    scene = resolve(Options(config=write_config(files)))
    assert (scene.roadnet, scene.flow) == (files / "roadnet.json", files / "flow.json")
    assert (scene.dt, scene.seed) == (0.5, 4)
    # The engine joins folder and file without a separator.
    prefixed = resolve(Options(config=write_config(tmp_path, dir=f"{files}/")))
    assert prefixed.flow == files / "flow.json"
    other = Options(config=tmp_path / "config.json", dt=2.0, seed=0, flow=tmp_path / "x.json")
    scene = resolve(other)
    assert (scene.dt, scene.seed, scene.flow) == (2.0, 0, tmp_path / "x.json")


def test_lane_changes_are_refused(files, tmp_path, capsys):
    config = write_config(tmp_path, laneChange=True)
    error = refused(capsys, "--config", str(config))
    assert "laneChange is true, but lane changing is not simulated" in error


def bad(tmp_path, text):
    path = tmp_path / "bad.json"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--roadnet", "a.json"], "--roadnet needs --flow as well"),
        (["--flow", "a.json"], "--flow needs --roadnet as well"),
        (["--roadnet", "gone.json", "--flow", "gone.json"], "gone.json: no such file"),
        (["--config", "gone.json"], "gone.json: no such file"),
        (["--duration", "0"], "--duration 0: expected a positive number of seconds"),
        (["--duration", "nan"], "--duration nan: expected a positive number"),
        (["--dt", "-1"], "--dt -1: expected a positive number"),
        (["--interval", "0"], "--interval 0"),
        (["--green-time", "-3"], "--green-time -3"),
        (["--clearance", "-1"], "--clearance -1.0: expected a number of at least 0"),
        (["--phases", "0"], "--phases 0"),
        (["--capacity", "0"], "--capacity 0"),
        (["--seed", "-1"], "--seed -1"),
        (["--gif", "x.mpeg"], "--gif x.mpeg: expected a file ending in .gif or .mp4"),
        (["--dump", "x.csv"], "--dump x.csv: expected a file ending in .npz"),
        (["--png", "no/such/folder/x.png"], "there is no folder no/such/folder"),
        (["--devices", "abacus"], "unknown kind 'abacus'"),
    ],
)
def test_options_that_do_not_fit(argv, words, capsys):
    assert words in refused(capsys, *argv)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--phases", "9"], "num_phases is 9; the network has 1 to 8 green phases"),
        (["--interval", "2.5"], "decision_interval 2.5 s is not a multiple of dt = 1 s"),
        (["--dt", "3", "--interval", "9", "--dump", "x.npz"], "does not divide 10 s"),
    ],
)
def test_options_that_do_not_fit_the_network(argv, words, files, capsys):
    assert words in refused(capsys, *arguments(files, "--duration", "20", *argv))


def test_broken_files(files, tmp_path, capsys):
    for text, words in (
        ("{", "not valid JSON at line 1"),
        ('[{"route": ["road_0_1_0", "road_5_5_5"]}]', "road 'road_5_5_5'"),
    ):
        argv = ["--roadnet", str(files / "roadnet.json"), "--flow", bad(tmp_path, text)]
        assert words in refused(capsys, *argv)


def test_exit_code_of_a_process(files):
    done = command("--roadnet", "gone.json", "--flow", str(files / "flow.json"))
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == "error: gone.json: no such file; check the path\n"


def test_too_small_a_capacity_is_named(files, capsys):
    argv = arguments(files, "--duration", "60", "--capacity", "12", "--json")
    error = refused(capsys, *argv)
    assert "the capacity of 12 vehicles on the road at once was exceeded before 60 s" in error
    assert "--capacity" in error


def test_a_dump_is_there_as_a_whole_or_not_at_all(tmp_path):
    path = tmp_path / "dump.npz"
    write_dump(path, {"a": np.arange(3)})
    before = path.read_bytes()
    with pytest.raises(DataError, match="cannot be written"):
        write_dump(tmp_path / "gone" / "dump.npz", {"a": np.arange(3)})
    if pathlib.Path("/dev/full").exists():
        (tmp_path / ".dump.npz.tmp.npz").symlink_to("/dev/full")
        with pytest.raises(DataError, match="No space left"):
            write_dump(path, {"a": np.arange(3)})
    assert path.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["dump.npz"]


def test_demand_of_the_generator_runs_from_files(tmp_path, capsys):
    """What the generator makes is what the command reads: half seconds, seeds, few phases."""
    roadnet = grid_roadnet(1, 2, row_distance=150.0, column_distance=150.0)
    flow = draw_demand(roadnet, 1, trips=30, duration=60)
    for name, content in (("roadnet", roadnet), ("flow", flow)):
        (tmp_path / f"{name}.json").write_text(json.dumps(content))
    argv = arguments(tmp_path, "--duration", "120", "--dt", "0.5", "--phases", "4", "--json")
    results = []
    for seed in ("1", "1", "2"):
        run_here(*argv, "--controller", "random", "--seed", seed)
        results.append(json.loads(capsys.readouterr().out))
    assert results[0] == results[1] != results[2]
    assert all(r["finished"] + r["running"] + r["waiting_to_enter"] == 30 for r in results)


def test_options_check_themselves():
    with pytest.raises(ConfigError):
        Options(flow=pathlib.Path("x")).check()
    Options(config=pathlib.Path("c.json"), flow=pathlib.Path("x")).check()
