"""`lake runs`: what `lake maintain` did, and what it saved."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag
from lake.commands.options import PatternsArgument, moment, names, require_actions
from lake.commands.parsing import Moment, parse_table
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.maintain.run_log.report import RunsOptions
    from lake.core.maintain.run_log.run_log import LoggedRuns


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
    patterns: PatternsArgument = None,
    *,
    which: WhichRuns,
    log: Annotated[
        str | None, Flag("Log to read [default: that of lake maintain].", "FILE")
    ] = None,
    runs_table: Annotated[
        str | None, Flag("Read this Iceberg table instead of the log.", "TABLE", parse=parse_table)
    ] = None,
) -> Outcome:
    """Show what lake maintain did, and what it saved.

    Only the log is read: no catalog is opened, unless --runs-table names a table to which the runs of several hosts
    were appended. Below the newest runs, a row for each action compares its work with
    the seconds that scans take less. Actions that failed several times, or saved nothing, are named with the time
    before which lake maintain does not repeat them.
    """
    from lake.core.maintain.run_log.report import RunsOptions
    from lake.core.maintain.run_log.report import runs as runs_of

    if which.limit < 0:
        raise InvalidRequestError(f"--limit must not be negative: {which.limit}")
    if log is not None and runs_table is not None:
        raise InvalidRequestError("--log contradicts --runs-table")
    require_actions(which.action or (), "--action")
    state = context.obj
    if patterns and len(patterns) == 1:
        # The document names it.
        state.table = patterns[0]
    now_ms = state.clock.now_ms()
    options = RunsOptions(
        log=_log(log) if runs_table is None else None,
        runs_table=runs_table,
        patterns=tuple(patterns or ()),
        # Here it chooses the catalog that has the table of runs.
        catalog=state.given.get("catalog") if runs_table is None else None,
        since_ms=which.since.at(now_ms) if which.since else None,
        actions=which.action or (),
        failed=which.failed,
        limit=0 if state.verbose else which.limit,
    )
    return runs_of(options, _logged(context, options), now_ms)


def _log(path: str | None) -> str:
    from lake.core.maintain.run_log.run_log import default_path

    return default_path() if path is None else os.path.abspath(path)


def _logged(context: typer.Context, options: RunsOptions) -> LoggedRuns:
    from lake.core.maintain.run_log.run_log import RunLog

    if options.log is not None:
        return RunLog(options.log).read()
    # The table is read with PyArrow; the log is not.
    from lake.core.maintain.run_log.runs_table import read_runs

    return read_runs(session_of(context), options.runs_table or "", options.since_ms)
