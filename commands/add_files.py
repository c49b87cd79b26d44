"""`lake add-files`: add existing Parquet files to a table where they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.groups import Flag
from lake.commands.options import TableArgument, ThisRun
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


@dataclass(frozen=True, kw_only=True)
class AdditionRun(ThisRun):
    """This run."""

    run_id: Annotated[
        str | None, Flag("Add once: another run with this id does nothing.", "ID")
    ] = None


def add_files(
    context: typer.Context,
    table: TableArgument,
    paths: Annotated[
        list[str],
        typer.Argument(
            metavar="PATH...", help="Parquet files, folders or globs.", show_default=False
        ),
    ],
    run: AdditionRun,
) -> Outcome:
    """Add existing Parquet files to a table without copying them.

    Only footers are read. Columns are found by field id, else by name; partitions come from the
    bounds of columns, else from folders NAME=VALUE. A file that does not fit is refused.
    """
    from lake.core.load.file_addition.execute import execute, preview
    from lake.core.load.file_addition.plan import plan_addition
    from lake.core.transaction.locks.table_lock import with_table_lock

    report_commits(context, run.on_commit)
    session = session_of(context)
    loaded = session.table(table)
    plan = plan_addition(session, loaded, paths, branch=run.branch, run_id=run.run_id)
    if run.dry_run:
        return preview(session, plan)
    if not plan.own:
        return execute(session, plan, session.ids.uuid())

    def work(now: Table, operation_id: str) -> Outcome:
        # Files in the table's folders: no run of lake may be about to delete them as garbage.
        again = plan_addition(session, now, paths, branch=run.branch, run_id=run.run_id)
        return execute(session, again, operation_id)

    return with_table_lock(
        session, loaded, work, command="add-files", branch=run.branch, wait_ms=run.wait
    )
