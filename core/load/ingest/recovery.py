"""Staged runs: published before their commit, finished by a later run with the same id, or discarded."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from lake.core.base import locations as paths
from lake.core.base.errors import CommitConflictError, InvalidRequestError, RefusedError
from lake.core.base.facts import NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.base.process_identity import process_name
from lake.core.load.ingest.facts import (
    DiscardFacts,
    DiscardResult,
    IngestResult,
    StagedRunFacts,
)
from lake.core.load.ingest.plan import IngestPlan, describe
from lake.core.load.ingest.result import Landed, LoadResult, load_outcome
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.referenced_files import find_referenced
from lake.core.transaction.commit.commit import CommitRequest, Committed, commit_snapshot
from lake.core.transaction.commit.guards import Guard, RunGuard
from lake.core.transaction.commit.operations import AppendFiles, RowDelta
from lake.core.transaction.session import Session
from lake.core.transaction.spec_conditions import check_specs, same_spec, sole_spec
from lake.core.transaction.staging.claims import (
    claim_for_commit,
    discard_run,
    discarding,
    expired_base,
    find_staged_run,
    remove_leftovers,
)
from lake.core.transaction.staging.operation_files import Staging, remove_after_commit
from lake.core.transaction.staging.staged_run import (
    RunMarks,
    RunName,
    StagedRun,
    job_and_checkpoint,
    shown_run,
)

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table

# How many processes with one run id may replace each other's manifests while a run is finished.
_TRIES = 3


def guard_of(plan: IngestPlan, operation_id: str) -> Guard:
    """Return what shows that a load is committed: the user's run id, the stream's epoch, else the operation id.

    A replay stores the operation id in the table even if the user did not give a run id.
    """
    return plan.request.guard or RunGuard(operation_id)


def publish_manifests(
    staging: Staging,
    plan: IngestPlan,
    data: Sequence[DataFile],
    deletes: Sequence[DataFile] = (),
) -> None:
    """Write manifests of the run's files, from which another process can commit them until they are committed.

    If the commit creates the table or adds columns, another process could not commit the files, so none are written.
    Nor are they for a query, which writes its epoch again: nothing else may commit it without the epoch.
    """
    if not plan.is_stageable or plan.request.query_epoch is not None:
        return
    epoch = plan.request.epoch
    marks = RunMarks(
        run_id=plan.options.run_id or (epoch.stream if epoch else staging.operation_id),
        epoch=epoch,
        operation_id=staging.operation_id,
        branch=plan.options.branch,
        base_snapshot_id=plan.base_snapshot_id,
        writer="" if plan.options.stage else process_name(),
        written_ms=staging.session.clock.now_ms(),
    )
    staging.publish_manifests(StagedRun(marks=marks, data=data, deletes=deletes))


def as_staged(outcome: Outcome, staging: Staging) -> Outcome:
    """Add the ids by which a replay refers to the run to the outcome."""
    return outcome if staging.run is None else _with_names(outcome, staging.run.marks.name)


def _with_names(outcome: Outcome, name: RunName) -> Outcome:
    return replace(outcome, result=replace(IngestResult.of(outcome.result), staged=_names(name)))


def _names(name: RunName) -> StagedRunFacts:
    job_id, checkpoint_id = job_and_checkpoint(name)
    run_id = name if isinstance(name, str) else name.stream
    return StagedRunFacts(run_id=run_id, job_id=job_id, checkpoint_id=str(checkpoint_id))


def finish_earlier(session: Session, plan: IngestPlan, tries: int = _TRIES) -> Outcome | None:
    """Finish an earlier run with the same id; None if the source must be read.

    Args:
        session: the session.
        plan: the load.
        tries: how often the files of a run are taken that another process wrote meanwhile.

    Raises:
        RefusedError: it is unknown whether the earlier run's files are committed.
        CommitConflictError: another process is discarding the run, or other writers won every attempt.
        CommitUnknownError: the catalog did not answer; no file is deleted.
    """
    marks = plan.earlier.run.marks if plan.earlier.run else None
    own = marks is not None and (not marks.is_known or marks.branch == plan.options.branch)
    if plan.earlier.already:
        if plan.earlier.run is not None and own:
            _tidy_up(session, plan, plan.earlier.run)
        return _outcome(plan, Status.NOTHING_TO_DO)
    if plan.earlier.run is None:
        return None
    if not own:
        _refuse_branch(plan, plan.earlier.run)
    _refuse_other_kind(plan, plan.earlier.run)
    if plan.earlier.run.problem is not None:
        session.warn(f"the source is loaded again: {plan.earlier.run.problem}")
        _discard_leftovers(session, plan.table, plan.earlier.run)
        return None
    if plan.options.stage:
        return _with_names(_outcome(plan, Status.NOTHING_TO_DO), plan.earlier.run.marks.name)
    return _finish(session, plan, plan.earlier.run, tries)


def discard(session: Session, identifier: str, run_id: str, *, dry_run: bool) -> Outcome:
    """Delete the files of a staged run; committed files are kept.

    Raises:
        RefusedError: another process may be committing the run.
    """
    table = session.table(identifier)
    run = find_staged_run(table, run_id)
    names = _names(run.marks.name if run else run_id)
    if run is None:
        done = _ran_anywhere(table, run_id, session.clock.now_ms())
        session.warn(f"run {run_id} is committed" if done else f"no run {run_id} is staged")
    if run is None or dry_run:
        return Outcome(
            status=Status.NOTHING_TO_DO if run is None else Status.DRY_RUN,
            plan=DiscardFacts(run=names, data_files=len(run.data), delete_files=len(run.deletes))
            if run
            else NoFacts(),
            result=DiscardResult(run=names),
        )
    discarded = discard_run(session, table, run.marks)
    if discarded.committed:
        session.warn(f"{discarded.committed} files of run {run_id} are committed: they stay")
    if discarded.failed:
        session.warn(
            f"{len(discarded.failed)} files could not be deleted, e.g. {discarded.failed[0]}"
        )
    status = Status.PARTIAL if discarded.failed else Status.DONE
    return Outcome(
        status=Status.NOTHING_TO_DO if discarded.committed and not discarded.files else status,
        result=DiscardResult(run=names, removed_files=discarded.files),
    )


def _ran_anywhere(table: Table, run_id: str, now_ms: int) -> bool:
    return any(
        RunGuard(run_id).is_held(table, name, now_ms)
        for name in {ancestry.MAIN, *table.metadata.refs}
    )


def _refuse_branch(plan: IngestPlan, run: StagedRun) -> None:
    name, branch = run.marks.name, run.marks.branch
    raise InvalidRequestError(
        f"{shown_run(name)} was written for branch {branch}, not {plan.options.branch}",
        hint=f"{Option.BRANCH} {branch} commits it there; {discarding(name)}",
    )


def _refuse_other_kind(plan: IngestPlan, run: StagedRun) -> None:
    """Refuse the first epoch of a stream that has the name of a staged run: their manifests have one name."""
    name = run.marks.name
    if run.marks.is_known and isinstance(name, str) is (plan.request.epoch is not None):
        raise RefusedError(
            f"{shown_run(name)} of {plan.table.identifier} is not committed, and has the name of the stream",
            hint=f"commit it with lake replay, or {Option.DISCARD} {name} removes it; or choose another "
            f"{Option.STREAM}",
        )


def _tidy_up(session: Session, plan: IngestPlan, run: StagedRun) -> None:
    """Remove what is left of a run whose id is in the table."""

    def remove() -> Sequence[str]:
        return () if _is_held(session, plan, run) else _discard_leftovers(session, plan.table, run)

    remove_after_commit(session, f"the remains of {shown_run(run.marks.name)}", remove)


def _discard_leftovers(session: Session, table: Table, run: StagedRun) -> Sequence[str]:
    """Discard a run; return what could not be deleted."""
    # If another process is working on the run, that process does the rest.
    with suppress(RefusedError):
        return discard_run(session, table, run.marks).failed
    return ()


def _finish(session: Session, plan: IngestPlan, run: StagedRun, tries: int) -> Outcome | None:
    """Commit a staged run, unless a snapshot contains it already."""
    guard, table, branch = run.marks.guard, plan.table, plan.options.branch
    if _is_held(session, plan, run):  # check: run-held-by-snapshots
        return _outcome(plan, Status.NOTHING_TO_DO)
    expired = expired_base(table, branch, run.marks)
    if expired is not None:  # check: base-snapshot-retained
        raise RefusedError(
            f"{expired}: it is unknown whether the run was committed",
            hint=discarding(run.marks.name),
        )
    head = ancestry.branch_head(table.metadata, branch)
    if head is not None and run.deletes:
        check_specs(table, head)
    operation_id = session.ids.uuid()
    try:
        committed = _commit(session, plan, run, operation_id)
    except CommitConflictError:
        now = table.refreshed()
        # Another process may have committed the run between the check and this commit.
        if guard.is_held(now, branch, session.clock.now_ms()):
            return _outcome(plan, Status.NOTHING_TO_DO)
        # Or it read the source too, and the names of its files replaced those of the run that was found.
        other = find_staged_run(now, run.marks.name) if tries > 1 else None
        if (
            other is None
            or other.problem is not None
            or plan.request.epoch is not None
            or other.marks.operation_id == run.marks.operation_id
        ):
            raise
        earlier = replace(plan.earlier, run=other)
        return finish_earlier(session, replace(plan, table=now, earlier=earlier), tries - 1)
    _remove_leftovers(session, committed.table, run, by_other=not committed.already)
    if committed.already:
        return _outcome(plan, Status.NOTHING_TO_DO, committed=committed)
    return replace(_outcome(plan, Status.DONE, run, committed), operation_id=operation_id)


def _commit(session: Session, plan: IngestPlan, run: StagedRun, operation_id: str) -> Committed:
    guard = run.marks.guard
    request = CommitRequest(
        operation_id=operation_id,
        branch=plan.options.branch,
        guard=guard,
        requirements=same_spec(plan.table, run.deletes[0].spec_id) if run.deletes else (),
    )
    with (
        claim_for_commit(session, plan.table, [run.marks]),
        session.interrupts.last_commit(),
    ):
        operation = _operation(plan.table, run)
        return commit_snapshot(session, plan.table, operation, request, summary=guard.summary)


def _is_held(session: Session, plan: IngestPlan, run: StagedRun) -> bool:
    """Whether snapshots contain all files of a run; if so, the rest of the run is removed.

    Raises:
        RefusedError: snapshots contain some of the files only.
    """
    wanted = {paths.canonical(file.path) for file in run.files}
    held = find_referenced(plan.table.storage, plan.table.metadata, wanted)
    if wanted and held == wanted:
        _remove_leftovers(session, plan.table, run, by_other=False)
        return True
    if held and not plan.earlier.already:
        raise RefusedError(
            f"{len(held)} of the {len(wanted)} files of {shown_run(run.marks.name)} are committed",
            hint=discarding(run.marks.name),
        )
    return False


def _remove_leftovers(session: Session, table: Table, run: StagedRun, *, by_other: bool) -> None:
    remove_after_commit(
        session,
        f"the remains of {shown_run(run.marks.name)}",
        lambda: remove_leftovers(table, run, by_other=by_other),
    )


def _operation(table: Table, run: StagedRun) -> AppendFiles | RowDelta:
    if not run.deletes:
        return AppendFiles(added=run.data)
    return RowDelta(
        added=run.data,
        deletes=run.deletes,
        base_snapshot_id=run.marks.base_snapshot_id,
        validates=False,
        sole_spec=sole_spec(table, run.deletes[0].spec_id),
    )


def _outcome(
    plan: IngestPlan,
    status: Status,
    run: StagedRun | None = None,
    committed: Committed | None = None,
) -> Outcome:
    data, deletes = (run.data, run.deletes) if run else ((), ())
    rows = sum(file.record_count for file in data)
    result = LoadResult(
        data=data,
        deletes=deletes,
        counts=IngestResult(
            rows_written=rows,
            # A load that deletes by key alone does not know what was there.
            rows_inserted=None if deletes else rows,
            rows_updated=None if deletes else 0,
        ),
    )
    return load_outcome(plan, describe(plan), status, Landed(result, committed))
