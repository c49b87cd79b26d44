"""The times in table metadata, which never decrease, even if the clocks of writers disagree.

Iceberg Java refuses to load a table whose snapshot log or metadata log decreases by more than a minute, or
whose last update is more than a minute before the last entry of either log.
Source: the constructor of org.apache.iceberg.TableMetadata.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

_TOLERANCE_MS = 60_000


def latest_ms(metadata: TableMetadata) -> int:
    """Return the latest time in a table's history; the next entry must not be earlier."""
    entries: Iterable[Any] = chain(metadata.snapshots, metadata.snapshot_log, metadata.metadata_log)
    latest: int = max((entry.timestamp_ms for entry in entries), default=0)
    return max(latest, metadata.last_updated_ms)


def is_disordered(metadata: TableMetadata) -> bool:
    """Whether a table's times decrease so much that Iceberg Java does not load it."""
    for log in (metadata.snapshot_log, metadata.metadata_log):
        times = [entry.timestamp_ms for entry in log]
        times.append(metadata.last_updated_ms)
        if times != sorted(times) and any(
            later < earlier - _TOLERANCE_MS for earlier, later in pairwise(times)
        ):
            return True
    return False


def in_order(before: TableMetadata | None, after: TableMetadata, made_ms: int) -> TableMetadata:
    """Return metadata after a change, with times that do not decrease.

    A log entry that is too early for Iceberg Java gets the latest time among the entries before it: the order of
    the entries is certain, a time that contradicts it comes from a wrong clock.

    Args:
        before: the table before the change; None if the change creates it.
        after: the table after the change, as PyIceberg computes it.
        made_ms: when the change was made.
    """
    snapshot_log = _sorted(after.snapshot_log)
    metadata_log = _sorted(after.metadata_log)
    last = [log[-1].timestamp_ms for log in (snapshot_log, metadata_log) if log]
    floor = before.last_updated_ms if before is not None else 0
    return after.model_copy(
        update={
            "snapshot_log": snapshot_log,
            "metadata_log": metadata_log,
            "last_updated_ms": max([made_ms, floor, *last]),
        }
    )


def _sorted(log: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    latest = 0
    for index, entry in enumerate(log, start=1):
        # The last entry is new: its time must not decrease at all.
        tolerance = 0 if index == len(log) else _TOLERANCE_MS
        early = entry.timestamp_ms < latest - tolerance
        found.append(entry.model_copy(update={"timestamp_ms": latest}) if early else entry)
        latest = max(latest, entry.timestamp_ms)
    return found
