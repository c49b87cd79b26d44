"""`lake deletes`: list a table's delete files, compact them, or convert equality deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.options import Branch, DryRun, OnCommit, TableArgument, Wait, Where
from lake.core.errors import InvalidRequestError
from lake.core.outcome import Outcome
from lake.core.units import parse_duration_ms

if TYPE_CHECKING:
    from lake.core.catalogs.catalog import Table
    from lake.core.delete_conversion.plan import DeletePlan


def deletes(
    context: typer.Context,
    table: TableArgument,
    rewrite: Annotated[
        bool,
        typer.Option("--rewrite", help="Replace many position delete files by few, or by vectors."),
    ] = False,
    convert: Annotated[
        bool,
        typer.Option("--convert", help="Convert equality deletes to position deletes or vectors."),
    ] = False,
    exact: Annotated[
        bool, typer.Option("--exact", help="Also count the rows that each delete file deletes.")
    ] = False,
    where: Where = None,
    branch: Branch = "main",
    wait: Wait = None,
    on_commit: OnCommit = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Show a table's delete files: kind, rows, bytes, and the data files that they apply to.

    A delete file that applies to no data file is dangling: it deletes nothing.
    """
    if rewrite and convert:
        raise InvalidRequestError(
            "--rewrite and --convert exclude each other", hint="run one after the other"
        )
    if exact and (rewrite or convert):
        raise InvalidRequestError("--exact counts rows, and needs neither --rewrite nor --convert")
    if rewrite or convert:
        return _change(
            context,
            table,
            branch,
            rewrite=rewrite,
            where=where,
            wait=wait,
            on_commit=on_commit,
            dry_run=dry_run,
        )
    if dry_run or any(option is not None for option in (where, wait, on_commit)):
        raise InvalidRequestError(
            "--where, --dry-run, --wait and --on-commit need --rewrite or --convert"
        )
    from lake.core.inspection.deletes import list_deletes

    session = session_of(context)
    return list_deletes(session.table(table), branch=branch, exact=session if exact else None)


def _change(
    context: typer.Context,
    table: str,
    branch: str,
    *,
    rewrite: bool,
    where: str | None,
    wait: str | None,
    on_commit: str | None,
    dry_run: bool,
) -> Outcome:
    from lake.core.delete_conversion.execute import execute, preview
    from lake.core.delete_conversion.plan import plan_conversion
    from lake.core.delete_conversion.rewrite_plan import plan_rewrite
    from lake.core.locks.table_lock import with_table_lock

    report_commits(context, on_commit)
    wait_ms = None if wait is None else parse_duration_ms(wait)
    session = session_of(context)
    loaded = session.table(table)

    def plan(now: Table) -> DeletePlan:
        make = plan_rewrite if rewrite else plan_conversion
        return make(now, branch, where)

    if dry_run:
        return preview(plan(loaded))

    def work(now: Table, operation_id: str) -> Outcome:
        return execute(session, now, branch, operation_id, plan)

    return with_table_lock(session, loaded, work, command="deletes", branch=branch, wait_ms=wait_ms)
