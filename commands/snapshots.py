"""`lake snapshots`: a table's lineage."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, TableArgument
from lake.core.outcome import Outcome, Status
from lake.core.snapshots import list_snapshots
from lake.core.table.lineage import branch_head

# The others only with --verbose: a line should fit a terminal.
_SHOWN = (
    "snapshot_id", "committed_at", "operation", "added_files", "removed_files", "added_rows",
    "removed_rows", "refs",
)  # fmt: skip


def snapshots(
    context: typer.Context,
    table: TableArgument,
    everything: Annotated[
        bool, typer.Option("--all", help="Also snapshots outside the branch.")
    ] = False,
    branch: Branch = "main",
) -> Outcome:
    """Show a table's snapshots, newest first.

    Example: lake snapshots db.events --all
    """
    session = session_of(context)
    metadata = session.table(table).metadata
    head = branch_head(metadata, branch)
    rows = list_snapshots(metadata, branch=branch, everything=everything)
    names = list(rows[0]) if rows and session.settings.verbose else list(_SHOWN)
    shown = [[_text(row[name]) for name in names] for row in rows]
    return Outcome(
        command="snapshots",
        table=table,
        branch=branch,
        status=Status.DONE,
        base_snapshot_id=head.snapshot_id if head else None,
        result={"snapshots": rows},
        details=[("snapshots", names, shown)],
    )


def _text(value: object) -> object:
    return ", ".join(value) if isinstance(value, list) else value
