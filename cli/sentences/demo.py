"""What `lake demo` did, as one sentence."""

from __future__ import annotations

import os

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import counted
from lake.commands.reports.facts import DemoResult
from lake.core.base.outcome import Outcome, Status


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    result = DemoResult.of(outcome.result)
    rows, commits = counted(result.rows, "row"), counted(result.commits, "commit")
    return f"the tour loaded {rows} in {commits}; the table is in {result.folder}"


def next_step(outcome: Outcome, _line: Line) -> str | None:
    """Return the line that shows the snapshots of the tour's table."""
    if outcome.status is not Status.DONE:
        return None
    folder = os.path.relpath(DemoResult.of(outcome.result).folder)
    return Line(["--warehouse", folder]).of("snapshots", outcome.table)
