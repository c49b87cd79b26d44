"""`lake rename`: rename a table."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import DryRun, TableArgument, Wait
from lake.core.base.outcome import Outcome


def rename(
    context: typer.Context,
    table: TableArgument,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="New name: namespace.table.", show_default=False),
    ],
    wait: Wait = None,
    dry_run: DryRun = False,
) -> Outcome:
    """Rename a table; its files stay where they are.

    A namespace that does not exist is created.
    """
    from lake.core.maintain.definition.rename import check_name, execute
    from lake.core.transaction.locks.table_lock import with_table_lock

    session = session_of(context)
    loaded = session.table(table)
    check_name(session, name)
    if dry_run:
        return execute(session, loaded, name, dry_run=True)
    return with_table_lock(
        session,
        loaded,
        lambda now, _: execute(session, now, name, dry_run=False),
        command="rename",
        wait_ms=wait,
    )
