"""`lake delete`: delete the rows that a filter selects."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.groups import Flag
from lake.commands.options import TableArgument, ThisRun
from lake.core.base.choices import DELETE_MODES
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table


@dataclass(frozen=True, kw_only=True)
class WhichRows:
    """Which rows."""

    where: Annotated[
        str, Flag("Delete the rows for which this is true; true deletes all rows.", "EXPR")
    ]
    max_rows: Annotated[int | None, Flag("Delete nothing if more rows match.", "N")] = None


@dataclass(frozen=True, kw_only=True)
class DeletionRun(ThisRun):
    """This run."""

    run_id: Annotated[
        str | None, Flag("Delete once: another run with this id does nothing.", "ID")
    ] = None
    count: Annotated[bool, Flag("With --dry-run: read the files, and count the rows.")] = False


def delete(
    context: typer.Context,
    table: TableArgument,
    which: WhichRows,
    run: DeletionRun,
    *,
    deletes: Annotated[
        str | None,
        Flag(
            "How rows leave files that keep others [the table's write.delete.mode].",
            "|".join(DELETE_MODES),
        ),
    ] = None,
) -> Outcome:
    """Delete the rows that a filter selects.

    Files all of whose rows match leave the table without being read. The earlier snapshots keep
    the rows until `lake expire` removes them.
    """
    from lake.core.maintain.row_deletion.execute import execute, preview
    from lake.core.maintain.row_deletion.options import DeletionOptions
    from lake.core.maintain.row_deletion.plan import plan_deletion
    from lake.core.transaction.locks.table_lock import with_table_lock

    report_commits(context, run.on_commit)
    if run.count and not run.dry_run:
        raise InvalidRequestError("--count needs --dry-run: a deletion always counts its rows")
    options = DeletionOptions(
        deletes=deletes, branch=run.branch, run_id=run.run_id, count=run.count, **vars(which)
    )
    session = session_of(context)
    loaded = session.table(table)
    if run.dry_run:
        return preview(session, plan_deletion(session, loaded, options))

    def work(now: Table, operation_id: str) -> Outcome:
        return execute(session, now, options, operation_id)

    return with_table_lock(
        session, loaded, work, command="delete", branch=run.branch, wait_ms=run.wait
    )
