"""The values of a replay plan: temporary manifests, checkpoints, jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lake.core.load.replay.facts import LeftRun
from lake.core.table.catalogs.catalog import Table
from lake.core.table.flink.state import FLINK_SINK, Checkpoint
from lake.core.table.manifests.data_files import DATA
from lake.core.transaction.staging.staged_run import RunMarks, RunName
from lake.core.transaction.staging.temporary_manifests import TemporaryManifest

# States of a checkpoint.
COMMITTED_LEFTOVER = "committed-leftover"
PENDING = "pending"
SUPERSEDED = "superseded"
PARTIAL = "partial"
BROKEN = "broken"
FOREIGN = "foreign"
UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A checkpoint of a job, its files, its state, and the reason for the state.

    Args:
        job_id: 32 hexadecimal digits.
        operator_id: 32 hexadecimal digits.
        checkpoint_id: its number.
        attempt: the attempt of the committer's task; None if no file name contains it.
        state: one of the states in this module.
        reason: why it has this state, as text for users.
        manifests: the readable data manifests, then the readable delete manifests.
        blank: as `TakenCheckpoint.blank`.
        run: the ingest that staged it; None for a Flink job.
        marks: the properties of that ingest in the manifests.
    """

    job_id: str
    operator_id: str
    checkpoint_id: int
    attempt: int | None = None
    state: str
    reason: str
    manifests: tuple[TemporaryManifest, ...] = ()
    blank: bool = False
    run: RunName | None = None
    marks: RunMarks | None = None

    @property
    def file_paths(self) -> list[str]:
        """The locations of all its files."""
        return [path for manifest in self.manifests for path in manifest.file_paths]

    @property
    def data_files(self) -> int:
        """The number of data files that it added."""
        return sum(item.entries.num_rows for item in self.manifests if item.content == DATA)

    @property
    def spec_of_deletes(self) -> int | None:
        """The partition spec of its delete files; None if it has none."""
        return next((item.spec_id for item in self.manifests if item.content != DATA), None)

    @property
    def delete_files(self) -> int:
        """The number of delete files that it added."""
        return sum(item.entries.num_rows for item in self.manifests if item.content != DATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingJob:
    """The checkpoints of one sink to commit, in ascending order.

    Args:
        sink: the kind of sink, which determines the snapshots (`lake.core.table.flink.state`).
        job_id: as in `FoundCheckpoint`.
        operator_id: as in `FoundCheckpoint`.
        checkpoints: pending checkpoints, and unproven ones that the user accepted.
    """

    sink: str = FLINK_SINK
    job_id: str
    operator_id: str
    checkpoints: tuple[FoundCheckpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """The checkpoints that a replay found, and those that it commits.

    Args:
        table: the table that the plan was made for.
        branch: the branch that the job wrote to.
        base_snapshot_id: the branch's head; None for an empty one.
        found: every checkpoint, ordered by job, operator, number and attempt.
        jobs: the checkpoints to commit, by job; empty for a listing.
        replace_partitions: whether the jobs ran in overwrite mode.
        all_staged: whether all staged runs are committed; then ``jobs`` are these runs in the order of writing.
        left: the staged runs that are not committed, although no snapshot contains their rows.
        given: the newest given checkpoint of each job, by job id and operator id.
    """

    table: Table
    branch: str
    base_snapshot_id: int | None
    found: tuple[FoundCheckpoint, ...]
    jobs: tuple[PendingJob, ...] = ()
    replace_partitions: bool = False
    all_staged: bool = False
    left: tuple[LeftRun, ...] = ()
    given: Mapping[tuple[str, str], Checkpoint] = field(default_factory=dict)

    @property
    def newest_by_job(self) -> dict[tuple[str, str], int]:
        """The largest checkpoint to commit, by job id and operator id."""
        return {
            (job.job_id, job.operator_id): max(item.checkpoint_id for item in job.checkpoints)
            for job in self.jobs
            if job.checkpoints
        }
