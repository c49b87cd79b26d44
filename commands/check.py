"""`lake check`: report damage of a table, and mend it on request."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, DryRun, TableArgument, Wait
from lake.core.base.errors import InvalidRequestError, OutOfRangeError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session


def check(
    context: typer.Context,
    table: TableArgument,
    files: Annotated[
        bool, typer.Option("--files", help="Also check that all files exist with their sizes.")
    ] = False,
    rows: Annotated[
        bool,
        typer.Option(
            "--rows", help="Also compare counts, columns and bounds with the files' footers."
        ),
    ] = False,
    deep: Annotated[
        bool, typer.Option("--deep", help="Also read all values, and compare them with manifests.")
    ] = False,
    repair: Annotated[
        list[str] | None,
        typer.Option(
            "--repair",
            metavar="NAME|CODE",
            help="Mend this damage: missing-files, duplicate-files, dangling-deletes, totals, refs, "
            "statistics, or a code that one of them mends. Repeatable; needs --yes.",
        ),
    ] = None,
    yes: Annotated[
        bool, typer.Option("--yes", help="Make the repairs; without it, they are only shown.")
    ] = False,
    branch: Branch = "main",
    wait: Wait = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Report what is missing, damaged or contradictory in a table.

    The exit code is 0 without findings, 6 with warnings, and 7 with errors. Nothing is changed
    without --repair and --yes.
    """
    from lake.core.maintain.checking.check import check_numbers, check_table
    from lake.core.maintain.checking.findings import Level

    session = session_of(context)
    chosen = ((deep, Level.DEEP), (rows, Level.ROWS), (files, Level.FILES))
    level = next((level for wanted, level in chosen if wanted), Level.METADATA)
    if repair:
        if level is not Level.METADATA:
            raise InvalidRequestError(
                "--repair contradicts --files, --rows and --deep: a repair reads what it needs"
            )
        return _repair(session, table, repair, branch, wait, is_agreed=yes and not dry_run)
    if yes or dry_run or branch != "main" or wait is not None:
        raise InvalidRequestError("--yes, --dry-run, --branch and --wait need --repair")
    try:
        loaded = session.table(table)
    except OutOfRangeError as error:
        return check_numbers(session, table, level, error)
    return check_table(session, loaded, level)


def _repair(
    session: Session,
    name: str,
    repairs: list[str],
    branch: str,
    wait: int | None,
    *,
    is_agreed: bool,
) -> Outcome:
    """Show what would be repaired or, if the user agrees, repair it."""
    from lake.core.maintain.repair.execute import execute
    from lake.core.maintain.repair.names import repairs_of
    from lake.core.maintain.repair.plan import RepairOptions, plan_repairs
    from lake.core.maintain.repair.report import preview
    from lake.core.transaction.locks.table_lock import with_table_lock

    options = RepairOptions(repairs_of(repairs), branch)
    loaded = session.table(name)
    if not is_agreed:
        return preview(plan_repairs(loaded, options), verbose=session.settings.verbose)

    def work(now: Table, operation_id: str) -> Outcome:
        return execute(session, now, options, operation_id)

    return with_table_lock(session, loaded, work, command="check", branch=branch, wait_ms=wait)
