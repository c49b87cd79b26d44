"""`lake runs`: what `lake maintain` did, and what it saved."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Annotated

import typer

from lake.commands.groups import Flag
from lake.commands.options import moment, names
from lake.commands.parsing import Moment
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome


@dataclass(frozen=True, kw_only=True)
class WhichRuns:
    """Which runs."""

    since: Annotated[
        Moment | None, moment("Runs that ended since a time, or an age such as 7d.", "TIME")
    ] = None
    action: Annotated[
        list[str] | None, names("Runs of these actions, e.g. compact,expire.", "A,B")
    ] = None
    failed: Annotated[bool, Flag("Runs that failed.")] = False
    limit: Annotated[int, Flag("List the newest N runs; 0 lists all.", "N")] = 20


def runs(
    context: typer.Context,
    table: Annotated[
        str | None,
        typer.Argument(
            metavar="TABLE",
            help="namespace.table, a namespace, or a pattern such as 'db.*'.",
            show_default=False,
        ),
    ] = None,
    *,
    which: WhichRuns,
    log: Annotated[
        str | None, Flag("Log to read [default: that of lake maintain].", "FILE")
    ] = None,
) -> Outcome:
    """Show what lake maintain did, and what it saved.

    Only the log is read: no catalog is opened. Below the newest runs, a row for each action compares its work with
    the seconds that scans take less. Actions that failed several times, or saved nothing, are named with the time
    before which lake maintain does not repeat them.
    """
    from lake.core.maintain.run_log.report import RunsOptions
    from lake.core.maintain.run_log.report import runs as runs_of
    from lake.core.maintain.run_log.run_log import default_path

    if which.limit < 0:
        raise InvalidRequestError(f"--limit must not be negative: {which.limit}")
    state = context.obj
    now_ms = state.clock.now_ms()
    options = RunsOptions(
        log=default_path() if log is None else os.path.abspath(log),
        pattern=table,
        catalog=state.given.get("catalog"),
        since_ms=which.since.at(now_ms) if which.since else None,
        actions=which.action or (),
        failed=which.failed,
        limit=0 if state.verbose else which.limit,
    )
    return runs_of(options, now_ms)
