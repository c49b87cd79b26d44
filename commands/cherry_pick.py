"""`lake cherry-pick`: apply the change of one snapshot to a branch."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, DryRun, TableArgument, absolute_time
from lake.core.base.outcome import Outcome


def cherry_pick(
    context: typer.Context,
    table: TableArgument,
    ref: Annotated[
        str,
        typer.Argument(
            metavar="REF",
            callback=absolute_time,
            help="Snapshot: id, tag, branch or @TIME.",
            show_default=False,
        ),
    ],
    branch: Branch = "main",
    dry_run: DryRun = False,
) -> Outcome:
    """Apply the change of one snapshot to a branch.

    If the snapshot was built on the branch's head, the branch moves to it. Otherwise an append, or
    a replacement of partitions that did not change since, is committed as a new snapshot.
    """
    from lake.core.maintain.branching.cherry_pick import execute, plan_pick

    session = session_of(context)
    plan = plan_pick(session.table(table), ref, branch=branch)
    return execute(session, plan, session.ids.uuid(), dry_run=dry_run)
