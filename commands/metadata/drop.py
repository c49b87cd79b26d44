"""`lake drop`: drop a table, and delete its files on request."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import DryRun, TableArgument
from lake.core.errors import InvalidRequestError
from lake.core.outcome import Outcome


def drop(
    context: typer.Context,
    table: TableArgument,
    purge: Annotated[
        bool, typer.Option("--purge", help="Also delete the files of the table; needs --yes.")
    ] = False,
    yes: Annotated[
        bool, typer.Option("--yes", help="Delete the files; without it, --purge only lists them.")
    ] = False,
    dry_run: DryRun = False,
) -> Outcome:
    """Drop a table from its catalog; its files stay unless they are purged.

    A table that was dropped without --purge comes back with lake register and the location of its
    metadata file, which the command prints.
    """
    from lake.core.definition import drop as dropping

    if yes and not purge:
        raise InvalidRequestError("--yes needs --purge")
    session = session_of(context)
    loaded = session.table(table)
    if dry_run or (purge and not yes):
        return dropping.preview(dropping.plan_drop(session, loaded, purge=purge))
    return dropping.drop(session, loaded, purge=purge)
