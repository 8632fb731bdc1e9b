"""The log of designs, and its replay."""

import json
import os

import pytest

from jaxlab.core.errors import CheckpointError, ConfigError, DataError
from jaxlab.shaping.architect import Request
from jaxlab.shaping.architect_log import ArchitectLog, read_log
from jaxlab.shaping.architects import make_architect
from jaxlab.shaping.architects.recorded import RecordedArchitect
from tests.shaping import hill

SPACE = hill.space()
STAGES, SEEDS = 3, 3


def requests(stage, seeds=SEEDS, shift=0.0):
    told = hill.history(*(0.6 + shift + 0.1 * n for n in range(stage)))
    return [Request(seed, stage, told) for seed in range(seeds)]


def answers(conversations, schema, seeds):
    """Good, malformed and hopeless ones, by the seed of the sampling."""
    good = [json.dumps(hill.GOOD | {"reason": f"{seed}é"}) for seed in seeds]
    return [("?" if seed % 3 == 0 else text) for seed, text in zip(seeds, good, strict=True)]


@pytest.fixture
def recorded(tmp_path):
    """A log with repaired and fallen-back designs, and the designs by stage."""
    path = tmp_path / "architect.jsonl"
    architect = make_architect("model", SPACE, ArchitectLog(path), generate=answers)
    designs = [architect.design(requests(stage)) for stage in range(STAGES)]
    verdicts = {one.verdict for stage in designs for one in stage}
    assert verdicts >= {"accepted", "repaired"}
    return path, designs


def test_a_log_is_replayed_bit_for_bit(recorded, tmp_path):
    path, designs = recorded
    copy = tmp_path / "copy" / "architect.jsonl"
    architect = make_architect("recorded", SPACE, ArchitectLog(copy), recorded=path)
    assert [architect.design(requests(stage)) for stage in range(STAGES)] == designs
    assert copy.read_bytes() == path.read_bytes()
    assert ArchitectLog(copy).summary() == ArchitectLog(path).summary()
    assert architect.drifted == 0


def test_a_replay_that_is_resumed_writes_nothing_twice(recorded, tmp_path):
    path, designs = recorded
    copy = tmp_path / "copy.jsonl"
    for _ in range(2):
        architect = RecordedArchitect(SPACE, ArchitectLog(copy), path)
        assert [architect.design(requests(stage)) for stage in range(2)] == designs[:2]
    architect = RecordedArchitect(SPACE, ArchitectLog(copy), path)
    assert architect.design(requests(2)) == designs[2]
    assert copy.read_bytes() == path.read_bytes()


def test_a_replay_of_a_replay_is_the_same(recorded, tmp_path):
    path, designs = recorded
    for name in ("first", "second"):
        copy = tmp_path / f"{name}.jsonl"
        architect = RecordedArchitect(SPACE, ArchitectLog(copy), path)
        assert [architect.design(requests(stage)) for stage in range(STAGES)] == designs
        path = copy


def test_fewer_seeds_and_stages_than_recorded_are_fine(recorded):
    path, designs = recorded
    architect = RecordedArchitect(SPACE, ArchitectLog(), path)
    assert architect.design(requests(1, seeds=1)) == designs[1][:1]


def test_a_log_without_the_seed_or_stage_says_what_it_holds(recorded):
    path, _ = recorded
    architect = RecordedArchitect(SPACE, ArchitectLog(), path)
    with pytest.raises(DataError, match=r"seed 3, stage 0; it holds seeds 0 to 2 and stages 0 to"):
        architect.design(requests(0, seeds=4))
    with pytest.raises(DataError, match="seed 0, stage 3"):
        architect.design(requests(3))


def test_another_history_is_refused_or_counted(recorded):
    path, designs = recorded
    strict = RecordedArchitect(SPACE, ArchitectLog(), path)
    with pytest.raises(DataError, match="seed 0, stage 2 was designed after another history"):
        strict.design(requests(2, shift=1e-6))
    lenient = RecordedArchitect(SPACE, ArchitectLog(), path, strict=False)
    assert lenient.design(requests(2, shift=1e-6)) == designs[2]
    assert lenient.drifted == 3


def test_a_stage_that_was_designed_twice_is_replayed_in_its_order(tmp_path):
    path = tmp_path / "architect.jsonl"
    architect = make_architect("random", SPACE, ArchitectLog(path))
    rejected = [(), ("pays for standing still",)]
    designs = [architect.design([Request(0, 0, rejections=texts)]) for texts in rejected]
    assert designs[0] != designs[1]
    for shift, strict in ((0.0, True), (0.1, False)):
        replay = RecordedArchitect(SPACE, ArchitectLog(), path, strict=strict)
        told = {"slip": {"mean": shift}} if shift else {}
        again = [replay.design([Request(0, 0, (), told, texts)]) for texts in rejected]
        assert again == designs


def test_a_log_of_another_space_is_refused(recorded):
    path, _ = recorded
    with pytest.raises(DataError, match="another design space"):
        RecordedArchitect(hill.space(card={"task": "Swim."}), ArchitectLog(), path)


def test_a_log_of_several_architects_cannot_be_replayed(tmp_path):
    path = tmp_path / "architect.jsonl"
    for name in ("rules", "random"):
        make_architect(name, SPACE, ArchitectLog(path)).design(requests(0))
    with pytest.raises(DataError, match="several architects"):
        RecordedArchitect(SPACE, ArchitectLog(), path)


def test_a_run_that_stopped_before_a_design_cannot_be_replayed_to_there(tmp_path):
    path = tmp_path / "architect.jsonl"
    architect = make_architect("model", SPACE, ArchitectLog(path), generate=lambda *_: ["?"])
    architect.design([Request(0, 0)])
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 3
    path.write_bytes(b"".join(lines[:2]))
    replay = RecordedArchitect(SPACE, ArchitectLog(), path)
    with pytest.raises(DataError, match="stopped before the design"):
        replay.design([Request(0, 0)])


def _edit(path, number, change):
    lines = path.read_text().splitlines()
    record = json.loads(lines[number])
    change(record)
    lines[number] = json.dumps(record)
    path.write_text("\n".join(lines) + "\n")


@pytest.mark.parametrize("open_log", [ArchitectLog, read_log])
@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda record: record.update(version=2), r"line 2 is of version 2 .* reads version 1"),
        (lambda record: record.update(version="0.9"), r"version '0\.9'"),
        (lambda record: record.pop("version"), "line 2 is no record of an architect"),
        (lambda record: record.pop("design"), "line 2 lacks design"),
        (lambda record: record.update(answer="another"), "its hash differs"),
        (lambda record: record["design"].update(prior={"uphill": 3.0}), "its hash differs"),
    ],
)
def test_a_log_of_another_version_or_a_changed_one_is_refused(tmp_path, open_log, change, expected):
    path = tmp_path / "architect.jsonl"
    make_architect("random", SPACE, ArchitectLog(path)).design(requests(0))
    _edit(path, 1, change)
    changed = path.read_bytes()
    with pytest.raises(DataError, match=expected) as caught:
        open_log(path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == changed


@pytest.mark.parametrize(
    "text", ["[]\n{}\n", "garbage\n", "\n", "null\n", '{"a": 1}\n', "\x00\xff\n", "[" * 9999 + "\n"]
)
def test_what_is_no_log_is_refused_and_left_alone(tmp_path, text):
    path = tmp_path / "architect.jsonl"
    path.write_bytes(text.encode("latin-1"))
    for open_log in (ArchitectLog, read_log):
        with pytest.raises(DataError, match="line 1 is no record"):
            open_log(path)
    assert path.read_bytes() == text.encode("latin-1")


def test_a_log_that_is_not_there_or_empty_cannot_be_replayed(tmp_path):
    with pytest.raises(DataError, match="No such file"):
        read_log(tmp_path / "nowhere.jsonl")
    with pytest.raises(DataError, match="directory"):
        read_log(tmp_path)
    (tmp_path / "empty.jsonl").touch()
    with pytest.raises(DataError, match="holds no record"):
        read_log(tmp_path / "empty.jsonl")


def test_half_a_line_at_the_end_is_not_read_and_goes_when_the_run_goes_on(recorded):
    path, _ = recorded
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    assert len(read_log(path)) == whole.count(b"\n")
    assert path.read_bytes() != whole
    ArchitectLog(path)
    assert path.read_bytes() == whole


def test_numbers_that_json_does_not_know_survive(tmp_path):
    path = tmp_path / "architect.jsonl"
    told = hill.history(float("nan"), float("inf"))
    made = make_architect("rules", SPACE, ArchitectLog(path)).design([Request(0, 2, told)])
    replay = RecordedArchitect(SPACE, ArchitectLog(), path)
    assert replay.design([Request(0, 2, told)]) == made


def test_a_full_disk_leaves_what_was_written(recorded, monkeypatch):
    path, _ = recorded
    whole, log = path.read_bytes(), ArchitectLog(path)
    architect = make_architect("rules", SPACE, log)

    def full(descriptor):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(CheckpointError, match="disk is full"):
            architect.design(requests(0))
    assert path.read_bytes() == whole
    architect.design(requests(0))
    assert len(read_log(path)) == whole.count(b"\n") + SEEDS


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "file").touch()
    log = ArchitectLog(tmp_path / "file" / "architect.jsonl")
    with pytest.raises(ConfigError, match="cannot write"):
        make_architect("rules", SPACE, log).design(requests(0))
