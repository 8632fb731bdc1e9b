"""Pictures of solutions: tours and routes, cuts, schedules."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np

from jaxlab.core.figures import new_figure
from jaxlab.envs.combinatorial.instances import JobShopInstance


def image(draw: Callable[..., None], *arguments: Any, size: float = 3.2) -> np.ndarray:
    """What `draw(axes, *arguments)` draws, uint8 `[H, W, 3]`."""
    from PIL import Image

    figure, axes = new_figure(size, size)
    draw(axes, *arguments)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=80)
    return np.asarray(Image.open(buffer).convert("RGB"))


def _bare(axes: Any) -> None:
    axes.set_aspect("equal", "datalim")
    axes.set_xticks([])
    axes.set_yticks([])


def draw_tour(axes: Any, places: Any, tour: Any, title: str = "") -> None:
    """A closed tour through places `[n, 2]`."""
    places, tour = np.asarray(places), np.asarray(tour)
    closed = places[np.append(tour, tour[0])]
    axes.plot(closed[:, 0], closed[:, 1], "-o", markersize=3, linewidth=1)
    axes.plot(*places[tour[0]], "s", color="black", markersize=5)
    axes.set_title(title, fontsize=9)
    _bare(axes)


def draw_routes(axes: Any, places: Any, walk: Any, title: str = "") -> None:
    """Routes from the depot, place 0, each in a colour; `walk` has a 0 between two routes."""
    places, walk = np.asarray(places), [int(city) for city in walk]
    route = [0]
    for city in [*walk, 0]:
        route.append(city)
        if city == 0:
            axes.plot(*places[route].T, "-o", markersize=3, linewidth=1)
            route = [0]
    axes.plot(*places[0], "s", color="black", markersize=6)
    axes.set_title(title, fontsize=9)
    _bare(axes)


def draw_cut(axes: Any, weights: Any, sides: Any, title: str = "") -> None:
    """A cut: the vertices of both sides on two arcs, edges of the cut dark."""
    weights, sides = np.asarray(weights), np.asarray(sides).astype(int)
    places = np.zeros((len(sides), 2))
    for side in (0, 1):
        members = np.flatnonzero(sides == side)
        angle = np.linspace(-1.2, 1.2, len(members)) if len(members) > 1 else np.zeros(len(members))
        sign = 2 * side - 1
        places[members] = np.stack([sign * np.cos(angle) + 0.4 * sign, 1.4 * np.sin(angle)], 1)
    rows, columns = np.nonzero(np.triu(weights, 1))
    for i, j in zip(rows, columns, strict=True):
        crossing = sides[i] != sides[j]
        colour = ("tab:blue" if weights[i, j] > 0 else "tab:red") if crossing else "0.8"
        axes.plot(*places[[i, j]].T, color=colour, linewidth=0.8, zorder=int(crossing))
    axes.scatter(*places.T, c=sides, cmap="coolwarm", zorder=3, s=24, edgecolors="black")
    axes.set_title(title, fontsize=9)
    _bare(axes)


def draw_schedule(axes: Any, instance: JobShopInstance, order: Any, title: str = "") -> None:
    """A Gantt chart: machines as rows, jobs as colours."""
    starts = instance.starts(order)
    for job, row in enumerate(starts):
        for operation, start in enumerate(row):
            machine = instance.machines[job, operation]
            length = instance.durations[job, operation]
            axes.barh(machine, length, left=start, color=f"C{job % 10}", edgecolor="white")
            axes.text(start + length / 2, machine, str(job), ha="center", va="center", fontsize=6)
    axes.set_xlabel("time")
    axes.set_ylabel("machine")
    axes.set_title(title, fontsize=9)


def draw_places(places: np.ndarray, visited: np.ndarray, current: int) -> np.ndarray:
    """Cities, those visited filled, the current one marked, uint8 `[H, W, 3]`."""

    def draw(axes: Any) -> None:
        axes.scatter(*places.T, c=np.where(visited, "tab:blue", "white"), edgecolors="tab:blue")
        axes.plot(*places[0], "s", color="black")
        axes.plot(*places[current], "o", color="tab:red")
        _bare(axes)

    return image(draw)


def draw_loads(free: np.ndarray, ready: np.ndarray) -> np.ndarray:
    """When machines and jobs of a shop are free, uint8 `[H, W, 3]`."""

    def draw(axes: Any) -> None:
        names = [f"m{k}" for k in range(len(free))] + [f"j{k}" for k in range(len(ready))]
        axes.barh(names, np.concatenate([free, ready]))
        axes.set_xlabel("time")

    return image(draw)
