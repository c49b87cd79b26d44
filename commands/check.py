"""`lake check`: report damage of a table, and mend it on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import of_all_branches, session_of
from lake.commands.each_table import TablesArgument, for_each_table
from lake.commands.groups import Flag, given
from lake.commands.options import Branch, DryRun, Wait
from lake.core.base.errors import InvalidRequestError, OutOfRangeError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session


@dataclass(frozen=True, kw_only=True)
class WhatIsChecked:
    """What is checked."""

    files: Annotated[bool, Flag("Also check that all files exist with their sizes.")] = False
    rows: Annotated[
        bool, Flag("Also compare counts, columns and bounds with the files' footers.")
    ] = False
    deep: Annotated[bool, Flag("Also read all values, and compare them with manifests.")] = False


@dataclass(frozen=True, kw_only=True)
class Repair:
    """Repair."""

    repair: Annotated[
        tuple[str, ...],
        Flag(
            "Mend this damage: missing-files, duplicate-files, dangling-deletes, totals, refs, "
            "statistics, or a code that one of them mends. Repeatable; needs --yes.",
            "NAME|CODE",
        ),
    ] = ()
    yes: Annotated[bool, Flag("Make the repairs; without it, they are only shown.")] = False
    branch: Branch = "main"
    wait: Wait = None
    dry_run: DryRun = False


@for_each_table("--repair")
def check(
    context: typer.Context, table: TablesArgument, what: WhatIsChecked, mending: Repair
) -> Outcome:
    """Report what is missing, damaged or contradictory in a table.

    The exit code is 0 without findings, 6 with warnings, and 7 with errors. Nothing is changed
    without --repair and --yes.
    """
    from lake.core.maintain.checking.check import check_numbers, check_table
    from lake.core.maintain.checking.findings import Level

    session = session_of(context)
    chosen = ((what.deep, Level.DEEP), (what.rows, Level.ROWS), (what.files, Level.FILES))
    level = next((level for wanted, level in chosen if wanted), Level.METADATA)
    if mending.repair:
        if level is not Level.METADATA:
            raise InvalidRequestError(
                "--repair contradicts --files, --rows and --deep: a repair reads what it needs"
            )
        return _repair(session, table, mending)
    if given(mending):
        raise InvalidRequestError("--yes, --dry-run, --branch and --wait need --repair")
    try:
        loaded = session.table(table)
    except OutOfRangeError as error:
        return of_all_branches(context, check_numbers(session, level, error))
    return of_all_branches(context, check_table(session, loaded, level))


def _repair(session: Session, name: str, mending: Repair) -> Outcome:
    """Show what would be repaired or, if the user agrees, repair it."""
    from lake.core.maintain.repair.execute import execute
    from lake.core.maintain.repair.names import repairs_of
    from lake.core.maintain.repair.plan import RepairOptions, plan_repairs
    from lake.core.maintain.repair.report import preview
    from lake.core.transaction.locks.table_lock import with_table_lock

    options = RepairOptions(repairs_of(mending.repair), mending.branch)
    loaded = session.table(name)
    if mending.dry_run or not mending.yes:
        return preview(plan_repairs(loaded, options), verbose=session.settings.verbose)

    def work(now: Table, operation_id: str) -> Outcome:
        return execute(session, now, options, operation_id)

    return with_table_lock(
        session, loaded, work, command="check", branch=mending.branch, wait_ms=mending.wait
    )
