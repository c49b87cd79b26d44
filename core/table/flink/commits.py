"""The writers of snapshots, and the checkpoints of Flink jobs that a branch contains.

Checkpoints are determined as the sinks' own restore does it.

Source: Iceberg's SinkUtil.getMaxCommittedCheckpointId.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.base.clock import UUID_FORM
from lake.core.base.units import whole_number
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

JOB_ID = "flink.job-id"
OPERATOR_ID = "flink.operator-id"
CHECKPOINT_ID = "flink.max-committed-checkpoint-id"
NONE_COMMITTED = -1
# The table property for the location of the sinks' temporary manifests; the default is the metadata folder.
MANIFESTS_LOCATION = "flink.manifests.location"
# The operator id of runs that lake stages: no Flink operator has it, because theirs are hashes and this is text.
LAKE_OPERATOR_ID = b"lake-staged-rows".hex()
_HEX = re.compile(r"[0-9a-f]{32}")
_UUID = re.compile(UUID_FORM)
# What writers call themselves, and the name that is shown for a writer that only has such an id.
ENGINE_NAME = "engine-name"
_IDS = {"spark.app.id": "Spark", "trino_query_id": "Trino"}
_LONGEST_NAME = 120


def job_id_of(name: str) -> str:
    """Return the id of a run or stream of lake in place of Flink's job id: 32 hexadecimal digits."""
    plain = name.replace("-", "") if _UUID.fullmatch(name) else name
    return plain if _HEX.fullmatch(plain) else hashlib.sha256(name.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class JobCommit:
    """A snapshot that was committed by a Flink job, or by a replay on behalf of the job.

    Args:
        snapshot: the snapshot.
        job_id: the job.
        operator_id: its committer; None if an old release did not write it, which means any operator.
        checkpoint_id: the largest checkpoint in the snapshot.
    """

    snapshot: Snapshot
    job_id: str
    operator_id: str | None
    checkpoint_id: int

    def is_by(self, job_id: str, operator_id: str) -> bool:
        """Whether a restore of this job's operator treats the snapshot as its own."""
        return self.job_id == job_id and self.operator_id in {None, operator_id}


def job_commits(metadata: TableMetadata, branch: str) -> Iterator[JobCommit]:
    """Yield a branch's commits by Flink jobs, newest first, as far as its history is retained.

    Raises:
        NotFoundError: the branch does not exist.
    """
    head = ancestry.branch_head(metadata, branch)
    for snapshot in ancestry.ancestors(metadata, head.snapshot_id if head else None):
        commit = job_commit(snapshot)
        if commit is not None:
            yield commit


def job_commit(snapshot: Snapshot) -> JobCommit | None:
    """Return the Flink job in a snapshot's summary; None if the summary does not contain a complete entry."""
    summary = properties_of(snapshot)
    job_id = summary.get(JOB_ID)
    if job_id is None:
        return None
    number = whole_number(summary.get(CHECKPOINT_ID, ""))
    if number is None:
        return None
    return JobCommit(snapshot, job_id, summary.get(OPERATOR_ID), number)


def max_committed(metadata: TableMetadata, branch: str, job_id: str, operator_id: str) -> int:
    """Return the largest checkpoint that a job's operator has committed; `NONE_COMMITTED` if none is known.

    Raises:
        NotFoundError: the branch does not exist.
    """
    return next(
        (
            commit.checkpoint_id
            for commit in job_commits(metadata, branch)
            if commit.is_by(job_id, operator_id)
        ),
        NONE_COMMITTED,
    )


def writer_of(snapshot: Snapshot) -> str:
    """Return the name of the program that committed a snapshot; ``not named`` if it did not say."""
    summary = properties_of(snapshot)
    if name := summary.get(ENGINE_NAME):
        return f"{name} {summary.get('engine-version') or ''}".rstrip()
    if job_commit(snapshot):
        return "Flink"
    return next((name for key, name in _IDS.items() if key in summary), "not named")


def writer_with_job(snapshot: Snapshot) -> str:
    """Return the name of the program that committed a snapshot, with its Flink job if it has one."""
    job = job_commit(snapshot)
    name = writer_of(snapshot)
    name = "a writer without a name" if name == "not named" else name
    return (f"{name} job {job.job_id}" if job else name)[:_LONGEST_NAME]
