"""`lake partitions`: list a table's partitions, or wait until some of them no longer change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag, require
from lake.commands.options import Branch, TableArgument, Where, duration
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

_HOUR_MS = 3_600_000


@dataclass(frozen=True, kw_only=True)
class WhichPartitions:
    """Which partitions."""

    where: Where = None
    idle: Annotated[int | None, duration("Show which partitions did not change for so long.")] = (
        None
    )
    branch: Branch = "main"


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """Waiting."""

    wait_for: Annotated[
        str | None, Flag("Wait until all partitions of this filter are idle.", "EXPR")
    ] = None
    timeout: Annotated[int | None, duration("Wait at most this long [default: 1h].")] = None


def partitions(
    context: typer.Context, table: TableArgument, which: WhichPartitions, waiting: Waiting
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

    options = PartitionOptions(**vars(which))
    session = session_of(context)
    if waiting.wait_for is None:
        require("--wait-for", waiting)
        return list_partitions(session, session.table(table), options)
    if which.where is not None:
        raise InvalidRequestError("--wait-for has a filter of its own, and contradicts --where")
    if which.idle is None:
        raise InvalidRequestError("--wait-for needs --idle", hint="add --idle 15m")
    options = replace(options, where=waiting.wait_for)
    timeout_ms = _HOUR_MS if waiting.timeout is None else waiting.timeout
    return wait_until_idle(session, session.table(table), options, timeout_ms=timeout_ms)
