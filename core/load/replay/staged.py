"""Staged runs: manifests that lake's ingests write before they commit, with additional header fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from lake.core.base.errors import RefusedError
from lake.core.load.replay.classification import Evidence
from lake.core.load.replay.facts import LeftRun
from lake.core.load.replay.model import (
    BROKEN,
    PARTIAL,
    PENDING,
    UNPROVEN,
    FoundCheckpoint,
    PendingJob,
    ReplayPlan,
)
from lake.core.table.flink.commits import LAKE_OPERATOR_ID
from lake.core.table.snapshots import ancestry
from lake.core.transaction.spec_conditions import check_specs
from lake.core.transaction.staging.claims import claimed_by_others
from lake.core.transaction.staging.staged_run import (
    FILES,
    MANIFESTS,
    RunMarks,
    RunName,
    job_and_checkpoint,
    shown_run,
)

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session
    from lake.core.transaction.staging.temporary_manifests import Reading

# States of runs whose rows are, or may be, in no snapshot.
_UNCOMMITTED = frozenset({PENDING, BROKEN, PARTIAL, UNPROVEN})


def is_staged(operator_id: str) -> bool:
    """Whether an operator id is lake's."""
    return operator_id == LAKE_OPERATOR_ID


def as_run(item: Evidence, readings: Sequence[Reading], table: Table, branch: str) -> Evidence:
    """Complete the evidence of a staged run with the headers of its manifests."""
    marks = RunMarks.of_header(readings[0].marks, item.job_id)
    elsewhere, wrong = None, None
    if marks.branch != branch:
        elsewhere = f"{shown_run(marks.name)} is for branch {marks.branch}"
    if job_and_checkpoint(marks.name)[1] != item.checkpoint_id:
        wrong = (
            f"{readings[0].location} contains {shown_run(marks.name)}, which its name does not say"
        )
    ran = marks.guard.is_held(table, branch)
    return replace(
        item,
        run=marks.name,
        marks=marks,
        ran=ran,
        # The manifests of a committed run are removed one after the other: the rest is left over, not broken.
        problem=item.problem or wrong or (None if ran else _cut(readings)),
        foreign=item.foreign or elsewhere,
    )


def _cut(readings: Sequence[Reading]) -> str | None:
    """Return a message if a run's manifests are incomplete, else None."""
    for reading in readings:
        if reading.marks.get(MANIFESTS) != str(len(readings)):
            return f"{reading.location} does not list all manifests of its run"
        rows = reading.manifest.entries.num_rows if reading.manifest else 0
        if reading.marks.get(FILES) != str(rows):
            return f"{reading.location} is incomplete"
    return None


def choose_all(session: Session, plan: ReplayPlan) -> ReplayPlan:
    """Select every staged run that can be committed, in the order of writing; note the others with the reasons.

    A load without a run id that was killed before its commit is left: its user may have repeated it, and then the
    rows of this run are in the table already. The epochs of streams are left to the streams, without a note.
    """
    runs = [
        (item, item.marks)
        for item in plan.found
        if item.marks is not None and _is_open(item, item.marks, plan)
    ]
    runs.sort(key=lambda pair: (pair[1].written_ms, pair[1].run_id))
    claimed = claimed_by_others(session, plan.table, [run for _, run in runs])
    unreached = _specs_not_reached(plan.table, plan.branch, [item for item, _ in runs])
    jobs: list[PendingJob] = []
    left: list[LeftRun] = []
    seen: set[str] = set()
    for item, run in runs:
        reason = _why_left(item, run, claimed, seen) or unreached.get(item.spec_of_deletes)
        if reason:
            left.append(LeftRun(run_id=run.run_id, state=item.state, reason=reason))
            continue
        seen.update(item.file_paths)
        jobs.append(
            PendingJob(job_id=item.job_id, operator_id=item.operator_id, checkpoints=(item,))
        )
    return replace(plan, jobs=tuple(jobs), all_staged=True, left=tuple(left))


def _is_open(item: FoundCheckpoint, marks: RunMarks, plan: ReplayPlan) -> bool:
    """Whether a run may have to be committed to the branch of a plan."""
    return item.state in _UNCOMMITTED and marks.branch == plan.branch and marks.epoch is None


def _why_left(
    item: FoundCheckpoint, run: RunMarks, claimed: frozenset[RunName], seen: set[str]
) -> str | None:
    if run.name in claimed:
        return "another process is committing or discarding it, or may be"
    if item.state != PENDING:
        return item.reason
    if run.is_interrupted and not run.has_own_id:
        return "a load without a run id wrote it and was stopped; the load may have been repeated"
    shared = seen.intersection(item.file_paths)
    return f"{min(shared)} is in another run too" if shared else None


def _specs_not_reached(
    table: Table, branch: str, found: Sequence[FoundCheckpoint]
) -> dict[int | None, str]:
    """Return why deletes cannot be committed, by their partition spec."""
    specs = {spec for item in found if (spec := item.spec_of_deletes) is not None}
    reasons: dict[int | None, str] = {
        spec: f"its deletes were written with partition spec {spec}, which is not the table's current one"
        for spec in specs
        if spec != table.spec.spec_id
    }
    head = ancestry.branch_head(table.metadata, branch)
    if head is not None and table.spec.spec_id in specs:
        try:
            check_specs(table, head)
        except RefusedError as error:
            reasons[table.spec.spec_id] = str(error)
    return reasons
