"""Trajectories as files, read by others: numpy, the csv module, and the package `oem`."""

import csv
import datetime
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from oem import OrbitEphemerisMessage

from jaxlab.core.errors import ConfigError, DataError, PrecisionError
from jaxlab.envs.cr3bp import exports
from jaxlab.envs.cr3bp.catalogue import published_orbit
from jaxlab.envs.cr3bp.propagation import propagate
from jaxlab.envs.cr3bp.systems import System, get_system

HALO = published_orbit("em-l2-halo-s-short")
MOON = HALO.system
EPOCH = "2030-02-28T23:59:30"


@pytest.fixture(autouse=True)
def _x64():
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="module")
def flown():
    """A halo orbit, from before the epoch to after it."""
    with jax.enable_x64(True):
        times = np.linspace(-0.2, 0.8, 41) * HALO.period
        start = jnp.broadcast_to(HALO.initial(), (41, 6))
        states = propagate(start, times, MOON.mass_parameter).state
        return exports.trajectory(times, states, "earth-moon")


def inertial(flown, x_of_centre):
    """Position and velocity in km and km/s by complex numbers, `[count, 6]`."""
    place = flown.state[:, 0] - x_of_centre + 1j * flown.state[:, 1]
    speed = flown.state[:, 3] + 1j * flown.state[:, 4] + 1j * place
    turn = np.exp(1j * flown.time)
    columns = [place * turn, flown.state[:, 2], speed * turn, flown.state[:, 5]]
    length, velocity = MOON.length_km, MOON.length_km / MOON.time_s
    return np.column_stack(
        [
            *(columns[0].real * length, columns[0].imag * length, columns[1] * length),
            *(columns[2].real * velocity, columns[2].imag * velocity, columns[3] * velocity),
        ]
    )


def read_oem(path):
    message = OrbitEphemerisMessage.open(path)
    (segment,) = message.segments
    states = np.array([[*s.position, *s.velocity] for s in segment])
    return message, segment, states


@pytest.mark.parametrize(
    ("centre", "name", "place"),
    [
        ("barycentre", "EARTH-MOON BARYCENTER", 0.0),
        ("primary", "EARTH", -MOON.mass_parameter),
        ("secondary", "MOON", 1 - MOON.mass_parameter),
    ],
)
def test_an_independent_reader_reads_the_ephemeris(flown, tmp_path, centre, name, place):
    path = tmp_path / "halo.oem"
    exports.write_oem(path, flown, epoch=EPOCH, centre=centre, object_name="HALO 1", created=EPOCH)
    message, segment, states = read_oem(path)
    assert message.version == "2.0"
    assert message.header["ORIGINATOR"] == "JAXLAB"
    meta = segment.metadata
    expected = {
        "OBJECT_NAME": "HALO 1",
        "OBJECT_ID": "UNKNOWN",
        "CENTER_NAME": name,
        "REF_FRAME": "SYNODIC_AT_EPOCH",
        "TIME_SYSTEM": "TDB",
    }
    assert {key: meta[key] for key in expected} == expected
    assert meta["REF_FRAME_EPOCH"].isot == EPOCH + ".000000"
    np.testing.assert_allclose(states, inertial(flown, place), rtol=0, atol=1e-9)
    zero = meta["REF_FRAME_EPOCH"]
    seconds = np.array([(state.epoch - zero).sec for state in segment])
    np.testing.assert_allclose(seconds, flown.time * MOON.time_s, rtol=0, atol=1e-6)
    first, *_, last = segment
    assert (meta["START_TIME"], meta["STOP_TIME"]) == (first.epoch, last.epoch)


def test_velocities_of_the_ephemeris_are_slopes_of_positions(flown, tmp_path):
    exports.write_oem(tmp_path / "o", flown, epoch=datetime.datetime(2030, 1, 1))
    message, segment, _ = read_oem(tmp_path / "o")
    middle = list(segment)[20]
    step = datetime.timedelta(seconds=60)
    ahead, behind = (message(middle.epoch + sign * step) for sign in (1, -1))
    slope = (ahead.position - behind.position) / 120
    # The reader interpolates by a polynomial of low degree.
    np.testing.assert_allclose(slope, middle.velocity, rtol=0, atol=1e-5)
    assert message.header["CREATION_DATE"].isot.startswith(str(datetime.date.today().year)[:2])


def test_a_rotation_leads_to_a_named_frame(flown, tmp_path):
    angle = np.radians(23.4)
    cos, sin = np.cos(angle), np.sin(angle)
    rotation = np.array([[1, 0, 0], [0, cos, -sin], [0, sin, cos]])
    exports.write_oem(tmp_path / "o", flown, epoch=EPOCH, frame="EME2000", rotation=rotation)
    _, segment, states = read_oem(tmp_path / "o")
    assert segment.metadata["REF_FRAME"] == "EME2000"
    assert "REF_FRAME_EPOCH" not in segment.metadata
    plain = inertial(flown, 0.0)
    turned = np.concatenate([plain[:, :3] @ rotation.T, plain[:, 3:] @ rotation.T], 1)
    np.testing.assert_allclose(states, turned, rtol=0, atol=1e-9)


def test_tables(flown, tmp_path):
    path = tmp_path / "halo.csv"
    exports.write_csv(path, flown)
    with open(path) as file:
        lines = file.readlines()
    comments = [line for line in lines if line.startswith("#")]
    assert repr(MOON.mass_parameter) in comments[0]
    assert f"LU = {MOON.length_km!r} km" in comments[1]
    header, *rows = csv.reader(lines[len(comments) :])
    assert header == [
        *("t [TU]", "x [LU]", "y [LU]", "z [LU]", "vx [LU/TU]", "vy [LU/TU]", "vz [LU/TU]")
    ]
    np.testing.assert_array_equal(np.array(rows, float), np.column_stack([flown.time, flown.state]))
    exports.write_csv(path, flown, units="km", overwrite=True)
    table = np.genfromtxt(path, delimiter=",", names=True, skip_header=2, deletechars="")
    assert table.dtype.names[0] == "t_[s]"
    assert table.dtype.names[4] == "vx_[km/s]"
    np.testing.assert_allclose(table["t_[s]"], flown.time * MOON.time_s, rtol=1e-15)
    np.testing.assert_allclose(table["y_[km]"], flown.state[:, 1] * MOON.length_km, rtol=1e-15)


@pytest.mark.parametrize("size", [4, 5, 7, 10, 14])
def test_components_of_every_kind_have_names(size, tmp_path):
    states = np.arange(2.0 * size).reshape(2, size)
    flown = exports.trajectory([0.0, 1.0], states, "saturn-titan")
    exports.write_npz(tmp_path / "a.npz", flown)
    exports.write_csv(tmp_path / "a.csv", flown, units="km")
    with np.load(tmp_path / "a.npz", allow_pickle=False) as file:
        names = file["names"].tolist()
        np.testing.assert_array_equal(file["state"], states)
        assert file["time_s"] == get_system("saturn-titan").time_s
        assert str(file["system"]) == "saturn-titan"
    axes = "xy" if size in (4, 5, 10) else "xyz"
    own = [*axes, *(f"v{a}" for a in axes), *(["m"] if size > 4 else [])]
    assert names == own + [f"costate_{name}" for name in own if size in (10, 14)]
    space = flown.orbital()
    np.testing.assert_array_equal(space[:, : len(axes)], states[:, : len(axes)])
    np.testing.assert_array_equal(space[:, 3 : 3 + len(axes)], states[:, len(axes) : 2 * len(axes)])
    with open(tmp_path / "a.csv") as file:
        header = file.readlines()[2]
    assert header.count(",") == size
    assert ("m [of the initial mass]" in header) == (size > 4)


def test_a_file_that_is_there_is_replaced_on_request_only(flown, tmp_path):
    path = tmp_path / "a.npz"
    path.write_text("mine")
    for write in (exports.write_npz, exports.write_csv):
        with pytest.raises(ConfigError, match="overwrite=True"):
            write(path, flown)
    with pytest.raises(ConfigError, match="exists"):
        exports.write_oem(path, flown, epoch=EPOCH)
    assert path.read_text() == "mine"
    exports.write_npz(path, flown, overwrite=True)
    assert np.load(path)["time"].shape == (41,)
    assert os.listdir(tmp_path) == ["a.npz"]  # nothing left of the writing


def test_what_cannot_be_written_is_an_error(flown, tmp_path):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "a.csv", tmp_path / "none" / "a.csv"):
        with pytest.raises(DataError, match="cannot be written"):
            exports.write_csv(path, flown)
    with pytest.raises(DataError, match="cannot be written"):
        exports.write_csv(tmp_path, flown, overwrite=True)
    assert os.listdir(tmp_path) == ["file"]


GOOD = np.ones((3, 6))
UNNAMED = System("own", 0.1, 1e5, 1e5)
NAN = GOOD.copy()
NAN[1, 2] = np.nan


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0, 1, 1], GOOD, MOON), "times of a trajectory must grow: 1 is followed by 1 at row 2"),
        (([2, 1, 0], GOOD, MOON), "turn an arc that was followed backwards round"),
        (([0, 1, 2], NAN, MOON), "row 1 of the trajectory is not finite"),
        (([0, np.inf, 2], GOOD, MOON), "row 1"),
        (([0, 1], GOOD, MOON), "at least one: got"),
        (([], np.ones((0, 6)), MOON), "at least one"),
        (([0, 1, 2], np.ones((3, 8)), MOON), "8 components, expected one of 4, 5, 6"),
        (([0, 1, 2], "states", MOON), "must be numbers"),
        (([0, 1, 2], GOOD, 0.0121), "one with units"),
        (([0, 1, 2], GOOD, "pluto-charon"), "known are earth-moon"),
    ],
)
def test_trajectories_that_are_none(arguments, message):
    with pytest.raises(ConfigError, match=message):
        exports.trajectory(*arguments)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epoch": "soon"}, "epoch 'soon': expected a date and time"),
        ({"epoch": 12.0}, "expected a date and time"),
        ({"epoch": "2030-01-01T00:00:00+00:00"}, "a time zone means UTC"),
        ({"epoch": "9999-12-30T00:00:00"}, "years 1 to 9999"),
        ({"time_system": "UTC"}, "all seconds are alike"),
        ({"centre": "sun"}, "barycentre, primary, secondary"),
        ({"frame": "EME2000"}, "give the rotation to its axes"),
        ({"frame": "EME2000", "rotation": np.ones((3, 3))}, "orthogonal"),
        ({"frame": "EME2000", "rotation": -np.eye(3)}, "mirror"),
        ({"rotation": np.eye(3)}, "name the frame"),
        ({"object_name": "two\nlines"}, "OBJECT_NAME is"),
        ({"object_id": ""}, "OBJECT_ID is"),
        ({"originator": "ÉCOLE"}, "one line of ASCII"),
        ({"created": "yesterday"}, "created 'yesterday'"),
    ],
)
def test_ephemerides_that_are_none(flown, tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        exports.write_oem(tmp_path / "o", flown, **({"epoch": EPOCH} | options))
    assert os.listdir(tmp_path) == []


def test_ephemerides_of_systems_and_times_that_do_not_fit(tmp_path):
    own = exports.trajectory([0, 1, 2], GOOD, UNNAMED)
    with pytest.raises(ConfigError, match="give centre_name"):
        exports.write_oem(tmp_path / "o", own, epoch=EPOCH)
    exports.write_oem(tmp_path / "o", own, epoch=EPOCH, centre_name="ELSEWHERE")
    close = exports.trajectory([0, 1e-13, 1], GOOD, UNNAMED)
    with pytest.raises(ConfigError, match="a microsecond apart"):
        exports.write_oem(tmp_path / "p", close, epoch=EPOCH, centre_name="ELSEWHERE")
    far = exports.trajectory([0, 1, 1e9], GOOD, UNNAMED)
    with pytest.raises(ConfigError, match="10000 years"):
        exports.write_oem(tmp_path / "p", far, epoch=EPOCH, centre_name="ELSEWHERE")
    with pytest.raises(ConfigError, match="units 'miles'"):
        exports.write_csv(tmp_path / "p", own, units="miles")


def test_32_bits_are_refused(flown, tmp_path):
    with jax.enable_x64(False), pytest.raises(PrecisionError, match="64-bit"):
        exports.write_oem(tmp_path / "o", flown, epoch=EPOCH)
