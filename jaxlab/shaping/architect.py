"""Architects: who designs the next stage of a training, and what a design consists of.

At the end of a stage an architect is told what came of the earlier ones and designs the
next: a scenario to train on, a reward that is added to the environment's own, and a prior
over the actions. Each is data (JSON within a schema, or a source text of the reward
language) that the library checks; nothing that an architect writes is ever executed.

An architect knows nothing of the environment but what a `DesignSpace` holds. Architects
themselves are in `jaxlab.shaping.architects`; what their designs are made of is read by
`DesignSpace.template`, and a design's `proposal` goes into `curricula.mixture`.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from jaxlab.core.runfolder import config_hash, to_json
from jaxlab.shaping import curricula
from jaxlab.shaping.design_space import DesignSpace

Json = dict[str, Any]


@dataclasses.dataclass(frozen=True)
class Request:
    """What an architect is told about one seed's training.

    Attributes:
      seed: Of the training, which also seeds the architect's own draws.
      stage: Number of the stage to design.
      history: Records of the earlier stages, as `curricula.record` makes them; those of a
        designed stage also hold `reward`, `prior` and `reason`.
      components: Statistics of the terms of the last reward, by term: anything of
        `mean`, `min`, `max`, `correlation` (with the environment's return), `values`.
      rejections: Why earlier designs of this stage were refused after they passed the
        checks of the space.
    """

    seed: int
    stage: int
    history: Sequence[Mapping[str, Any]] = ()
    components: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)
    rejections: Sequence[str] = ()

    def digest(self, space: DesignSpace) -> str:
        """Equal for the same question about the same space."""
        return config_hash([space.digest, dataclasses.asdict(self)])


class Design(NamedTuple):
    """What to train on next: plain JSON, so that it lives in checkpoints.

    Attributes:
      scenario: Within the schema; empty is the base scenario.
      difficulty: In [0, 1], the target that it was designed for.
      reward: The filled form, or `{"source", "form"}`; None where it is not designed.
      source: Source of the reward in the reward language; empty without one.
      prior: Weights of the prior logits.
      reason: In the designer's words.
      architect: Who designed it: "rules" where they had to step in for a model.
      verdict: "accepted", "repaired" (on the second attempt) or "fallback" (by the rules).
    """

    scenario: Json
    difficulty: float
    reward: Any
    source: str
    prior: Json
    reason: str
    architect: str
    verdict: str

    @property
    def proposal(self) -> curricula.Proposal:
        """For `curricula.mixture` and `curricula.record`."""
        return curricula.Proposal(self.scenario, self.difficulty)


@runtime_checkable
class Architect(Protocol):
    """Designs the next stage of several trainings at once, one design for each request."""

    @property
    def name(self) -> str:
        """Under which it is known in logs and designs."""
        ...

    def design(self, requests: Sequence[Request]) -> list[Design]:
        """Designs that passed the checks of the space.

        Raises:
          EndpointError: A model cannot be reached; what it said before is in the log.
          DataError: A log to be replayed does not fit.
        """
        ...


def make_design(
    space: DesignSpace, request: Request, document: Json, architect: str, verdict: str
) -> Design:
    """A design from an answer that passed the checks."""
    document = json.loads(to_json(document))
    return Design(
        scenario=document.get("scenario", {}),
        difficulty=float(space.difficulty(request.history)),
        reward=document.get("reward"),
        source=space.source(document.get("reward")),
        prior=document.get("prior", {}),
        reason=document["reason"],
        architect=architect,
        verdict=verdict,
    )
