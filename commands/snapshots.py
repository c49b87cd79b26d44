"""`lake snapshots`: list a table's snapshots."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.options import Branch, TableArgument
from lake.commands.reports.facts import SnapshotFacts, SnapshotsResult
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Detail, MadeRows, Outcome, Status
from lake.core.base.units import readable_time
from lake.core.table.snapshots.ancestry import branch_head

# --verbose prints all columns; these fit a terminal.
_SHORT = ("snapshot_id", "committed_at", "operation", "files", "rows", "refs")
_JOB_DIGITS = 7  # enough of the id of a job or a query to distinguish it


def snapshots(
    context: typer.Context,
    table: TableArgument,
    everything: Annotated[
        bool, Flag("Also show snapshots outside the branch.", name="--all")
    ] = False,
    limit: Annotated[int | None, Flag("Show the newest N snapshots only.", "N")] = None,
    branch: Branch = "main",
) -> Outcome:
    """Show a table's snapshots, newest first."""
    from lake.commands.reports.snapshot_listing import list_snapshots

    if limit is not None and limit < 0:
        raise InvalidRequestError(f"--limit must not be negative: {limit}")
    session = session_of(context)
    metadata = session.table(table).metadata
    head = branch_head(metadata, branch)
    rows = list_snapshots(metadata, branch=branch, everything=everything, limit=limit)
    verbose = session.settings.verbose
    by_flink = any(row.job_id for row in rows)
    by_query = any(row.query_id for row in rows)
    names = [*_SHORT, *(["flink"] if by_flink else []), *(["spark"] if by_query else [])]

    def cells(row: SnapshotFacts) -> list[str | None]:
        checkpoint, epoch = [_checkpoint(row)] * by_flink, [_epoch(row)] * by_query
        return [*_short(row), *checkpoint, *epoch]

    shown = MadeRows(rows, cells)
    if verbose and rows:
        names, shown = list(rows[0].document()), MadeRows(rows, _all)
    return Outcome(
        status=Status.DONE,
        base_snapshot_id=head.snapshot_id if head else None,
        result=SnapshotsResult(snapshots=rows),
        details=[Detail("snapshots", names, shown)],
    )


def _all(row: SnapshotFacts) -> list[Any]:
    return [*({**row.document(), "refs": ", ".join(row.refs)}.values())]


def _short(row: SnapshotFacts) -> list[str | None]:
    return [
        row.snapshot_id,
        readable_time(row.committed_at) if row.committed_at else None,
        row.operation,
        _change(row.added_files, row.removed_files),
        _change(row.added_rows, row.removed_rows),
        ", ".join(row.refs),
    ]


def _checkpoint(row: SnapshotFacts) -> str:
    parts = [row.job_id[:_JOB_DIGITS]] if row.job_id else []
    return " ".join([*parts, f"chk-{row.checkpoint_id}"] if row.checkpoint_id else parts)


def _epoch(row: SnapshotFacts) -> str:
    return f"{row.query_id[:_JOB_DIGITS]} epoch-{row.epoch_id}" if row.query_id else ""


def _change(added: int | None, removed: int | None) -> str:
    parts = [f"{sign}{count:,}" for sign, count in (("+", added), ("-", removed)) if count]
    return " ".join(parts) or "0"
