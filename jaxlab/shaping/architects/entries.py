"""Records of the architects for their log."""

from __future__ import annotations

from typing import Any

from jaxlab import __version__
from jaxlab.core.runfolder import config_hash
from jaxlab.shaping.architect import Design, Json, Request
from jaxlab.shaping.design_space import DesignSpace


def entry(
    space: DesignSpace,
    request: Request,
    architect: str,
    *,
    design: Design | None,
    question: str | None = None,
    attempt: int = 0,
    **more: Any,
) -> Json:
    """A record for `ArchitectLog.append`.

    Args:
      design: What came of it, None where the answer was refused.
      question: Digest of all that was asked, where it is more than the request.
      attempt: Number of the answer to this request.
      more: `verdict` where it differs from the design's, messages, answer, model, ...
    """
    fallback = design is not None and design.verdict == "fallback"
    verdict = "rejected" if design is None else "fallback" if fallback else "accepted"
    return {
        "jaxlab": __version__,
        "architect": architect,
        "space": space.digest,
        "request": request.digest(space),
        "question": question or question_of(space, request, architect),
        "seed": request.seed,
        "stage": request.stage,
        "attempt": attempt,
        "verdict": verdict,
        **more,
        "design": None if design is None else design._asdict(),
    }


def question_of(space: DesignSpace, request: Request, *asked: Any) -> str:
    """Digest of a request as one architect is asked it: its name, model, messages."""
    return config_hash([request.digest(space), *asked])
