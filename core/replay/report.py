"""Report the checkpoints that were found: as rows for scripts and people, and by job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lake.core.flink.commits import JobCommit, job_commits
from lake.core.manifests.data_files import DATA
from lake.core.outcome import Detail, Outcome, Status
from lake.core.replay.model import PENDING, FoundCheckpoint, ReplayPlan
from lake.core.units import format_duration

if TYPE_CHECKING:
    from lake.core.session import Session

_SHORT = (
    "job_id",
    "checkpoint_id",
    "attempt",
    "state",
    "data_files",
    "delete_files",
    "rows",
    "reason",
)
_LONG = ("job_id", "operator_id", *_SHORT[1:])
_STATUS = (
    "job_id",
    "operator_id",
    "committed_checkpoint",
    "pending_checkpoints",
    "data_files",
    "delete_files",
    "rows",
    "age",
)


def describe(plan: ReplayPlan) -> list[dict[str, Any]]:
    """Return every checkpoint as a row of the JSON output; ids are strings."""
    return [
        {
            "job_id": item.job_id,
            "operator_id": item.operator_id,
            "checkpoint_id": str(item.checkpoint_id),
            "attempt": item.attempt,
            "state": item.state,
            "data_files": item.data_files,
            "delete_files": item.delete_files,
            "rows": rows_of([item]),
            "reason": item.reason,
        }
        for item in plan.found
    ]


def left_runs(plan: ReplayPlan) -> list[dict[str, str]]:
    """Return the staged runs that are not committed as rows of the JSON output."""
    return [{"run_id": run.run_id, "state": run.state, "reason": run.reason} for run in plan.left]


def rows_of(found: Iterable[FoundCheckpoint]) -> int:
    """Return the number of rows in the data files of checkpoints."""
    return sum(
        pc.sum(manifest.entries["record_count"]).as_py() or 0
        for item in found
        for manifest in item.manifests
        if manifest.content == DATA
    )


def listing(plan: ReplayPlan, *, verbose: bool) -> Outcome:
    """Return the outcome of a listing."""
    pending = [item for item in plan.found if item.state == PENDING]
    return _outcome(
        plan, Status.DONE if pending else Status.NOTHING_TO_DO, pending, verbose=verbose
    )


def preview(plan: ReplayPlan, *, verbose: bool) -> Outcome:
    """Return the outcome of a dry run: the checkpoints, and how much would be committed."""
    chosen = [item for job in plan.jobs for item in job.checkpoints]
    outcome = _outcome(plan, Status.DRY_RUN, chosen, verbose=verbose)
    if plan.all_staged:
        outcome = replace(outcome, plan={**outcome.plan, "left_runs": left_runs(plan)})
    return outcome


def with_plan(outcome: Outcome, plan: ReplayPlan, *, verbose: bool) -> Outcome:
    """Return the outcome with the checkpoints that were found; the table is printed if nothing was committed."""
    planned = _outcome(plan, outcome.status, (), verbose=verbose)
    explains = verbose or outcome.status is not Status.DONE
    return replace(
        outcome,
        plan={"checkpoints": planned.plan["checkpoints"]},
        details=planned.details if explains else outcome.details,
    )


def status_by_job(session: Session, plan: ReplayPlan) -> Outcome:
    """Return the last committed checkpoint and the pending ones of each job."""
    now_ms = session.clock.now_ms()
    commits = _last_commits(plan)
    found: dict[tuple[str, str], list[FoundCheckpoint]] = {}
    for item in plan.found:
        found.setdefault((item.job_id, item.operator_id), []).append(item)
    jobs = [
        _status(job, _commit_of(commits, job), found.get(job, []), now_ms)
        for job in sorted({*found, *((c.job_id, c.operator_id or "") for c in commits)})
    ]
    shown = [[_shown(job, column) for column in _STATUS] for job in jobs]
    return Outcome(
        command="replay",
        table=plan.table.identifier,
        branch=plan.branch,
        status=Status.DONE,
        base_snapshot_id=plan.base_snapshot_id,
        result={"jobs": jobs},
        details=[Detail("jobs", _STATUS, shown)],
    )


def _outcome(
    plan: ReplayPlan, status: Status, counted: Sequence[FoundCheckpoint], *, verbose: bool
) -> Outcome:
    rows = describe(plan)
    columns = _LONG if verbose else _SHORT
    return Outcome(
        command="replay",
        table=plan.table.identifier,
        branch=plan.branch,
        status=status,
        base_snapshot_id=plan.base_snapshot_id,
        plan={
            "checkpoints": rows,
            "pending": len(counted),
            "data_files": sum(item.data_files for item in counted),
            "delete_files": sum(item.delete_files for item in counted),
            "rows": rows_of(counted),
        },
        details=[Detail("checkpoints", columns, [[row[name] for name in columns] for row in rows])],
    )


def _last_commits(plan: ReplayPlan) -> list[JobCommit]:
    """Return the newest commit of each job and operator on the branch."""
    newest: dict[tuple[str, str | None], JobCommit] = {}
    for commit in job_commits(plan.table.metadata, plan.branch):
        newest.setdefault((commit.job_id, commit.operator_id), commit)
    return list(newest.values())


def _commit_of(commits: Iterable[JobCommit], job: tuple[str, str]) -> JobCommit | None:
    return next((item for item in commits if item.is_by(*job)), None)


def _status(
    job: tuple[str, str],
    commit: JobCommit | None,
    found: Iterable[FoundCheckpoint],
    now_ms: int,
) -> dict[str, Any]:
    pending = [item for item in found if item.state == PENDING]
    written = [
        manifest.modified_ms
        for item in pending
        for manifest in item.manifests
        if manifest.modified_ms is not None
    ]
    return {
        "job_id": job[0],
        "operator_id": job[1] or None,
        "committed_checkpoint": str(commit.checkpoint_id) if commit else None,
        "pending_checkpoints": [str(item.checkpoint_id) for item in pending],
        "data_files": sum(item.data_files for item in pending),
        "delete_files": sum(item.delete_files for item in pending),
        "rows": rows_of(pending),
        "age_seconds": max(now_ms - min(written), 0) / 1000 if written else None,
    }


def _shown(job: dict[str, Any], column: str) -> Any:
    if column == "pending_checkpoints":
        return ", ".join(job[column])
    if column == "age":
        age = job["age_seconds"]
        return None if age is None else format_duration(age)
    return job[column]
