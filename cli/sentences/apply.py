"""What `lake apply` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.line import Line
from lake.cli.sentences.maintain import helps_to_repeat, sentence, stopped
from lake.core.base.outcome import Outcome

__all__ = ["next_step", "sentence", "stopped"]
_REPLAN = "--replan"


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the line that also works on tables that have changed since the plan."""
    if not line.rest or not helps_to_repeat(outcome):
        return None
    return line.of("apply", *line.rest, *([] if _REPLAN in line.rest else [_REPLAN]))
