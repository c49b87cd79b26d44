"""What `lake demo` did, as one sentence."""

from __future__ import annotations

import os

from lake.cli.sentences.line import Line
from lake.commands.reports.facts import DemoResult, WarehouseDemoResult
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    result = outcome.result
    if isinstance(result, WarehouseDemoResult):
        return (
            f"the tour made {counted(result.before.tables, 'table')} ({result.before.text}) and maintained them "
            f"({result.after.text}); they are in {result.folder}, and a page about them is {result.page}"
        )
    flights = DemoResult.of(result)
    rows, commits = counted(flights.rows, "row"), counted(flights.commits, "commit")
    return f"the tour loaded {rows} in {commits}; the table is in {flights.folder}"


def next_step(outcome: Outcome, _line: Line) -> str | None:
    """Return the line that continues with what the tour left: the snapshots of its table, or a table's health."""
    if outcome.status is not Status.DONE:
        return None
    result = outcome.result
    if isinstance(result, WarehouseDemoResult):
        return _in(result.folder).of("health", "prod.orders")
    return _in(DemoResult.of(result).folder).of("snapshots", outcome.table)


def _in(folder: str) -> Line:
    return Line(["--warehouse", os.path.relpath(folder)])
