"""`lake catalogs`: list the configured catalogs, and which of them answer."""

from __future__ import annotations

from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.options import duration
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.settings import DEFAULT_WAREHOUSE

_TIMEOUT_MS = 10_000


def catalogs(
    context: typer.Context,
    no_check: Annotated[bool, Flag("List what is configured, and connect to nothing.")] = False,
    timeout: Annotated[
        int | None, duration("Wait at most this long for all catalogs [default: 10s].")
    ] = None,
) -> Outcome:
    """List the configured catalogs, and which of them answer.

    Each is asked for its namespaces, all at the same time, and no table is read. A catalog that does not answer is
    listed with its error, and the exit code is 6.
    """
    if no_check and timeout is not None:
        raise InvalidRequestError("--no-check contradicts --timeout")
    from lake.core.read.inspection.catalogs import list_catalogs

    settings = context.obj.settings
    # Several catalogs may be configured without a choice among them, so the session has a catalog of its own.
    folder = settings.warehouse or DEFAULT_WAREHOUSE
    session = session_of(context, catalog=None, warehouse=folder)
    wait = _TIMEOUT_MS if timeout is None else timeout
    return list_catalogs(session, settings, check=not no_check, timeout_ms=wait)
