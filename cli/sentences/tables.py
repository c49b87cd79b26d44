"""What `lake tables` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import listed
from lake.core.base.outcome import Outcome
from lake.core.base.units import counted
from lake.core.read.inspection.facts import TablesResult


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    result = TablesResult.of(outcome.result)
    failed = sum(row.error is not None for row in result.tables)
    text = listed(sum(row.table is not None for row in result.tables), "table")
    if result.views:
        text += f", {counted(len(result.views), 'view')}"
    return f"{text}; {failed:,} could not be read" if failed else text


def next_step(_outcome: Outcome, _line: Line) -> str | None:
    """Return None: a table that cannot be read is not read by another attempt."""
    return None
