"""What a replay was asked to do."""

from __future__ import annotations

from dataclasses import dataclass

from lake.core.errors import InvalidRequestError
from lake.core.flink.manifest_names import END_OF_INPUT
from lake.core.snapshots import ancestry

QUIET_MS = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """What is to be replayed, and on whose word; neither checkpoints nor a job means a listing.

    Args:
        checkpoints: locations of completed checkpoints or savepoints.
        job_id: a job that the operator vouches for.
        completed: the number of its newest completed checkpoint.
        replace_partitions: the jobs ran in overwrite mode.
        quiet_ms: how long a job must have been quiet, in ms.
        assume_uncommitted: take it that what no retained snapshot has was never committed.
        branch: the branch that the jobs wrote to.

    Raises:
        InvalidRequestError: two of them contradict each other.
    """

    checkpoints: tuple[str, ...] = ()
    job_id: str | None = None
    completed: int | None = None
    replace_partitions: bool = False
    quiet_ms: int = QUIET_MS
    assume_uncommitted: bool = False
    branch: str = ancestry.MAIN

    def __post_init__(self) -> None:
        if self.checkpoints and (self.job_id is not None or self.completed is not None):
            raise InvalidRequestError("--checkpoint and --job contradict each other")
        if (self.job_id is None) != (self.completed is None):
            raise InvalidRequestError(
                "--job and --completed belong together",
                hint="`lake replay TABLE` lists the jobs and their checkpoints",
            )
        if self.completed is not None and not 0 <= self.completed <= END_OF_INPUT:
            raise InvalidRequestError(
                f"--completed is {self.completed}, which is no checkpoint's number"
            )
        if not self.commits and (self.replace_partitions or self.assume_uncommitted):
            name = "--replace-partitions" if self.replace_partitions else "--assume-uncommitted"
            raise InvalidRequestError(f"{name} needs --checkpoint, or --job and --completed")

    @property
    def commits(self) -> bool:
        """Whether anything is to be committed."""
        return bool(self.checkpoints) or self.job_id is not None

    @property
    def word(self) -> tuple[str, int] | None:
        """The job, and its checkpoint, that the operator vouches for."""
        if self.job_id is None or self.completed is None:
            return None
        return self.job_id, self.completed
