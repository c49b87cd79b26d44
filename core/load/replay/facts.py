"""What a replay found and what it committed, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, omitted
from lake.core.table.refs.facts import TagFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts(Facts):
    """A checkpoint that was found."""

    job_id: str
    operator_id: str
    """The operator of the job."""
    checkpoint_id: str
    attempt: int | None
    """The number of the attempt; null if it has none."""
    state: str
    """`pending`, `unproven`, `committed-leftover`, `superseded`, `partial`, `broken` or `foreign`."""
    data_files: int
    """Its data files."""
    delete_files: int
    """Its delete files."""
    rows: int
    """Rows of its data files."""
    written_ms: int | None
    """The time of its first manifest; null if nothing shows it."""
    reason: str
    """Why it is in this state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRun(Facts):
    """A staged run that a replay of all staged runs does not commit."""

    run_id: str
    state: str
    """Its state."""
    reason: str
    """Why it is left."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFacts(Facts):
    """All checkpoints that were found."""

    checkpoints: Sequence[CheckpointFacts] = ()
    """The checkpoints that were found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFacts(ReplayFacts):
    """The checkpoints, and how much of them would be committed; a listing counts those that are pending."""

    pending: int = 0
    """Checkpoints that can be committed."""
    data_files: int = 0
    """Data files of these."""
    delete_files: int = 0
    """Delete files of these."""
    rows: int = 0
    """Rows of their data files."""
    left_runs: Sequence[LeftRun] | None = omitted()
    """In a dry run with `all_staged=`, the runs that are left."""
    tags: Sequence[str] | None = omitted()
    """In a dry run with `tag=`, the names of the tags."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(Facts):
    """What was committed."""

    committed_checkpoints: int = 0
    """Checkpoints that were committed."""
    skipped_checkpoints: int = 0
    """Checkpoints that were not."""
    data_files: int = 0
    """Data files that were added."""
    delete_files: int = 0
    """Delete files that were added."""
    committed_runs: Sequence[str] | None = omitted()
    """With `all_staged=`, the run ids that were committed."""
    left_runs: Sequence[LeftRun] | None = omitted()
    """With `all_staged=`, the runs that are left."""
    tags: Sequence[TagFacts] | None = omitted()
    """With `tag=`, the tags of the table."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts(Facts):
    """The checkpoints of a job."""

    job_id: str
    operator_id: str | None
    """The operator of the job; null if it is not known."""
    committed_checkpoint: str | None
    """The last checkpoint that the table contains; null without one."""
    pending_checkpoints: Sequence[str]
    """Checkpoints that can be committed."""
    unproven_checkpoints: Sequence[str]
    """Checkpoints of which nothing proves that they are not committed."""
    damaged_checkpoints: Sequence[str]
    """Checkpoints that are partial or broken."""
    data_files: int
    """Data files of the pending checkpoints."""
    delete_files: int
    """Delete files of the pending ones."""
    rows: int
    """Rows of the pending ones."""
    age_seconds: float | None
    """The age of the oldest pending one, by its first manifest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsResult(Facts):
    """The jobs that wrote to the table."""

    jobs: Sequence[JobFacts] = ()
    """With `status=`, the jobs that wrote to the table."""
