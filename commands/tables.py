"""`lake tables`: list the tables of a catalog."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.settings import DEFAULT_WAREHOUSE


def tables(
    context: typer.Context,
    pattern: Annotated[
        str | None,
        typer.Argument(
            metavar="PATTERN", help="Names such as 'db.*', or a namespace.", show_default=False
        ),
    ] = None,
    all_catalogs: Annotated[bool, Flag("List the tables of all configured catalogs.")] = False,
) -> Outcome:
    """List the tables of a catalog with their sizes.

    A table that cannot be read is listed with its error, and the exit code is 6. No manifests and no
    data are read.
    """
    given = context.obj.given
    for option in ("catalog", "warehouse"):
        if all_catalogs and option in given:
            raise InvalidRequestError(f"--all-catalogs contradicts --{option}")
    from lake.core.read.inspection.tables import list_tables

    if not all_catalogs:
        return list_tables(session_of(context), pattern)
    # Several catalogs may be configured without a choice among them, so the session has a catalog of its own.
    folder = context.obj.settings.warehouse or DEFAULT_WAREHOUSE
    session = session_of(context, catalog=None, warehouse=folder)
    return list_tables(session, pattern, all_catalogs=True)
