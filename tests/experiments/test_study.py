"""The study of MAESTRO: its arms, its statistics, its table."""

import dataclasses
import json
import shutil

import numpy as np
import pytest

from experiments.maestro import study
from experiments.maestro.options import Options
from experiments.maestro.variants import STUDY, VARIANTS, Arm
from jaxlab.core import runfolder
from jaxlab.core.errors import ConfigError


def row(name, times, returns):
    return study.Row(Arm.parse(name), np.array(times, float), np.array(returns, float), None)


def test_arms_are_a_variant_and_perhaps_an_architect():
    assert Arm.parse("full:random") == Arm("full", "random")
    assert [Arm.parse(text).name for text in STUDY] == list(STUDY)
    assert {Arm.parse(text).variant for text in STUDY} <= set(VARIANTS)
    for text, message in (("fool", "no variant 'fool'"), ("full:me", "no architect 'me'")):
        with pytest.raises(ConfigError, match=message):
            Arm.parse(text)
    for arms in ((), ("full", "full")):
        with pytest.raises(ConfigError, match="different arms"):
            Options(study=True, arms=arms).check()


def test_numbers_of_an_arm_against_their_formulas():
    baseline = row("no_curriculum", [330, 320, 340, 350], [-30, -28, -32, -34])
    arm = row("full", [320, 320, 335, 360], [-28, -28, -30, -38])
    told = study.describe(arm, baseline, reference=-110.0)
    deviation = np.std([-28, -28, -30, -38], ddof=1)
    assert told["return_std"] == pytest.approx(deviation)
    assert told["coefficient_of_variation"] == pytest.approx(deviation / 31)
    assert told["risk_adjusted_return"]["max_pressure"] == pytest.approx(79 / deviation)
    assert told["risk_adjusted_return"]["no_curriculum"] == pytest.approx(0)
    assert told["average_travel_time"]["iqm"] == pytest.approx((320 + 335) / 2)
    # Paired differences: -10, 0, -5, 10, and half a tie.
    assert told["difference"]["iqm"] == pytest.approx(-2.5)
    assert told["difference"]["low"] <= -2.5 <= told["difference"]["high"]
    assert told["better"] == pytest.approx(0.625)
    lines = study.table([study.describe(baseline, baseline, -110.0), told], True).splitlines()
    assert len({line.count("|") for line in lines}) == 1
    assert "62%" in lines[-1]


def test_one_seed_has_no_spread():
    told = study.describe(row("full", [320], [-28]), None, reference=-110.0)
    assert np.isnan(told["return_std"])
    assert np.isnan(told["risk_adjusted_return"]["max_pressure"])
    assert "difference" not in told


def summary(times):
    measure = {"seeds": times, "median": float(np.median(times))}
    return {
        "policies": {
            "learned": {"average_travel_time": measure, "return": {"seeds": [-t for t in times]}},
            "max_pressure": {"return": {"median": -365.0}},
        },
        "architect": None,
    }


def test_arms_that_are_done_are_not_run_again(tmp_path, monkeypatch, capsys):
    arms = ("no_curriculum", "template", "full:random")
    options = Options(study=True, architect="rules", seeds=2, arms=arms, run_dir=tmp_path)
    ran = []

    def train(arm):
        assert (arm.run_dir / runfolder.CONFIG).is_file()
        assert not arm.study
        ran.append((arm.variant, arm.architect, arm.resume is not None))
        if arm.variant == "template" and arm.resume is None:
            raise KeyboardInterrupt
        (arm.run_dir / runfolder.SUMMARY).write_text(json.dumps(summary([310.0, 320.0])))

    monkeypatch.setattr(study, "train", train)
    with pytest.raises(KeyboardInterrupt):
        study.study(options)
    study.study(options)
    assert ran == [
        ("no_curriculum", "rules", False),
        ("template", "rules", False),
        ("template", "rules", True),
        ("full", "random", False),
    ]
    assert capsys.readouterr().out.count("| `") == 3
    document = json.loads((tmp_path / study.DATA).read_text())
    assert [arm["arm"] for arm in document["arms"]] == list(options.arms)
    assert (tmp_path / "figures" / "study.png").is_file()
    with pytest.raises(ConfigError, match="other seeds"):
        study.report(dataclasses.replace(options, seeds=3))
    shutil.rmtree(tmp_path / "template")
    study.report(options)
    assert "not done yet: template" in capsys.readouterr().err
