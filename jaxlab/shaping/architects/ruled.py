"""The architect without a model: rules on the metrics, and the last resort of the others."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from jaxlab.shaping import curricula
from jaxlab.shaping.architect import Design, Request, make_design
from jaxlab.shaping.architect_log import ArchitectLog
from jaxlab.shaping.architects.entries import entry, question_of
from jaxlab.shaping.design_space import DesignSpace, situation


@dataclasses.dataclass(frozen=True)
class RulesArchitect:
    """Scenario by the rules of the curriculum, reward and prior from the playbook."""

    space: DesignSpace
    log: ArchitectLog
    name: str = "rules"

    def design(self, requests: Sequence[Request]) -> list[Design]:
        """Designs that follow from seed and history alone."""
        return [self._one(request) for request in requests]

    def _one(self, request: Request) -> Design:
        question = question_of(self.space, request, self.name)
        if (known := self.log.design(question)) is not None:
            return Design(**known)
        made = ruled_design(self.space, request, "accepted")
        self.log.append(entry(self.space, request, self.name, design=made))
        return made


def ruled_design(space: DesignSpace, request: Request, verdict: str) -> Design:
    """What the rules design for a request."""
    scenario = {}
    if "scenario" in space.parts:
        scenario = curricula.Rules(space.scenarios, request.seed)(request.history).scenario
    name = situation(request.history)
    document = space.by_the_book(name, scenario, f"by rule: {name}")
    return make_design(space, request, document, "rules", verdict)
