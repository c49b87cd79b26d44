"""`lake replay`: list or commit Flink checkpoints that were taken but never committed."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.groups import Flag
from lake.commands.options import Branch, DryRun, OnCommit, TableArgument, duration
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms
from lake.core.load.replay.options import ReplayOptions


@dataclass(frozen=True, kw_only=True)
class WhatToCommit:
    """What to commit."""

    checkpoint: Annotated[
        tuple[str, ...],
        Flag(
            "Commit the checkpoints that this checkpoint or savepoint proves complete; repeatable.",
            "PATH",
        ),
    ] = ()
    job: Annotated[
        str | None, Flag("Commit the checkpoints of this job, or this staged run.", "ID")
    ] = None
    completed: Annotated[
        int | None, Flag("Number of the job's newest completed checkpoint.", "N")
    ] = None
    all_staged: Annotated[
        bool, Flag("Commit all staged runs of the branch: appends as one snapshot.")
    ] = False
    replace_partitions: Annotated[bool, Flag("The job ran in overwrite mode.")] = False
    assume_uncommitted: Annotated[
        bool, Flag("Assume that checkpoints in no retained snapshot were never committed.")
    ] = False
    tag: Annotated[bool, Flag("Tag the snapshot that contains the savepoint as savepoint-N.")] = (
        False
    )


@dataclass(frozen=True, kw_only=True)
class ReplayRun:
    """This run."""

    status: Annotated[bool, Flag("Show committed, pending and doubtful checkpoints by job.")] = (
        False
    )
    quiet_time: Annotated[str, Flag("How long the job must have written nothing.", "DURATION")] = (
        "10m"
    )
    retain: Annotated[int | None, duration("Let expiry drop the tag of an older snapshot.")] = None
    branch: Branch = "main"
    on_commit: OnCommit = None
    dry_run: DryRun = False


def replay(
    context: typer.Context, table: TableArgument, what: WhatToCommit, run: ReplayRun
) -> Outcome:
    """List or commit Flink checkpoints that were never committed."""
    from lake.core.load.replay.facts import PendingFacts, ReplayResult
    from lake.core.load.replay.plan import plan_replay
    from lake.core.load.replay.report import listing, preview, status_by_job, with_details
    from lake.core.maintain.branching import savepoint_tags

    report_commits(context, run.on_commit)
    session = session_of(context)
    options = ReplayOptions(
        branch=run.branch, quiet_time=parse_duration_ms(run.quiet_time), **vars(what)
    )
    if run.retain is not None and not what.tag:
        raise InvalidRequestError("--retain needs --tag")
    if run.status and (options.commits or run.dry_run):
        raise InvalidRequestError(
            "--status commits nothing: it cannot be combined with options that commit"
        )
    plan = plan_replay(session, session.table(table), options)
    if run.status:
        return status_by_job(session, plan)
    if what.tag:
        savepoint_tags.refuse_untaggable(
            plan.table, plan.given, plan.newest_by_job, branch=run.branch
        )
    if run.dry_run:
        outcome = preview(session, plan)
        names = savepoint_tags.names_of(plan.given) if what.tag else None
        return replace(outcome, plan=replace(PendingFacts.of(outcome.plan), tags=names))
    if not options.commits:
        return listing(session, plan)
    from lake.core.load.replay.execute import execute

    outcome = execute(session, plan)
    if what.tag:
        outcome, tags = savepoint_tags.set_savepoint_tags(
            session, outcome, plan.table, plan.given, branch=run.branch, retain_ms=run.retain
        )
        result = replace(ReplayResult.of(outcome.result), tags=tags)
        outcome = replace(outcome, result=result)
    return with_details(session, outcome)
