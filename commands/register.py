"""`lake register`: add a table that has a metadata file to the catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.options import DryRun, TableArgument
from lake.core.base.outcome import Outcome


def register(
    context: typer.Context,
    table: TableArgument,
    metadata: Annotated[
        str,
        typer.Argument(
            metavar="METADATA",
            help="Metadata file of the table: path or URL of a .metadata.json.",
            show_default=False,
        ),
    ],
    keep_files_forever: Annotated[
        bool,
        Flag(
            "Register a copy, or a table of another catalog: no file of it is ever deleted (gc.enabled=false)."
        ),
    ] = False,
    dry_run: DryRun = False,
) -> Outcome:
    """Add a table to the catalog by its metadata file.

    The table continues from the state in this file. A namespace that does not exist is created.
    """
    from lake.core.maintain.definition.register import execute, plan_registration

    session = session_of(context)
    plan = plan_registration(session, table, metadata, keep_files_forever=keep_files_forever)
    return execute(session, plan, dry_run=dry_run)
