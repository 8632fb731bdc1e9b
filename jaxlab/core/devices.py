"""Choice of devices before JAX starts a backend; meshes and several hosts.

Importing this module imports neither jax nor anything that does. A program calls
`setup` first, before it imports a library that might start a backend, and builds its
mesh afterwards.
"""

from __future__ import annotations

import dataclasses
import os
import pathlib
from typing import TYPE_CHECKING, Any

from jaxlab.core.errors import ConfigError, DeviceError

if TYPE_CHECKING:
    import jax

KINDS = ("cpu", "gpu", "tpu")

#: The one mesh axis: environments, seeds or chains are spread along it.
AXIS = "env"


@dataclasses.dataclass(frozen=True)
class DeviceRequest:
    """A parsed `--devices` flag: a kind and, optionally, how many."""

    kind: str
    count: int | None = None

    def __str__(self) -> str:
        return self.kind if self.count is None else f"{self.kind}:{self.count}"


def parse_devices(text: str) -> DeviceRequest:
    """Read `cpu`, `gpu` or `tpu`, with an optional `:n`.

    Raises:
      DeviceError: The kind is unknown or the count is not a positive integer.
    """
    kind, separator, count = text.strip().lower().partition(":")
    if kind not in KINDS:
        raise DeviceError(
            f"--devices {text}: unknown kind {kind!r}; expected one of {', '.join(KINDS)}, "
            "with an optional count such as cpu:8. This machine has: " + present()
        )
    if not separator:
        return DeviceRequest(kind)
    if not (count.isascii() and count.isdigit()) or int(count) < 1:
        raise DeviceError(f"--devices {text}: expected a count of at least 1 after the colon")
    return DeviceRequest(kind, int(count))


def setup(
    devices: str | None = None,
    *,
    x64: bool = False,
    debug: bool = False,
    distributed: bool = False,
    coordinator: str | None = None,
    num_processes: int | None = None,
    process_id: int | None = None,
) -> None:
    """Configure JAX, start the backend and make sure it is the one asked for.

    Without `devices` the environment variables of JAX hold (`JAX_PLATFORMS`,
    `JAX_NUM_CPU_DEVICES`); `x64=False` leaves `JAX_ENABLE_X64` in force.

    Args:
      devices: `cpu`, `gpu` or `tpu`, with an optional `:n`; `cpu:8` simulates eight
        devices. With several hosts the count is per host.
      x64: Switch on 64-bit floats.
      debug: Stop at the first NaN and log every compilation.
      distributed: Join the other hosts. On Slurm, Kubernetes and Cloud TPU nothing else
        is needed; elsewhere `coordinator` (host:port), `num_processes` and `process_id`.

    Raises:
      DeviceError: The devices are not there, or a backend was already running.
    """
    request = None if devices is None else parse_devices(devices)

    import jax

    if request is not None:
        _select_platform(request)
    if x64:
        jax.config.update("jax_enable_x64", True)
    if debug:
        jax.config.update("jax_debug_nans", True)
        jax.config.update("jax_log_compiles", True)
    _use_compilation_cache()
    if distributed:
        _join(coordinator, num_processes, process_id)
    _check_backend(request)


def _select_platform(request: DeviceRequest) -> None:
    import jax

    # "gpu" would ask for CUDA and ROCm at once, and a list falls back silently: name one.
    gpu = "rocm" if _has_plugin("rocm") and not _has_plugin("cuda") else "cuda"
    platform = {"cpu": "cpu", "gpu": gpu, "tpu": "tpu"}[request.kind]
    try:
        if request.kind == "cpu" and request.count is not None:
            jax.config.update("jax_num_cpu_devices", request.count)
        jax.config.update("jax_platforms", platform)
    except RuntimeError as error:
        raise DeviceError(
            f"--devices {request}: a JAX backend is already running in this process, so the "
            "devices cannot be chosen any more; choose them before any computation"
        ) from error
    global _requested
    _requested = request


_requested: DeviceRequest | None = None


def _has_plugin(name: str) -> bool:
    from importlib.util import find_spec

    return any(find_spec(f"jax_{name}{v}_plugin") is not None for v in ("", "12", "13", "7", "60"))


def _use_compilation_cache() -> None:
    """Keep compiled programs in a folder of this user, unless the environment names one."""
    import jax

    if os.environ.get("JAX_COMPILATION_CACHE_DIR") is None:
        folder = cache_dir() / "xla"
        try:
            # Cached programs are executed as they are: nobody else may write here.
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError:
            return  # A home without write access costs compile time, nothing else.
        if not os.access(folder, os.W_OK):
            return
        jax.config.update("jax_compilation_cache_dir", str(folder))
    if os.environ.get("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS") is None:
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def cache_dir() -> pathlib.Path:
    """The user's cache folder of this library: `JAXLAB_CACHE`, or one in `XDG_CACHE_HOME`."""
    own = os.environ.get("JAXLAB_CACHE")
    if own:
        return pathlib.Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (pathlib.Path(base) if base else pathlib.Path("~/.cache").expanduser()) / "jaxlab"


def _join(coordinator: str | None, num_processes: int | None, process_id: int | None) -> None:
    import jax

    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS")
    num_processes = _from_environment(num_processes, "JAX_NUM_PROCESSES")
    process_id = _from_environment(process_id, "JAX_PROCESS_ID")
    try:
        jax.distributed.initialize(coordinator, num_processes, process_id)
    except (RuntimeError, ValueError) as error:
        raise DeviceError(
            f"--distributed: could not join the other processes{_reason(error)}. Outside "
            "Slurm, Kubernetes and Cloud TPU give --coordinator HOST:PORT, --num-processes N "
            "and --process-id I on each host"
        ) from error


def _from_environment(value: int | None, name: str) -> int | None:
    text = os.environ.get(name)
    if value is not None or text is None:
        return value
    if not text.isdigit():
        raise ConfigError(f"{name}={text}: expected a non-negative integer")
    return int(text)


def _check_backend(request: DeviceRequest | None) -> None:
    import jax

    asked = (
        f"--devices {request}"
        if request
        else f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS', '')}"
    )
    try:
        backend = jax.default_backend()
        count = len(jax.local_devices())
    except (RuntimeError, AssertionError) as error:  # an absent GPU is a bare assertion in JAX
        raise DeviceError(
            f"{asked}: no such device here{_reason(error)}. This machine has: {present()}"
        ) from error
    if request is None:
        return
    kind = "gpu" if backend in ("cuda", "rocm") else backend
    if kind != request.kind:
        raise DeviceError(
            f"{asked}: JAX runs on {kind} instead; a backend was started before the devices "
            "were chosen"
        )
    if request.count is not None and count < request.count:
        raise DeviceError(f"{asked}: only {count} there. This machine has: {present()}")


def _reason(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    # What JAX advises in brackets is about its variables; the flag overrides them.
    return f" ({lines[0].partition(' (set JAX_PLATFORMS')[0]})" if lines else ""


def present() -> str:
    """The devices of this machine in words, such as `cpu (1), gpu (2, NVIDIA H200)`.

    Starts every backend there is, so it is for error messages only.
    """
    import jax

    chosen = jax.config.jax_platforms  # type: ignore[attr-defined]
    jax.config.update("jax_platforms", None)
    try:
        return ", ".join(filter(None, map(_present_kind, KINDS))) or "none"
    finally:
        jax.config.update("jax_platforms", chosen)


def _present_kind(kind: str) -> str:
    import jax

    try:
        found = jax.devices(kind)
    except RuntimeError:
        return ""
    name = found[0].device_kind
    return f"{kind} ({len(found)}{'' if name.lower() == kind else f', {name}'})"


def visible() -> list[jax.Device]:
    """The devices a run uses: those of all hosts, cut to the count that was asked for."""
    import jax

    if _requested is None or _requested.count is None:
        return jax.devices()
    by_process: dict[int, list[Any]] = {}
    for device in jax.devices():
        by_process.setdefault(device.process_index, []).append(device)
    return [d for local in by_process.values() for d in local[: _requested.count]]


def make_mesh(count: int | None = None) -> jax.sharding.Mesh:
    """A mesh with the one axis `"env"` over the visible devices (or the first `count`).

    The axis type is Auto: vmapped environments fail under explicit axes.

    Raises:
      DeviceError: Fewer than `count` devices are visible.
    """
    import jax

    devices = visible()
    if count is not None:
        if not 1 <= count <= len(devices):
            raise DeviceError(f"a mesh of {count} devices: {len(devices)} are visible")
        devices = devices[:count]
    return jax.make_mesh(
        (len(devices),), (AXIS,), axis_types=(jax.sharding.AxisType.Auto,), devices=devices
    )


def describe() -> dict[str, Any]:
    """Kind, count and precision of what a run computes on, for its record."""
    import jax

    devices = visible()
    return {
        "platform": devices[0].platform,
        "kind": devices[0].device_kind,
        "count": len(devices),
        "processes": jax.process_count(),
        "x64": bool(jax.config.jax_enable_x64),  # type: ignore[attr-defined]
    }


def is_primary() -> bool:
    """Whether this process writes and logs (the first one of several hosts)."""
    import jax

    return jax.process_index() == 0


def agree(flag: bool) -> bool:
    """Whether `flag` is true in any process; every process must call it."""
    import jax

    if jax.process_count() == 1:
        return flag
    import numpy as np
    from jax.experimental import multihost_utils

    return bool(np.any(multihost_utils.process_allgather(np.array(flag))))


def share_text(text: str) -> str:
    """The text of the first process, in all processes."""
    import jax

    if jax.process_count() == 1:
        return text
    import numpy as np
    from jax.experimental import multihost_utils

    raw = text.encode()
    size = int(multihost_utils.broadcast_one_to_all(np.array(len(raw), np.int32)))
    buffer = np.zeros(size, np.uint8)
    buffer[: min(size, len(raw))] = np.frombuffer(raw, np.uint8)[:size]
    return bytes(np.asarray(multihost_utils.broadcast_one_to_all(buffer))).decode()


def fetch(tree: Any) -> Any:
    """The tree as whole numpy arrays in every process; every process must call it.

    Typed keys become their data.
    """
    import jax
    import numpy as np

    def data(leaf: Any) -> Any:
        if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jax.random.key_data(leaf)
        return leaf

    tree = jax.tree.map(data, tree)
    if jax.process_count() > 1:
        from jax.experimental import multihost_utils

        tree = multihost_utils.process_allgather(tree, tiled=True)
    return jax.tree.map(np.asarray, tree)
