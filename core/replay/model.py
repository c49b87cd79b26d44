"""What lies there to be replayed, as plain values that planning makes and committing takes."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from lake.core.catalogs.catalog import Table
from lake.core.flink.state import FLINK_SINK
from lake.core.manifests.data_files import DATA

# States of a checkpoint whose temporary manifests lie there.
COMMITTED_LEFTOVER = "committed-leftover"
PENDING = "pending"
SUPERSEDED = "superseded"
PARTIAL = "partial"
BROKEN = "broken"
FOREIGN = "foreign"
UNPROVEN = "unproven"


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryManifest:
    """A temporary manifest with its entries.

    Args:
        path: its location.
        length: bytes.
        modified_ms: when it was written, in ms since 1970; None where the storage does not tell.
        content: `files.DATA` (0) or 1 for a manifest of delete files.
        spec_id: the partition spec its entries were written with.
        entries: `ENTRY_COLUMNS` of its added files, without the snapshot id and sequence numbers written there.
    """

    path: str
    length: int
    modified_ms: int | None
    content: int
    spec_id: int
    entries: pa.Table

    @property
    def file_paths(self) -> list[str]:
        """The locations of its files, as written there."""
        found: list[str] = self.entries["file_path"].to_pylist()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCheckpoint:
    """A job's checkpoint: what it wrote, what is known of it, and why.

    Args:
        job_id: 32 hexadecimal digits.
        operator_id: 32 hexadecimal digits.
        checkpoint_id: its number.
        attempt: of the committer's task; None where no file's name tells.
        state: one of this module's.
        reason: why, as a sentence for people.
        manifests: the data manifests, then the delete manifests; those that cannot be read are left out.
        blank: as `TakenCheckpoint.blank`.
        proven: whether a completed checkpoint's state, or the operator's word, says that it completed.
        run_id: of the ingest that staged it; None for a job's.
    """

    job_id: str
    operator_id: str
    checkpoint_id: int
    attempt: int | None = None
    state: str
    reason: str
    manifests: tuple[TemporaryManifest, ...] = ()
    blank: bool = False
    proven: bool = False
    run_id: str | None = None

    @property
    def file_paths(self) -> list[str]:
        """The locations of all its files."""
        return [path for manifest in self.manifests for path in manifest.file_paths]

    @property
    def data_files(self) -> int:
        """How many data files it added."""
        return sum(item.entries.num_rows for item in self.manifests if item.content == DATA)

    @property
    def delete_files(self) -> int:
        """How many delete files it added."""
        return sum(item.entries.num_rows for item in self.manifests if item.content != DATA)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingJob:
    """One sink's checkpoints that are to be committed, in ascending order.

    Args:
        sink: which sink's way of committing is followed (`lake.core.flink.state`).
        job_id: as in `FoundCheckpoint`.
        operator_id: as in `FoundCheckpoint`.
        checkpoints: those to commit: pending ones, and unproven ones where the caller took them on.
    """

    sink: str = FLINK_SINK
    job_id: str
    operator_id: str
    checkpoints: tuple[FoundCheckpoint, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayPlan:
    """What a replay found and what it would commit.

    Args:
        table: as it was planned on.
        branch: the branch that the job wrote to.
        base_snapshot_id: the branch's head; None for an empty one.
        found: every checkpoint, ordered by job, operator, number and attempt.
        jobs: what is to be committed; empty for a plain listing.
        replace_partitions: the jobs ran in overwrite mode.
    """

    table: Table
    branch: str
    base_snapshot_id: int | None
    found: tuple[FoundCheckpoint, ...]
    jobs: tuple[PendingJob, ...] = ()
    replace_partitions: bool = False
