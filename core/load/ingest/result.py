"""What a load read and wrote, and the outcome that reports it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lake.core.base.outcome import Outcome, Status
from lake.core.load.ingest.plan import IngestPlan
from lake.core.table.manifests.data_files import DataFile, stored_bytes
from lake.core.transaction.commit.commit import Committed
from lake.core.transaction.removals import Removals


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a load read and wrote; counts are rows.

    Args:
        data: the data files that it wrote.
        deletes: the delete files that it wrote.
        rows_read: rows of the source.
        rows_written: rows of the source that were written to data files.
        rows_inserted: rows with keys that the table did not contain; None if the load does not read the table's rows.
        rows_updated: rows with keys that the table contained; None as for `rows_inserted`.
        rows_deleted: rows with keys that a change log deletes; None for loads that do not count them.
        rows_rejected: rows that were set aside.
        rows_stale: rows that are older than the table's; None if the load does not compare their ages.
        rows_skipped: rows with keys that the table contained and keeps; None for loads that replace such rows.
        deletes_ignored: rows of kind -D that were left out; None for loads that apply them.
        changes_merged: changes that a later change of their key replaced; None for loads that merge none.
        removals: what an overwrite removed; None for other loads.
        base_snapshot_id: the snapshot on which the load was decided, if it is not the plan's.
    """

    data: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    rows_read: int = 0
    rows_written: int = 0
    rows_inserted: int | None = 0
    rows_updated: int | None = 0
    rows_deleted: int | None = None
    rows_rejected: int = 0
    rows_stale: int | None = None
    rows_skipped: int | None = None
    deletes_ignored: int | None = None
    changes_merged: int | None = None
    removals: Removals | None = None
    base_snapshot_id: int | None = None

    @property
    def paths(self) -> list[str]:
        """The paths of all files."""
        return [file.path for file in (*self.data, *self.deletes)]

    def values(self) -> dict[str, Any]:
        """Return the values of the JSON output."""
        special = {
            "rows_deleted": self.rows_deleted,
            "rows_stale": self.rows_stale,
            "rows_skipped": self.rows_skipped,
            "deletes_ignored": self.deletes_ignored,
            "changes_merged": self.changes_merged,
        }
        return {
            "rows_read": self.rows_read,
            "rows_written": self.rows_written,
            "rows_inserted": self.rows_inserted,
            "rows_updated": self.rows_updated,
            "rows_rejected": self.rows_rejected,
            **{name: count for name, count in special.items() if count is not None},
            "data_files": len(self.data),
            "delete_files": len(self.deletes),
            "bytes_written": stored_bytes([*self.data, *self.deletes]),
            **(self.removals.facts() if self.removals else {}),
        }


@dataclass(frozen=True, slots=True)
class Landed:
    """A load's result and its commit; `committed` is None for a load that is only staged."""

    result: LoadResult
    committed: Committed | None = None
    operation_id: str | None = None


def load_outcome(
    plan: IngestPlan, shown: Mapping[str, Any], status: Status, landed: Landed
) -> Outcome:
    """Return the outcome of a load; ``shown`` describes its plan."""
    result, committed = landed.result, landed.committed
    return Outcome(
        table=plan.table.identifier,
        branch=plan.options.branch,
        status=status,
        operation_id=landed.operation_id if committed else None,
        base_snapshot_id=plan.base_snapshot_id
        if result.base_snapshot_id is None
        else result.base_snapshot_id,
        snapshot_ids=committed.snapshot_ids[-1:] if committed else (),
        plan=shown,
        result=result.values(),
    )
