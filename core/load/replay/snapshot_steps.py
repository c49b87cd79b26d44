"""Compute the snapshots that commit a job's pending checkpoints, as the sink that wrote them would.

Source: Iceberg's IcebergFilesCommitter (FlinkSink: all pending checkpoints at once), IcebergCommitter and
DynamicCommitter (one checkpoint after another, as Flink's CommitterOperator passes them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.load.replay.model import FoundCheckpoint, PendingJob
from lake.core.spec.properties.table_properties import MAX_EMPTY_COMMITS
from lake.core.table.flink.commits import CHECKPOINT_ID, JOB_ID, OPERATOR_ID
from lake.core.table.flink.state import DYNAMIC_SINK, FLINK_SINK
from lake.core.table.manifests.data_files import DATA
from lake.core.table.snapshots.run_ids import run_summary
from lake.core.transaction.commit.operations import (
    AppendFiles,
    EntryTable,
    Operation,
    ReplacePartitions,
    RowDelta,
    SnapshotStep,
)
from lake.core.transaction.staging.staged_run import guard_of


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayStep(SnapshotStep):
    """A snapshot that commits checkpoints."""

    checkpoints: tuple[FoundCheckpoint, ...]


def replay_steps(
    job: PendingJob,
    *,
    committed: int,
    replace_partitions: bool,
    properties: Mapping[str, str],
) -> list[ReplayStep]:
    """Return the snapshots that commit a job's checkpoints, in order.

    Args:
        job: the job; all its checkpoints are committed.
        committed: the job's largest committed checkpoint; the new summaries do not decrease it.
        replace_partitions: whether the job ran in overwrite mode.
        properties: the table's properties.

    Raises:
        RefusedError: checkpoints with delete files cannot replace partitions.
        InvalidRequestError: the table's property for the limit of empty commits is not valid.
    """
    if replace_partitions and any(item.delete_files for item in job.checkpoints):
        raise RefusedError(
            f"checkpoints of job {job.job_id} contain delete files, which cannot replace partitions",
            hint=f"a job that writes deletes did not run in overwrite mode: omit {Option.REPLACE_PARTITIONS}",
        )
    every = MAX_EMPTY_COMMITS.of(properties)
    sink = _Sink(job, replace_partitions=replace_partitions, committed=committed)
    empty = 0
    for batch in _batches(job):
        has_files = any(item.data_files or item.delete_files for item in batch)
        empty = 0 if has_files else empty + 1
        if empty % every == 0:
            empty = 0
            sink.commit(batch)
    return sink.steps


def staged_steps(runs: Sequence[FoundCheckpoint]) -> list[ReplayStep]:
    """Return the snapshots that commit staged runs: one for appends in a row, one for each run with deletes.

    The deletes of a run apply to the rows of the runs before it, and not to those after it.

    Args:
        runs: the runs, in the order of writing.
    """
    steps: list[ReplayStep] = []
    for has_deletes, group in groupby(runs, key=lambda item: item.delete_files > 0):
        items = list(group)
        if has_deletes:
            steps += [_staged_step(_row_delta(item), (item,)) for item in items]
        else:
            steps.append(_staged_step(AppendFiles(added=files_of(items, data=True)), items))
    return steps


def _staged_step(operation: Operation, items: Sequence[FoundCheckpoint]) -> ReplayStep:
    summary = run_summary([item.marks.run_id for item in items if item.marks])
    if len(items) == 1:
        (item,) = items
        summary |= {
            JOB_ID: item.job_id,
            OPERATOR_ID: item.operator_id,
            CHECKPOINT_ID: str(item.checkpoint_id),
        }
    return ReplayStep(operation=operation, summary=summary, checkpoints=tuple(items))


def _batches(job: PendingJob) -> list[Sequence[FoundCheckpoint]]:
    """Return the checkpoints of each call of the sink's committer."""
    if job.sink == FLINK_SINK:
        return [job.checkpoints] if job.checkpoints else []
    return [(item,) for item in job.checkpoints]


class _Sink:
    """Collects the snapshots that a committer would create."""

    def __init__(self, job: PendingJob, *, replace_partitions: bool, committed: int) -> None:
        self._job = job
        self._replaces = replace_partitions
        self._committed = committed
        self.steps: list[ReplayStep] = []

    def commit(self, batch: Sequence[FoundCheckpoint]) -> None:
        """Add the snapshots for one call of the committer."""
        data = files_of(batch, data=True)
        last = batch[-1].checkpoint_id
        if self._replaces:
            # An overwrite without files replaces no partitions.
            if data:
                self._add(ReplacePartitions(added=data, validates=False), batch, last)
        elif self._job.sink != DYNAMIC_SINK and not any(item.delete_files for item in batch):
            self._add(AppendFiles(added=data), batch, last)
        else:
            for item in batch:
                # FlinkSink skips an entry without bytes here, but counts it in an append's summary.
                if not item.blank:
                    self._add(_row_delta(item), (item,), item.checkpoint_id)

    def _add(
        self, operation: Operation, checkpoints: Sequence[FoundCheckpoint], number: int
    ) -> None:
        # An unproven checkpoint may have a smaller number, which must not decrease the committed number.
        self._committed = max(self._committed, number)
        summary = {
            JOB_ID: self._job.job_id,
            OPERATOR_ID: self._job.operator_id,
            CHECKPOINT_ID: str(self._committed),
        }
        runs = {item.run for item in checkpoints if item.run}
        if len(runs) == 1:
            summary |= guard_of(runs.pop()).summary
        self.steps.append(
            ReplayStep(operation=operation, summary=summary, checkpoints=tuple(checkpoints))
        )


def _row_delta(item: FoundCheckpoint) -> RowDelta:
    # Its position deletes apply to its own files only, and its equality deletes may be committed late.
    return RowDelta(
        added=files_of((item,), data=True), deletes=files_of((item,), data=False), validates=False
    )


def files_of(checkpoints: Sequence[FoundCheckpoint], *, data: bool) -> list[EntryTable]:
    """Return the data files of checkpoints, or their delete files."""
    return [
        EntryTable(manifest.spec_id, manifest.entries)
        for item in checkpoints
        for manifest in item.manifests
        if (manifest.content == DATA) == data
    ]
