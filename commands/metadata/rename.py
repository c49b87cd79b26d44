"""`lake rename`: rename a table."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import DryRun, TableArgument
from lake.core.outcome import Outcome


def rename(
    context: typer.Context,
    table: TableArgument,
    name: Annotated[
        str,
        typer.Argument(metavar="NAME", help="New name: namespace.table.", show_default=False),
    ],
    dry_run: DryRun = False,
) -> Outcome:
    """Rename a table in its catalog; its files stay where they are.

    A namespace that does not exist is created.
    """
    from lake.core.definition.rename import check_name, execute

    session = session_of(context)
    loaded = session.table(table)
    check_name(session, name)
    return execute(session, loaded, name, dry_run=dry_run)
