"""What `lake inspect` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import Facts, counted
from lake.core.base.outcome import Outcome


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    rows = Facts(outcome.result)["rows"]
    found = outcome.plan.get("rows_found")
    if "preview" in outcome.result:
        if found is None:
            return counted(rows, "row")
        return counted(found, "row") if rows == found else f"{rows:,} of {counted(found, 'row')}"
    return f"wrote {counted(rows, 'row')}"
