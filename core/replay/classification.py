"""The judgement: what a checkpoint whose temporary manifests lie there is, and why.

Pure: nothing is read here. A number proves nothing by itself (counters restart, older checkpoints are restored, one
number is used by two jobs); what decides is whether the checkpoint's files occur in a retained snapshot, then what
a completed checkpoint's own state names, then what is known of later attempts and jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from lake.core.flink.commits import NONE_COMMITTED
from lake.core.flink.manifest_names import END_OF_INPUT
from lake.core.replay.model import (
    BROKEN,
    COMMITTED_LEFTOVER,
    FOREIGN,
    PARTIAL,
    PENDING,
    SUPERSEDED,
    UNPROVEN,
    FoundCheckpoint,
    TemporaryManifest,
)

JobKey = tuple[str, str]
_SECOND_MS = 1000


class Doubt(Enum):
    """Why a checkpoint is unproven."""

    NUMBER = "its number is not above the committed one"
    HISTORY = "snapshots that could hold its files have expired"
    LATER = "it is later than the checkpoint that was given"
    END = "no checkpoint names the end of a bounded input"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What is known of one checkpoint before it is judged.

    Args:
        job_id: of the job.
        operator_id: of its committer.
        checkpoint_id: the number.
        attempt: of the task that wrote it; None where no file's name tells.
        manifests: those that could be read, data before deletes.
        blank: as `TakenCheckpoint.blank`.
        named: whether the newest given checkpoint's state names it.
        written_ms: when the first of its manifests was written, in ms since 1970; None where that is not known.
        last_ms: when the last of them was.
        problem: why a manifest cannot be read, or is not what the state says.
        lost: whether manifests that the state names are not there.
        foreign: why it is another table's, or another branch's.
        known_files: how many of its files occur in a retained snapshot.
        missing: which of its files is missing or too short.
        run_id: of the ingest of lake's that staged it; None for a job's.
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
    lost: bool = False
    foreign: str | None = None
    known_files: int = 0
    missing: str | None = None
    run_id: str | None = None
    ran: bool = False

    @property
    def job(self) -> JobKey:
        """The job and the operator."""
        return self.job_id, self.operator_id

    @property
    def files(self) -> int:
        """How many files its manifests name."""
        return sum(manifest.entries.num_rows for manifest in self.manifests)


@dataclass(frozen=True, slots=True)
class CheckpointUse:
    """A checkpoint number that a job is known to have used, and when (ms since 1970; None if unknown)."""

    job_id: str
    operator_id: str | None
    checkpoint_id: int
    moment_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """What is known beside the checkpoints themselves.

    Args:
        committed: the largest committed checkpoint by job, on the branch.
        given: the number of the newest given checkpoint that has this job.
        traces: checkpoint numbers found in snapshots.
        word: a job and a number which the operator says completed.
        retained_since_ms: from when on all of the branch's snapshots are retained, in ms since 1970; None for ever.
    """

    committed: Mapping[JobKey, int] = field(default_factory=dict)
    given: Mapping[JobKey, int] = field(default_factory=dict)
    traces: Sequence[CheckpointUse] = ()
    word: tuple[str, int] | None = None
    retained_since_ms: int | None = None

    def committed_by(self, job: JobKey) -> int:
        """Return the largest committed checkpoint of a job; `NONE_COMMITTED` for none."""
        return self.committed.get(job, NONE_COMMITTED)


@dataclass(frozen=True, slots=True)
class Judged:
    """A checkpoint's judgement.

    Args:
        evidence: what was known.
        found: the checkpoint with its state and the reason.
        doubt: why it is unproven; None in every other state.
        is_over: whether a later attempt or job read and wrote again what it holds.
    """

    evidence: Evidence
    found: FoundCheckpoint
    doubt: Doubt | None = None
    is_over: bool = False


def judge(evidence: Sequence[Evidence], around: Surroundings) -> list[Judged]:
    """Return what each checkpoint is, ordered by job, operator, number and attempt."""
    traces = [*around.traces, *map(_trace, evidence)]
    attempts = _newest_attempts(evidence)
    ordered = sorted(
        evidence,
        key=lambda item: (*item.job, item.checkpoint_id, item.attempt or 0, not item.named),
    )
    return [_judged(item, around, attempts, traces) for item in ordered]


def _trace(item: Evidence) -> CheckpointUse:
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


def _judged(
    item: Evidence,
    around: Surroundings,
    attempts: Mapping[JobKey, _Attempt],
    traces: Sequence[CheckpointUse],
) -> Judged:
    committed = around.committed_by(item.job)
    later = _later_attempt(item, attempts, committed) or _later_job(item, committed, traces)
    doubt: Doubt | None = None
    if verdict := _by_files(item, around):
        state, reason = verdict
    elif item.named:
        (state, reason), doubt = _named(item, around)
    elif later:
        state, reason = SUPERSEDED, later
    else:
        (state, reason), doubt = _unnamed(item, around)
    told = around.word is not None and _is_told(item, around.word)
    found = FoundCheckpoint(
        job_id=item.job_id,
        operator_id=item.operator_id,
        checkpoint_id=item.checkpoint_id,
        attempt=item.attempt,
        state=state,
        reason=reason,
        manifests=item.manifests,
        blank=item.blank,
        proven=state == PENDING and (item.named or told),
        run_id=item.run_id,
    )
    return Judged(item, found, doubt, later is not None)


def _is_told(item: Evidence, word: tuple[str, int]) -> bool:
    return item.job_id == word[0] and item.checkpoint_id <= word[1]


_Verdict = tuple[str, str]


def _by_files(item: Evidence, around: Surroundings) -> _Verdict | None:
    """Judge by what the files themselves tell."""
    committed = around.committed_by(item.job)
    if item.foreign:
        return FOREIGN, item.foreign
    if item.lost and not item.problem and item.checkpoint_id <= committed:
        if item.known_files == item.files:
            return COMMITTED_LEFTOVER, (
                f"its manifests are gone, and the job has committed checkpoint {committed}"
            )
        return BROKEN, "a manifest that the checkpoint names is missing"
    if item.lost or item.problem:
        return BROKEN, item.problem or "a manifest that the checkpoint names is missing"
    if item.files and item.known_files == item.files:
        return (
            COMMITTED_LEFTOVER,
            "a snapshot has, or had, its files; nothing but manifests is left over",
        )
    if item.known_files:
        return PARTIAL, (
            f"{item.known_files} of its {item.files} files occur in the table's snapshots, the others do not"
        )
    if item.ran:
        return SUPERSEDED, f"run {item.run_id} is in the table already, with other files"
    if item.missing:
        return BROKEN, item.missing
    return None


def _named(item: Evidence, around: Surroundings) -> tuple[_Verdict, Doubt | None]:
    """Judge what a completed checkpoint's state names."""
    committed = around.committed_by(item.job)
    if item.checkpoint_id > committed:
        if item.files and (expired := _expired(item, around)):
            return (UNPROVEN, expired), Doubt.HISTORY
        what = "it wrote no files" if not item.files else "no snapshot has its files"
        return (PENDING, f"the given checkpoint names it, and {what}"), None
    if not item.files:
        return (COMMITTED_LEFTOVER, f"it wrote no files, and {committed} is committed"), None
    return (UNPROVEN, _restarted(committed)), Doubt.NUMBER


def _unnamed(item: Evidence, around: Surroundings) -> tuple[_Verdict, Doubt | None]:
    """Judge what no given checkpoint names."""
    committed = around.committed_by(item.job)
    given = around.given.get(item.job)
    told_end = around.word is not None and around.word == (item.job_id, END_OF_INPUT)
    if item.checkpoint_id <= committed:
        return (UNPROVEN, _restarted(committed)), Doubt.NUMBER
    if item.checkpoint_id == END_OF_INPUT and not told_end:
        return (UNPROVEN, f"{Doubt.END.value}, so nothing proves that it was reached"), Doubt.END
    if given is not None and item.checkpoint_id <= given:
        return (SUPERSEDED, f"the given checkpoint {given} completed without it"), None
    if given is not None:
        return (
            UNPROVEN,
            f"the given checkpoint is {given}: nothing proves that this later one completed",
        ), Doubt.LATER
    if expired := _expired(item, around):
        return (UNPROVEN, expired), Doubt.HISTORY
    if item.run_id:
        return (PENDING, f"run {item.run_id} wrote it and has not committed it"), None
    known = "no checkpoint" if committed == NONE_COMMITTED else f"checkpoint {committed}"
    reason = f"no snapshot has its files, and {known} is the job's last committed one"
    return (PENDING, reason), None


def _restarted(committed: int) -> str:
    return (
        f"no snapshot has its files, though the job has committed checkpoint {committed}: "
        "its counter restarted, or an older checkpoint was restored; or an attempt failed and wrote its rows again, "
        "or its files were compacted away long ago"
    )


def _expired(item: Evidence, around: Surroundings) -> str | None:
    """Say that snapshots may have expired in which the files of a checkpoint were."""
    since = around.retained_since_ms
    if since is None or (item.written_ms is not None and since < _at_the_latest(item.written_ms)):
        return None
    return (
        "the snapshots from the time when it was written have expired: "
        "its files may have been committed and compacted away since"
    )


def _at_the_latest(moment_ms: int) -> int:
    """Return the end of the time that a file's own stands for: many stores and archives tell whole seconds."""
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
        # A counter that restarted: attempts were counted anew as well.
        return None
    return (
        f"attempt {newest.number} of the job went on after attempt {item.attempt}: "
        "what that had not committed was read and written again"
    )


def _later_job(item: Evidence, committed: int, traces: Sequence[CheckpointUse]) -> str | None:
    """Say which job took over: one with the same operator that goes on from an earlier number, and wrote later."""
    firsts: dict[str, int] = {}
    lasts: dict[str, int | None] = {}
    for trace in traces:
        if trace.operator_id != item.operator_id or trace.job_id == item.job_id:
            continue
        firsts[trace.job_id] = min(trace.checkpoint_id, firsts.get(trace.job_id, END_OF_INPUT))
        known = lasts.get(trace.job_id, 0)
        unknown = known is None or trace.moment_ms is None
        lasts[trace.job_id] = None if unknown else max(known or 0, trace.moment_ms or 0)
    for job_id, first in sorted(firsts.items()):
        last = lasts[job_id]
        is_later = last is None or item.written_ms is None or last >= item.written_ms
        if is_later and 1 < first <= item.checkpoint_id and committed < first:
            return f"job {job_id} went on from checkpoint {first - 1}, before this one"
    return None
