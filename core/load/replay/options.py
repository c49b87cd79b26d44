"""The options of a replay."""

from __future__ import annotations

from dataclasses import dataclass

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.table.flink.commits import job_id_of
from lake.core.table.flink.manifest_names import END_OF_INPUT
from lake.core.table.snapshots import ancestry

QUIET_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The checkpoints to replay and the proof that they completed; without either, list checkpoints only.

    Args:
        checkpoint: locations of completed checkpoints or savepoints.
        job: a job whose operator asserts what it completed, or the run id of a staged load.
        completed: the number of this job's newest completed checkpoint.
        replace_partitions: whether the jobs ran in overwrite mode.
        quiet_time: how long a job must have written nothing, in ms.
        assume_uncommitted: assume that files in no retained snapshot were never committed.
        branch: the branch that the jobs wrote to.
        all_staged: whether to commit all staged runs of the branch, and nothing of Flink's jobs.
        tag: whether the snapshots that contain the given checkpoints get tags.

    Raises:
        InvalidRequestError: two options contradict each other.
    """

    checkpoint: tuple[str, ...] = ()
    job: str | None = None
    completed: int | None = None
    replace_partitions: bool = False
    quiet_time: int = QUIET_MS
    assume_uncommitted: bool = False
    branch: str = ancestry.MAIN
    all_staged: bool = False
    tag: bool = False

    def __post_init__(self) -> None:
        if self.checkpoint and (self.job is not None or self.completed is not None):
            raise InvalidRequestError(f"{Option.CHECKPOINT} and {Option.JOB} contradict each other")
        if self.all_staged:
            self._check_all_staged()
        if self.tag and not self.checkpoint:
            raise InvalidRequestError(f"{Option.TAG} needs {Option.CHECKPOINT}")
        if (self.job is None) != (self.completed is None):
            raise InvalidRequestError(
                f"{Option.JOB} and {Option.COMPLETED} must be given together",
                hint="`lake replay TABLE` lists the jobs and their checkpoints",
            )
        if self.completed is not None and not 0 <= self.completed <= END_OF_INPUT:
            raise InvalidRequestError(
                f"{Option.COMPLETED} {self.completed} is not a checkpoint number"
            )
        if not self.commits and (self.replace_partitions or self.assume_uncommitted):
            name = Option.ASSUME_UNCOMMITTED
            if self.replace_partitions:
                name = Option.REPLACE_PARTITIONS
            raise InvalidRequestError(
                f"{name} needs {Option.CHECKPOINT}, or {Option.JOB} and {Option.COMPLETED}"
            )

    def _check_all_staged(self) -> None:
        """Refuse options that choose or describe the checkpoints of Flink's jobs."""
        given = {
            Option.CHECKPOINT: self.checkpoint,
            Option.JOB: self.job,
            Option.COMPLETED: self.completed is not None,
            Option.REPLACE_PARTITIONS: self.replace_partitions,
            Option.ASSUME_UNCOMMITTED: self.assume_uncommitted,
        }
        for option, value in given.items():
            if value:
                raise InvalidRequestError(f"{Option.ALL_STAGED} and {option} contradict each other")

    @property
    def commits(self) -> bool:
        """Whether the replay commits anything."""
        return bool(self.checkpoint) or self.job is not None or self.all_staged

    @property
    def operator_assertion(self) -> tuple[str, int] | None:
        """The job, as 32 hexadecimal digits, and the checkpoint that its operator says completed."""
        if self.job is None or self.completed is None:
            return None
        return job_id_of(self.job), self.completed
