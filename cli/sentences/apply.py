"""What `lake apply` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.line import Line
from lake.cli.sentences.maintain import sentence, stopped
from lake.core.base.outcome import Outcome, Status

__all__ = ["next_step", "sentence", "stopped"]
_REPLAN = "--replan"


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the line that also works on tables that have changed since the plan."""
    if outcome.status is not Status.PARTIAL or not line.rest:
        return None
    return line.of("apply", *line.rest, *([] if _REPLAN in line.rest else [_REPLAN]))
