"""Classify the checkpoints that have temporary manifests: pending, committed, superseded, and so on, and why.

This module does no I/O. A checkpoint number proves nothing by itself: counters restart, older checkpoints are
restored, and two jobs use the same number. The decision depends first on whether the checkpoint's files occur in a
retained snapshot, then on the state of a completed checkpoint, then on later attempts and jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from lake.core.load.replay.model import (
    BROKEN,
    COMMITTED_LEFTOVER,
    FOREIGN,
    PARTIAL,
    PENDING,
    SUPERSEDED,
    UNPROVEN,
    FoundCheckpoint,
)
from lake.core.table.flink.commits import NONE_COMMITTED
from lake.core.table.flink.manifest_names import END_OF_INPUT
from lake.core.transaction.staging.staged_run import RunMarks, RunName, shown_run
from lake.core.transaction.staging.temporary_manifests import TemporaryManifest

JobKey = tuple[str, str]
_SECOND_MS = 1000


class Doubt(Enum):
    """Why a checkpoint is unproven."""

    NUMBER = "its number is not greater than the committed one"
    HISTORY = "snapshots that may have contained its files have expired"
    LATER = "it is later than the given checkpoint"
    END = "no checkpoint confirms the end of a bounded input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known about one checkpoint before it is classified.

    Args:
        job_id: the id of the job.
        operator_id: the id of its committer operator.
        checkpoint_id: the number of the checkpoint.
        attempt: the attempt of the task that wrote it; None if no file name contains it.
        manifests: the readable manifests, data before deletes.
        blank: as `TakenCheckpoint.blank`.
        named: whether the state of the newest given checkpoint names it.
        written_ms: when its first manifest was written, in ms since 1970; None if unknown.
        last_ms: when its last manifest was written.
        problem: why a manifest cannot be read, or how it differs from the state.
        has_missing_manifests: whether manifests that the state names do not exist.
        foreign: why it belongs to another table or branch.
        known_files: the number of its files that occur in a retained snapshot.
        missing: a message about a file that is missing or too short.
        run: the ingest that staged it; None for a Flink job.
        marks: the properties of that ingest in the manifests.
        ran: whether that ingest is in the table, with these files or with others.
    """

    job_id: str
    operator_id: str
    checkpoint_id: int
    attempt: int | None = None
    manifests: tuple[TemporaryManifest, ...] = ()
    blank: bool = False
    named: bool = False
    written_ms: int | None = None
    last_ms: int | None = None
    problem: str | None = None
    has_missing_manifests: bool = False
    foreign: str | None = None
    known_files: int = 0
    missing: str | None = None
    run: RunName | None = None
    marks: RunMarks | None = None
    ran: bool = False

    @property
    def job(self) -> JobKey:
        """The ids of the job and the operator."""
        return self.job_id, self.operator_id

    @property
    def files(self) -> int:
        """The number of files in its manifests."""
        return sum(manifest.entries.num_rows for manifest in self.manifests)


@dataclass(frozen=True, slots=True)
class CheckpointUse:
    """A checkpoint number that a job has used, and when (ms since 1970; None if unknown)."""

    job_id: str
    operator_id: str | None
    checkpoint_id: int
    moment_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassificationContext:
    """What is known about the table and the jobs.

    Args:
        committed: the largest committed checkpoint of each job on the branch.
        given: the number of the newest given checkpoint of each job.
        uses: checkpoint numbers found in snapshots.
        operator_assertion: a job and the checkpoint that its operator says completed.
        retained_since_ms: since when all snapshots of the branch are retained, in ms since 1970; None for all.
    """

    committed: Mapping[JobKey, int] = field(default_factory=dict)
    given: Mapping[JobKey, int] = field(default_factory=dict)
    uses: Sequence[CheckpointUse] = ()
    operator_assertion: tuple[str, int] | None = None
    retained_since_ms: int | None = None

    def committed_by(self, job: JobKey) -> int:
        """Return the largest committed checkpoint of a job; `NONE_COMMITTED` for none."""
        return self.committed.get(job, NONE_COMMITTED)


@dataclass(frozen=True, slots=True)
class Classified:
    """A checkpoint and its state.

    Args:
        evidence: what is known about it.
        found: the checkpoint with its state and the reason for it.
        doubt: why it is unproven; None in all other states.
        is_superseded: whether a later attempt or job read and wrote its rows again.
    """

    evidence: Evidence
    found: FoundCheckpoint
    doubt: Doubt | None = None
    is_superseded: bool = False


def classify(evidence: Sequence[Evidence], context: ClassificationContext) -> list[Classified]:
    """Classify checkpoints; the result is ordered by job, operator, number and attempt."""
    uses = [*context.uses, *map(_use, evidence)]
    attempts = _newest_attempts(evidence)
    ordered = sorted(
        evidence,
        key=lambda item: (*item.job, item.checkpoint_id, item.attempt or 0, not item.named),
    )
    return [_classify(item, context, attempts, uses) for item in ordered]


def _use(item: Evidence) -> CheckpointUse:
    return CheckpointUse(item.job_id, item.operator_id, item.checkpoint_id, item.written_ms)


@dataclass(frozen=True, slots=True)
class _Attempt:
    number: int
    last_ms: int | None


def _newest_attempts(evidence: Iterable[Evidence]) -> dict[JobKey, _Attempt]:
    newest: dict[JobKey, _Attempt] = {}
    for item in evidence:
        if item.attempt is None:
            continue
        known = newest.get(item.job)
        if known is None or item.attempt > known.number:
            newest[item.job] = _Attempt(item.attempt, item.written_ms)
        elif item.attempt == known.number and known.last_ms is not None:
            last = None if item.written_ms is None else max(known.last_ms, item.written_ms)
            newest[item.job] = _Attempt(item.attempt, last)
    return newest


def _classify(
    item: Evidence,
    context: ClassificationContext,
    attempts: Mapping[JobKey, _Attempt],
    uses: Sequence[CheckpointUse],
) -> Classified:
    committed = context.committed_by(item.job)
    later = _later_attempt(item, attempts, committed) or _later_job(item, committed, uses)
    doubt: Doubt | None = None
    if verdict := _by_files(item, context):
        state, reason = verdict
    elif item.named:
        (state, reason), doubt = _named(item, context)
    elif later:
        state, reason = SUPERSEDED, later
    else:
        (state, reason), doubt = _unnamed(item, context)
    found = FoundCheckpoint(
        job_id=item.job_id,
        operator_id=item.operator_id,
        checkpoint_id=item.checkpoint_id,
        attempt=item.attempt,
        state=state,
        reason=reason,
        manifests=item.manifests,
        blank=item.blank,
        run=item.run,
        marks=item.marks,
    )
    return Classified(item, found, doubt, later is not None)


_Verdict = tuple[str, str]


def _by_files(item: Evidence, context: ClassificationContext) -> _Verdict | None:
    """Classify by the files themselves."""
    committed = context.committed_by(item.job)
    if item.foreign:
        return FOREIGN, item.foreign
    if item.has_missing_manifests and not item.problem and item.checkpoint_id <= committed:
        if item.known_files == item.files:
            return COMMITTED_LEFTOVER, (
                f"its manifests were removed, and the job has committed checkpoint {committed}"
            )
        return BROKEN, "a manifest that the checkpoint names is missing"
    if item.has_missing_manifests or item.problem:
        return BROKEN, item.problem or "a manifest that the checkpoint names is missing"
    if item.files and item.known_files == item.files:
        return (
            COMMITTED_LEFTOVER,
            "its files are or were in a snapshot; only its manifests are left over",
        )
    if item.known_files and item.run and item.ran:
        return (
            COMMITTED_LEFTOVER,
            f"{shown_run(item.run)} was committed; only its manifests are left over",
        )
    if item.known_files:
        return PARTIAL, (
            f"only {item.known_files} of its {item.files} files occur in the table's snapshots"
        )
    if item.ran:
        return SUPERSEDED, f"{shown_run(item.run or '')} was committed already, with other files"
    if item.missing:
        return BROKEN, item.missing
    return None


def _named(item: Evidence, context: ClassificationContext) -> tuple[_Verdict, Doubt | None]:
    """Classify a checkpoint that a completed checkpoint's state names."""
    committed = context.committed_by(item.job)
    if item.checkpoint_id > committed:
        if item.files and (expired := _expired(item, context)):
            return (UNPROVEN, expired), Doubt.HISTORY
        what = "it wrote no files" if not item.files else "no snapshot contains its files"
        return (PENDING, f"the given checkpoint names it, and {what}"), None
    if not item.files:
        return (
            COMMITTED_LEFTOVER,
            f"it wrote no files, and checkpoint {committed} is committed",
        ), None
    return (UNPROVEN, _restarted(committed)), Doubt.NUMBER


def _unnamed(item: Evidence, context: ClassificationContext) -> tuple[_Verdict, Doubt | None]:
    """Classify a checkpoint that no given checkpoint names."""
    committed = context.committed_by(item.job)
    given = context.given.get(item.job)
    end_asserted = context.operator_assertion is not None and context.operator_assertion == (
        item.job_id,
        END_OF_INPUT,
    )
    if item.checkpoint_id <= committed:
        return (UNPROVEN, _restarted(committed)), Doubt.NUMBER
    if item.checkpoint_id == END_OF_INPUT and not end_asserted:
        return (UNPROVEN, Doubt.END.value), Doubt.END
    if given is not None and item.checkpoint_id <= given:
        return (SUPERSEDED, f"the given checkpoint {given} completed and does not name it"), None
    if given is not None:
        return (
            UNPROVEN,
            f"it is later than the given checkpoint {given}, and nothing proves that it completed",
        ), Doubt.LATER
    if expired := _expired(item, context):
        return (UNPROVEN, expired), Doubt.HISTORY
    if item.run:
        return (PENDING, f"{shown_run(item.run)} staged it and has not committed it"), None
    known = "no checkpoint" if committed == NONE_COMMITTED else f"checkpoint {committed}"
    reason = f"no snapshot contains its files, and {known} is the job's last committed one"
    return (PENDING, reason), None


def _restarted(committed: int) -> str:
    return (
        f"no snapshot contains its files, although the job has committed checkpoint {committed}: its counter "
        "restarted, an older checkpoint was restored, a later attempt wrote its rows again, or its files were "
        "compacted long ago"
    )


def _expired(item: Evidence, context: ClassificationContext) -> str | None:
    """Return a message if snapshots that contained the checkpoint's files may have expired."""
    since = context.retained_since_ms
    if since is None or (item.written_ms is not None and since < _at_the_latest(item.written_ms)):
        return None
    return (
        "the snapshots from the time when it was written have expired: "
        "its files may have been committed and compacted since"
    )


def _at_the_latest(moment_ms: int) -> int:
    """Return the latest time that a file's timestamp can stand for: many stores report whole seconds."""
    return moment_ms + (1 if moment_ms % _SECOND_MS else _SECOND_MS)


def _later_attempt(
    item: Evidence, attempts: Mapping[JobKey, _Attempt], committed: int
) -> str | None:
    newest = attempts.get(item.job)
    if newest is None or item.attempt is None or item.attempt >= newest.number:
        return None
    earlier = (
        newest.last_ms is not None
        and item.written_ms is not None
        and newest.last_ms < item.written_ms
    )
    if earlier and item.checkpoint_id <= committed:
        # The job's counter restarted, and so did the count of attempts.
        return None
    return (
        f"attempt {newest.number} of the job continued after attempt {item.attempt}, "
        "and wrote the uncommitted rows again"
    )


def _later_job(item: Evidence, committed: int, uses: Sequence[CheckpointUse]) -> str | None:
    """Return a message about a later job with the same operator that continued from an earlier number."""
    if item.run is not None:
        # All runs and streams of lake have one operator, and do not continue one another.
        return None
    firsts: dict[str, int] = {}
    lasts: dict[str, int | None] = {}
    for use in uses:
        if use.operator_id != item.operator_id or use.job_id == item.job_id:
            continue
        firsts[use.job_id] = min(use.checkpoint_id, firsts.get(use.job_id, END_OF_INPUT))
        known = lasts.get(use.job_id, 0)
        unknown = known is None or use.moment_ms is None
        lasts[use.job_id] = None if unknown else max(known or 0, use.moment_ms or 0)
    for job_id, first in sorted(firsts.items()):
        last = lasts[job_id]
        is_later = last is None or item.written_ms is None or last >= item.written_ms
        if is_later and 1 < first <= item.checkpoint_id and committed < first:
            return f"job {job_id} continued from checkpoint {first - 1}, which is before this one"
    return None
