"""What a replay found and what it committed, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, omitted
from lake.core.table.refs.facts import TagFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts(Facts):
    """A checkpoint that was found; `written_ms` is the time of its first manifest, None if nothing shows it."""

    job_id: str
    operator_id: str
    checkpoint_id: str
    attempt: int | None
    state: str
    data_files: int
    delete_files: int
    rows: int
    written_ms: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftRun(Facts):
    """A staged run that a replay of all staged runs does not commit: its id, its state, and the reason."""

    run_id: str
    state: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayFacts(Facts):
    """All checkpoints that were found."""

    checkpoints: Sequence[CheckpointFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFacts(ReplayFacts):
    """The checkpoints, and how much of them would be committed; a listing counts those that are pending.

    `left_runs` and the names in `tags` are in a dry run only.
    """

    pending: int = 0
    data_files: int = 0
    delete_files: int = 0
    rows: int = 0
    left_runs: Sequence[LeftRun] | None = omitted()
    tags: Sequence[str] | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(Facts):
    """What was committed; the ids of runs are in the result of a replay of all staged runs only."""

    committed_checkpoints: int = 0
    skipped_checkpoints: int = 0
    data_files: int = 0
    delete_files: int = 0
    committed_runs: Sequence[str] | None = omitted()
    left_runs: Sequence[LeftRun] | None = omitted()
    tags: Sequence[TagFacts] | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts(Facts):
    """The checkpoints of a job; files, rows and age are of those that are pending."""

    job_id: str
    operator_id: str | None
    committed_checkpoint: str | None
    pending_checkpoints: Sequence[str]
    unproven_checkpoints: Sequence[str]
    damaged_checkpoints: Sequence[str]
    data_files: int
    delete_files: int
    rows: int
    age_seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsResult(Facts):
    """The jobs that wrote to the table."""

    jobs: Sequence[JobFacts] = ()
