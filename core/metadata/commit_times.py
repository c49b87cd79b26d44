"""The times in table metadata, which never go back, whatever the clocks of the writers say.

Iceberg Java does not load a table whose snapshot log or metadata log goes back by more than a minute, or whose
last update is more than a minute before the last entry of one of them.
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
    """Return the latest time in a table's history: what is written next is not before it."""
    entries: Iterable[Any] = chain(metadata.snapshots, metadata.snapshot_log, metadata.metadata_log)
    latest: int = max((entry.timestamp_ms for entry in entries), default=0)
    return max(latest, metadata.last_updated_ms)


def is_disordered(metadata: TableMetadata) -> bool:
    """Whether a table's times go back so far that Iceberg Java does not load it."""
    for log in (metadata.snapshot_log, metadata.metadata_log):
        times = [entry.timestamp_ms for entry in log]
        times.append(metadata.last_updated_ms)
        if times != sorted(times) and any(
            later < earlier - _TOLERANCE_MS for earlier, later in pairwise(times)
        ):
            return True
    return False


def in_order(before: TableMetadata | None, after: TableMetadata, made_ms: int) -> TableMetadata:
    """Return metadata after a change with times that do not go back.

    An entry of a log that is too early for Iceberg Java gets the time of the latest entry before it: the order
    of the entries is certain, their times are what a wrong clock said.

    Args:
        before: the table before the change; None where the change makes it.
        after: the table after it, as PyIceberg makes it.
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
        # The last entry is new, and nothing new goes back at all.
        tolerance = 0 if index == len(log) else _TOLERANCE_MS
        early = entry.timestamp_ms < latest - tolerance
        found.append(entry.model_copy(update={"timestamp_ms": latest}) if early else entry)
        latest = max(latest, entry.timestamp_ms)
    return found
