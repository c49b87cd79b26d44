"""How much of a table changed since its statistics of columns were computed, from summaries of snapshots."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.base.units import natural_number
from lake.core.maintain.statistics.plan import described
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class StatisticsAge:
    """The newest statistics of columns.

    Args:
        columns: the names of the columns that still exist.
        changed: the rows that were added or removed since, as a share of the rows at that time; 1 if unknown.
        has_expired: whether they were removed together with their snapshot.
    """

    columns: Sequence[str]
    changed: float
    has_expired: bool = False


def statistics_age(metadata: TableMetadata) -> StatisticsAge | None:
    """Return the age of the newest statistics on the main branch; None if there are none of columns that exist."""
    described_ids = {file.snapshot_id for file in metadata.statistics}
    head = metadata.current_snapshot()
    if not described_ids or head is None:
        return None
    changed, total = 0, 0
    # The last one to be registered, if the snapshots of all have expired or are of other branches.
    newest = metadata.statistics[-1].snapshot_id
    for snapshot in ancestry.ancestors(metadata, head.snapshot_id):
        if snapshot.snapshot_id in described_ids:
            newest, total = snapshot.snapshot_id, _count(snapshot, "total-records")
            break
        if ancestry.operation_of(snapshot) != "replace":
            changed += _count(snapshot, "added-records") + _count(snapshot, "deleted-records")
    ids = described(metadata, newest)
    names = [field.name for field in metadata.schema().fields if field.field_id in ids]
    if not names:
        return None
    return StatisticsAge(names, min(changed / total, 1.0) if total else 1.0)


def _count(snapshot: Snapshot, key: str) -> int:
    """Return a count of a summary; 0 if it is missing or not a number, as other writers' may be."""
    summary = properties_of(snapshot)
    return natural_number(summary.get(key) or "") or 0
