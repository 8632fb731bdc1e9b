"""MAESTRO from the command line to the figures, on small networks and in seconds."""

import dataclasses
import itertools
import json
import pathlib
import subprocess
import sys
import time
import typing

import jax
import numpy as np
import pytest
from PIL import Image

from experiments.maestro import designs, load_policy, training
from experiments.maestro.canary import CANDIDATES
from experiments.maestro.evaluation import POLICIES, check_capacity
from experiments.maestro.options import PRESETS, Options
from experiments.maestro.problem import BASE, EARLIER, NEW, make_env
from experiments.maestro.reports import saved_host
from experiments.maestro.stages import Stages
from experiments.maestro.variants import VARIANTS, VariantName
from jaxlab.agents.maddpg import MADDPGConfig
from jaxlab.core import checkpointing, reporting, runfolder
from jaxlab.core.cli import parse
from jaxlab.core.errors import CapacityError, ConfigError, DataError
from jaxlab.core.policies import load_state
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.scenario import nominal_scenario, scenario_params
from jaxlab.envs.traffic.scenario_schema import scenario_from_json
from jaxlab.envs.traffic.trips import draw_demand
from jaxlab.shaping import reward_checks
from jaxlab.shaping.architect_log import ARCHITECT_LOG, ArchitectLog
from jaxlab.shaping.design_space import is_potential
from jaxlab.shaping.reward_template import RewardTemplate

CONFIG = MADDPGConfig(
    num_envs=2,
    decisions=3,
    updates=1,
    batch_size=8,
    buffer_size=64,
    learning_starts=12,
    critic_input="neighbourhood",
    actor_hidden=(8,),
    critic_hidden=(8,),
)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A network of two by one junctions and two minutes of demand."""
    folder = tmp_path_factory.mktemp("network")
    net = grid_roadnet(1, 2, row_distance=200.0, column_distance=150.0)
    paths = folder / "roadnet.json", folder / "flow.json"
    for path, content in zip(
        paths, (net, draw_demand(net, 0, trips=60, duration=120)), strict=True
    ):
        path.write_text(json.dumps(content))
    return paths


def small(files, run_dir, **changes):
    """Options of a run of four stages on the small network, ended in seconds."""
    settings = {
        "preset": "smoke",
        "roadnet": files[0],
        "flow": files[1],
        "duration": 120.0,
        "steps": 16,
        "seeds": 2,
        "maddpg": CONFIG,
        "architect": "rules",
        "stage_episodes": 1,
        "canary_steps": 2,
        "animation_seconds": 20.0,
        "progress": False,
        "run_dir": run_dir,
    }
    options = Options(**(settings | changes))
    values = {f.name: getattr(options, f.name) for f in dataclasses.fields(options)}
    if options.resume is None:
        runfolder.create(run_dir, "maestro", values)
    return options


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    """Options and result of a finished run."""
    options = small(files, tmp_path_factory.mktemp("runs") / "whole")
    return options, training.train(options)


def test_a_run_leaves_a_summary_figures_metrics_and_checkpoints(finished):
    options, result = finished
    assert result.step == 16
    assert len(checkpointing.steps(options.run_dir / runfolder.CHECKPOINTS)) == 2
    summary = json.loads((options.run_dir / runfolder.SUMMARY).read_text())
    assert set(summary["policies"]) == set(POLICIES)
    learned = summary["policies"]["learned"]
    for name in ("average_travel_time", "throughput", "queue", "return"):
        values = learned[name]["seeds"]
        assert len(values) == 2
        assert summary[name] == pytest.approx(np.median(values))
        assert learned[name]["low"] <= learned[name]["median"] <= learned[name]["high"]
        assert len(summary["policies"]["sotl"][name]["seeds"]) == 1
    assert learned["throughput"]["median"] > 0
    for name in ("learning_curve", "travel_times", "curriculum"):
        with Image.open(options.run_dir / "figures" / f"{name}.png") as picture:
            assert np.asarray(picture.convert("L")).std() > 5
    with Image.open(options.run_dir / "figures" / "traffic.gif") as animation:
        assert animation.n_frames == 10
    metrics = reporting.read_metrics(options.run_dir)
    assert metrics["greedy_average_travel_time"].shape == (4, 2)
    assert np.isfinite(metrics["episode_return"]).all()


def test_every_seed_moves_by_the_success_of_its_own_curriculum(finished):
    _, result = finished
    histories = [entry["history"] for entry in result.host["curricula"]]
    assert histories[0][0]["scenario"] != histories[1][0]["scenario"]
    for n, history in enumerate(histories):
        assert len(history) == 4
        for before, after in itertools.pairwise(history):
            score = before["metrics"]["reference"] / min(before["metrics"]["return"], -1e-9)
            step = 0.1 * (int(score > 0.8) - int(score < 0.5))
            expected = np.clip(before["difficulty"] + step, 0, 1)
            assert after["difficulty"] == pytest.approx(expected)
        returns = [record["metrics"]["return"] for record in history]
        np.testing.assert_allclose(result.metrics["greedy_return"][:, n], returns)


def test_designs_are_kept_with_what_the_canaries_said(finished):
    options, result = finished
    for entry in result.host["curricula"]:
        for n, record in enumerate(entry["history"]):
            design, canary = record["design"], record["canary"]
            assert design["architect"] == "rules"
            assert record["scenario"] == design["scenario"]
            assert RewardTemplate.from_json(record["template"]).prior is not None
            if n == 0:  # adopted as it is
                assert canary is None
                assert record["template"]["reward"]["source"] == design["source"]
                continue
            returns = canary["returns"]
            assert set(returns) == set(CANDIDATES)
            assert returns[canary["chosen"]] == max(returns.values())
            used, before = record["template"], entry["history"][n - 1]["template"]
            if canary["chosen"] == "nothing":
                assert used["reward"] is None
            elif canary["chosen"] == "present":
                assert used["reward"] == before["reward"]
            else:
                assert used["reward"]["source"] == design["source"]
    log = ArchitectLog(options.run_dir / ARCHITECT_LOG)
    assert log.summary()["accepted"] == 8
    summary = json.loads((options.run_dir / runfolder.SUMMARY).read_text())
    assert (summary["variant"], summary["architect"]["name"]) == ("full", "rules")
    assert summary["architect"]["accepted"] == 8


def test_variants_say_who_designs_what():
    full = Options(architect="rules").plan
    assert full.parts == ("scenario", "reward", "prior")
    assert full.shapes
    plain = Options(curriculum="static").plan
    assert (plain.scenarios, plain.parts, plain.shapes) == ("static", (), False)
    assert Options(variant="other_template").plan.prompt == "B"
    assert Options(variant="template").plan.parts == ("scenario",)
    assert set(typing.get_args(VariantName)) == set(VARIANTS)


# Killing and resuming is tested on probes; this is about the curricula and designs of a run.
@pytest.mark.slow
def test_a_run_that_dies_goes_on_to_the_same_bits(finished, files, tmp_path, monkeypatch):
    _, whole = finished
    broken = small(files, tmp_path / "broken")
    between, calls = Stages.between, []

    def dying(self, state, metrics, host):
        calls.append(host)
        if len(calls) == 3:
            raise RuntimeError("power cut")
        return between(self, state, metrics, host)

    monkeypatch.setattr(Stages, "between", dying)
    with pytest.raises(RuntimeError, match="power cut"):
        training.train(broken)
    monkeypatch.setattr(Stages, "between", between)
    resumed = training.train(
        dataclasses.replace(broken, resume=broken.run_dir, animation_seconds=0.0)
    )
    assert json.dumps(resumed.host) == json.dumps(whole.host)
    expected = jax.tree.leaves(jax.tree.map(_plain, whole.state))
    for a, b in zip(jax.tree.leaves(jax.tree.map(_plain, resumed.state)), expected, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.slow
def test_a_recorded_run_is_repeated_to_the_same_bits(finished, files, tmp_path):
    first, whole = finished
    log = first.run_dir / ARCHITECT_LOG
    options = small(files, tmp_path / "again", architect="recorded", architect_log=log)
    again = training.train(options)
    expected = jax.tree.leaves(jax.tree.map(_plain, whole.state))
    for a, b in zip(jax.tree.leaves(jax.tree.map(_plain, again.state)), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    summaries = [
        json.loads((folder / runfolder.SUMMARY).read_text())
        for folder in (first.run_dir, options.run_dir)
    ]
    assert summaries[0]["policies"] == summaries[1]["policies"]
    assert summaries[1]["architect"]["name"] == "recorded"


def _plain(leaf):
    if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
        return np.asarray(jax.random.key_data(leaf))
    return np.asarray(leaf)


def test_the_loaded_policy_is_the_one_that_was_trained(finished):
    options, result = finished
    env = make_env(options)
    params = env.nominal_params()
    key = jax.random.key(3)
    _, timestep = env.reset(key, params)
    policy = load_policy(options.run_dir, seed_index=1)
    action = policy(timestep.obs, key)
    assert action.shape == (2,)
    expected = result.learner.act(result.seed_state(1), timestep.obs, key)
    np.testing.assert_array_equal(action, expected)


def test_the_scenario_in_the_documentation_is_one(finished):
    text = (pathlib.Path(__file__).parents[2] / "docs" / "maestro.md").read_text()
    document = json.loads(text.partition("```json")[2].partition("```")[0])
    env = dataclasses.replace(make_env(finished[0]), max_demand=2.5, duration=3600.0)
    assert scenario_from_json(env, document).demand == np.float32(1.2)


def test_evaluation_of_a_saved_run_gives_the_same_numbers(finished, tmp_path, capsys):
    options, _ = finished
    again = dataclasses.replace(
        options, evaluate=options.run_dir, run_dir=tmp_path, animation_seconds=0.0, json=True
    )
    training.evaluate(again)
    printed = json.loads(capsys.readouterr().out)
    summary = json.loads((options.run_dir / runfolder.SUMMARY).read_text())
    assert printed["policies"] == summary["policies"]
    assert printed["stages"] == summary["stages"]
    assert (tmp_path / "figures" / "learning_curve.png").exists()


@pytest.mark.parametrize("change", [{"seeds": 3}, {"duration": 240.0}])
def test_evaluation_is_of_what_was_trained(finished, change):
    options, _ = finished
    before = (options.run_dir / runfolder.SUMMARY).read_bytes()
    again = dataclasses.replace(options, evaluate=options.run_dir, **change)
    with pytest.raises(ConfigError, match=f"trained with other options: {next(iter(change))}"):
        training.evaluate(again)
    assert (options.run_dir / runfolder.SUMMARY).read_bytes() == before


def test_the_saved_state_holds_the_tasks_of_the_next_stage(finished):
    options, result = finished
    _, state = load_state(options.run_dir, training.build)
    env = make_env(options)
    base = scenario_params(env, nominal_scenario(env), jax.random.key(0))
    tasks = state.tasks
    assert tasks.weights.shape == (2, NEW + EARLIER + BASE)
    np.testing.assert_allclose(np.asarray(tasks.weights).sum(1), 1, rtol=1e-6)
    assert np.all(np.asarray(tasks.weights)[:, :NEW] == np.float32(0.7 / NEW))
    last = jax.tree.map(lambda x: x[0, -1], tasks.params)
    jax.tree.map(np.testing.assert_array_equal, last, base)
    # Places of the new scenario differ in the vehicles drawn.
    assert np.any(tasks.params.depart_step[0, 0] != tasks.params.depart_step[0, 1])
    assert saved_host(options.run_dir) == result.host


def test_a_seed_has_the_curriculum_it_would_have_alone(files, tmp_path):
    pair = small(files, tmp_path / "pair", seed=4, seeds=2, curriculum="rules")
    alone = small(files, tmp_path / "alone", seed=5, seeds=1, curriculum="rules")
    env = make_env(pair)
    both, one = (Stages(env, options, trials=None) for options in (pair, alone))
    hosts = both.begin(), one.begin()
    assert hosts[0]["curricula"][1] == hosts[1]["curricula"][0]
    tasks = both.tasks(hosts[0]), one.tasks(hosts[1])
    second = jax.tree.map(lambda x: x[1], tasks[0])
    jax.tree.map(np.testing.assert_array_equal, second, jax.tree.map(lambda x: x[0], tasks[1]))


def test_too_many_vehicles_end_the_run_with_the_name_of_the_capacity(files, tmp_path):
    options = small(files, tmp_path / "full", capacity=3, seeds=1, curriculum="none")
    env = make_env(options)
    stages = Stages(env, options, trials=None)
    metrics = {"overflow": np.array([1.0])}
    with pytest.raises(CapacityError, match=r"capacity of 3 vehicles.*--capacity"):
        stages.between(None, metrics, stages.begin())
    check_capacity(env, np.array([np.nan, 0.0]))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--roadnet", "r.json"], "--roadnet needs --flow"),
        (["--flow", "f.json"], "--flow needs --roadnet"),
        (["--stage-episodes", "0"], "--stage-episodes 0"),
        (["--max-demand", "0.5"], "--max-demand 0.5"),
        (["--duration", "nan"], "--duration nan"),
        (["--capacity", "0"], "--capacity 0"),
        (["--variant", "full", "--curriculum", "none"], "give one"),
        (["--architect", "recorded"], "needs --architect-log"),
        (["--architect", "model"], "needs --architect-model"),
        (["--shaping-weight", "-1", "0.5"], "--shaping-weight"),
    ],
)
def test_options_that_cannot_work_are_named(arguments, message):
    with pytest.raises(ConfigError, match=message):
        parse("maestro", Options, PRESETS, arguments)


def test_a_missing_file_is_named(files):
    with pytest.raises(DataError, match=r"nowhere\.json"):
        make_env(Options(roadnet=files[0], flow=files[0].parent / "nowhere.json"))


def test_nested_options_are_flags_and_numbers_may_have_exponents():
    options = parse(
        "maestro", Options, PRESETS, ["--maddpg.buffer-size", "1e4", "--hyper.gamma", "9e-1"]
    )
    assert options.maddpg.buffer_size == 10_000
    assert options.hyper.gamma == 0.9
    assert parse("maestro", Options, PRESETS, ["--preset", "smoke"]).steps == 16


def test_options_import_neither_jax_nor_flax_and_help_is_quick():
    code = (
        "import sys, experiments.maestro.options as o; assert not {'jax', 'flax'} & {*sys.modules}"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "experiments.maestro", "--help"], capture_output=True, text=True
    )
    assert done.returncode == 0
    assert "--curriculum" in done.stdout
    # Two seconds on an idle machine; tests run beside others.
    assert time.monotonic() - began < 10


def test_the_smoke_preset_runs_from_the_command_line(tmp_path):
    run_dir = tmp_path / "run"
    command = [sys.executable, "-m", "experiments.maestro", "--preset", "smoke", "--json"]
    done = subprocess.run(
        [*command, "--run-dir", str(run_dir), "--no-progress"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert summary == json.loads((run_dir / "summary.json").read_text())
    assert summary["average_travel_time"] > 0
    assert len(checkpointing.steps(run_dir / runfolder.CHECKPOINTS)) >= 2


def test_the_rules_designs_pass_the_checks_on_recordings_of_the_network():
    """Whatever rules design must be held good by what scripted policies went through."""
    options = Options(duration=600.0)
    env = make_env(options)
    space = designs.design_space(env, options, (), None)
    recordings = designs.record_policies(env)
    for name, entry in designs.PLAYBOOK.items():
        verdict = reward_checks.check_reward(
            space.reward_function(entry["reward"]),
            designs.JUNCTIONS,
            recordings=recordings,
            weight=max(options.shaping_weight),
            potential=is_potential(entry["reward"]),
            discount=options.hyper.gamma,
        )
        assert verdict.accepted, f"{name}: {verdict.text()}"
