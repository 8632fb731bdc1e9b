"""Experiments of several commands."""

import dataclasses

import pytest

from jaxlab.core import commands, reporting, runfolder
from jaxlab.core.commands import Command
from jaxlab.core.options import DeviceOptions, RunOptions


@dataclasses.dataclass(frozen=True, kw_only=True)
class AddOptions(DeviceOptions):
    """Add numbers.

    All of them.
    """

    numbers: tuple[int, ...] = ()
    """What is added."""


@dataclasses.dataclass(frozen=True, kw_only=True)
class WalkOptions(RunOptions):
    """Walk."""


def run(*argv, default=None):
    found = []
    table = {
        "add": Command(AddOptions, found.append),
        "walk": Command(WalkOptions, found.append, {"smoke": {"steps": 3}}),
    }
    commands.main("sums", "Sums of numbers.", table, argv, default=default)
    return found


def test_the_first_argument_names_the_command():
    (options,) = run("add", "--numbers", "1", "2")
    assert options == AddOptions(numbers=(1, 2))


def test_a_default_command_needs_no_name(capsys):
    assert run("--numbers", "1", default="add") == [AddOptions(numbers=(1,))]
    assert run(default="add") == [AddOptions()]
    run("--help", default="add")
    assert "Without COMMAND it is add." in capsys.readouterr().out
    with pytest.raises(SystemExit):
        run("subtract", default="add")


def test_a_run_has_a_folder_below_its_experiment_and_its_preset(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (options,) = run("walk", "--preset", "smoke")
    assert options.steps == 3
    assert options.run_dir.parent.parts == ("runs", "sums", "walk")
    assert runfolder.read_config(options.run_dir)[0] == "sums walk"
    (again,) = run("walk", "--resume", str(options.run_dir))
    assert (again.steps, again.run_dir) == (3, options.run_dir)


def test_a_stopped_run_goes_on_with_its_command(monkeypatch):
    monkeypatch.setattr("sys.argv", ["sums", "walk", "--steps", "3"])
    assert reporting.resume_command("runs/a").endswith(" walk --resume runs/a")
    monkeypatch.setattr("sys.argv", ["sums", "--steps", "3"])
    assert " walk " not in reporting.resume_command("runs/a")


def test_help_names_all_commands(capsys):
    assert run("--help") == []
    told = capsys.readouterr().out
    assert "usage: python -m experiments.sums COMMAND" in told
    assert "  add   Add numbers.\n  walk  Walk." in told


@pytest.mark.parametrize(
    ("argv", "message"), [((), "no command is given"), (("mul",), "'mul' is no command")]
)
def test_mistakes_name_the_commands(argv, message, capsys):
    with pytest.raises(SystemExit) as stopped:
        run(*argv)
    assert stopped.value.code == 2
    assert f"{message}: begin with add or walk" in capsys.readouterr().err
