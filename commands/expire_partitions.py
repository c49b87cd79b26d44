"""`lake expire-partitions`: remove partitions that are older than a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.options import Branch, DryRun, OnCommit, TableArgument, Wait
from lake.commands.parsing import older_than_ms
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


def expire_partitions(
    context: typer.Context,
    table: TableArgument,
    older_than: Annotated[
        str,
        typer.Option(
            metavar="90d|TIME",
            help="Remove partitions whose rows are all older.",
            show_default=False,
        ),
    ],
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Partition field, or its column, that gives the time."),
    ] = None,
    strategy: Annotated[
        str,
        typer.Option(
            metavar="values-time|update-time",
            help="Whether the age is that of the partition's value or of its last change.",
        ),
    ] = "values-time",
    format_name: Annotated[
        str | None,
        typer.Option(
            "--format", metavar="FORMAT", help="Format of a text or integer, e.g. %Y%m%d."
        ),
    ] = None,
    most: Annotated[
        int, typer.Option("--max", metavar="N", help="Remove at most N partitions, oldest first.")
    ] = 100,
    unsafe_retention: Annotated[
        bool, typer.Option("--unsafe-retention", help="Allow --older-than of less than 24 hours.")
    ] = False,
    branch: Branch = "main",
    wait: Wait = None,
    on_commit: OnCommit = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Remove partitions whose rows are all older than a limit.

    Whole files leave the table in one snapshot; no file is rewritten, and none is deleted before
    `lake expire` removes the older snapshots.
    """
    from lake.core.maintain.partitions.expire import (
        PartitionExpirationOptions,
        execute,
        plan_partition_expiration,
        preview,
    )
    from lake.core.transaction.locks.store_clock import require_clock
    from lake.core.transaction.locks.table_lock import with_table_lock

    report_commits(context, on_commit)
    session = session_of(context)
    options = PartitionExpirationOptions(
        older_than_ms=older_than_ms(older_than, session.clock.now_ms()) or 0,
        by=by,
        strategy=strategy,
        format=format_name,
        most=most,
        branch=branch,
        unsafe=unsafe_retention,
    )
    loaded = session.table(table)
    if dry_run:
        plan = plan_partition_expiration(loaded, options, session.clock.now_ms())
        return preview(plan, verbose=session.settings.verbose)

    def work(now: Table, operation_id: str) -> Outcome:
        require_clock(session, now)
        plan = plan_partition_expiration(now, options, session.clock.now_ms())
        return execute(session, plan, operation_id)

    return with_table_lock(
        session,
        loaded,
        work,
        command="expire-partitions",
        branch=branch,
        wait_ms=wait,
        repeated=True,
    )
