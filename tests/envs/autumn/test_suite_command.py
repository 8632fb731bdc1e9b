"""`python -m experiments.autumn suite`: the table and the pictures that it writes."""

import json

import pytest
from PIL import Image

from experiments.autumn.__main__ import main
from jaxlab.envs.autumn.suite.metadata import decoded, metadata


def test_suite_writes_table_and_pictures(tmp_path, capsys):
    main(["suite", "--out", str(tmp_path), "--programs", "bbq"])
    table = json.loads((tmp_path / "metadata.json").read_text())
    assert {name: decoded(row) for name, row in table.items()} == {"bbq": metadata("bbq")}
    with Image.open(tmp_path / "bbq.png") as panels:
        assert panels.size == (2 * 7 * 16 + 8, 7 * 16)
    with Image.open(tmp_path / "contact_sheet.png") as sheet:
        assert sheet.size[1] > 100
    line = capsys.readouterr().out.splitlines()[-1]
    assert line.split() == ["bbq", "counters", "7", "-", "-", "yes", "-", "click"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["--programs", "bqb"], "'bqb' is not in the suite"), ([], "--out: is missing")],
)
def test_suite_says_what_is_wrong(tmp_path, capsys, arguments, message):
    out = ["--out", str(tmp_path / "new")] if arguments else []
    with pytest.raises(SystemExit) as caught:
        main(["suite", *out, *arguments])
    assert message in str(caught.value) + capsys.readouterr().err
