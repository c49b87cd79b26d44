"""`lake replay`: list or commit Flink checkpoints that were taken but never committed."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import typer

from lake.commands.context import report_commits, session_of
from lake.commands.options import Branch, DryRun, OnCommit, TableArgument
from lake.core.base.errors import InvalidRequestError
from lake.core.base.outcome import Outcome
from lake.core.base.units import parse_duration_ms
from lake.core.load.replay.options import ReplayOptions


def replay(
    context: typer.Context,
    table: TableArgument,
    checkpoint: Annotated[
        list[str] | None,
        typer.Option(
            metavar="PATH",
            help="Commit the checkpoints that this checkpoint or savepoint proves complete; repeatable.",
        ),
    ] = None,
    job: Annotated[
        str | None,
        typer.Option(metavar="ID", help="Commit the checkpoints of this job, or this staged run."),
    ] = None,
    completed: Annotated[
        int | None,
        typer.Option(metavar="N", help="Number of the job's newest completed checkpoint."),
    ] = None,
    replace_partitions: Annotated[
        bool, typer.Option("--replace-partitions", help="The job ran in overwrite mode.")
    ] = False,
    quiet_time: Annotated[
        str, typer.Option(metavar="DURATION", help="How long the job must have written nothing.")
    ] = "10m",
    assume_uncommitted: Annotated[
        bool,
        typer.Option(
            "--assume-uncommitted",
            help="Assume that checkpoints in no retained snapshot were never committed.",
        ),
    ] = False,
    all_staged: Annotated[
        bool,
        typer.Option(
            "--all-staged",
            help="Commit all staged runs of the branch: appends as one snapshot.",
        ),
    ] = False,
    tag: Annotated[
        bool,
        typer.Option("--tag", help="Tag the snapshot that contains the savepoint as savepoint-N."),
    ] = False,
    retain: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Let expiry drop the tag of an older snapshot."),
    ] = None,
    status: Annotated[
        bool,
        typer.Option("--status", help="Show committed, pending and doubtful checkpoints by job."),
    ] = False,
    branch: Branch = "main",
    on_commit: OnCommit = None,
    dry_run: DryRun = False,
) -> Outcome:
    """List or commit Flink checkpoints that were never committed."""
    from lake.core.load.replay.plan import plan_replay
    from lake.core.load.replay.report import listing, preview, status_by_job, with_details
    from lake.core.maintain.branching import savepoint_tags

    report_commits(context, on_commit)
    session = session_of(context)
    options = ReplayOptions(
        checkpoints=tuple(checkpoint or ()),
        job_id=job,
        completed=completed,
        replace_partitions=replace_partitions,
        quiet_ms=parse_duration_ms(quiet_time),
        assume_uncommitted=assume_uncommitted,
        branch=branch,
        all_staged=all_staged,
        tag=tag,
    )
    if retain is not None and not tag:
        raise InvalidRequestError("--retain needs --tag")
    retain_ms = None if retain is None else parse_duration_ms(retain)
    if status and (options.commits or dry_run):
        raise InvalidRequestError(
            "--status commits nothing: it cannot be combined with options that commit"
        )
    plan = plan_replay(session, session.table(table), options)
    if status:
        return status_by_job(session, plan)
    if tag:
        savepoint_tags.refuse_untaggable(plan.table, plan.given, plan.newest_by_job, branch=branch)
    if dry_run:
        outcome = preview(session, plan)
        names = {"tags": savepoint_tags.names_of(plan.given)} if tag else {}
        return replace(outcome, plan={**outcome.plan, **names})
    if not options.commits:
        return listing(session, plan)
    from lake.core.load.replay.execute import execute

    outcome = execute(session, plan)
    if tag:
        outcome = savepoint_tags.with_tags(
            session, outcome, plan.table, plan.given, branch=branch, retain_ms=retain_ms
        )
    return with_details(session, outcome)
