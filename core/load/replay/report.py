"""Report the checkpoints that were found: as rows for scripts and people, and by job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lake.core.base.facts import Facts
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.units import format_duration
from lake.core.load.replay.facts import (
    CheckpointFacts,
    JobFacts,
    JobsResult,
    PendingFacts,
    ReplayFacts,
)
from lake.core.load.replay.model import (
    BROKEN,
    PARTIAL,
    PENDING,
    UNPROVEN,
    FoundCheckpoint,
    ReplayPlan,
)
from lake.core.table.flink.commits import JobCommit, job_commits
from lake.core.table.manifests.data_files import DATA

if TYPE_CHECKING:
    from lake.core.transaction.session import Session

_SHORT = (
    "job_id",
    "checkpoint_id",
    "attempt",
    "state",
    "data_files",
    "delete_files",
    "rows",
    "age",
    "reason",
)
_LONG = ("job_id", "operator_id", *_SHORT[1:])
_STATUS = (
    "job_id",
    "operator_id",
    "committed_checkpoint",
    "pending_checkpoints",
    "unproven_checkpoints",
    "damaged_checkpoints",
    "data_files",
    "delete_files",
    "rows",
    "age",
)


def describe(plan: ReplayPlan) -> list[CheckpointFacts]:
    """Return every checkpoint as a row of the output; ids are strings."""
    return [
        CheckpointFacts(
            job_id=item.job_id,
            operator_id=item.operator_id,
            checkpoint_id=str(item.checkpoint_id),
            attempt=item.attempt,
            state=item.state,
            data_files=item.data_files,
            delete_files=item.delete_files,
            rows=rows_of([item]),
            written_ms=_written_ms([item]),
            reason=item.reason,
        )
        for item in plan.found
    ]


def rows_of(found: Iterable[FoundCheckpoint]) -> int:
    """Return the number of rows in the data files of checkpoints."""
    return sum(
        pc.sum(manifest.entries["record_count"]).as_py() or 0
        for item in found
        for manifest in item.manifests
        if manifest.content == DATA
    )


def listing(session: Session, plan: ReplayPlan) -> Outcome:
    """Return the outcome of a listing."""
    pending = [item for item in plan.found if item.state == PENDING]
    return _outcome(session, plan, Status.DONE if pending else Status.NOTHING_TO_DO, pending)


def preview(session: Session, plan: ReplayPlan) -> Outcome:
    """Return the outcome of a dry run: the checkpoints, and how much would be committed."""
    chosen = [item for job in plan.jobs for item in job.checkpoints]
    return _outcome(session, plan, Status.DRY_RUN, chosen)


def with_details(session: Session, outcome: Outcome) -> Outcome:
    """Return the outcome of a replay with the table of its checkpoints, if nothing was committed."""
    explains = session.settings.verbose or outcome.status is not Status.DONE
    rows = ReplayFacts.of(outcome.plan).checkpoints
    return replace(outcome, details=_details(session, rows)) if explains else outcome


def status_by_job(session: Session, plan: ReplayPlan) -> Outcome:
    """Return the last committed checkpoint and the pending ones of each job."""
    now_ms = session.clock.now_ms()
    commits = _last_commits(plan)
    found: dict[tuple[str, str], list[FoundCheckpoint]] = {}
    for item in plan.found:
        found.setdefault((item.job_id, item.operator_id), []).append(item)
    jobs = [
        _status(
            job,
            next((item for item in commits if item.is_by(*job)), None),
            found.get(job, []),
            now_ms,
        )
        for job in sorted({*found, *((c.job_id, c.operator_id or "") for c in commits)})
    ]
    shown = [_shown(job, job.age_seconds, _STATUS) for job in jobs]
    return Outcome(
        status=Status.DONE,
        base_snapshot_id=plan.base_snapshot_id,
        result=JobsResult(jobs=jobs),
        details=[Detail("jobs", _STATUS, shown)],
    )


def _outcome(
    session: Session, plan: ReplayPlan, status: Status, counted: Sequence[FoundCheckpoint]
) -> Outcome:
    rows = describe(plan)
    return Outcome(
        status=status,
        base_snapshot_id=plan.base_snapshot_id,
        plan=PendingFacts(
            checkpoints=rows,
            pending=len(counted),
            data_files=sum(item.data_files for item in counted),
            delete_files=sum(item.delete_files for item in counted),
            rows=rows_of(counted),
            left_runs=plan.left if plan.all_staged and status is Status.DRY_RUN else None,
        ),
        details=_details(session, rows),
    )


def _details(session: Session, rows: Sequence[CheckpointFacts]) -> list[Detail]:
    columns = _LONG if session.settings.verbose else _SHORT
    now_ms = session.clock.now_ms()
    shown = [_shown(row, _age_seconds(row.written_ms, now_ms), columns) for row in rows]
    return [Detail("checkpoints", columns, shown)]


def _last_commits(plan: ReplayPlan) -> list[JobCommit]:
    """Return the newest commit of each job and operator on the branch."""
    newest: dict[tuple[str, str | None], JobCommit] = {}
    for commit in job_commits(plan.table.metadata, plan.branch):
        newest.setdefault((commit.job_id, commit.operator_id), commit)
    return list(newest.values())


def _status(
    job: tuple[str, str],
    commit: JobCommit | None,
    found: Iterable[FoundCheckpoint],
    now_ms: int,
) -> JobFacts:
    pending = [item for item in found if item.state == PENDING]
    return JobFacts(
        job_id=job[0],
        operator_id=job[1] or None,
        committed_checkpoint=str(commit.checkpoint_id) if commit else None,
        pending_checkpoints=_numbers(pending),
        unproven_checkpoints=_numbers(item for item in found if item.state == UNPROVEN),
        damaged_checkpoints=_numbers(item for item in found if item.state in {BROKEN, PARTIAL}),
        data_files=sum(item.data_files for item in pending),
        delete_files=sum(item.delete_files for item in pending),
        rows=rows_of(pending),
        age_seconds=_age_seconds(_written_ms(pending), now_ms),
    )


def _numbers(found: Iterable[FoundCheckpoint]) -> list[str]:
    return [str(item.checkpoint_id) for item in found]


def _written_ms(found: Iterable[FoundCheckpoint]) -> int | None:
    """Return when the first manifest of checkpoints was written, in ms since 1970; None if nothing shows it."""
    written = [
        manifest.modified_ms
        for item in found
        for manifest in item.manifests
        if manifest.modified_ms is not None
    ]
    return min(written, default=None)


def _age_seconds(written_ms: int | None, now_ms: int) -> float | None:
    return None if written_ms is None else max(now_ms - written_ms, 0) / 1000


def _shown(row: Facts, age: float | None, columns: Sequence[str]) -> list[Any]:
    values = {**row.document(), "age": None if age is None else format_duration(age)}
    return [
        ", ".join(value) if isinstance(value, list) else value for value in map(values.get, columns)
    ]
