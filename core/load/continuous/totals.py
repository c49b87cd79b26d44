"""What a continuous load did so far, and epochs without rows."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lake.core.base.outcome import Outcome, Status
from lake.core.table.snapshots.streams import StreamEpoch
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.guards import StreamGuard
from lake.core.transaction.commit.operations import AppendFiles
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


@dataclass(slots=True)
class Totals:
    """What a run did, summed over its epochs; counts of rows are None if one epoch does not know them."""

    epochs: int = 0
    files: int = 0
    set_aside: int = 0
    skipped: list[str] = field(default_factory=list)
    snapshot_id: int | None = None
    operation_id: str | None = None
    counts: dict[str, int | None] = field(default_factory=dict)
    tables: dict[str, dict[str, Any]] | None = None

    def add(self, outcome: Outcome, files: int) -> None:
        """Add an epoch."""
        self.epochs += 1
        self.files += files
        self.add_commits(outcome)

    def add_commits(self, outcome: Outcome) -> None:
        """Add the commits of an epoch that may not be complete."""
        self.snapshot_id = outcome.snapshot_ids[-1] if outcome.snapshot_ids else self.snapshot_id
        self.operation_id = outcome.operation_id or self.operation_id
        for key, value in outcome.result.items():
            before = self.counts.get(key, 0)
            if isinstance(value, int) and before is not None:
                self.counts[key] = before + value
            elif value is None:
                self.counts[key] = None
        if self.tables is not None:
            self._add_tables(outcome.result.get("tables", ()))

    def _add_tables(self, items: Iterable[Mapping[str, Any]]) -> None:
        for item in items:
            before = (self.tables or {}).get(item["table"])
            merged = dict(item)
            if before is not None:
                merged |= {
                    "snapshot_id": item["snapshot_id"] or before["snapshot_id"],
                    "rows": before["rows"] + item["rows"],
                    "created": before["created"] or item["created"],
                    "new_columns": [*before["new_columns"], *item["new_columns"]],
                }
                if item["error"] is None and Status.DONE in {before["status"], item["status"]}:
                    merged["status"] = str(Status.DONE)
            self.tables = {**(self.tables or {}), item["table"]: merged}

    def mark(self, committed: Committed) -> None:
        """Add an epoch without rows, unless another run committed it."""
        if not committed.already:
            self.epochs += 1
            self.snapshot_id = committed.snapshot_id

    def facts(self) -> dict[str, Any]:
        """Return the keys of the result."""
        routed = {} if self.tables is None else {"tables": list(self.tables.values())}
        return {
            **self.counts,
            **routed,
            "epochs": self.epochs,
            "files_loaded": self.files,
            "files_set_aside": self.set_aside,
        }


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
