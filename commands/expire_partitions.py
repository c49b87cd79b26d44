"""`lake expire-partitions`: remove partitions that are older than a limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.groups import Flag
from lake.commands.options import TableArgument, ThisRun, UnsafeRetention, moment
from lake.commands.parsing import Moment
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


@dataclass(frozen=True, kw_only=True)
class WhichPartitions:
    """Which partitions."""

    older_than: Annotated[Moment, moment("Remove partitions whose rows are all older.", "90d|TIME")]
    by: Annotated[
        str | None, Flag("Partition field, or its column, that gives the time.", "NAME")
    ] = None
    strategy: Annotated[
        str,
        Flag(
            "Whether the age is that of the partition's value or of its last change.",
            "values-time|update-time",
        ),
    ] = "values-time"
    format: Annotated[str | None, Flag("Format of a text or integer, e.g. %Y%m%d.", "FORMAT")] = (
        None
    )
    most: Annotated[int, Flag("Remove at most N partitions, oldest first.", "N", name="--max")] = (
        100
    )
    unsafe_retention: UnsafeRetention = False


def expire_partitions(
    context: typer.Context, table: TableArgument, which: WhichPartitions, run: ThisRun
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
    from lake.core.transaction.locks.table_lock import with_table_lock
    from lake.core.transaction.store_clock import require_clock

    report_commits(context, run.on_commit)
    session = session_of(context)
    options = PartitionExpirationOptions(
        older_than=which.older_than.at(session.clock.now_ms()),
        by=which.by,
        strategy=which.strategy,
        format=which.format,
        most=which.most,
        branch=run.branch,
        unsafe_retention=which.unsafe_retention,
    )
    loaded = session.table(table)
    if run.dry_run:
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
        branch=run.branch,
        wait_ms=run.wait,
        repeated=True,
    )
