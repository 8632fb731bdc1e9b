"""What adapters share: missing packages, keys, and importing nothing foreign early."""

import subprocess
import sys

import jax
import numpy as np
import pytest

from jaxlab.core.adapters.foreign import require_package, typed_key
from jaxlab.core.errors import ConfigError


def test_a_missing_package_is_named():
    with pytest.raises(ConfigError, match=r"to_mars needs the package mars-rover, .* pip install"):
        require_package("to_mars", "mars_rover.wheels", "mars-rover")


def test_a_package_broken_inside_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_rover.py").write_text("import wheels_that_are_not_there")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="wheels_that_are_not_there"):
        require_package("to_mars", "broken_rover", "broken-rover")


def test_keys_of_both_kinds():
    raw, typed = jax.random.PRNGKey(5), jax.random.key(5)
    assert typed_key(typed) is typed
    np.testing.assert_array_equal(jax.random.key_data(typed_key(raw)), raw)


def test_importing_the_adapters_imports_nothing_foreign():
    foreign = ("gymnax", "jaxmarl", "jumanji", "gymnasium", "pettingzoo")
    program = (
        "import sys, jax, jaxlab.core.adapters, jaxlab.core.testing, jaxlab.core.probes\n"
        f"print(*[name for name in {foreign} if name in sys.modules])\n"
        "jax.config.update('jax_num_cpu_devices', 2)\n"
        "assert jax.device_count() == 2"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""
