"""`lake delete`: delete the rows that a filter selects."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.options import Branch, DryRun, OnCommit, TableArgument, Wait
from lake.core.base.choices import DELETE_MODES
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


def delete(
    context: typer.Context,
    table: TableArgument,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="EXPR",
            help="Delete the rows for which this is true; true deletes all rows.",
            show_default=False,
        ),
    ],
    deletes: Annotated[
        str | None,
        typer.Option(
            metavar="|".join(DELETE_MODES),
            help="How rows leave files that keep others [the table's write.delete.mode].",
        ),
    ] = None,
    max_rows: Annotated[
        int | None, typer.Option(metavar="N", help="Delete nothing if more rows match.")
    ] = None,
    count: Annotated[
        bool, typer.Option("--count", help="With --dry-run: read the files, and count the rows.")
    ] = False,
    run_id: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Delete once: another run with this id does nothing."),
    ] = None,
    branch: Branch = "main",
    wait: Wait = None,
    on_commit: OnCommit = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Delete the rows that a filter selects.

    Files all of whose rows match leave the table without being read. The earlier snapshots keep
    the rows until `lake expire` removes them.
    """
    from lake.core.base.errors import InvalidRequestError
    from lake.core.maintain.row_deletion.execute import execute, preview
    from lake.core.maintain.row_deletion.options import DeletionOptions
    from lake.core.maintain.row_deletion.plan import plan_deletion
    from lake.core.transaction.locks.table_lock import with_table_lock

    report_commits(context, on_commit)
    if count and not dry_run:
        raise InvalidRequestError("--count needs --dry-run: a deletion always counts its rows")
    options = DeletionOptions(
        where=where,
        deletes=deletes,
        branch=branch,
        run_id=run_id,
        max_rows=max_rows,
        count=count,
    )
    session = session_of(context)
    loaded = session.table(table)
    if dry_run:
        return preview(session, plan_deletion(session, loaded, options))

    def work(now: Table, operation_id: str) -> Outcome:
        return execute(session, now, options, operation_id)

    return with_table_lock(session, loaded, work, command="delete", branch=branch, wait_ms=wait)
