"""What the summaries of snapshots contain."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

# The attribute of a summary whose properties are parsed when they are used.
STORED = "_stored"


def properties_of(snapshot: Snapshot | None) -> Mapping[str, str]:
    """Return what a snapshot's summary has besides the operation; nothing without a snapshot or a summary."""
    summary = snapshot.summary if snapshot is not None else None
    if summary is None:
        return {}
    stored: Mapping[str, str] | None = vars(summary).get(STORED)
    return summary.additional_properties if stored is None else stored


def some_properties_of(snapshot: Snapshot, names: frozenset[str]) -> Mapping[str, str]:
    """Return the same, at least those with some names: for callers that use several of many snapshots."""
    summary = snapshot.summary
    stored = None if summary is None else vars(summary).get(STORED)
    return properties_of(snapshot) if stored is None else stored.some(names)
