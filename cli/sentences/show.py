"""What `lake show` did, as one sentence."""

from __future__ import annotations

from lake.core.base.outcome import Outcome
from lake.core.base.units import counted
from lake.core.read.inspection.facts import ShowResult


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    result = ShowResult.of(outcome.result)
    columns = counted(len(result.schema.fields), "column")
    return f"{columns}, {counted(result.snapshots, 'snapshot')}, format version {result.format_version}"
