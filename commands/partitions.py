"""`lake partitions`: list a table's partitions, or wait until some of them no longer change."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.options import Branch, TableArgument, Where
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms


def partitions(
    context: typer.Context,
    table: TableArgument,
    where: Where = None,
    idle: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Show which partitions did not change for so long."),
    ] = None,
    wait_for: Annotated[
        str | None,
        typer.Option(metavar="EXPR", help="Wait until all partitions of this filter are idle."),
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(metavar="DURATION", help="Wait at most this long [default: 1h].")
    ] = None,
    branch: Branch = "main",
) -> Outcome:
    """Show a table's partitions with their sizes and ages.

    With --wait-for, a job that needs a whole day waits for it: the command ends when no partition
    of the filter has changed for --idle, or with exit code 10 after --timeout.
    """
    from lake.core.maintain.partitions.report import (
        PartitionOptions,
        list_partitions,
        wait_until_idle,
    )

    options = PartitionOptions(
        branch=branch, where=where, idle_ms=None if idle is None else parse_duration_ms(idle)
    )
    session = session_of(context)
    if wait_for is None:
        if timeout is not None:
            raise InvalidRequestError("--timeout needs --wait-for")
        return list_partitions(session, session.table(table), options)
    if where is not None:
        raise InvalidRequestError("--wait-for has a filter of its own, and contradicts --where")
    if idle is None:
        raise InvalidRequestError("--wait-for needs --idle", hint="add --idle 15m")
    waiting = replace(options, where=wait_for)
    timeout_ms = parse_duration_ms(timeout or "1h")
    return wait_until_idle(session, session.table(table), waiting, timeout_ms=timeout_ms)
