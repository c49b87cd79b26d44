"""`lake rollback`: set a branch back to an earlier snapshot."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.options import Branch, DryRun, TableArgument, absolute_time
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome


def rollback(
    context: typer.Context,
    table: TableArgument,
    ref: Annotated[
        str | None,
        typer.Argument(
            metavar="REF",
            callback=absolute_time,
            help="Snapshot: id, tag, branch, main~1 or @TIME.",
            show_default=False,
        ),
    ] = None,
    last: Annotated[bool, Flag("Undo the newest commit: as BRANCH~1.")] = False,
    anywhere: Annotated[
        bool, Flag("Allow a snapshot outside of the branch's history.", name="--any")
    ] = False,
    branch: Branch = "main",
    dry_run: DryRun = False,
) -> Outcome:
    """Set a branch back to an earlier snapshot.

    The newer snapshots stay in the table until expiry removes them. Until then, the same command
    with --any and the id of one of them undoes the rollback.
    """
    from lake.core.maintain.branching.rollback import earlier_snapshots, execute, plan_rollback

    if last and ref is not None:
        raise InvalidRequestError("REF and --last contradict each other")
    session = session_of(context)
    loaded = session.table(table)
    if ref is None and not last:
        raise InvalidRequestError(
            "REF or --last is missing", hint=earlier_snapshots(loaded, branch=branch)
        )
    plan = plan_rollback(loaded, ref or f"{branch}~1", branch=branch, anywhere=anywhere)
    return execute(session, plan, dry_run=dry_run)
