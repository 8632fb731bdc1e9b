"""Designing the stages of all seeds: the architect is asked, its rewards are tried, kept or not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from experiments.maestro.canary import CANDIDATES, Canaries, choose
from experiments.maestro.designs import TEMPLATE
from experiments.maestro.options import Options
from experiments.maestro.shaping import Json, nothing
from experiments.maestro.terms import Terms
from jaxlab.shaping.architect import Architect, Request
from jaxlab.shaping.architect_log import ArchitectLog
from jaxlab.shaping.design_space import DesignSpace


class Designing:
    """Who designs the stages of a run, and how a reward comes into use.

    The first design is adopted as it is, since an untrained policy tells nothing of a
    reward. Every later one is tried beside the present reward and none at all.

    Args:
      canaries: None where rewards are adopted untried.
    """

    def __init__(
        self,
        options: Options,
        space: DesignSpace,
        architect: Architect | None,
        log: ArchitectLog,
        canaries: Canaries | None,
    ):
        self.options, self.space, self.architect = options, space, architect
        self.log, self.canaries = log, canaries
        self._terms = Terms()

    def entries(self, seeds: Sequence[int], entries: list[Json], state: Any) -> list[Json]:
        """The stages of all seeds with what is designed in them.

        Args:
          entries: With `history`, and `scenario` and `difficulty` where no architect chooses.
          state: Of the learner, `[seeds, ...]`; None at the beginning.
        """
        designs = self._designs(seeds, entries, state)
        return [self._entry(entry, design) for entry, design in zip(entries, designs, strict=True)]

    def _designs(
        self, seeds: Sequence[int], entries: list[Json], state: Any
    ) -> Sequence[Json | None]:
        if self.architect is None:
            return [None] * len(seeds)
        last = [entry["history"][-1] if entry["history"] else {} for entry in entries]
        components: Sequence[Json] = [{}] * len(seeds)
        if state is not None and "reward" in self.space.parts:
            components = self._terms(state, [record.get("design") for record in last])
        requests = [
            Request(
                seed=seed,
                stage=len(entry["history"]),
                history=[_told(record) for record in entry["history"]],
                components=components[n],
                rejections=_rejection(last[n]),
            )
            for n, (seed, entry) in enumerate(zip(seeds, entries, strict=True))
        ]
        return [design._asdict() for design in self.architect.design(requests)]

    def _entry(self, entry: Json, design: Json | None) -> Json:
        plan, weight = self.options.plan, self.options.shaping_weight
        history = entry["history"]
        present = history[-1]["template"] if history else nothing(weight)
        if plan.reward == "template":
            template = self.space.template(TEMPLATE, {}, weight).to_json()
        elif design is None or not plan.shapes:
            template = nothing(weight)
        else:
            template = self.space.template(
                design["reward"], design["prior"] or {}, weight
            ).to_json()
        entry = entry | {"design": design, "canary": None}
        if design is not None and plan.scenarios == "architect":
            entry |= {"scenario": design["scenario"], "difficulty": design["difficulty"]}
        elif design is not None:
            # Without scenarios there is no difficulty: full weight throughout.
            entry |= {"difficulty": 1.0}
        tried = self.canaries is not None and bool(history) and plan.reward == "architect"
        # Until the canaries are back, training would go on as it did.
        return entry | {"template": present if tried else template, "new": template}

    def probe(self, entries: list[Json], state: Any, step: int) -> list[Json]:
        """The stages with the best of nothing, the present and the new reward in use.

        The prior goes with the new design in any case: it is a penalty that decays, not a
        reward.
        """
        if self.canaries is None or self.options.plan.reward != "architect":
            return entries
        silent = nothing(self.options.shaping_weight)
        candidates = []
        for entry in entries:
            new = entry["new"]
            row = {"nothing": silent, "present": entry["template"], "new": new}
            candidates.append(
                [
                    {
                        "template": row[name] | {"prior": new["prior"]},
                        "difficulty": entry["difficulty"],
                    }
                    for name in CANDIDATES
                ]
            )
        scores = self.canaries.scores(state, candidates, step)
        return [
            entry
            | {
                "template": candidates[n][choose(scores[n])]["template"],
                "canary": {
                    "chosen": CANDIDATES[choose(scores[n])],
                    "returns": dict(zip(CANDIDATES, _plain(scores[n]), strict=True)),
                },
            }
            for n, entry in enumerate(entries)
        ]


def _plain(values: np.ndarray) -> list[float | None]:
    return [float(v) if np.isfinite(v) else None for v in values]


def _told(record: Json) -> Json:
    """A record of the history as architects see it."""
    design = record.get("design") or {}
    kept = {name: record[name] for name in ("scenario", "difficulty", "metrics")}
    return kept | {name: design[name] for name in ("reward", "prior", "reason") if name in design}


def _rejection(record: Json) -> tuple[str, ...]:
    """What the canaries of the last stage said against its reward."""
    canary = record.get("canary")
    if not canary or canary["chosen"] == "new":
        return ()
    shown = ", ".join(f"{name} {value:.4g}" for name, value in canary["returns"].items() if value)
    return (
        f"the last reward was not used: in short trainings the returns were {shown} (nothing: no "
        f"shaping; present: the reward in use); '{canary['chosen']}' was best",
    )
