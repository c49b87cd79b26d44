"""`lake check`: report damage of a table's metadata."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import TableArgument
from lake.core.outcome import Outcome


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
) -> Outcome:
    """Read all metadata of a table, and report what is missing, damaged or contradictory.

    The exit code is 0 without findings, 6 with warnings, and 7 with errors. Nothing is changed.
    """
    from lake.core.checking.check import check_table
    from lake.core.checking.findings import Level

    session = session_of(context)
    chosen = ((deep, Level.DEEP), (rows, Level.ROWS), (files, Level.FILES))
    level = next((level for wanted, level in chosen if wanted), Level.METADATA)
    return check_table(session, session.table(table), level)
