"""Pictures of the traffic: roads, stop lines in the colour of their signal, vehicles by speed.

The fixed parts are drawn once per `Renderer`; a frame adds signals and vehicles, some
tens of milliseconds. Where a whole network would show roads as hairlines, their width
(and the junctions') is exaggerated, and vehicles keep their relative place on the lane.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np
from PIL import Image, ImageDraw, ImageFont
from scipy.spatial import ConvexHull

from jaxlab.core.errors import ScenarioError
from jaxlab.envs.traffic import geometry
from jaxlab.envs.traffic.frames import GREEN, RED, Frame, Polylines
from jaxlab.envs.traffic.roadnet import RoadNet

Box = tuple[float, float, float, float]
Colour = tuple[int, int, int]

BACKGROUND: Colour = (16, 20, 28)
ASPHALT: Colour = (50, 57, 70)
LANE_LINE: Colour = (84, 93, 109)
CENTRE_LINE: Colour = (138, 130, 96)
TEXT: Colour = (236, 239, 244)
FAINT_TEXT: Colour = (150, 159, 174)
SIGNALS: dict[int, Colour] = {RED: (240, 62, 62), GREEN: (64, 192, 87)}
WINDSCREEN: Colour = (32, 38, 50)
OPEN_PATH: Colour = (47, 98, 74)
#: Colours of standing, half fast and fast vehicles.
SPEED_COLOURS: tuple[Colour, ...] = ((255, 77, 151), (255, 189, 89), (84, 205, 250))

#: Everything is drawn this many times larger and averaged, against jagged edges.
_OVERSAMPLING = 2
#: Least width of a lane in a picture, pixels; narrower ones are exaggerated to it.
_LEAST_LANE = 4.8
#: Largest part of a road that exaggerated junctions may cover.
_LARGEST_APRON = 0.35
#: Pixels per metre from which single lanes, paths and junction names can be told apart.
_CLOSE_UP = 2.5
_LEAST_WIDTH, _MARGIN, _HEADER, _FOOTER = 400, 16, 44, 40
_SPEED_STEPS = 64


def junction_box(net: RoadNet, junction: str, radius: float = 70.0) -> Box:
    """Box around a junction for a close-up: west, south, east, north, m.

    Raises:
      ScenarioError: if the network has no such junction.
    """
    for node in net.intersections:
        if node["id"] == junction:
            x, y = node["point"]
            return x - radius, y - radius, x + radius, y + radius
    raise ScenarioError(f"junction '{junction}' is not in the network")


def network_box(net: RoadNet) -> Box:
    """Smallest box around all roads: west, south, east, north, m."""
    points = np.concatenate([*net.road_points, *net.polylines])
    (west, south), (east, north) = points.min(0), points.max(0)
    return float(west), float(south), float(east), float(north)


class Renderer:
    """Draws frames of one network.

    Args:
      net: The network.
      width: Width of the pictures, pixels; the height follows from the box.
      box: West, south, east and north of what is shown, m; the whole network by default.
      title: Printed above the picture.
      speed_limit: Speed at the fast end of the colour scale, m/s; by default the
        highest limit of a lane.

    Raises:
      ScenarioError: for an empty box or a width below 400 pixels.
    """

    def __init__(
        self,
        net: RoadNet,
        *,
        width: int = 960,
        box: Box | None = None,
        title: str = "",
        speed_limit: float | None = None,
    ):
        self.net, self.title = net, title
        self.box = network_box(net) if box is None else box
        west, south, east, north = self.box
        if not (east > west and north > south):
            raise ScenarioError(f"box {self.box}: expected west < east and south < north")
        if width < _LEAST_WIDTH:
            raise ScenarioError(f"width {width}: a picture needs at least {_LEAST_WIDTH} pixels")
        lanes = net.max_speed[: net.num_lanes]
        self.speed_limit = float(lanes.max()) if speed_limit is None else speed_limit
        self.scale = (width - 2 * _MARGIN) / (east - west)
        map_height = round((north - south) * self.scale) + 2 * _MARGIN
        self.size = width, _HEADER + map_height + _FOOTER
        self.shape = _DisplayShape(net, self._exaggeration())
        self.place = Polylines(self.shape.polylines)
        self.true_length = net.length
        ramp = np.linspace(0, 1, _SPEED_STEPS)[:, None]
        stops = np.array(SPEED_COLOURS, float)
        colours = np.where(
            ramp < 0.5,
            stops[0] + (stops[1] - stops[0]) * 2 * ramp,
            stops[1] + (stops[2] - stops[1]) * (2 * ramp - 1),
        )
        self.ramp: list[Colour] = [tuple(c) for c in np.round(colours).astype(int).tolist()]
        self._map = self._draw_map()
        self._frame = self._draw_margins()

    def draw(self, frame: Frame) -> np.ndarray:
        """The picture of a frame, uint8 `[height, width, 3]`."""
        picture = self._map.copy()
        pen = ImageDraw.Draw(picture)
        if self.close_up:
            self._draw_open_paths(pen, frame)
        self._draw_vehicles(pen, frame)
        self._draw_signals(pen, frame)
        picture = picture.reduce(_OVERSAMPLING)
        whole = self._frame.copy()
        whole.paste(picture, (0, _HEADER))
        self._draw_numbers(ImageDraw.Draw(whole), frame)
        return np.asarray(whole)

    @property
    def close_up(self) -> bool:
        return self.scale >= _CLOSE_UP

    def _exaggeration(self) -> float:
        net = self.net
        widest = float(np.mean(net.lane_width)) or 1.0
        wanted = max(1.0, _LEAST_LANE / (widest * self.scale))
        lanes = np.bincount(net.lane_road, net.lane_width, len(net.road_ids))
        length = np.array([geometry.polyline_length(p) for p in net.road_points])
        reach = 2.0 * max(max(n["width"] for n in net.intersections), lanes.max())
        return max(1.0, min(wanted, _LARGEST_APRON * float(length.min()) / reach))

    def _pixels(self, points: np.ndarray) -> np.ndarray:
        """Points `[..., 2]` in metres to pixels of the enlarged map."""
        west, _, _, north = self.box
        x = _MARGIN + (points[..., 0] - west) * self.scale
        y = _MARGIN + (north - points[..., 1]) * self.scale
        return np.stack([x, y], -1) * _OVERSAMPLING

    def _draw_map(self) -> Image.Image:
        height = self.size[1] - _HEADER - _FOOTER
        size = self.size[0] * _OVERSAMPLING, height * _OVERSAMPLING
        picture = Image.new("RGB", size, BACKGROUND)
        pen = ImageDraw.Draw(picture)
        for polygon in self.shape.asphalt:
            pen.polygon(_flat(self._pixels(polygon)), fill=ASPHALT)
        thin = max(1, round(0.15 * self.scale * _OVERSAMPLING))
        for line in self.shape.lane_lines:
            if self.close_up:
                self._dashes(pen, line, thin)
            else:
                pen.line(_flat(self._pixels(line)), fill=LANE_LINE, width=1)
        for line in self.shape.centre_lines:
            pen.line(_flat(self._pixels(line)), fill=CENTRE_LINE, width=max(thin, 2))
        return picture

    def _dashes(self, pen: ImageDraw.ImageDraw, line: np.ndarray, width: int) -> None:
        dash, gap = 3.0, 6.0
        polyline = Polylines([line])
        starts = np.arange(0.0, polyline.length[0], dash + gap)
        zero = np.zeros(len(starts), int)
        a = np.stack(polyline.place(zero, starts)[:2], -1)
        b = np.stack(polyline.place(zero, starts + dash)[:2], -1)
        for p, q in zip(self._pixels(a), self._pixels(b), strict=True):
            pen.line(_flat(np.stack([p, q])), fill=LANE_LINE, width=width)

    def _draw_open_paths(self, pen: ImageDraw.ImageDraw, frame: Frame) -> None:
        open_lane = frame.lane_signals[self.net.link_start] == GREEN
        width = max(1, round(0.3 * self.scale * _OVERSAMPLING))
        for link in np.flatnonzero(open_lane):
            curve = self.shape.polylines[self.net.num_lanes + link]
            pen.line(_flat(self._pixels(curve)), fill=OPEN_PATH, width=width, joint="curve")

    def _draw_signals(self, pen: ImageDraw.ImageDraw, frame: Frame) -> None:
        thickness = max(0.9 * self.scale, 2.5) * _OVERSAMPLING
        for lane in np.flatnonzero(frame.lane_signals >= 0):
            colour = SIGNALS[int(frame.lane_signals[lane])]
            pen.line(
                _flat(self._pixels(self.shape.stop_lines[lane])),
                fill=colour,
                width=round(thickness),
            )

    def _draw_vehicles(self, pen: ImageDraw.ImageDraw, frame: Frame) -> None:
        if frame.num_vehicles == 0:
            return
        line = np.asarray(frame.drivable)
        ahead = frame.distance * self.place.length[line] / self.true_length[line]
        x, y, angle = self.place.place(line, ahead)
        factor = self.shape.factor
        # In exaggerated streets a vehicle is as wide as its lane allows and longer than wide.
        wide = frame.width * factor
        long = np.maximum(frame.length, 1.8 * wide)
        forward = np.stack([np.cos(angle), np.sin(angle)], -1)
        left = np.stack([-forward[:, 1], forward[:, 0]], -1)
        front = np.stack([x, y], -1)
        tail, side = front - long[:, None] * forward, 0.5 * wide[:, None] * left
        corners = np.stack([front + side, front - side, tail - side, tail + side], 1)
        share = np.clip(frame.speed / self.speed_limit, 0, 1)
        colours = np.round(share * (_SPEED_STEPS - 1)).astype(int).tolist()
        # Slow vehicles last, so that a queue is not hidden by who leaves it.
        outlines = self._pixels(corners).reshape(-1, 8).tolist()
        for n in np.argsort(-share, kind="stable").tolist():
            pen.polygon(outlines[n], fill=self.ramp[colours[n]])
        if self.close_up:
            screen = [front + 0.8 * side - 0.18 * long[:, None] * forward]
            screen.append(front - 0.8 * side - 0.18 * long[:, None] * forward)
            thick = round(0.5 * self.scale * _OVERSAMPLING)
            for edge in self._pixels(np.stack(screen, 1)).reshape(-1, 4).tolist():
                pen.line(edge, fill=WINDSCREEN, width=thick)

    def _draw_margins(self) -> Image.Image:
        """Title, colour scale and key, on a picture of the full size."""
        picture = Image.new("RGB", self.size, BACKGROUND)
        pen = ImageDraw.Draw(picture)
        width, height = self.size
        pen.text((_MARGIN, _HEADER // 2), self.title, fill=TEXT, font=_font(20), anchor="lm")
        middle, small = height - _FOOTER // 2, _font(14)
        x = _MARGIN
        for text, colour in (("stop", SIGNALS[RED]), ("go", SIGNALS[GREEN])):
            pen.rounded_rectangle((x, middle - 2, x + 16, middle + 3), 2, fill=colour)
            pen.text((x + 22, middle), text, fill=FAINT_TEXT, font=small, anchor="lm")
            x += 36 + int(small.getlength(text))
        self._number_column = x
        label, bar = f"{self.speed_limit * 3.6:.0f} km/h", 140
        right = width - _MARGIN - int(small.getlength(label)) - 8
        pen.text((right + 8, middle), label, fill=FAINT_TEXT, font=small, anchor="lm")
        for column in range(bar):
            colour = self.ramp[column * _SPEED_STEPS // bar]
            pen.line((right - bar + column, middle - 5, right - bar + column, middle + 5), colour)
        pen.text((right - bar - 8, middle), "speed  0", fill=FAINT_TEXT, font=small, anchor="rm")
        return picture

    def _draw_numbers(self, pen: ImageDraw.ImageDraw, frame: Frame) -> None:
        hours, rest = divmod(round(frame.time), 3600)
        clock = f"{hours:d}:{rest // 60:02d}:{rest % 60:02d}"
        pen.text(
            (self.size[0] - _MARGIN, _HEADER // 2), clock, fill=TEXT, font=_font(20), anchor="rm"
        )
        font = _font(14)
        number = f"{frame.num_vehicles:,} vehicles"
        middle = self.size[1] - _FOOTER // 2
        pen.text((self._number_column, middle), number, fill=FAINT_TEXT, font=font, anchor="lm")


class _DisplayShape:
    """Polygons and lines of a network whose widths are multiplied by `factor`, in metres."""

    def __init__(self, net: RoadNet, factor: float):
        self.factor = factor
        self.asphalt: list[np.ndarray] = []
        self.lane_lines: list[np.ndarray] = []
        self.centre_lines: list[np.ndarray] = []
        lanes: list[np.ndarray] = []
        ends = _road_ends(net)
        mouths: dict[int, list[np.ndarray]] = {n: [] for n in range(len(net.intersections))}
        for road, points in enumerate(net.road_points):
            widths = net.lane_width[net.lane_road == road] * factor
            cut = [factor * net.intersections[n]["width"] for n in ends[road]]
            axis = geometry.shorten(points, *cut)
            lanes += geometry.lane_polylines(axis, list(widths))
            edges = [_aside(axis, offset) for offset in np.cumsum(widths)]
            self.asphalt.append(np.concatenate([axis, edges[-1][::-1]]))
            self.lane_lines += edges[:-1]
            self.centre_lines.append(axis)
            for node, end in zip(ends[road], (0, -1), strict=True):
                mouths[node] += [axis[end], edges[-1][end]]
        for node, corners in mouths.items():
            if not net.intersections[node]["virtual"]:
                hull = np.array(corners)
                self.asphalt.append(hull[ConvexHull(hull).vertices])
        centre = np.array([n["point"] for n in net.intersections if not n["virtual"]], float)
        links = [
            centre[j] + factor * (curve - centre[j])
            for j, curve in zip(net.link_junction, net.polylines[net.num_lanes :], strict=True)
        ]
        self.polylines = lanes + links
        self.stop_lines = [
            _stop_line(lane, 0.84 * factor * width)
            for lane, width in zip(lanes, net.lane_width, strict=True)
        ]


def _road_ends(net: RoadNet) -> list[list[int]]:
    """Intersections (virtual ones too) at the start and the end of each road."""
    ends: list[list[int]] = [[-1, -1] for _ in net.road_ids]
    for n, node in enumerate(net.intersections):
        for road, starts in zip(node["ends"], node["starts"], strict=True):
            ends[road][0 if starts else 1] = n
    return ends


def _aside(axis: np.ndarray, offset: float) -> np.ndarray:
    """The polyline `offset` metres to the right of another."""
    return geometry.lane_polylines(axis, [2.0 * offset])[0]


def _stop_line(lane: np.ndarray, width: float) -> np.ndarray:
    along = geometry.unit(lane[-1] - lane[-2])
    half = 0.5 * width * np.array([-along[1], along[0]])
    return np.stack([lane[-1] - half, lane[-1] + half])


def _flat(points: np.ndarray) -> list[Any]:
    return points.reshape(-1).tolist()


def _font(size: int) -> ImageFont.FreeTypeFont:
    return cast(ImageFont.FreeTypeFont, ImageFont.load_default(size))
