"""`lake apply`: do what a plan of `lake maintain --plan` contains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.actions import asked_of, choices, pending_checkpoints, run_action, verb_of
from lake.commands.context import announce_warnings, report_commits, session_of
from lake.commands.groups import Flag, arguments_of
from lake.commands.options import Jobs, MaxRewritten, MaxSeconds, OnCommit, RunLogFile, RunsTable
from lake.commands.runs_tables import configured_runs_table
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.maintain.policies.policy import Choices
    from lake.core.maintain.rounds.plan_file import PlannedAction


@dataclass(frozen=True, kw_only=True)
class PlanRun:
    """This run."""

    replan: Annotated[bool, Flag("Also work on tables that have changed since the plan.")] = False
    max_seconds: MaxSeconds = None
    max_bytes: MaxRewritten = None
    jobs: Jobs = None
    log: RunLogFile = None
    runs_table: RunsTable = None
    on_commit: OnCommit = None


def apply(
    context: typer.Context,
    plan: Annotated[str, typer.Argument(metavar="FILE", help="The plan.", show_default=False)],
    run: PlanRun,
) -> Outcome:
    """Do what a plan of lake maintain contains.

    A table whose snapshot, schema or partitioning has changed since the plan is left alone, and the
    exit code is 6. With --replan each action plans again on the table as it is now.
    """
    from lake.core.maintain.policies.policy import Policy
    from lake.core.maintain.rounds.options import RoundOptions
    from lake.core.maintain.rounds.plan_file import read_plan
    from lake.core.maintain.rounds.report import with_details
    from lake.core.maintain.rounds.round import Round
    from lake.core.maintain.run_log.run_log import default_path

    report_commits(context, run.on_commit)
    session = session_of(context)
    planned, known = read_plan(plan, session.catalog.name), choices()
    for item in planned:
        _check(item, known, plan)
    announce_warnings(context, session)
    work = Round(
        session,
        partial(run_action, context),
        RoundOptions(
            policy=Policy(),
            choices=known,
            max_ms=run.max_seconds,
            max_bytes=run.max_bytes,
            jobs=run.jobs,
            log=run.log or default_path(),
            runs_table=run.runs_table or configured_runs_table(session),
            asked=asked_of,
            pending=partial(pending_checkpoints, context),
            clean=context.obj.clean,
        ),
    )
    outcome = work.apply(planned, replan=run.replan)
    return with_details(outcome, verbose=session.settings.verbose)


def _check(item: PlannedAction, known: Choices, plan: str) -> None:
    """Refuse options that a plan does not have: the file may have been changed.

    Raises:
        InvalidRequestError: an option or its value is not allowed.
    """
    place = f"of {item.action} in {plan}"
    for name in item.options:
        if name not in known.of_files[item.action]:
            raise InvalidRequestError(f"{name} {place} is not an option of plans")
    options = {name: (value, f"{name} {place}") for name, value in item.options.items()}
    arguments_of(verb_of(item.action), options)
