"""One instant of traffic as plain numpy arrays, and where its vehicles are in the plane.

Replays and pictures are made from frames, so they need neither the simulator nor JAX.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxlab.core.errors import ScenarioError
from jaxlab.envs.traffic.signals import green_phases, with_clearance

if TYPE_CHECKING:
    from jaxlab.envs.traffic.roadnet import RoadNet

#: Signals of a lane in a frame.
UNSIGNALLED, RED, GREEN = -1, 0, 1
#: Width of a vehicle where nothing else is known, m.
CAR_WIDTH = 2.0


@dataclasses.dataclass(frozen=True, eq=False)
class Frame:
    """What is seen of the traffic at one moment.

    Attributes:
      time: s.
      drivable: Lane or lane link each vehicle is on, numbered as in `RoadNet`, `[vehicles]`.
      distance: Of the vehicle's front from the start of its drivable, m, `[vehicles]`.
      speed: m/s, `[vehicles]`.
      length, width: Of the vehicle, m, `[vehicles]`.
      vehicle_ids: `[vehicles]`.
      lane_signals: `GREEN` where every movement of the lane has right of way, `RED` where
        one has not, `UNSIGNALLED` for lanes that end at the border, `[lanes]`.
    """

    time: float
    drivable: np.ndarray
    distance: np.ndarray
    speed: np.ndarray
    length: np.ndarray
    width: np.ndarray
    vehicle_ids: Sequence[str]
    lane_signals: np.ndarray

    @property
    def num_vehicles(self) -> int:
        return len(self.drivable)


def frame_of_state(
    net: RoadNet,
    state: Any,
    phase: Sequence[int] | np.ndarray,
    *,
    dt: float,
    vehicle_length: np.ndarray,
    vehicle_width: np.ndarray | float = CAR_WIDTH,
    vehicle_ids: Sequence[str] | None = None,
) -> Frame:
    """Frame of one (not batched) `TrafficState`; copies the state to the host.

    Args:
      phase: Phase in force at each junction, `[junctions]`.
      dt: Length of a simulation step, s.
      vehicle_length, vehicle_width: By driver type, `[types]`, m.
      vehicle_ids: Names by row of the demand; by default the row's number.
    """
    slot = np.flatnonzero(np.asarray(state.vehicle) >= 0)
    row, kind = np.asarray(state.vehicle)[slot], np.asarray(state.kind)[slot]
    width = np.broadcast_to(vehicle_width, np.shape(vehicle_length))
    return Frame(
        time=float(state.step) * dt,
        drivable=np.asarray(state.drivable)[slot],
        distance=np.asarray(state.position, float)[slot],
        speed=np.asarray(state.speed, float)[slot],
        length=np.asarray(vehicle_length, float)[kind],
        width=np.asarray(width, float)[kind],
        vehicle_ids=[str(n) if vehicle_ids is None else vehicle_ids[n] for n in row],
        lane_signals=lane_signals(net, phase),
    )


def lane_signals(net: RoadNet, phase: Sequence[int] | np.ndarray) -> np.ndarray:
    """Signal shown to each lane, `[lanes]`, for the phases `[junctions]` in force.

    The clearance phase of `signals.green_phases` counts as one they have.
    Junctions with a single phase have no signal (CityFlow calls them implicit).

    Raises:
      ScenarioError: for a phase that a junction does not have.
    """
    phase = np.asarray(phase)
    if phase.shape != (net.num_junctions,):
        raise ScenarioError(f"phase: expected shape ({net.num_junctions},), got {phase.shape}")
    allows = with_clearance(net)
    clearance = green_phases(net)[1]
    known = (phase >= 0) & ((phase < net.num_phases) | (phase == clearance))
    if wrong := np.flatnonzero(~known).tolist():
        name, most = net.junction_ids[wrong[0]], net.num_phases[wrong[0]] - 1
        raise ScenarioError(f"phase {phase[wrong[0]]} of '{name}' is not one of 0 to {most}")
    allowed = allows[np.arange(net.num_junctions), phase]
    link_allowed = allowed[net.link_junction, net.link_movement]
    signal = np.full(net.num_lanes, GREEN)
    signal[net.link_start[~link_allowed]] = RED
    junction = net.road_end[net.lane_road]
    signalled = (junction >= 0) & (net.num_phases[junction] > 1)
    return np.where(signalled, signal, UNSIGNALLED)


class Polylines:
    """Polylines of different lengths, padded so that many points are placed at once."""

    def __init__(self, polylines: Sequence[np.ndarray]):
        longest = max(len(line) for line in polylines)
        self._points = np.stack(
            [np.concatenate([p, np.repeat(p[-1:], longest - len(p), 0)]) for p in polylines]
        )
        step = np.diff(self._points, axis=1)
        self._step_length = np.hypot(step[..., 0], step[..., 1])
        self._start = np.cumsum(self._step_length, axis=1) - self._step_length
        #: Length of each polyline, m.
        self.length = self._step_length.sum(axis=1)

    def place(self, line: np.ndarray, distance: np.ndarray) -> tuple[np.ndarray, ...]:
        """Points at `distance` along polylines number `line`, held between their ends.

        Args:
          line: `[n]`, integers.
          distance: m, `[n]`.

        Returns:
          x, y (m) and the heading of the segment there (radians from east), `[n]` each.
        """
        distance = np.clip(distance, 0.0, self.length[line])
        # Of repeated points only the last one starts a segment with a direction.
        started = (self._start[line] <= distance[:, None]) & (self._step_length[line] > 0)
        segment = started.shape[1] - 1 - np.argmax(started[:, ::-1], axis=1)
        a, b = self._points[line, segment], self._points[line, segment + 1]
        step = b - a
        ahead = (distance - self._start[line, segment]) / self._step_length[line, segment]
        x, y = (a + step * ahead[:, None]).T
        return x, y, np.arctan2(step[:, 1], step[:, 0])
