"""Trajectories as files that other tools read: CSV, npz and CCSDS orbit ephemeris messages.

A file is written as a whole or not at all, and an existing one is replaced on request only.
The orbit ephemeris message is that of CCSDS 502.0-B-2 (Orbit Data Messages, 2009), section 5, in
key-value notation, version 2.0.
"""

from __future__ import annotations

import datetime
import io
import os
import pathlib
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from jaxlab.core.errors import ConfigError
from jaxlab.core.precision import require_x64
from jaxlab.core.runfolder import replacing
from jaxlab.envs.cr3bp import frames
from jaxlab.envs.cr3bp.systems import System, get_system

#: Scales in which all seconds are alike; in UTC some minutes have 61.
TIME_SYSTEMS = ("TDB", "TT", "TAI", "GPS", "TCB", "TCG")
#: The frame whose axes are those of the turning one at the epoch and turn no more.
EPOCH_FRAME = "SYNODIC_AT_EPOCH"
UNITS = ("system", "km")
#: Axes, whether with a mass, whether with costates, by the number of components.
_KINDS = {
    4: (2, False, False),
    6: (3, False, False),
    5: (2, True, False),
    7: (3, True, False),
    10: (2, True, True),
    14: (3, True, True),
}


class Trajectory(NamedTuple):
    """States on the way, in the turning frame and units of the system; made by `trajectory`.

    Attributes:
      time: `[count]`, growing.
      state: `[count, components]`: position and velocity, 4 or 6; with the mass behind, 5 or 7;
        with costates of all these behind, 10 or 14.
      system: What the units are.
    """

    time: Float[np.ndarray, " count"]
    state: Float[np.ndarray, "count components"]
    system: System

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the components."""
        axes, mass, costates = _KINDS[self.state.shape[1]]
        places = "xyz"[:axes]
        own = [*places, *(f"v{axis}" for axis in places), *(["m"] if mass else [])]
        return (*own, *(f"costate_{name}" for name in own if costates))

    def orbital(self) -> np.ndarray:
        """Position and velocity in space, `[count, 6]`."""
        axes = _KINDS[self.state.shape[1]][0]
        space = np.zeros((len(self.time), 2, 3))
        space[:, :, :axes] = self.state[:, : 2 * axes].reshape(-1, 2, axes)
        return space.reshape(-1, 6)


def trajectory(time: Any, state: Any, system: Any) -> Trajectory:
    """A trajectory that can be written.

    Args:
      time: In units of the system, growing, `[count]`.
      state: See `Trajectory`, `[count, components]`.
      system: A system, or the name of one.

    Raises:
      ConfigError: Shapes do not fit, a number is not finite, times do not grow, or nothing is
        known of the system's units.
    """
    if isinstance(system, str):
        system = get_system(system)
    if not isinstance(system, System):
        raise ConfigError(
            f"the system is {system!r}: a trajectory needs one with units, by name or as "
            "System(name, mass_parameter, length_km, time_s)"
        )
    try:
        times, states = np.asarray(time, np.float64), np.asarray(state, np.float64)
    except (TypeError, ValueError):
        raise ConfigError("times and states of a trajectory must be numbers") from None
    if times.ndim != 1 or states.ndim != 2 or len(times) != len(states) or not len(times):
        raise ConfigError(
            "a trajectory has times [count] and states [count, components], at least one: got "
            f"{list(times.shape)} and {list(states.shape)}"
        )
    if states.shape[1] not in _KINDS:
        known = ", ".join(map(str, sorted(_KINDS)))
        raise ConfigError(f"states have {states.shape[1]} components, expected one of {known}")
    wrong = np.flatnonzero(~(np.isfinite(times) & np.isfinite(states).all(1)))
    if wrong.size:
        raise ConfigError(
            f"row {wrong[0]} of the trajectory is not finite: leave out what lies behind the end "
            "of an arc (its status tells)"
        )
    wrong = np.flatnonzero(np.diff(times) <= 0)
    if wrong.size:
        n = wrong[0]
        raise ConfigError(
            f"times of a trajectory must grow: {times[n]:g} is followed by {times[n + 1]:g} at row "
            f"{n + 1}; turn an arc that was followed backwards round"
        )
    return Trajectory(times, states, system)


def write_csv(
    path: str | os.PathLike[str],
    flown: Trajectory,
    *,
    units: str = "system",
    overwrite: bool = False,
) -> None:
    """Write a table: two comments on the system (#), a header with units, and rows.

    All digits are kept. Costates are in units of the system always.

    Args:
      path: Of the file.
      flown: What to write, in the turning frame.
      units: `system`, or `km` for km, km/s and s.
      overwrite: Whether an existing file may be replaced.

    Raises:
      ConfigError: The units are unknown, or the file exists.
      DataError: The file cannot be written.
    """
    if units not in UNITS:
        raise ConfigError(f"units '{units}' are unknown: {', '.join(UNITS)}")
    system, names = flown.system, flown.names
    scale, labels = np.ones(1 + len(names)), ["t [TU]"]
    in_km = units == "km"
    if in_km:
        scale[0], labels[0] = system.time_s, "t [s]"
    for n, name in enumerate(names):
        kind = name[0] if name[0] in "mc" else ("v" if name[0] == "v" else "x")
        factor, unit = {
            "x": (system.length_km, "km") if in_km else (1.0, "LU"),
            "v": (system.velocity_km_s, "km/s") if in_km else (1.0, "LU/TU"),
            "m": (1.0, "of the initial mass"),
            "c": (1.0, "in units of the system"),
        }[kind]
        scale[1 + n] = factor
        labels.append(f"{name} [{unit}]")
    rows = np.column_stack([flown.time, flown.state]) * scale
    lines = [f"# {line}" for line in _about(system)]
    lines += [",".join(labels), *(",".join(map(repr, row)) for row in rows.tolist())]
    _write(path, ("\n".join(lines) + "\n").encode(), overwrite)


def _about(system: System) -> list[str]:
    """What the numbers of a file mean."""
    return [
        f"System {system.name}, mass parameter {system.mass_parameter!r}, frame turning with the "
        "primaries about their barycentre",
        f"LU = {system.length_km!r} km, TU = {system.time_s!r} s",
    ]


def write_npz(path: str | os.PathLike[str], flown: Trajectory, *, overwrite: bool = False) -> None:
    """Write arrays: `time`, `state`, `names` and the system's numbers; read with `numpy.load`.

    Raises:
      ConfigError: The file exists and may not be replaced.
      DataError: The file cannot be written.
    """
    system = flown.system
    file = io.BytesIO()
    np.savez(
        file,
        time=flown.time,
        state=flown.state,
        names=np.array(flown.names),
        system=np.array(system.name),
        mass_parameter=np.array(system.mass_parameter),
        length_km=np.array(system.length_km),
        time_s=np.array(system.time_s),
    )
    _write(path, file.getvalue(), overwrite)


def write_oem(
    path: str | os.PathLike[str],
    flown: Trajectory,
    *,
    epoch: Any,
    centre: str = "barycentre",
    frame: str = EPOCH_FRAME,
    rotation: Any = None,
    time_system: str = "TDB",
    object_name: str = "SPACECRAFT",
    object_id: str = "UNKNOWN",
    centre_name: str | None = None,
    originator: str = "JAXLAB",
    created: Any = None,
    overwrite: bool = False,
) -> None:
    """Write an orbit ephemeris message: km and km/s in a frame that does not turn.

    Numbers have the 16 digits that the standard allows, times microseconds: at 5 km/s a position
    is off by 3 mm at most.

    Args:
      path: Of the file.
      flown: What to write; masses and costates are left out.
      epoch: Of time 0 of the trajectory in `time_system`: a datetime without a zone, or ISO 8601.
      centre: `barycentre`, `primary` or `secondary`: where positions and velocities are from.
      frame: Name of the frame. The default is that of the turning axes at the epoch, which are not
        those of any catalogue; another needs a rotation.
      rotation: From the axes at the epoch to those of `frame`, orthogonal `[3, 3]`.
      time_system: One of `TIME_SYSTEMS`.
      object_name, object_id, originator: As in the message.
      centre_name: As in the message; by default of the name of the system.
      created: Date of the message in UTC; now by default.
      overwrite: Whether an existing file may be replaced.

    Raises:
      PrecisionError: JAX computes in 32 bits.
      ConfigError: An argument is wrong, or the file exists.
      DataError: The file cannot be written.
    """
    require_x64("write_oem")
    if time_system not in TIME_SYSTEMS:
        raise ConfigError(
            f"time_system '{time_system}': expected one of {', '.join(TIME_SYSTEMS)}, in which "
            "all seconds are alike"
        )
    system, zero = flown.system, _moment("epoch", epoch)
    epochs = _epochs(flown, zero)
    turned = frames.to_inertial(
        jnp.asarray(flown.orbital()), jnp.asarray(flown.time), system.mass_parameter, centre
    )
    states = np.asarray(frames.to_km(turned, system)).reshape(-1, 2, 3) @ _axes(frame, rotation).T
    now = datetime.datetime.now(datetime.UTC).replace(tzinfo=None, microsecond=0)
    meta = {
        "OBJECT_NAME": object_name,
        "OBJECT_ID": object_id,
        "CENTER_NAME": centre_name or _centre_name(system, centre),
        "REF_FRAME": frame,
        "REF_FRAME_EPOCH": str(zero),
        "TIME_SYSTEM": time_system,
        "START_TIME": epochs[0],
        "STOP_TIME": epochs[-1],
    }
    if frame != EPOCH_FRAME:
        del meta["REF_FRAME_EPOCH"]
    header = {
        "CCSDS_OEM_VERS": "2.0",
        "CREATION_DATE": str(_moment("created", now if created is None else created)),
        "ORIGINATOR": originator,
    }
    for name, value in (header | meta).items():
        if not value.strip() or not value.isascii() or not value.isprintable():
            raise ConfigError(f"{name} is {value!r}: expected one line of ASCII, not empty")
    note = (
        f"Three-body problem {system.name}: mass parameter {system.mass_parameter!r}, distance "
        f"{system.length_km!r} km, {system.time_s!r} s a radian"
    )
    lines = [
        *(f"{name} = {value}" for name, value in header.items()),
        *("", "META_START", f"COMMENT {note}"),
        *(f"{name} = {value}" for name, value in meta.items()),
        *("META_STOP", ""),
        *(
            f"{moment} {' '.join(f'{number:.15e}' for number in state)}"
            for moment, state in zip(epochs, states.reshape(-1, 6).tolist(), strict=True)
        ),
    ]
    _write(path, ("\n".join(lines) + "\n").encode(), overwrite)


def _moment(name: str, value: Any) -> np.datetime64:
    """A date and time to the microsecond."""
    try:
        moment = datetime.datetime.fromisoformat(value) if isinstance(value, str) else value
        if moment.tzinfo is not None:
            raise ConfigError(
                f"{name} {value}: a time zone means UTC, give a time of the time system without one"
            )
        return np.datetime64(moment, "us")
    except (ValueError, AttributeError):
        raise ConfigError(
            f"{name} {value!r}: expected a date and time as 2030-01-01T12:00:00"
        ) from None


def _epochs(flown: Trajectory, zero: np.datetime64) -> list[str]:
    """Times of the states, which must differ after rounding."""
    seconds = flown.time * flown.system.time_s
    years = 365.25 * 86400
    if np.abs(seconds).max() > 1e4 * years:
        raise ConfigError("times of an ephemeris must be within 10000 years of its epoch")
    moments = zero + np.round(seconds * 1e6).astype("timedelta64[us]")
    if (np.diff(moments) <= np.timedelta64(0, "us")).any():
        raise ConfigError("times of an ephemeris must be a microsecond apart at least")
    if moments[0] < np.datetime64("0001-01-01") or moments[-1] >= np.datetime64("9999-12-31"):
        raise ConfigError("times of an ephemeris must lie in the years 1 to 9999")
    return [str(moment) for moment in moments]


def _axes(frame: str, rotation: Any) -> np.ndarray:
    """The rotation from the axes at the epoch to those of a frame."""
    if rotation is None:
        if frame != EPOCH_FRAME:
            raise ConfigError(
                f"frame {frame}: give the rotation to its axes from those of the system at the "
                f"epoch, or leave the frame at {EPOCH_FRAME}"
            )
        return np.eye(3)
    matrix = np.asarray(rotation, np.float64)
    if matrix.shape != (3, 3) or not np.allclose(matrix @ matrix.T, np.eye(3), rtol=0, atol=1e-12):
        raise ConfigError("rotation: expected an orthogonal matrix [3, 3]")
    if np.linalg.det(matrix) < 0:
        raise ConfigError("rotation: this one is a mirror, its determinant must be 1")
    if frame == EPOCH_FRAME:
        raise ConfigError(f"rotation: name the frame it leads to, which is not {EPOCH_FRAME}")
    return matrix


def _centre_name(system: System, centre: str) -> str:
    primary, _, secondary = system.name.upper().partition("-")
    if not secondary:
        raise ConfigError(f"system {system.name}: its name tells no bodies, give centre_name")
    return {
        "barycentre": f"{primary}-{secondary} BARYCENTER",
        "primary": primary,
        "secondary": secondary,
    }[centre]


def _write(path: str | os.PathLike[str], data: bytes, overwrite: bool) -> None:
    path = pathlib.Path(path)
    if path.exists() and not overwrite:
        raise ConfigError(f"{path} exists: choose another name, or allow overwrite=True")
    with replacing(path) as temporary:
        temporary.write_bytes(data)
