"""What `lake demo` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import Facts, counted
from lake.core.base.outcome import Outcome


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    result = Facts(outcome.result)
    rows, commits = counted(result["rows"], "row"), counted(result["commits"], "commit")
    return f"the tour loaded {rows} in {commits}; the table is in {result['folder']}"
