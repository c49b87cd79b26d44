"""`lake maintain`: give each table of a catalog the maintenance that it needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from lake.commands.actions import asked_of, choices, pending_checkpoints, run_action
from lake.commands.context import announce_warnings, report_commits, report_ends, session_of
from lake.commands.defaults import policy_file, project_policy, working_folder
from lake.commands.groups import Flag
from lake.commands.options import (
    DryRun,
    Explain,
    Jobs,
    MaxRewritten,
    MaxSeconds,
    OnCommit,
    PatternsArgument,
    RunLogFile,
    RunsTable,
    duration,
    require_actions,
    require_preview,
)
from lake.commands.runs_tables import catalog_runs_table, split_runs_table
from lake.core.base.errors import InvalidRequestError, LakeError
from lake.core.base.outcome import Outcome

if TYPE_CHECKING:
    from lake.core.maintain.policies.policy import Choices, Policy
    from lake.core.maintain.rounds.options import RoundOptions
    from lake.core.transaction.session import Session


@dataclass(frozen=True, kw_only=True)
class WhatIsDone:
    """What is done."""

    policy: Annotated[
        tuple[str, ...],
        Flag("File with rules for tables; repeatable, the last one wins.", "FILE"),
    ] = ()
    only: Annotated[str | None, Flag("Do these actions only.", "ACTIONS")] = None
    max_seconds: MaxSeconds = None
    max_bytes: MaxRewritten = None
    jobs: Jobs = None


@dataclass(frozen=True, kw_only=True)
class Repetition:
    """A process that stays."""

    every: Annotated[int | None, duration("Begin again each time this has passed.")] = None
    status: Annotated[
        str | None, Flag("Replace a file with a heartbeat, for the probe of a container.", "FILE")
    ] = None


@dataclass(frozen=True, kw_only=True)
class MaintenanceRun:
    """This run."""

    log: RunLogFile = None
    runs_table: RunsTable = None
    on_commit: OnCommit = None
    on_done: Annotated[str | None, Flag("Run a program after a run without failures.", "CMD")] = (
        None
    )
    on_failure: Annotated[str | None, Flag("Run a program after any other run.", "CMD")] = None
    plan: Annotated[
        str | None, Flag("Change nothing; write what is due to a file for lake apply.", "FILE")
    ] = None
    init: Annotated[
        str | None, Flag("Change nothing; write a policy for these tables to a file.", "FILE")
    ] = None
    dry_run: DryRun = False
    explain: Explain = False


def maintain(
    context: typer.Context,
    patterns: PatternsArgument = None,
    *,
    what: WhatIsDone,
    repetition: Repetition,
    run: MaintenanceRun,
) -> Outcome:
    """Give each table the maintenance it needs.

    Without a policy, an action is done if its forecast says that it pays, with the options that the
    verb has by default. Tables that gain most for each second of work are first. What fails does
    not stop the rest; the exit code is 6 then.
    """
    from lake.core.maintain.rounds.first_policy import write_first_policy
    from lake.core.maintain.rounds.plan_file import require_plan, write_plan
    from lake.core.maintain.rounds.repeated import maintain_repeatedly
    from lake.core.maintain.rounds.report import preview_outcome, with_details
    from lake.core.maintain.rounds.round import maintain as maintain_tables
    from lake.core.maintain.rounds.status import StatusFile
    from lake.core.maintain.rounds.tables import preview

    _check(repetition, run)
    report_commits(context, run.on_commit)
    report_ends(context, done=run.on_done, failure=run.on_failure)
    options = _options(context, patterns or [], what, repetition, run)
    session = session_of(context)
    verbose = session.settings.verbose
    if run.plan is not None:
        require_plan(run.plan)
    if run.dry_run or run.plan is not None or run.init is not None:
        found = preview(session, options)
        if run.plan is not None:
            write_plan(
                run.plan, session.catalog.name, found.planned, session.clock.now_ms(), session.ids
            )
        if run.init is not None:
            write_first_policy(run.init, found.facts, found.names, session.ids)
        is_written = run.plan is not None or run.init is not None
        return preview_outcome(
            found.facts,
            verbose=verbose,
            is_written=is_written,
            is_policy=run.init is not None and run.plan is None,
            explain=run.explain,
        )
    announce_warnings(context, session)

    def ended(ending: Outcome | LakeError) -> None:
        if isinstance(ending, Outcome):
            ending = with_details(ending, verbose=verbose)
        context.obj.run_ended(ending)

    run_verb = partial(run_action, context)
    if repetition.every is not None:
        maintain_repeatedly(
            session,
            run_verb,
            options,
            read=partial(_with_policy, session, options, what, run),
            every_ms=repetition.every,
            status=StatusFile(repetition.status, session.clock, session.ids),
            ended=ended,
        )
    return with_details(maintain_tables(session, run_verb, options), verbose=verbose)


def _check(repetition: Repetition, run: MaintenanceRun) -> None:
    require_preview(explain=run.explain, is_preview=run.dry_run or run.plan is not None)
    if repetition.every is None and repetition.status is not None:
        raise InvalidRequestError("--status needs --every")
    modes = {"--dry-run": run.dry_run, "--plan": run.plan, "--init": run.init}
    for flag in (flag for flag, value in modes.items() if value and repetition.every is not None):
        raise InvalidRequestError(f"{flag} contradicts --every")
    if repetition.every == 0:
        raise InvalidRequestError("--every must be > 0")


def _options(
    context: typer.Context,
    patterns: Sequence[str],
    what: WhatIsDone,
    repetition: Repetition,
    run: MaintenanceRun,
) -> RoundOptions:
    from lake.core.maintain.rounds.options import RoundOptions
    from lake.core.maintain.run_log.run_log import default_path

    known, session = choices(), session_of(context)
    policy, runs_table = _rules(session, what, run, known)
    return RoundOptions(
        patterns=tuple(dict.fromkeys(patterns)),
        policy=policy,
        choices=known,
        only=_actions(what.only),
        max_ms=what.max_seconds,
        max_bytes=what.max_bytes,
        jobs=what.jobs,
        log=run.log or default_path(),
        runs_table=runs_table,
        status=repetition.status,
        plan=run.plan,
        first_policy=run.init,
        asked=asked_of,
        pending=partial(pending_checkpoints, context),
        clean=context.obj.clean,
    )


def _with_policy(
    session: Session, options: RoundOptions, what: WhatIsDone, run: MaintenanceRun
) -> RoundOptions:
    """Return options with the policy files as they are now; for the errors see `_policy`."""
    policy, runs_table = _rules(session, what, run, options.choices)
    return replace(options, policy=policy, runs_table=runs_table)


def _rules(
    session: Session, what: WhatIsDone, run: MaintenanceRun, known: Choices
) -> tuple[Policy, str | None]:
    """Return the rules in effect and the table of runs; for the errors see `_policy`."""
    policy, in_files = _policy(what.policy, known)
    return policy, run.runs_table or in_files or catalog_runs_table(session)


def _policy(paths: Sequence[str], known: Choices) -> tuple[Policy, str | None]:
    """Return the rules of policy files, and of the project file before them; and the table of runs that they name.

    Raises:
        InvalidRequestError: a file contains an unknown name or a value that is not allowed.
        BadInputError: a file cannot be read.
        RefusedError: the project file belongs to another user.
    """
    from lake.core.maintain.policies.policy import Policy, policy_rules

    found = [(path, policy_file(path)) for path in reversed(paths)]
    if (project := project_policy(working_folder())) is not None:
        found.append(project)
    named, rules = [], []
    for path, document in found:
        table, patterns = split_runs_table(document, path)
        named += [table] if table else []
        rules += policy_rules(patterns, path, known)
    return Policy(rules), next(iter(named), None)


def _actions(text: str | None) -> tuple[str, ...]:
    names = [name.strip() for name in (text or "").split(",") if name.strip()]
    require_actions(names, "--only")
    if text is not None and not names:
        raise InvalidRequestError("--only needs the name of an action")
    return tuple(names)
