"""What a follow reports: its lag, its result, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from lake.core.read.continuous.discovery import Discovery
from lake.core.read.continuous.handover.state import State
from lake.core.read.continuous.position import Gap, GapError, GapKind, Position, after_gap, unseen
from lake.core.read.exports.export import Noted
from lake.core.read.scan.execute import key_counters
from lake.core.read.scan.scan_keys import total_pruning
from lake.core.table.refs.consumers import appended_rows
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


@dataclass(frozen=True, slots=True)
class Lag:
    """What is between a position and the head of a branch.

    Args:
        snapshots: the number of snapshots after the position; None if some of them have expired.
        rows: the rows that the appends among them added, by their summaries; None if some have expired.
        ms: the milliseconds between the position's snapshot and the head; None if the former's time is not known.
        gap: why the follower cannot go on from the position; None if it can.
    """

    snapshots: int | None
    rows: int | None
    ms: int | None
    gap: Gap | None = None

    def to_plain(self) -> dict[str, int | None]:
        """Return JSON-ready values."""
        return {"snapshots": self.snapshots, "rows": self.rows, "ms": self.ms}


def lag_of(metadata: TableMetadata, branch: str, position: Position | None) -> Lag | None:
    """Return the lag of a position; None before the first discovery.

    Raises:
        NotFoundError: there is no such branch.
    """
    if position is None:
        return None
    head = ancestry.branch_head(metadata, branch)
    found = unseen(
        metadata, head, position, is_first=lambda item: ancestry.is_first(metadata, item)
    )
    gap = found if isinstance(found, Gap) else None
    if isinstance(found, Gap):
        # What has expired cannot be counted. After a rollback, what comes after the common snapshot is there.
        found = after_gap(metadata, head, found)[1]
    if head is None or not (found or gap):
        return Lag(0, 0, 0, gap)
    since = position.timestamp_ms
    if since is None and not gap:
        since = found[0].timestamp_ms
    ms = None if since is None else max(head.timestamp_ms - since, 0)
    if gap and gap.kind is not GapKind.ROLLED_BACK:
        return Lag(None, None, ms, gap)
    return Lag(len(found), sum(map(appended_rows, found)), ms, gap)


def gap_warnings(lag: Lag | None, table: str, branch: str) -> list[str]:
    """Return the warning of a gap at which the next run ends, with what can be done; empty if there is none."""
    if lag is None or lag.gap is None:
        return []
    error = GapError(lag.gap, table, branch)
    return [f"{error.message}; {error.hint}"]


@dataclass(slots=True)
class Tally:
    """What one run did: counts of discoveries, and of what was handed over."""

    strategy: str | None = None
    position: Position | None = None
    snapshots: int = 0
    files: int = 0
    splits: int = 0
    bytes: int = 0
    records: int = 0
    epochs: int = 0
    rows: int = 0
    written_files: int = 0
    bytes_written: int = 0
    late_splits: int = 0
    discarded_discoveries: int = 0
    gaps: list[Gap] = field(default_factory=list)
    skipped: list[tuple[int, str]] = field(default_factory=list)
    stopped_by: str | None = None
    with_keys: bool = False
    pruning: dict[str, Any] = field(default_factory=dict)
    noted: Noted = field(default_factory=Noted)

    def discovered(self, discovery: Discovery) -> None:
        """Count a discovery that was taken."""
        self.snapshots += len(discovery.snapshots)
        self.skipped += [(item.snapshot_id, item.operation) for item in discovery.skipped]
        if discovery.gap is not None:
            self.gaps.append(discovery.gap)
        if discovery.plan is not None:
            facts = discovery.plan.facts()
            self.files += facts["files"] or 0
            self.splits += facts["splits"] or 0
            self.bytes += facts["bytes"] or 0
            self.records += facts["records"] or 0
            if "pruning" in facts:
                self.pruning = total_pruning(self.pruning, facts["pruning"])

    def plan(self, head: int | None) -> dict[str, Any]:
        """Return what was discovered by the names in the output."""
        return {
            "strategy": self.strategy,
            "position": None if self.position is None else self.position.to_plain(),
            "head": None if head is None else str(head),
            "snapshots": self.snapshots,
            "files": self.files,
            "splits": self.splits,
            "bytes": self.bytes,
            "records": self.records,
            "skipped_snapshots": len(self.skipped),
            **({"pruning": self.pruning} if self.pruning else {}),
        }

    def result(self, state: State, lag: Lag | None) -> dict[str, Any]:
        """Return what was handed over by the names in the output."""
        return {
            "epochs": self.epochs,
            "rows": self.rows,
            "files": self.written_files,
            "bytes_written": self.bytes_written,
            **standing(state, lag),
            "late_splits": self.late_splits,
            "gaps": [gap.to_plain() for gap in self.gaps],
            "skipped_snapshots": len(self.skipped),
            "discarded_discoveries": self.discarded_discoveries,
            "planning_failures": state.planning_failures,
            "stopped_by": self.stopped_by,
            **(key_counters(self.noted) if self.with_keys else {}),
        }


def standing(state: State, lag: Lag | None) -> dict[str, Any]:
    """Return where a follow is by the names in the output."""
    return {
        "position": None if state.position is None else state.position.model_dump(),
        "lag": None if lag is None else lag.to_plain(),
        "pending_splits": state.pending_splits,
        "pending_rows": state.pending_rows,
        "watermark_ms": state.watermark_ms,
    }


def metric_values(
    state: State, lag: Lag | None, *, idle_seconds: float | None, failed: bool
) -> Mapping[str, float | None]:
    """Return the values of the metrics by name.

    Args:
        state: the state.
        lag: the lag; None if it is not known.
        idle_seconds: the time since the last successful discovery; None if there was none.
        failed: whether the run failed.
    """
    totals = state.totals
    return {
        "lag_snapshots": None if lag is None else lag.snapshots,
        "lag_rows": None if lag is None else lag.rows,
        "lag_ms": None if lag is None else lag.ms,
        "gap": None if lag is None else int(lag.gap is not None),
        "pending_splits": state.pending_splits,
        "pending_rows": state.pending_rows,
        "pending_bytes": state.pending_bytes,
        "seconds_since_last_discovery": idle_seconds,
        "assigned_splits_total": totals.splits + state.pending_splits,
        "assigned_bytes_total": totals.split_bytes + state.pending_bytes,
        "finished_splits_total": totals.splits,
        "finished_bytes_total": totals.split_bytes,
        "rows_total": totals.rows,
        "epochs_total": state.epoch,
        "skipped_snapshots_total": totals.skipped_snapshots,
        "gaps_total": totals.gaps,
        "planning_failures_total": totals.planning_failures,
        "watermark_ms": state.watermark_ms,
        "up": 0 if failed else 1,
    }
