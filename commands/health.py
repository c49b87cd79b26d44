"""`lake health`: grade the tables of a catalog by what their layout costs readers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.context import session_of
from lake.commands.groups import Flag, require
from lake.commands.options import PatternsArgument
from lake.commands.outputs import OutputOptions, output_of
from lake.commands.parsing import parse_choice
from lake.core.base.choices import FAILING_GRADES, HealthSort
from lake.core.base.errors import LakeError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.maintain.health.past import Past
    from lake.core.read.exports.destinations import Output
    from lake.core.transaction.session import Session

# Some thousands of runs.
_LOG_BYTES = 2 * 1024 * 1024


def health(
    context: typer.Context,
    patterns: PatternsArgument = None,
    *,
    sort: Annotated[HealthSort, Flag("Order of the tables.")] = HealthSort.NEED,
    fail_on: Annotated[
        str | None, Flag("End with 6 if a grade is this or worse.", "|".join(FAILING_GRADES))
    ] = None,
    explain: Annotated[
        bool, Flag("Also show forecasts, and the thresholds of other tools.")
    ] = False,
    prometheus: Annotated[str | None, Flag("Write metrics for node_exporter.", "FILE")] = None,
    html: Annotated[
        str | None, Flag("Write a page for a browser, with pictures of the tables.", "FILE")
    ] = None,
    log: Annotated[
        str | None, Flag("Run log to learn costs from [default: that of lake maintain].", "FILE")
    ] = None,
    target: OutputOptions,
) -> Outcome:
    """Grade tables by what their layout costs readers.

    The commands that pay are named. Each table is loaded once; the manifest list and the manifests of the main branch
    are read, but no data. No table is changed. What cannot be read is listed with its error, and the exit code is 6.
    """
    from lake.core.maintain.health.health import HealthOptions
    from lake.core.maintain.health.health import health as health_of

    session = session_of(context)
    options = HealthOptions(
        sort=sort,
        fail_on=None if fail_on is None else parse_choice(fail_on, "--fail-on", FAILING_GRADES),
        explain=explain,
        prometheus=prometheus,
        html=html,
        output=_output(context, target),
        past=_past(session, log),
    )
    return health_of(session, tuple(dict.fromkeys(patterns or ())), options)


def _past(session: Session, log: str | None) -> Past:
    """Return what the newest runs of a log show about costs; a log that cannot be read shows nothing."""
    from lake.core.maintain.health.past import NOTHING, Past
    from lake.core.maintain.run_log.run_log import RunLog, default_path

    try:
        return Past(RunLog(log or default_path()).read(_LOG_BYTES).entries)
    except LakeError as error:
        if log is not None:
            raise
        session.warn(f"costs are the stated ones: {error.message}")
        return NOTHING


def _output(context: typer.Context, target: OutputOptions) -> Output | None:
    """Return the file for rows; None if none was asked for."""
    if target.output is None:
        require("--output", target)
        return None
    return output_of(context, target)
