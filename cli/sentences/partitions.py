"""What `lake partitions` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import listed
from lake.core.base.outcome import Outcome
from lake.core.maintain.partitions.facts import PartitionsResult


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    rows = PartitionsResult.of(outcome.result).partitions
    text = listed(len(rows), "partition")
    if any(row.idle is None for row in rows):
        return text
    idle = sum(row.idle is True for row in rows)
    return f"{text}, {f'{idle:,}' if idle else 'none'} idle" if rows else text
