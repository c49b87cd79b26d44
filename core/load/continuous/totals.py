"""What a continuous load did so far, and epochs without rows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.base.outcome import Outcome, Status
from lake.core.load.continuous.facts import RoutedRows
from lake.core.load.ingest.facts import IngestResult
from lake.core.load.routing.facts import RoutedTable, RouteResult
from lake.core.table.snapshots.streams import StreamEpoch
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.guards import StreamGuard
from lake.core.transaction.commit.operations import AppendFiles
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


@dataclass(slots=True)
class Totals:
    """What a run did, summed over its epochs."""

    epochs: int = 0
    files: int = 0
    set_aside: int = 0
    skipped: list[str] = field(default_factory=list)
    snapshot_id: int | None = None
    operation_id: str | None = None
    rows: IngestResult | RoutedRows | None = None
    # By name; None if rows are not divided among tables.
    tables: dict[str, RoutedTable] | None = None

    def add(self, outcome: Outcome, files: int) -> None:
        """Add an epoch."""
        self.epochs += 1
        self.files += files
        self.add_commits(outcome)

    def add_commits(self, outcome: Outcome) -> None:
        """Add the commits of an epoch that may not be complete."""
        self.snapshot_id = outcome.snapshot_ids[-1] if outcome.snapshot_ids else self.snapshot_id
        self.operation_id = outcome.operation_id or self.operation_id
        result, before = outcome.result, self.rows
        if isinstance(result, IngestResult):
            self.rows = (before if isinstance(before, IngestResult) else IngestResult()).plus(
                result
            )
        elif isinstance(result, RouteResult):
            before = before if isinstance(before, RoutedRows) else RoutedRows()
            self.rows = RoutedRows(
                rows_read=before.rows_read + result.rows_read,
                rows_written=before.rows_written + result.rows_written,
                rows_rejected=before.rows_rejected + result.rows_rejected,
            )
            self._add_tables(result.tables)

    def _add_tables(self, items: Sequence[RoutedTable]) -> None:
        tables = self.tables = self.tables or {}
        for item in items:
            before = tables.get(item.table)
            tables[item.table] = item if before is None else _merged(before, item)

    def mark(self, committed: Committed) -> None:
        """Add an epoch without rows, unless another run committed it."""
        if not committed.already:
            self.epochs += 1
            self.snapshot_id = committed.snapshot_id


def _merged(before: RoutedTable, table: RoutedTable) -> RoutedTable:
    is_done = table.error is None and Status.DONE in {before.status, table.status}
    return replace(
        table,
        snapshot_id=table.snapshot_id or before.snapshot_id,
        rows=before.rows + table.rows,
        created=before.created or table.created,
        new_columns=[*before.new_columns, *table.new_columns],
        status=str(Status.DONE) if is_done else table.status,
    )


def commit_mark(session: Session, table: Table, branch: str, epoch: StreamEpoch) -> Committed:
    """Commit an epoch without rows: only so is the position kept at which a stream starts.

    Raises:
        CommitConflictError: the commit did not happen.
        CommitUnknownError: it may have happened; the next run finds out.
    """
    guard = StreamGuard(epoch)
    request = CommitRequest(operation_id=session.ids.uuid(), branch=branch, guard=guard)
    with session.interrupts.recorded(), session.interrupts.last_commit():
        return commit_snapshot(
            session, table, AppendFiles(added=[]), request, summary=guard.summary
        )
