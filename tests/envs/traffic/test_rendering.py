"""Pictures of traffic: colours in the right places, close-ups, files, speed."""

import shutil
import subprocess
import time

import numpy as np
import pytest
from PIL import Image

from jaxlab.core.errors import ConfigError, DataError, ScenarioError
from jaxlab.envs.traffic import rendering
from jaxlab.envs.traffic.animation import save_animation, save_picture
from jaxlab.envs.traffic.frames import Frame, lane_signals
from jaxlab.envs.traffic.generator import grid_roadnet
from jaxlab.envs.traffic.rendering import Renderer, junction_box, network_box
from jaxlab.envs.traffic.roadnet import load_roadnet


@pytest.fixture(scope="module")
def net():
    return load_roadnet(grid_roadnet(4, 4))


def make_frame(net, drivable, distance, speed, phase=0, clock=0.0):
    n = len(drivable)
    return Frame(
        time=clock,
        drivable=np.array(drivable, int),
        distance=np.array(distance, float),
        speed=np.array(speed, float),
        length=np.full(n, 5.0),
        width=np.full(n, 2.0),
        vehicle_ids=[str(k) for k in range(n)],
        lane_signals=lane_signals(net, np.full(net.num_junctions, phase)),
    )


def pixel(renderer, x, y):
    """Row and column of a place in metres."""
    px = renderer._pixels(np.array([x, y])) / rendering._OVERSAMPLING
    return int(px[1]) + rendering._HEADER, int(px[0])


def close_up(net):
    return Renderer(net, width=720, box=junction_box(net, "intersection_1_1"))


def test_picture_has_the_proportions_of_the_network(net):
    picture = Renderer(net, width=800, title="Grid").draw(make_frame(net, [], [], []))
    assert picture.dtype == np.uint8
    assert picture.shape[1:] == (800, 3)
    west, south, east, north = network_box(net)
    assert (east - west, north - south) == (4000.0, 3000.0)
    map_height = picture.shape[0] - rendering._HEADER - rendering._FOOTER - 2 * rendering._MARGIN
    assert map_height == pytest.approx((800 - 2 * rendering._MARGIN) * 3 / 4, abs=1)


def test_asphalt_and_background_are_where_they_should_be(net):
    renderer = close_up(net)
    picture = renderer.draw(make_frame(net, [], [], []))
    assert tuple(picture[pixel(renderer, -40.0, -10.0)]) == rendering.ASPHALT
    assert tuple(picture[pixel(renderer, -40.0, -40.0)]) == rendering.BACKGROUND


def test_vehicles_have_the_colour_of_their_speed_at_their_place(net):
    renderer = close_up(net)
    lane = net.lane_ids.index("road_0_1_0_1")
    # Fronts 20 and 40 m before the stop line at x = -15, so their middles at -37.5 and -57.5.
    at = net.length[lane] - np.array([20.0, 40.0])
    empty = renderer.draw(make_frame(net, [], [], []))
    picture = renderer.draw(make_frame(net, [lane, lane], at, [0.0, 11.111]))
    assert tuple(picture[pixel(renderer, -37.5, -6.0)]) == rendering.SPEED_COLOURS[0]
    assert tuple(picture[pixel(renderer, -57.5, -6.0)]) == rendering.SPEED_COLOURS[-1]
    # In the map nothing but the two vehicles has changed, 5 m by 2 m each, a pixel more at most.
    inside = slice(rendering._HEADER, picture.shape[0] - rendering._FOOTER)
    changed = (picture[inside] != empty[inside]).any(-1).sum() / renderer.scale**2
    assert 20.0 <= changed <= 2 * (5.0 + 1 / renderer.scale) * (2.0 + 1 / renderer.scale) * 1.1


def test_vehicles_on_lane_links_lie_on_the_junction(net):
    renderer = close_up(net)
    link = net.drivable_ids.index("road_0_1_0_1_TO_road_1_1_0_1")
    frame = make_frame(net, [link], [17.5], [0.0])
    assert tuple(renderer.draw(frame)[pixel(renderer, 0.0, -6.0)]) == rendering.SPEED_COLOURS[0]


def test_stop_lines_show_the_phase(net):
    renderer = close_up(net)
    for phase, colours in ((1, "rgg"), (3, "grg"), (0, "rrg")):
        picture = renderer.draw(make_frame(net, [], [], [], phase=phase))
        for n, letter in enumerate(colours):
            shown = tuple(picture[pixel(renderer, -15.0, -2.0 - 4.0 * n)])
            assert shown == rendering.SIGNALS[{"r": rendering.RED, "g": rendering.GREEN}[letter]]


def test_exaggerated_streets_keep_vehicles_at_their_share_of_the_road(net):
    renderer = Renderer(net, width=800)
    assert renderer.shape.factor > 2
    lane = net.lane_ids.index("road_1_1_0_1")
    halfway = make_frame(net, [lane], [net.length[lane] / 2], [0.0])
    map_rows = slice(rendering._HEADER, -rendering._FOOTER)
    difference = (
        renderer.draw(halfway)[map_rows].astype(int)
        - renderer.draw(make_frame(net, [], [], []))[map_rows]
    )
    rows, columns = np.nonzero(difference.any(-1))
    expected_row, expected_column = pixel(renderer, 400.0, -6.0 * renderer.shape.factor)
    assert columns.max() == pytest.approx(expected_column, abs=2)
    assert rows.mean() + rendering._HEADER == pytest.approx(expected_row, abs=2)


def test_clock_and_count_are_printed(net):
    renderer = Renderer(net, width=600)
    pictures = [
        renderer.draw(make_frame(net, [], [], [], clock=0.0)),
        renderer.draw(make_frame(net, [], [], [], clock=61.0)),
        renderer.draw(make_frame(net, [0], [50.0], [1.0], clock=0.0)),
    ]
    head = [p[: rendering._HEADER] for p in pictures]
    foot = [p[-rendering._FOOTER :] for p in pictures]
    assert (head[0] != head[1]).any()
    assert (head[0] == head[2]).all()
    assert (foot[0] == foot[1]).all()
    assert (foot[0] != foot[2]).any()


def test_a_full_network_is_drawn_within_a_tenth_of_a_second(net):
    rng = np.random.default_rng(0)
    drivable = rng.integers(0, net.num_lanes, 600)
    frame = make_frame(net, drivable, rng.random(600) * net.length[drivable], rng.random(600) * 11)
    renderer = Renderer(net)
    seconds = []
    for _ in range(5):
        start = time.process_time()
        renderer.draw(frame)
        seconds.append(time.process_time() - start)
    assert min(seconds) < 0.1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"box": (0.0, 0.0, 0.0, 10.0)}, "expected west < east"),
        ({"width": 100}, "at least 400 pixels"),
    ],
)
def test_impossible_pictures_are_refused(net, options, message):
    with pytest.raises(ScenarioError, match=message):
        Renderer(net, **options)


def test_unknown_junction_is_refused(net):
    with pytest.raises(ScenarioError, match="'intersection_9_9' is not in the network"):
        junction_box(net, "intersection_9_9")


def drive(net, renderer, count):
    lane = net.lane_ids.index("road_0_1_0_1")
    for n in range(count):
        yield renderer.draw(make_frame(net, [lane], [100.0 + 60 * n], [11.0], clock=float(n)))


def test_png_holds_the_picture(net, tmp_path):
    picture = Renderer(net, width=400).draw(make_frame(net, [0], [50.0], [1.0]))
    save_picture(tmp_path / "a.png", picture)
    with Image.open(tmp_path / "a.png") as image:
        np.testing.assert_array_equal(np.asarray(image), picture)
    assert [p.name for p in tmp_path.iterdir()] == ["a.png"]


def test_gif_holds_every_picture_in_nearly_its_colours(net, tmp_path):
    renderer = Renderer(net, width=480, title="Drive")
    path = tmp_path / "a.gif"
    assert save_animation(path, drive(net, renderer, 5), fps=5) == 5
    with Image.open(path) as image:
        assert image.n_frames == 5
        assert image.info["duration"] == 200
        for n, picture in enumerate(drive(net, renderer, 5)):
            image.seek(n)
            shown = np.asarray(image.convert("RGB")).astype(int)
            assert np.abs(shown - picture).mean() < 1.0


@pytest.mark.skipif(shutil.which("ffprobe") is None, reason="ffmpeg is not installed")
def test_mp4_holds_every_picture_where_ffmpeg_is_installed(net, tmp_path):
    path = tmp_path / "a.mp4"
    assert save_animation(path, drive(net, Renderer(net, width=401), 5)) == 5
    probe = ["ffprobe", "-v", "error", "-count_frames", "-select_streams", "v"]
    probe += ["-show_entries", "stream=nb_read_frames,width", "-of", "csv=p=0", str(path)]
    assert subprocess.run(probe, capture_output=True, text=True, check=True).stdout == "400,5\n"


def test_mp4_without_ffmpeg_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(ConfigError, match="needs the program ffmpeg; install it or save"):
        save_animation(tmp_path / "a.mp4", [])


def test_ffmpegs_own_errors_are_passed_on(tmp_path, monkeypatch):
    false = shutil.which("false")
    monkeypatch.setattr(shutil, "which", lambda _: false)
    with pytest.raises(DataError, match="ffmpeg: exit status 1"):
        save_animation(tmp_path / "a.mp4", [np.zeros((2, 2, 3), np.uint8)])
    assert list(tmp_path.iterdir()) == []


def test_other_kinds_of_animation_are_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"saved as \.gif or \.mp4"):
        save_animation(tmp_path / "a.webm", [])


def test_an_animation_of_nothing_is_refused(tmp_path):
    with pytest.raises(DataError, match="no picture"):
        save_animation(tmp_path / "a.gif", [])


def test_a_failure_keeps_the_older_file(net, tmp_path):
    path = tmp_path / "a.gif"
    path.write_bytes(b"older")

    def pictures():
        yield np.zeros((4, 4, 3), np.uint8)
        raise OSError("No space left on device")

    with pytest.raises(DataError, match="No space left"):
        save_animation(path, pictures())
    assert path.read_bytes() == b"older"
    assert [p.name for p in tmp_path.iterdir()] == ["a.gif"]
