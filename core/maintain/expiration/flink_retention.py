"""Find the snapshots that a Flink job still needs to find its last commit, from metadata alone.

A restored sink walks from its branch's head through the parents to its newest own snapshot, and continues after
that checkpoint. The walk ends at a missing parent, so every snapshot between is needed; a job that finds none of
its snapshots commits again what the table already contains. Source: Iceberg's SinkUtil.getMaxCommittedCheckpointId.

In format version 3 a sink that deletes rows searches further at each commit: it looks for other writers' deletion
vectors, back to a snapshot without a parent, and fails permanently if one is missing. Source: Iceberg's
MergingSnapshotProducer.validateAddedDVs, to which FlinkSink and IcebergSink give no starting snapshot.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.spec.types.format_versions import DELETION_VECTORS_SINCE
from lake.core.table.flink.commits import LAKE_OPERATOR_ID, JobCommit, job_commit
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class HeldCheckpoint:
    """The newest commit that a job's restore takes as its own.

    Args:
        commit: the job's ids and checkpoint in the snapshot.
        steps: the number of snapshots that the restore visits, including the commit's own.
    """

    commit: JobCommit
    steps: int


@dataclass(frozen=True, slots=True)
class HeldBranch:
    """The snapshots of one branch that jobs need to be restored.

    Args:
        branch: its name.
        path: the snapshots from the head to the oldest of the jobs' commits, newest first.
        checkpoints: one for each job and operator, newest first.
    """

    branch: str
    path: tuple[int, ...]
    checkpoints: tuple[HeldCheckpoint, ...]


def held_branches(metadata: TableMetadata, since_ms: int) -> list[HeldBranch]:
    """Return the branches to which jobs made their last commit at ``since_ms`` or later."""
    found = []
    for branch, head_id in sorted(_heads(metadata)):
        history = list(ancestry.ancestors(metadata, head_id))
        held = tuple(
            item
            for item in _last_commits(metadata, history)
            if item.commit.snapshot.timestamp_ms >= since_ms  # check: snapshots-of-flink-job
        )
        if held:
            path = history[: max(item.steps for item in held)]
            found.append(HeldBranch(branch, tuple(item.snapshot_id for item in path), held))
    return found


def _heads(metadata: TableMetadata) -> Iterator[tuple[str, int]]:
    for name, ref in metadata.refs.items():
        if ref.snapshot_ref_type == "branch" and not ancestry.is_consumer(name):
            yield name, ref.snapshot_id
    if ancestry.MAIN not in metadata.refs and metadata.current_snapshot_id is not None:
        yield ancestry.MAIN, metadata.current_snapshot_id


def _last_commits(metadata: TableMetadata, history: Sequence[Snapshot]) -> Iterator[HeldCheckpoint]:
    need_all = _jobs_needing_all(metadata, history)
    met: set[tuple[str, str | None]] = set()
    for steps, snapshot in enumerate(history, start=1):
        commit = job_commit(snapshot)
        if commit and commit.operator_id == LAKE_OPERATOR_ID:
            continue  # a staged run is never restored; its run id proves that it was committed
        # A commit without an operator counts for every operator: no restore of the job walks past it.
        if commit and not met & {(commit.job_id, commit.operator_id), (commit.job_id, None)}:
            met.add((commit.job_id, commit.operator_id))
            yield HeldCheckpoint(commit, len(history) if commit.job_id in need_all else steps)


def _jobs_needing_all(metadata: TableMetadata, history: Sequence[Snapshot]) -> set[str]:
    """Return the jobs that need the complete history to commit; none if it is incomplete already."""
    complete = bool(history) and history[-1].parent_snapshot_id is None
    if metadata.format_version < DELETION_VECTORS_SINCE or not complete:
        return set()
    deleting = (item for item in history if item.summary and item.summary.get("added-delete-files"))
    return {commit.job_id for commit in map(job_commit, deleting) if commit}
