"""What `lake snapshots` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import listed
from lake.commands.reports.facts import SnapshotsResult
from lake.core.base.outcome import Outcome


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    return listed(len(SnapshotsResult.of(outcome.result).snapshots), "snapshot")
