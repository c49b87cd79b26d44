"""What `lake inspect` did, as one sentence."""

from __future__ import annotations

from lake.core.base.outcome import Outcome
from lake.core.base.units import counted
from lake.core.read.exports.facts import ReadResult
from lake.core.read.inspection.facts import InspectFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    result = ReadResult.of(outcome.result)
    found = InspectFacts.of(outcome.plan).rows_found
    if result.preview is None:
        return f"wrote {counted(result.rows, 'row')}"
    if found is None or result.rows == found:
        return counted(result.rows, "row")
    return f"{result.rows:,} of {counted(found, 'row')}"
