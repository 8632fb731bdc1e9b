"""What a run writes and prints; statistics against closed forms."""

from __future__ import annotations

import io
import json
import os
import pathlib
import sys

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread

from jaxlab.core import figures, intervals, reporting, runfolder
from jaxlab.core.errors import CheckpointError, ConfigError, DataError
from jaxlab.core.progress import Progress
from jaxlab.core.training import run
from tests.core import probes


def test_a_run_folder_holds_what_the_result_does(tmp_path):
    result = run(
        probes.noisy_descent(),
        steps=12,
        hyper=probes.Hyper(),
        seeds=2,
        chunk=4,
        thin=2,
        run_dir=tmp_path,
        progress=False,
    )
    read = reporting.read_metrics(tmp_path)
    for name, values in result.metrics.items():
        np.testing.assert_array_equal(read[name], values)
    memory = run(
        probes.noisy_descent(),
        steps=12,
        hyper=probes.Hyper(),
        seeds=2,
        chunk=4,
        thin=2,
        progress=False,
    )
    for name, values in memory.records().items():
        np.testing.assert_array_equal(result.records()[name], values)
    names = sorted(path.name for path in (tmp_path / runfolder.RECORDS).iterdir())
    assert names == [f"{a:010d}-{a + 4:010d}.npz" for a in (0, 4, 8)]
    assert result.performance["env_steps_per_second"] > 0


def test_metrics_with_nan_and_infinity_are_json_and_come_back(tmp_path):
    log = reporting.MetricsLog(tmp_path)
    log.rewind(0)
    log.append({"step": 1, "a": [float("nan"), 1.5], "b": [float("-inf"), float("inf")]})
    log.append({"step": 2, "a": [2.0, 3.0], "b": [0.0, 0.0], "late": [[1, 2], [3, 4]]})
    for line in (tmp_path / runfolder.METRICS).read_text().splitlines():
        json.loads(line, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    read = reporting.read_metrics(tmp_path)
    np.testing.assert_array_equal(read["a"], [[np.nan, 1.5], [2, 3]])
    np.testing.assert_array_equal(read["b"], [[-np.inf, np.inf], [0, 0]])
    assert np.isnan(read["late"][0]).all()
    np.testing.assert_array_equal(read["late"][1], [[1, 2], [3, 4]])


def test_a_torn_last_line_is_left_out_and_a_torn_middle_is_told(tmp_path):
    path = tmp_path / runfolder.METRICS
    path.write_text('{"step": 1, "a": [1]}\n{"step": 2, "a": [')
    np.testing.assert_array_equal(reporting.read_metrics(tmp_path)["step"], [1])
    path.write_text('{"step": 1\n{"step": 2}\n')
    with pytest.raises(DataError, match="line 1"):
        reporting.read_metrics(tmp_path)
    with pytest.raises(DataError, match="cannot be read"):
        reporting.read_metrics(tmp_path / "nowhere")


def test_damaged_records_are_named(tmp_path):
    reporting.write_records(tmp_path, 0, 1, {"x": np.zeros(3)})
    path = tmp_path / runfolder.RECORDS / "0000000001-0000000002.npz"
    path.write_bytes(b"PK nonsense")
    with pytest.raises(DataError, match=path.name):
        reporting.read_records(tmp_path)


def test_the_summary_has_results_on_top_and_says_what_made_them(tmp_path):
    results = {"travel_time": np.float32(1.5), "by_seed": np.arange(2), "none": float("nan")}
    path = reporting.write_summary(tmp_path, results, {"run_seconds": 2.0})
    summary = json.loads(path.read_text())
    assert summary["travel_time"] == 1.5
    assert summary["by_seed"] == [0, 1]
    assert summary["none"] is None
    assert summary["performance"] == {"run_seconds": 2.0}
    provenance = summary["provenance"]
    assert provenance["devices"]["platform"] == "cpu"
    assert provenance["versions"]["jax"] == jax.__version__
    with pytest.raises(ConfigError, match="performance"):
        reporting.write_summary(tmp_path, {"performance": 1})


def test_the_configuration_comes_back(tmp_path):
    options = {"a": 1, "b": (1, 2), "path": pathlib.Path("x/y"), "c": None, "d": 1e-9, "s": "é"}
    runfolder.create(tmp_path / "new", "probe", options)
    experiment, read = runfolder.read_config(tmp_path / "new")
    assert experiment == "probe"
    assert read == {**options, "b": [1, 2], "path": "x/y"}
    with pytest.raises(ConfigError, match=r"not empty.*--resume"):
        runfolder.create(tmp_path / "new", "probe", options)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (None, "not the folder of a run"),
        ("a: [", "unreadable"),
        ("a: 1", "damaged"),
        ("[]", "damaged"),
        ("\x00", "unreadable"),
        ("experiment: x\noptions: 3", "damaged"),
    ],
)
def test_folders_that_are_no_runs_are_refused(tmp_path, text, message):
    if text is not None:
        (tmp_path / runfolder.CONFIG).write_text(text)
    with pytest.raises(CheckpointError, match=message) as caught:
        runfolder.read_config(tmp_path)
    assert "\n" not in str(caught.value)


def test_tensorboard_is_an_error_where_it_is_not_installed(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.setitem(sys.modules, "tensorboard.summary", None)
    with pytest.raises(ConfigError, match="jaxlab-suite\\[tensorboard\\]"):
        reporting.MetricsLog(tmp_path, tensorboard=True)


plain_data = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(-2, 2) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain_data, plain_data)
def test_differences_are_empty_exactly_for_equal_data(one, other):
    assert runfolder.differences(one, one) == []
    same = json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    assert (runfolder.differences(one, other) == []) == same
    assert (runfolder.config_hash(one) == runfolder.config_hash(other)) == same


def test_the_interquartile_mean_is_the_mean_of_the_middle_half():
    values = np.array([100.0, 1, 2, 3, 4, 5, 6, -100])
    assert intervals.interquartile_mean(values) == np.mean([2, 3, 4, 5])
    # Six seeds: a quarter is one and a half, so the second and fifth count half.
    assert intervals.interquartile_mean(np.arange(6.0)) == pytest.approx(2.5)
    skew = np.array([0.0, 1, 2, 4, 8, 16])
    assert intervals.interquartile_mean(skew) == pytest.approx((0.5 + 2 + 4 + 4) / 3)
    assert intervals.interquartile_mean(np.array([7.0])) == 7


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=9))
def test_statistics_lie_within_their_values(values):
    array = np.array(values)
    for statistic in (intervals.mean, intervals.median, intervals.interquartile_mean):
        interval = intervals.bootstrap(array, statistic, resamples=50)
        ends = (interval.low, interval.estimate, interval.high)
        assert all(array.min() - 1e-9 <= end <= array.max() + 1e-9 for end in ends)
        assert interval.low <= interval.high


def test_bootstrap_intervals_cover_as_often_as_they_say():
    generator = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        interval = intervals.bootstrap(generator.normal(size=40), resamples=300, seed=trial)
        covered += interval.low <= 0 <= interval.high
    # 95 % of 200 is 190; four standard deviations, and percentile intervals are narrow.
    assert 174 <= covered <= 200


def test_bootstrap_of_a_batch_and_of_wrong_input():
    values = np.arange(12.0).reshape(4, 3)
    interval = intervals.bootstrap(values, resamples=100)
    assert interval.low.shape == interval.estimate.shape == (3,)
    with pytest.raises(ValueError, match="at least one"):
        intervals.bootstrap(np.zeros((0,)))
    with pytest.raises(ValueError, match="confidence"):
        intervals.bootstrap(values, confidence=95)


def test_a_learning_curve_is_drawn(tmp_path):
    metrics = {
        "step": np.arange(5),
        "loss": np.array([[5, 4], [4, 3], [np.nan, 2], [2, 1], [np.nan, np.nan]]),
        "score": np.zeros((5, 1)),
    }
    path = figures.learning_curves(tmp_path, metrics, {"loss": "loss [1]", "score": "score"})
    picture = imread(path)
    assert picture.shape[0] > 300
    assert picture[..., :3].std() > 0.02


def test_a_curve_shows_the_statistic_and_its_interval():
    figure, axes = figures.new_figure()
    values = np.array([[0.0, 2.0], [1.0, 3.0], [np.nan, np.nan]])
    figures.draw_curve(axes, np.arange(3), values, label="x")
    (line,) = axes.get_lines()
    np.testing.assert_array_equal(line.get_ydata(), [1, 2])
    (band,) = axes.collections
    heights = band.get_paths()[0].vertices[:, 1]
    assert heights.min() == 0
    assert heights.max() == 3
    assert figure is not None


def test_a_table_is_printed_whole():
    file = io.StringIO()
    rows = [["max pressure", 365.08, 1], ["a" * 60, float("nan"), True]]
    reporting.print_table(["controller", "time [s]", "ok"], rows, title="t", file=file)
    text = file.getvalue()
    for part in ("max pressure", "365.1", "nan", "yes", "a" * 60):
        assert part in text


def test_progress_is_sparse_without_a_terminal(capsys):
    with Progress(10, label="chain", show=["b"]) as progress:
        for step in range(1, 11):
            progress.update(step, {"steps": 5.0}, {"a": np.ones(2), "b": np.array([1.0, np.nan])})
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["chain 10/10  0:00 left  5 steps/s  b 1"]


def test_progress_draws_a_bar_on_a_terminal():
    """A pseudo-terminal stands for the person."""
    import pty
    import subprocess

    code = (
        "import numpy as np\n"
        "from jaxlab.core.progress import Progress\n"
        "with Progress(4, label='chain') as bar:\n"
        "    for step in (2, 4): bar.update(step, {'steps': 7.0}, {'loss': np.array([0.25])})\n"
    )
    reader, writer = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "140"}
    subprocess.run(
        [sys.executable, "-c", code], stderr=writer, check=True, timeout=60, env=environment
    )
    os.close(writer)
    text = b""
    while True:
        try:
            part = os.read(reader, 4096)
        except OSError:
            break
        if not part:
            break
        text += part
    os.close(reader)
    for expected in (b"chain", b"4/4", b"7 steps/s", b"loss 0.25"):
        assert expected in text


def test_a_chunk_is_profiled(tmp_path):
    run(
        probes.noisy_descent(),
        steps=6,
        hyper=probes.Hyper(),
        chunk=2,
        profile=tmp_path / "profile",
        progress=False,
    )
    assert list((tmp_path / "profile").rglob("*.xplane.pb"))
