"""`lake snapshots`: a table's lineage."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, TableArgument
from lake.core.outcome import Outcome, Status
from lake.core.snapshots import list_snapshots


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
    loaded = session_of(context).table(table)
    rows = list_snapshots(loaded.metadata, branch=branch, everything=everything)
    shown = [[",".join(v) if isinstance(v, list) else v for v in row.values()] for row in rows]
    return Outcome(
        command="snapshots",
        table=table,
        branch=branch,
        status=Status.DONE,
        base_snapshot_id=loaded.metadata.current_snapshot_id,
        result={"snapshots": rows},
        details=[("snapshots", list(rows[0]) if rows else [], shown)],
    )
