"""`lake register`: add a table that has a metadata file to the catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import DryRun, TableArgument
from lake.core.outcome import Outcome


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
    dry_run: DryRun = False,
) -> Outcome:
    """Add a table that has a metadata file to the catalog; no file is changed.

    The table continues from the state in this file. A namespace that does not exist is created.
    """
    from lake.core.definition.register import execute, plan_registration

    session = session_of(context)
    plan = plan_registration(session, table, metadata)
    return execute(session, plan, dry_run=dry_run)
