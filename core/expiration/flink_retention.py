"""Which snapshots a Flink job still needs to find its last commit: a pure function of metadata.

A sink that is restored walks from its branch's head through the parents to the newest snapshot of its own and
takes up after that checkpoint. The walk ends where a parent is missing, so that every snapshot between counts;
a job that finds nothing commits again what the table already holds. Source: Iceberg's
SinkUtil.getMaxCommittedCheckpointId.

In format version 3 a sink that deletes rows looks further at each commit: for deletion vectors of others, back to a
snapshot without a parent, and fails for good where one is missing. Source: Iceberg's
MergingSnapshotProducer.validateAddedDVs, which FlinkSink and IcebergSink give no snapshot to start from.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.flink.commits import LAKE_OPERATOR_ID, JobCommit, job_commit
from lake.core.snapshots import ancestry
from lake.core.types.format_versions import DELETION_VECTORS_SINCE

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class HeldCheckpoint:
    """The newest commit that a job's restore takes for its own.

    Args:
        commit: what the snapshot says of the job.
        steps: how many snapshots the restore looks at to find it and to go on, itself included.
    """

    commit: JobCommit
    steps: int


@dataclass(frozen=True, slots=True)
class HeldBranch:
    """What jobs may still be restored from on one branch.

    Args:
        branch: its name.
        path: the snapshots from the head to the oldest of the jobs' commits, newest first.
        checkpoints: one a job and operator, newest first.
    """

    branch: str
    path: tuple[int, ...]
    checkpoints: tuple[HeldCheckpoint, ...]


def held_branches(metadata: TableMetadata, since_ms: int) -> list[HeldBranch]:
    """Return the branches to which jobs made their last commit at ``since_ms`` or later."""
    found = []
    for branch, head_id in sorted(_heads(metadata)):
        path = tuple(item.snapshot_id for item in ancestry.ancestors(metadata, head_id))
        held = tuple(
            item
            for item in _last_commits(metadata, head_id)
            if item.commit.snapshot.timestamp_ms >= since_ms
        )
        if held:
            found.append(HeldBranch(branch, path[: max(item.steps for item in held)], held))
    return found


def _heads(metadata: TableMetadata) -> Iterator[tuple[str, int]]:
    for name, ref in metadata.refs.items():
        if ref.snapshot_ref_type == "branch":
            yield name, ref.snapshot_id
    if ancestry.MAIN not in metadata.refs and metadata.current_snapshot_id is not None:
        yield ancestry.MAIN, metadata.current_snapshot_id


def _last_commits(metadata: TableMetadata, head_id: int) -> Iterator[HeldCheckpoint]:
    history = list(ancestry.ancestors(metadata, head_id))
    need_all = _looking_at_all(metadata, history)
    met: set[tuple[str, str | None]] = set()
    for steps, snapshot in enumerate(history, start=1):
        commit = job_commit(snapshot)
        if commit and commit.operator_id == LAKE_OPERATOR_ID:
            continue  # a staged run is never restored: its id tells that it landed
        # A commit without an operator is any operator's: no restore of the job walks past it.
        if commit and not met & {(commit.job_id, commit.operator_id), (commit.job_id, None)}:
            met.add((commit.job_id, commit.operator_id))
            yield HeldCheckpoint(commit, len(history) if commit.job_id in need_all else steps)


def _looking_at_all(metadata: TableMetadata, history: Sequence[Snapshot]) -> set[str]:
    """Return the jobs that cannot commit without all of a history; none where it is cut already."""
    whole = bool(history) and history[-1].parent_snapshot_id is None
    if metadata.format_version < DELETION_VECTORS_SINCE or not whole:
        return set()
    deleting = (item for item in history if item.summary and item.summary.get("added-delete-files"))
    return {commit.job_id for commit in map(job_commit, deleting) if commit}
