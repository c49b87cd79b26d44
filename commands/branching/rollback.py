"""`lake rollback`: set a branch back to an earlier snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, DryRun, TableArgument
from lake.core.outcome import Outcome


def rollback(
    context: typer.Context,
    table: TableArgument,
    ref: Annotated[
        str,
        typer.Argument(
            metavar="REF", help="Snapshot: id, tag, branch or @TIME.", show_default=False
        ),
    ],
    anywhere: Annotated[
        bool, typer.Option("--any", help="Allow a snapshot outside of the branch's history.")
    ] = False,
    branch: Branch = "main",
    dry_run: DryRun = False,
) -> Outcome:
    """Set a branch back to an earlier snapshot; no file is deleted.

    The newer snapshots stay in the table until expiry removes them. Until then, the same command
    with --any and the id of one of them undoes the rollback.
    """
    from lake.core.branching.rollback import execute, plan_rollback

    session = session_of(context)
    plan = plan_rollback(session.table(table), ref, branch=branch, anywhere=anywhere)
    return execute(session, plan, dry_run=dry_run)
