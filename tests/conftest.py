"""One thread, one compilation cache, checked annotations and a budget for every test.

The environment is set before JAX is imported; processes that tests start inherit it.
"""

from __future__ import annotations

import ctypes
import gc
import os
import pathlib
import resource
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
from jaxtyping import install_import_hook

import tests.typechecking

ROOT = pathlib.Path(__file__).resolve().parents[1]

# Two workers on two cores: a second thread in each would only fight for them.
os.environ.setdefault("NPROC", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
# Most of the time of the tests is compilation of programs that run for an instant. What
# depends on optimised code (the bits of the traffic simulator) has a test of its own with it.
# The older emitter of fused loops and one unit of code take half the time to compile.
os.environ.setdefault(
    "XLA_FLAGS",
    "--xla_cpu_multi_thread_eigen=false --xla_backend_optimization_level=0"
    " --xla_llvm_disable_expensive_passes=true --xla_cpu_parallel_codegen_split_count=1"
    " --xla_cpu_use_fusion_emitters=false",
)
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
os.environ.setdefault("JAX_PLATFORMS", "cpu")
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(ROOT / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

for module in ("jax", "jaxlab"):
    if module in sys.modules:
        raise RuntimeError(f"{module} was imported before the tests could set it up")
install_import_hook(["jaxlab"], f"{tests.typechecking.__name__}.typecheck")

# Compilation inside an example would break any deadline.
hypothesis.settings.register_profile("jaxlab", deadline=None, derandomize=True, database=None)
hypothesis.settings.load_profile("jaxlab")

#: CPU-seconds that the tests of a folder below `tests/` may use, on a cold cache: three times
#: what they took on a quiet machine, since the same tests took twice as long on a busy one.
BUDGETS = {
    "core": 630,
    "core/adapters": 130,
    "agents": 1000,
    "envs": 60,
    "envs/autumn": 480,
    "envs/cmdp": 150,
    "envs/combinatorial": 150,
    "envs/pde": 150,
    "envs/traffic": 650,
    "envs/cr3bp": 660,
    "envs/qbm": 150,
    "experiments": 1000,
    "llm": 360,
    "shaping": 100,
}
DEFAULT_BUDGET = 120
#: Bytes of a process above which compiled programs are forgotten after a file of tests.
MOST_MEMORY = 3 * 2**30

#: Files that take longest, which begin first: a file goes to one worker as a whole, and one
#: begun last would keep the other worker waiting.
LONG = (
    *("experiments/test_cr3bp_study.py", "experiments/test_maestro.py"),
    *("envs/traffic/test_golden.py", "core/test_resume.py", "experiments/test_cr3bp_solve.py"),
    *("envs/traffic/test_controllers.py", "agents/test_maddpg_learning.py"),
    *("core/test_env_check.py", "envs/traffic/test_environment.py", "agents/test_maddpg.py"),
    *("llm/test_smollm2.py", "core/test_wrappers.py", "core/test_distributed.py"),
    *("envs/cr3bp/test_objective.py", "envs/traffic/test_scenario.py", "llm/test_generation.py"),
    *("envs/cr3bp/test_solving.py", "envs/cr3bp/test_orbits.py"),
)

_spent: Counter[str] = Counter()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    rank = {ROOT / "tests" / name: n for n, name in enumerate(LONG)}
    items.sort(key=lambda item: rank.get(item.path, len(LONG)))


def _cpu_seconds() -> float:
    """User and system time of this process and of those it waited for."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    wing = item.path.parent.relative_to(ROOT / "tests").as_posix()
    before = _cpu_seconds()
    yield
    if item.get_closest_marker("slow") is None:
        _spent[wing] += _cpu_seconds() - before


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: Any) -> None:
    _spent.update(getattr(node, "workeroutput", {}).get("cpu_seconds", {}))


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["cpu_seconds"] = dict(_spent)
    elif _over_budget() and session.exitstatus == pytest.ExitCode.OK:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _over_budget() -> list[str]:
    return [w for w, spent in _spent.items() if spent > BUDGETS.get(w, DEFAULT_BUDGET)]


@pytest.hookimpl(trylast=True, hookwrapper=True)
def pytest_terminal_summary(terminalreporter: Any) -> Iterator[None]:
    yield
    terminalreporter.section("CPU-seconds by wing")
    for wing, spent in sorted(_spent.items()):
        budget = BUDGETS.get(wing, DEFAULT_BUDGET)
        mark = "  OVER BUDGET" if spent > budget else ""
        terminalreporter.write_line(f"{wing:20} {spent:7.1f} of {budget}{mark}")


@pytest.fixture(scope="module", autouse=True)
def _own_precision() -> Iterator[None]:
    """A file of tests whose commands switch 64 bits on leaves no other with them."""
    import jax

    before = jax.config.jax_enable_x64  # type: ignore[attr-defined]
    yield
    jax.config.update("jax_enable_x64", before)


@pytest.fixture(scope="module", autouse=True)
def _bounded_memory() -> Iterator[None]:
    """Forget compiled programs between files once they fill memory: two workers keep thousands."""
    yield
    if _resident_bytes() > MOST_MEMORY:
        import jax

        jax.clear_caches()
        gc.collect()
        # The C library of Linux keeps what was freed until it is told otherwise.
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def _resident_bytes() -> int:
    """Memory of this process; 0 where the system does not tell."""
    try:
        pages = int(pathlib.Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], pathlib.Path]:
    """A function from a path below the data folder to the path; skips where it is absent.

    The folder is `JAXLAB_DATA`, by default `../shared/data` beside the repository.
    """
    folder = pathlib.Path(os.environ.get("JAXLAB_DATA", ROOT.parent / "shared" / "data"))

    def find(name: str) -> pathlib.Path:
        path = folder / name
        if not path.exists():
            pytest.skip(f"needs {name} of the shared data: set JAXLAB_DATA to its folder")
        return path

    return find
