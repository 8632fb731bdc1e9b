"""Command lines: options, presets, continuation, errors in one line."""

from __future__ import annotations

import dataclasses
import pathlib
import resource
import subprocess
import sys
from typing import Literal

import pytest

from jaxlab.core import cli, runfolder
from jaxlab.core.errors import (
    CheckpointError,
    ConfigError,
    DataError,
    DeviceError,
    Interrupted,
    JaxlabError,
)
from jaxlab.core.options import revive
from tests.core import probe_run

ROOT = pathlib.Path(__file__).parents[2]


def parse(*arguments: str) -> probe_run.Options:
    return cli.parse("probe", probe_run.Options, probe_run.PRESETS, arguments)


def python(*arguments: str) -> tuple[subprocess.CompletedProcess[str], float]:
    """A finished process and its CPU-seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def test_presets_give_the_defaults_and_flags_win():
    assert parse().preset == "quick"
    assert parse().steps == 200
    assert parse("--preset", "smoke").steps == 40
    assert parse("--preset=paper", "--steps", "7").steps == 7


@pytest.mark.parametrize(
    ("text", "value"), [("100", 100), ("1e4", 10_000), ("2.5e3", 2500), ("1E+2", 100), ("4.0", 4)]
)
def test_integers_may_be_in_exponent_form(text, value):
    assert parse("--steps", text).steps == value


def test_integers_in_exponent_form_wherever_they_stand():
    options = parse("--loads", "1e2", "3", "--size", "1e1", "--seed", "1e3")
    assert options.loads == (100, 3)
    assert options.size == 10
    assert options.seed == 1000


@pytest.mark.parametrize(
    "arguments",
    [
        ["--steps", "1.5"],
        ["--steps", "inf"],
        ["--steps", "nan"],
        ["--steps", "ten"],
        ["--steps"],
        ["--preset", "huge"],
        ["--unknown", "1"],
        ["--learning-rate", "fast"],
        ["stray"],
    ],
)
def test_what_cannot_be_parsed_is_refused_with_code_2(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(*arguments)
    assert caught.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "0"], "--steps 0"),
        (["--steps", "3e9"], "fewer than"),
        (["--seeds", "0"], "--seeds 0"),
        (["--seeds", "-2"], "--seeds -2"),
        (["--seed", "-1"], "--seed -1"),
        (["--seed", "4294967295", "--seeds", "2"], "below 2"),
        (["--coordinator", "host:1"], "--distributed"),
        (["--num-processes", "0", "--distributed"], "--num-processes 0"),
        (["--run-dir", "x", "--resume", "RUN"], "contradict"),
        (["--resume", "RUN", "--evaluate", "RUN"], "contradict"),
    ],
)
def test_values_out_of_range_are_refused(arguments, message, tmp_path):
    runfolder.create(tmp_path / "run", "probe", {"steps": 4})
    arguments = [str(tmp_path / "run") if a == "RUN" else a for a in arguments]
    with pytest.raises(ConfigError, match=message):
        parse(*arguments)


def test_an_unknown_device_is_refused_before_anything_runs():
    with pytest.raises(DeviceError, match="expected one of cpu, gpu, tpu"):
        parse("--devices", "abacus")


def test_resuming_takes_the_options_of_the_run(tmp_path):
    first = parse("--steps", "30", "--loads", "5", "6", "--learning-rate", "1e-3", "--pause", "9")
    values = {f.name: getattr(first, f.name) for f in dataclasses.fields(first)}
    runfolder.create(tmp_path / "run", "probe", values | {"devices": "cpu:4"})
    again = parse("--resume", str(tmp_path / "run"))
    assert again.config() == first.config()
    assert again.loads == (5, 6)
    # What may differ comes from the command line alone.
    assert again.pause == 0.0
    assert again.devices is None
    assert parse("--resume", str(tmp_path / "run"), "--steps", "31").steps == 31


@pytest.mark.parametrize(
    ("experiment", "options", "message"),
    [
        ("other", {}, "is a run of other"),
        ("probe", {"colour": 1}, "unknown option 'colour'"),
        ("probe", {"steps": "many"}, "damaged"),
        ("probe", {"loads": 3}, "damaged"),
        ("probe", {"preset": "huge"}, "damaged"),
    ],
)
def test_a_folder_that_does_not_fit_is_refused(tmp_path, experiment, options, message):
    runfolder.create(tmp_path / "run", experiment, options)
    with pytest.raises(CheckpointError, match=message):
        parse("--resume", str(tmp_path / "run"))


@dataclasses.dataclass(frozen=True)
class Inner:
    rate: float
    name: str = "x"


@pytest.mark.parametrize(
    ("hint", "value"),
    [
        (int, 3),
        (float, 2.5),
        (bool, True),
        (str, "s"),
        (pathlib.Path, pathlib.Path("a/b")),
        (pathlib.Path | None, None),
        (pathlib.Path | None, pathlib.Path("a")),
        (int | str, "4"),
        (Literal["a", "b"], "b"),
        (tuple[int, ...], (1, 2, 3)),
        (tuple[int, str], (1, "x")),
        (tuple[pathlib.Path, ...], (pathlib.Path("a"),)),
        (list[float], [1.0, 2.0]),
        (dict[str, int], {"a": 1}),
        (Inner, Inner(0.5)),
        (Inner | None, Inner(0.5, "y")),
    ],
)
def test_plain_data_comes_back_as_what_it_was(hint, value):
    assert revive(runfolder.plain(value), hint) == value
    assert type(revive(runfolder.plain(value), hint)) is type(value)


@pytest.mark.parametrize(
    ("hint", "value"), [(int, "3"), (int, True), (float, "x"), (Literal["a"], "b"), (str, 1)]
)
def test_plain_data_of_another_type_is_refused(hint, value):
    with pytest.raises(TypeError):
        revive(value, hint)


def fail_with(error: BaseException):
    def body(options):
        raise error

    return body


def run_main(body, *arguments: str, options=cli.DeviceOptions, **kwargs) -> int:
    try:
        cli.main("probe", options, body, argv=arguments, **kwargs)
    except SystemExit as stop:
        return int(stop.code or 0)
    return 0


@pytest.mark.parametrize("kind", [*JaxlabError.__subclasses__(), JaxlabError])
def test_an_error_of_the_user_is_one_line_and_a_code(kind, capsys):
    assert run_main(fail_with(kind("the thing: expected this"))) == kind.exit_code != 0
    captured = capsys.readouterr()
    assert captured.err == "error: the thing: expected this\n"
    assert captured.out == ""


def test_debug_shows_the_traceback(monkeypatch):
    monkeypatch.setattr("jaxlab.core.devices.setup", lambda *args, **kwargs: None)
    with pytest.raises(DataError):
        run_main(fail_with(DataError("x")), "--debug")


def test_an_error_of_the_library_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        run_main(fail_with(ZeroDivisionError("x")))


def test_a_stopped_run_exits_with_0_and_an_interrupted_program_with_130():
    assert run_main(fail_with(Interrupted("saved"))) == 0
    assert run_main(fail_with(KeyboardInterrupt())) == 130


def test_a_full_disk_anywhere_is_one_line(capsys):
    assert run_main(fail_with(OSError(28, "No space left on device"))) == 2
    assert capsys.readouterr().err.startswith("error: the disk is full")


def test_nothing_to_evaluate_is_said(tmp_path, capsys):
    runfolder.create(tmp_path / "run", "probe", {})
    code = run_main(
        fail_with(AssertionError()), "--evaluate", str(tmp_path / "run"), options=cli.RunOptions
    )
    assert code == 2
    assert "nothing to evaluate" in capsys.readouterr().err


def test_the_body_gets_a_run_folder_with_its_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    seen = []
    for _ in range(2):
        assert run_main(seen.append, options=cli.RunOptions) == 0
    folders = [options.run_dir for options in seen]
    assert len(set(folders)) == 2
    for folder in folders:
        assert folder.parent == pathlib.Path("runs/probe")
        assert runfolder.read_config(folder)[0] == "probe"


@pytest.mark.parametrize("obstacle", ["not empty", "a file", "below a file", "unwritable"])
def test_a_run_folder_that_cannot_be_used_is_one_line(tmp_path, obstacle, capsys):
    folder = tmp_path / "run"
    if obstacle == "not empty":
        folder.mkdir()
        (folder / "x").write_text("")
    elif obstacle == "a file":
        folder.write_text("")
    elif obstacle == "below a file":
        folder.write_text("")
        folder = folder / "deep"
    else:
        folder = pathlib.Path("/proc/run")  # Nobody may make a folder there, not even root.
    body = fail_with(AssertionError("ran"))
    assert run_main(body, "--run-dir", str(folder), options=cli.RunOptions) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert str(folder) in message


def test_a_run_that_never_began_leaves_no_folder(tmp_path):
    folder = tmp_path / "run"
    arguments = ("--run-dir", str(folder))
    fails = fail_with(DataError("no such file"))
    assert run_main(fails, *arguments, options=cli.RunOptions) == 2
    assert not folder.exists()
    seen = []
    assert run_main(seen.append, *arguments, options=cli.RunOptions) == 0
    assert run_main(fails, "--resume", str(folder), options=cli.RunOptions) == 2
    assert folder.is_dir()

    def begins_and_fails(options):
        (options.run_dir / "metrics.jsonl").write_text("{}")
        raise DataError("later")

    other = tmp_path / "other"
    assert run_main(begins_and_fails, "--run-dir", str(other), options=cli.RunOptions) == 2
    assert (other / "metrics.jsonl").exists()


def test_help_is_quick_and_shows_defaults_of_the_preset():
    done, seconds = python("-m", "tests.core.probe_run", "--preset", "smoke", "--help")
    assert done.returncode == 0, done.stderr
    assert seconds < 2.0
    assert "(default: 40)" in done.stdout
    assert "Time to wait between chunks [s]." in done.stdout


def test_the_experiments_are_listed_one_line_each():
    done, seconds = python("-m", "experiments")
    assert done.returncode == 0, done.stderr
    assert seconds < 2.0
    names = [
        path.stem
        for path in (ROOT / "experiments").iterdir()
        if not path.name.startswith(("_", "."))
        and (path.suffix == ".py" or (path / "__init__.py").exists())
    ]
    listed = {line.split()[0]: line.split(maxsplit=1)[1:] for line in done.stdout.splitlines()}
    assert sorted(listed) == sorted(names)
    assert all(description for description in listed.values()), "an experiment lacks a docstring"


def test_what_was_trained_can_be_evaluated(tmp_path):
    run_dir = str(tmp_path / "run")
    common = ["-m", "tests.core.probe_run"]
    done, _ = python(*common, "--preset", "smoke", "--run-dir", run_dir, "--seeds", "2")
    assert done.returncode == 0, done.stderr
    assert run_dir in done.stdout
    done, _ = python(*common, "--evaluate", run_dir)
    assert done.returncode == 0, done.stderr
    # The weights are near 0, 1, 2, 3.
    assert abs(float(done.stdout.split()[1]) - 6) < 1
    done, _ = python(*common, "--evaluate", str(tmp_path))
    assert done.returncode == 2
    assert "is not the folder of a run" in done.stderr
