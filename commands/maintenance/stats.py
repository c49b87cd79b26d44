"""`lake stats`: count the distinct values of columns for query planners."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, DryRun, TableArgument
from lake.commands.parsing import parse_names
from lake.core.outcome import Outcome


def stats(
    context: typer.Context,
    table: TableArgument,
    select: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Columns to describe [all that are not nested]."),
    ] = None,
    branch: Branch = "main",
    dry_run: DryRun = False,
) -> Outcome:
    """Count the distinct values of columns, and store them where query planners read them.

    Reads the rows of the newest snapshot once, writes a statistics file with one sketch for each
    column, and registers it for that snapshot. No snapshot is added.
    """
    from lake.core.statistics.execute import execute, preview
    from lake.core.statistics.plan import StatisticsOptions, plan_statistics

    options = StatisticsOptions(branch=branch, select=parse_names(select))
    session = session_of(context)
    loaded = session.table(table)
    if dry_run:
        return preview(plan_statistics(loaded, options))
    return execute(session, loaded, options)
