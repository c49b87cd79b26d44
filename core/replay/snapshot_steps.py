"""Which snapshots a job's pending checkpoints become, as the sink that wrote them would have made them.

Source: Iceberg's IcebergFilesCommitter (FlinkSink: all pending checkpoints at once), IcebergCommitter and
DynamicCommitter (one checkpoint after the other, as Flink's CommitterOperator hands them over).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lake.core.commit.operations import (
    AppendFiles,
    FileColumns,
    Operation,
    ReplacePartitions,
    RowDelta,
    SnapshotStep,
)
from lake.core.errors import RefusedError
from lake.core.flink.commits import CHECKPOINT_ID, JOB_ID, OPERATOR_ID
from lake.core.flink.state import DYNAMIC_SINK, FLINK_SINK
from lake.core.manifests.data_files import DATA
from lake.core.properties.table_properties import MAX_EMPTY_COMMITS
from lake.core.replay.model import FoundCheckpoint, PendingJob
from lake.core.snapshots.run_ids import RUN_ID


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ReplayStep(SnapshotStep):
    """A snapshot that holds checkpoints.

    Args:
        checkpoints: those that it holds.
    """

    checkpoints: tuple[FoundCheckpoint, ...]


def replay_steps(
    job: PendingJob,
    *,
    committed: int,
    replace_partitions: bool,
    properties: Mapping[str, str],
) -> list[ReplayStep]:
    """Return the snapshots that hold a job's checkpoints, in order.

    Args:
        job: the job; its checkpoints are all to be committed.
        committed: the job's largest committed checkpoint: no label is smaller.
        replace_partitions: whether the job ran in overwrite mode.
        properties: the table's.

    Raises:
        RefusedError: partitions are to be replaced by checkpoints with delete files.
        InvalidRequestError: the limit of continuous empty commits in the table's properties is not allowed.
    """
    if replace_partitions and any(item.delete_files for item in job.checkpoints):
        raise RefusedError(
            f"checkpoints of job {job.job_id} hold delete files, which cannot replace partitions",
            hint="a job that writes deletes did not run in overwrite mode: leave --replace-partitions out",
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


def _batches(job: PendingJob) -> list[Sequence[FoundCheckpoint]]:
    """Return the checkpoints as the sink's committer is given them."""
    if job.sink == FLINK_SINK:
        return [job.checkpoints] if job.checkpoints else []
    return [(item,) for item in job.checkpoints]


class _Sink:
    """Gathers what a committer would commit."""

    def __init__(self, job: PendingJob, *, replace_partitions: bool, committed: int) -> None:
        self._job = job
        self._replaces = replace_partitions
        self._committed = committed
        self.steps: list[ReplayStep] = []

    def commit(self, batch: Sequence[FoundCheckpoint]) -> None:
        """Commit what one call of the committer is given."""
        data = _files(batch, data=True)
        last = batch[-1].checkpoint_id
        if self._replaces:
            # An overwrite without files has no partitions to replace.
            if data:
                self._add(ReplacePartitions(added=data, validates=False), batch, last)
        elif self._job.sink != DYNAMIC_SINK and not any(item.delete_files for item in batch):
            self._add(AppendFiles(added=data), batch, last)
        else:
            for item in batch:
                # FlinkSink passes over an entry of no bytes, here but not in an append's label.
                if not item.blank:
                    self._add(_row_delta(item), (item,), item.checkpoint_id)

    def _add(
        self, operation: Operation, checkpoints: Sequence[FoundCheckpoint], number: int
    ) -> None:
        # An unproven checkpoint may have a smaller number, which must not undo what the label says.
        self._committed = max(self._committed, number)
        summary = {
            JOB_ID: self._job.job_id,
            OPERATOR_ID: self._job.operator_id,
            CHECKPOINT_ID: str(self._committed),
        }
        runs = {item.run_id for item in checkpoints if item.run_id}
        if len(runs) == 1:
            summary[RUN_ID] = runs.pop()
        self.steps.append(
            ReplayStep(operation=operation, summary=summary, checkpoints=tuple(checkpoints))
        )


def _row_delta(item: FoundCheckpoint) -> RowDelta:
    # Its position deletes only name files of its own, and its equality deletes may come later than planned.
    return RowDelta(
        added=_files((item,), data=True), deletes=_files((item,), data=False), validates=False
    )


def _files(checkpoints: Sequence[FoundCheckpoint], *, data: bool) -> list[FileColumns]:
    return [
        FileColumns(manifest.spec_id, manifest.entries)
        for item in checkpoints
        for manifest in item.manifests
        if (manifest.content == DATA) == data
    ]
