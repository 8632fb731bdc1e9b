"""Where the links of a junction cross: tables by link, in the order of its crossings."""

from __future__ import annotations

import numpy as np

from jaxlab.envs.traffic import geometry


def crossing_tables(curves: list[np.ndarray], junction: np.ndarray) -> dict[str, np.ndarray]:
    """Crossings of every pair of links of a junction, sorted by distance along each link.

    Args:
      curves: Polyline of each link, `[links]`, m.
      junction: Junction of each link, `[links]`.

    Returns:
      `cross_foe`, `cross_slot`, `cross_distance` as in `RoadNet`.
    """
    rows: list[list[tuple[float, int, float]]] = [[] for _ in curves]
    for j in np.unique(junction):
        links = np.flatnonzero(junction == j)
        longest = max(len(curves[k]) for k in links)
        padded = np.stack(
            [
                np.concatenate([c, c[-1:].repeat(longest - len(c), 0)])
                for c in (curves[k] for k in links)
            ]
        )
        for n, a in enumerate(links[:-1].tolist()):
            meets, along, along_other = geometry.first_crossings(curves[a], padded[n + 1 :])
            for m in np.flatnonzero(meets):
                b = int(links[n + 1 + m])
                rows[a].append((float(along[m]), b, float(along_other[m])))
                rows[b].append((float(along_other[m]), a, float(along[m])))
    for row in rows:
        row.sort(key=lambda crossing: crossing[0])
    widest = max([len(row) for row in rows] + [1])
    foe = np.full((len(curves), widest), -1)
    slot, distance = np.zeros_like(foe), np.zeros(foe.shape)
    column = [{b: n for n, (_, b, _) in enumerate(row)} for row in rows]
    for a, row in enumerate(rows):
        for n, (along, b, _) in enumerate(row):
            foe[a, n], slot[a, n], distance[a, n] = b, column[b][a], along
    return {"cross_foe": foe, "cross_slot": slot, "cross_distance": distance}
