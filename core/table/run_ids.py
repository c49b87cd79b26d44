"""Which runs a table has already taken in: a second run with the same id changes nothing.

A snapshot carries its run's id. When the snapshot expires, the table's property carries the id on.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

# Every snapshot of lake names the operation that made it, and the run it was a part of.
OPERATION_ID = "lake.operation-id"
RUN_ID = "lake.run-id"
EXPIRED_RUN_IDS = "lake.expired-run-ids"
CARRIED_MS = 30 * 24 * 3_600_000
MAX_CARRIED = 10_000


def expired_run_ids(metadata: TableMetadata) -> dict[str, int]:
    """Return ids of expired runs with the moment (ms since 1970) of their expiry; none if unreadable."""
    try:
        carried = json.loads(metadata.properties.get(EXPIRED_RUN_IDS, "{}"))
    except ValueError:
        return {}
    if not isinstance(carried, dict):
        return {}
    return {str(key): value for key, value in carried.items() if isinstance(value, int)}


def carried_run_ids(
    metadata: TableMetadata, expired: Collection[int], now_ms: int
) -> dict[str, int] | None:
    """Return the property's next value when snapshots expire; None if it need not change."""
    before = expired_run_ids(metadata)
    carried = {run: moment for run, moment in before.items() if moment > now_ms - CARRIED_MS}
    gone = frozenset(expired)
    for snapshot in metadata.snapshots:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if snapshot.snapshot_id in gone and RUN_ID in summary:
            carried[summary[RUN_ID]] = now_ms
    newest = sorted(carried.items(), key=lambda item: item[1])[-MAX_CARRIED:]
    return dict(newest) if dict(newest) != before else None
