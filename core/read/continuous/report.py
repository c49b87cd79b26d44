"""What a follow reports: its lag, where it is, and its metrics."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lake.core.read.continuous.facts import StandingFacts
from lake.core.read.continuous.handover.state import State
from lake.core.read.continuous.position import (
    Gap,
    GapError,
    GapKind,
    Lag,
    Position,
    after_gap,
    unseen,
)
from lake.core.table.refs.consumers import appended_rows
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


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


def standing(state: State, lag: Lag | None) -> StandingFacts:
    """Return where a follow is."""
    return StandingFacts(
        position=None if state.position is None else state.position.position,
        lag=lag,
        pending_splits=state.pending_splits,
        pending_rows=state.pending_rows,
        watermark_ms=state.watermark_ms,
    )


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
