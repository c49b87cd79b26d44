"""Commit a planned replay exactly once, even if others commit the same checkpoints meanwhile."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from lake.core.base import locations
from lake.core.base.errors import CommitConflictError
from lake.core.base.outcome import Outcome, Status
from lake.core.load.replay.facts import ReplayFacts, ReplayResult
from lake.core.load.replay.model import (
    BROKEN,
    COMMITTED_LEFTOVER,
    UNPROVEN,
    FoundCheckpoint,
    PendingJob,
    ReplayPlan,
)
from lake.core.load.replay.report import describe
from lake.core.load.replay.safety_checks import refuse_unreached
from lake.core.load.replay.snapshot_steps import ReplayStep, replay_steps, staged_steps
from lake.core.table.catalogs.catalog import Table
from lake.core.table.flink.commits import job_commit, max_committed
from lake.core.table.flink.manifest_names import parse_name
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.referenced_files import find_referenced
from lake.core.table.snapshots.run_ids import OPERATION_ID
from lake.core.transaction.commit.commit import (
    CommitRequest,
    Committed,
    commit_snapshots,
    find_summary,
)
from lake.core.transaction.commit.operations import RowDelta
from lake.core.transaction.session import Session
from lake.core.transaction.spec_conditions import same_spec, sole_spec
from lake.core.transaction.staging.claims import (
    claim_available,
    claim_for_commit,
    remove_committed,
    remove_leftovers,
)
from lake.core.transaction.staging.manifest_files import manifest_roots
from lake.core.transaction.staging.operation_files import remove_after_commit
from lake.core.transaction.staging.staged_run import RunMarks, StagedRun, find_run, guard_of

if TYPE_CHECKING:
    from pyiceberg.table.update import TableRequirement

_AGAIN = "run the command again: it will plan for the table's new state"


def execute(session: Session, plan: ReplayPlan) -> Outcome:
    """Commit the checkpoints of a plan, all or none, then remove their temporary manifests.

    Raises:
        CommitConflictError: other writers won every attempt, or changed what the plan depends on; nothing was
            changed.
        CommitUnknownError: the catalog did not answer; no file was removed.
        RefusedError: the checkpoints cannot be committed in this way.
    """
    _remove_leftovers(session, plan)
    if not plan.jobs:
        return _outcome(plan, Status.NOTHING_TO_DO, ())
    operation_id = session.ids.uuid()
    runs = [item.marks for job in plan.jobs for item in job.checkpoints if item.marks]
    try:
        with _claimed(session, plan, runs) as claimed, session.interrupts.last_commit():
            committed = commit_snapshots(
                session,
                plan.table,
                _Replay(claimed).decide,
                CommitRequest(
                    operation_id=operation_id,
                    branch=plan.branch,
                    requirements=_requirements(claimed),
                ),
            )
    except CommitConflictError:
        now = plan.table.refreshed()
        if runs and all(run.guard.is_held(now, plan.branch) for run in runs):
            return _outcome(_after(plan, now, ()), Status.NOTHING_TO_DO, ())
        raise
    steps = [step for step in committed.steps if isinstance(step, ReplayStep)]
    done = [item for step in steps for item in step.checkpoints]
    _remove_manifests(session, committed.table, done)
    after = _after(plan, committed.table, done)
    if not steps:
        return _outcome(after, Status.NOTHING_TO_DO, ())
    return _outcome(after, Status.DONE, done, operation_id, committed)


def _after(plan: ReplayPlan, table: Table, done: Sequence[FoundCheckpoint]) -> ReplayPlan:
    """Return the plan with the states of those checkpoints that other processes committed or discarded meanwhile."""
    own = {_name(item) for item in done}
    chosen = {_name(item) for job in plan.jobs for item in job.checkpoints}
    found = []
    for item in plan.found:
        if _name(item) not in chosen - own:
            found.append(item)
        elif item.run is None or guard_of(item.run).is_held(table, plan.branch):
            reason = "another process committed it meanwhile"
            found.append(replace(item, state=COMMITTED_LEFTOVER, reason=reason))
    return replace(plan, found=tuple(found))


@contextmanager
def _claimed(
    session: Session, plan: ReplayPlan, runs: Collection[RunMarks]
) -> Iterator[ReplayPlan]:
    """Claim the staged runs of a plan; yield the plan without those of all staged runs that others have finished.

    Raises:
        CommitConflictError: a run that was asked for by its name no longer exists, or is being discarded.
    """
    if not plan.all_staged:
        with claim_for_commit(session, plan.table, runs):
            yield plan
        return
    with claim_available(session, plan.table, runs) as there:
        yield replace(plan, jobs=tuple(job for job in plan.jobs if job.checkpoints[0].run in there))


@dataclass(slots=True)
class _Replay:
    """Decides on each attempt what remains to be committed."""

    plan: ReplayPlan
    _decision: tuple[Any, ...] = ()
    _steps: list[ReplayStep] = field(default_factory=list)

    def decide(self, table: Table) -> list[ReplayStep]:
        """Return the snapshots that remain to be committed.

        Raises:
            CommitConflictError: a part of a checkpoint was committed meanwhile, or the history was lost.
        """
        self._require_history(table)  # check: history-of-replay
        present = self._committed_meanwhile(table)
        jobs = [self._remaining(table, job, present) for job in self.plan.jobs]
        for job in jobs:
            refuse_unreached(table, self.plan.branch, job)
        numbers = [self._committed(table, job) for job in jobs]
        decision = (numbers, [[_name(item) for item in job.checkpoints] for job in jobs])
        if decision != self._decision:
            # Unchanged steps keep the manifests that were written for them.
            self._decision = decision
            self._steps = [
                _with_sole_spec(table, step) for step in self._new_steps(table, jobs, numbers)
            ]
        return self._steps

    def _new_steps(
        self, table: Table, jobs: Sequence[PendingJob], numbers: Sequence[int]
    ) -> list[ReplayStep]:
        if self.plan.all_staged:
            return staged_steps([item for job in jobs for item in job.checkpoints])
        return [
            step
            for job, number in zip(jobs, numbers, strict=True)
            for step in replay_steps(
                job,
                committed=number,
                replace_partitions=self.plan.replace_partitions,
                properties=table.properties,
            )
        ]

    def _require_history(self, table: Table) -> None:
        head = ancestry.branch_head(table.metadata, self.plan.branch)
        head_id = head.snapshot_id if head else None
        _, complete = ancestry.since(table.metadata, head_id, self.plan.base_snapshot_id)
        if not complete:
            raise CommitConflictError(
                f"branch {self.plan.branch} was rolled back or lost its history while the replay was planned",
                hint=_AGAIN,
            )

    def _committed(self, table: Table, job: PendingJob) -> int:
        return max_committed(table.metadata, self.plan.branch, job.job_id, job.operator_id)

    def _remaining(self, table: Table, job: PendingJob, present: frozenset[str]) -> PendingJob:
        before, now = self._committed(self.plan.table, job), self._committed(table, job)
        return replace(
            job,
            checkpoints=tuple(
                item
                for item in job.checkpoints
                if not _is_done(item, before, now)  # check: checkpoint-done
                and not self._ran(table, item)
                and not self._is_held(item, present)
            ),
        )

    def _ran(self, table: Table, item: FoundCheckpoint) -> bool:
        """Whether the ingest that staged a checkpoint was committed by another process."""
        branch = self.plan.branch
        return item.run is not None and guard_of(item.run).is_held(table, branch)

    def _is_held(self, item: FoundCheckpoint, present: frozenset[str]) -> bool:
        own = _paths([item])
        if own & present and not own <= present:
            raise CommitConflictError(
                f"another process committed a part of checkpoint {item.checkpoint_id} of job {item.job_id}",
                hint=_AGAIN,
            )
        return bool(own) and own <= present

    def _committed_meanwhile(self, table: Table) -> frozenset[str]:
        """Return the plan's files that occur in snapshots made since, on any branch."""
        wanted = _paths([item for job in self.plan.jobs for item in job.checkpoints])
        known = self.plan.table.metadata
        # check: files-added-already
        return find_referenced(table.storage, table.metadata, wanted, known=known)


def _requirements(plan: ReplayPlan) -> tuple[TableRequirement, ...]:
    """Return the requirements of deletes that lake staged, as their ingest has; Flink's sinks have none."""
    staged = [item for job in plan.jobs for item in job.checkpoints if item.run]
    specs = {spec for item in staged if (spec := item.spec_of_deletes) is not None}
    return tuple(item for spec_id in sorted(specs) for item in same_spec(plan.table, spec_id))


def _with_sole_spec(table: Table, step: ReplayStep) -> ReplayStep:
    """Make a staged run's deletes conflict with data files of other specs, which they do not apply to."""
    item, operation = step.checkpoints[0], step.operation
    spec_id = item.spec_of_deletes
    if item.run is None or spec_id is None or not isinstance(operation, RowDelta):
        return step
    return replace(step, operation=replace(operation, sole_spec=sole_spec(table, spec_id)))


def _is_done(item: FoundCheckpoint, before: int, now: int) -> bool:
    """Whether the job's committed number shows that a checkpoint was committed since the plan was made.

    For an unproven checkpoint the number may have been larger already.
    """
    return item.checkpoint_id <= now and (item.state != UNPROVEN or item.checkpoint_id > before)


def _name(item: FoundCheckpoint) -> tuple[str, str, int, int | None]:
    return item.job_id, item.operator_id, item.checkpoint_id, item.attempt


def _paths(checkpoints: Sequence[FoundCheckpoint]) -> frozenset[str]:
    return frozenset(
        path
        for item in checkpoints
        for manifest in item.manifests
        for path in manifest.entries["file_path"].to_pylist()
    )


def _remove_manifests(session: Session, table: Table, done: Sequence[FoundCheckpoint]) -> None:
    remove_after_commit(
        session,
        "temporary manifests of committed checkpoints",
        lambda: _removed_manifests(table, done),
    )


def _removed_manifests(table: Table, done: Sequence[FoundCheckpoint]) -> list[str]:
    """Remove the manifests and other remains of committed checkpoints; return what could not be removed."""
    roots = manifest_roots(table)
    manifests = [manifest.path for item in done if item.run is None for manifest in item.manifests]
    # A checkpoint may name any file, even a live manifest; delete only files with a temporary manifest's name.
    # check: only-names-of-flink
    own = [path for path in manifests if parse_name(path) and locations.deletable(path, roots)]
    failed = [*table.storage.delete(own).failed, *sorted(set(manifests).difference(own))]
    staged = [item.marks.name for item in done if item.marks and not item.marks.is_interrupted]
    failed += remove_committed(table, staged)
    runs = [find_run(table, item.run) for item in done if item.run and item.run not in staged]
    for run in filter(None, runs):
        failed += remove_leftovers(table, run, by_other=_by_other(table, run))
    return failed


def _by_other(table: Table, run: StagedRun) -> bool:
    """Whether a run's files were added to the table by a commit other than the run's own."""
    return find_summary(table.metadata, {OPERATION_ID: run.marks.operation_id}) is None


def _remove_leftovers(session: Session, plan: ReplayPlan) -> None:
    """Remove the manifests of committed checkpoints that a killed replay or ingest left behind."""
    leftovers = [
        item
        for item in plan.found
        if item.state == COMMITTED_LEFTOVER
        and item.manifests
        and (item.run is not None or _is_replayed(plan.table, item))
    ]
    if leftovers:
        _remove_manifests(session, plan.table, leftovers)


def _is_replayed(table: Table, item: FoundCheckpoint) -> bool:
    """Whether lake committed a job's checkpoint; a sink removes the manifests of its own commits."""
    return any(
        commit is not None
        and commit.is_by(item.job_id, item.operator_id)
        and commit.checkpoint_id >= item.checkpoint_id
        for snapshot in table.metadata.snapshots
        if OPERATION_ID in properties_of(snapshot)
        for commit in (job_commit(snapshot),)
    )


def _outcome(
    plan: ReplayPlan,
    status: Status,
    done: Sequence[FoundCheckpoint],
    operation_id: str | None = None,
    committed: Committed | None = None,
) -> Outcome:
    counted = [item for item in done if not item.blank]
    names = {_name(item) for item in done}
    skipped = [
        item
        for item in plan.found
        if _name(item) not in names and (item.manifests or item.state == BROKEN)
    ]
    runs = [item.marks.run_id for item in done if item.marks]
    result = ReplayResult(
        committed_checkpoints=len(counted),
        skipped_checkpoints=len(skipped),
        data_files=sum(item.data_files for item in done),
        delete_files=sum(item.delete_files for item in done),
        committed_runs=runs if plan.all_staged else None,
        left_runs=plan.left if plan.all_staged else None,
    )
    return Outcome(
        status=Status.PARTIAL if plan.left else status,
        operation_id=operation_id,
        base_snapshot_id=plan.base_snapshot_id,
        snapshot_ids=committed.snapshot_ids if committed else (),
        plan=ReplayFacts(checkpoints=describe(plan)),
        result=result,
        warnings=[f"run {run.run_id} was left: {run.reason}" for run in plan.left],
    )
