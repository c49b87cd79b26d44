"""`lake stats`: count the distinct values of columns, or the contents of partitions, for query planners."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.each_table import TablesArgument, for_each_table
from lake.commands.groups import Flag
from lake.commands.options import Branch, DryRun, names
from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome


@for_each_table()
def stats(
    context: typer.Context,
    table: TablesArgument,
    select: Annotated[
        Sequence[str] | None, names("Columns to describe [all that are not nested].", "NAMES")
    ] = None,
    partitions: Annotated[
        bool, Flag("Describe the partitions instead, from metadata only.")
    ] = False,
    branch: Branch = "main",
    dry_run: DryRun = False,
) -> Outcome:
    """Count distinct values of columns for query planners.

    Reads the rows of the newest snapshot once, writes a statistics file with one sketch for each
    column, and registers it for that snapshot. No snapshot is added.

    With --partitions no row is read: the file has the numbers of rows, files and deletes of each
    partition, as those of Spark's procedure compute_partition_stats.
    """
    from lake.core.maintain.statistics.execute import execute, preview
    from lake.core.maintain.statistics.plan import StatisticsOptions, plan_statistics

    if partitions:
        return _of_partitions(context, table, select, branch, dry_run=dry_run)
    options = StatisticsOptions(branch=branch, select=select)
    session = session_of(context)
    loaded = session.table(table)
    if dry_run:
        return preview(plan_statistics(loaded, options))
    return execute(session, loaded, options)


def _of_partitions(
    context: typer.Context, table: str, select: Sequence[str] | None, branch: str, *, dry_run: bool
) -> Outcome:
    from lake.core.maintain.statistics.partition_execute import execute, preview
    from lake.core.maintain.statistics.partition_plan import plan_partition_statistics

    if select is not None:
        raise InvalidRequestError(
            f"{Option.SELECT} chooses columns: partitions are described as a whole"
        )
    session = session_of(context)
    loaded = session.table(table)
    if dry_run:
        return preview(plan_partition_statistics(loaded, branch))
    return execute(session, loaded, branch)
