"""`lake publish`: apply the snapshot that was staged under a WAP id to a branch."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.options import Branch, DryRun, TableArgument
from lake.core.base.outcome import Outcome


def publish(
    context: typer.Context,
    table: TableArgument,
    wap_id: Annotated[str, Flag("Id under which the snapshot was staged.", "ID")],
    branch: Branch = "main",
    dry_run: DryRun = False,
) -> Outcome:
    """Apply a snapshot that was staged under a WAP id.

    Spark stages a snapshot under the id of its setting spark.wap.id if the table has the property
    write.wap.enabled. The snapshot is applied as by lake cherry-pick.
    """
    from lake.core.maintain.branching.cherry_pick import execute, plan_publish

    session = session_of(context)
    plan = plan_publish(session.table(table), wap_id, branch=branch)
    return execute(session, plan, session.ids.uuid(), dry_run=dry_run)
