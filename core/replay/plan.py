"""Plan a replay: what lies there, what it is, and what of it is to be committed.

Reading, judging and refusing happen here; nothing is changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from lake.core.checkpoints.state import FLINK_SINK
from lake.core.errors import InvalidRequestError, RefusedError
from lake.core.replay.evidence import Findings, gather
from lake.core.replay.given import Given, choose_given, later_checkpoints, read_given
from lake.core.replay.history import retained_since
from lake.core.replay.model import (
    BROKEN,
    PARTIAL,
    PENDING,
    FoundCheckpoint,
    PendingJob,
    ReplayPlan,
)
from lake.core.replay.names import END_OF_INPUT
from lake.core.replay.states import Doubt, JobKey, Judged, Surroundings, Trace, judge
from lake.core.table import lineage
from lake.core.table.flink_jobs import job_commit, job_commits, max_committed
from lake.core.table.run_ids import OPERATION_ID
from lake.core.units import format_duration

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.session import Session
    from lake.core.table.catalog import Table

QUIET_MS = 600_000
REPLACE_PARTITIONS = "replace-partitions"
LAKE_OPERATOR_ID = b"lake-staged-rows".hex()
_TRIES = 3
_ASSUMED = frozenset({Doubt.NUMBER, Doubt.HISTORY})


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
    branch: str = lineage.MAIN

    def __post_init__(self) -> None:
        if self.checkpoints and self.job_id is not None:
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


def plan_replay(session: Session, table: Table, options: ReplayOptions) -> ReplayPlan:
    """Find what lies there, judge it, and choose what is to be committed.

    Raises:
        NotFoundError: there is no such branch, or no such checkpoint.
        BadInputError: a checkpoint cannot be read or has no Iceberg sink; metadata of a retained snapshot is
            damaged.
        RefusedError: a safety rule forbids what was asked for.
    """
    checkpoints = read_given(table, options.checkpoints)
    for _ in range(_TRIES):
        planned = _Planning(
            session, table, options, choose_given(table, options.branch, checkpoints)
        )
        plan = planned.plan()
        if not planned.lost:
            break
        # Whoever commits a checkpoint removes its manifests afterwards: look at the table as it is then.
        now = table.refreshed()
        if now.metadata_location == table.metadata_location:
            break
        table = now
    planned.check()
    return plan


@dataclass(slots=True)
class _Planning:
    """One look at the table and what lies beside it."""

    session: Session
    table: Table
    options: ReplayOptions
    given: Given
    findings: Findings = field(init=False)
    judged: list[Judged] = field(init=False)
    jobs: list[PendingJob] = field(init=False)

    def plan(self) -> ReplayPlan:
        """Return what was found and what is to be committed, unless `check` refuses it."""
        metadata, branch = self.table.metadata, self.options.branch
        head = lineage.branch_head(metadata, branch)
        self.findings = gather(self.table, self.given)
        self.judged = judge(self.findings.evidence, self._surroundings())
        self.jobs = self._choose()
        return ReplayPlan(
            table=self.table,
            branch=branch,
            base_snapshot_id=head.snapshot_id if head else None,
            found=tuple(item.found for item in self.judged),
            jobs=tuple(self.jobs),
            replace_partitions=self.options.replace_partitions,
        )

    @property
    def lost(self) -> bool:
        """Whether manifests of what is to be committed are not there."""
        return any(item.evidence.lost for item in self._unfit())

    def check(self) -> None:
        """Refuse what may not be committed, and tell what is left out.

        Raises:
            RefusedError: a safety rule forbids it.
        """
        self._tell()
        self._refuse_unfit()
        self._refuse_expired()
        for job in self.jobs:
            if any(item.manifests for item in job.checkpoints):
                self._refuse_alive(job)
                self._refuse_mode(job)
        self._refuse_twice()

    def _surroundings(self) -> Surroundings:
        metadata, branch, options = self.table.metadata, self.options.branch, self.options
        jobs = {item.job for item in self.findings.evidence}
        word = None
        if options.job_id is not None and options.completed is not None:
            word = (options.job_id, options.completed)
        return Surroundings(
            committed={job: max_committed(metadata, branch, *job) for job in jobs},
            given=self.given.numbers(),
            traces=[trace for item in metadata.snapshots if (trace := _trace(item))],
            word=word,
            retained_since_ms=retained_since(metadata, branch),
        )

    def _asked_for(self) -> list[Judged]:
        """Return the checkpoints that a given state names, or that the operator's word covers."""
        options = self.options
        if options.job_id is None:
            return [item for item in self.judged if item.evidence.named]
        return [
            item
            for item in self.judged
            if item.found.job_id == options.job_id
            and item.found.checkpoint_id <= (options.completed or 0)
            and not item.is_over
        ]

    def _chosen(self) -> list[FoundCheckpoint]:
        assumed = _ASSUMED if self.options.assume_uncommitted else frozenset()
        return [
            item.found
            for item in self._asked_for()
            if item.found.state == PENDING or item.doubt in assumed
        ]

    def _choose(self) -> list[PendingJob]:
        jobs: dict[JobKey, list[FoundCheckpoint]] = {}
        for found in self._chosen():
            jobs.setdefault((found.job_id, found.operator_id), []).append(found)
        return [
            PendingJob(
                sink=self._sink(job), job_id=job[0], operator_id=job[1], checkpoints=tuple(items)
            )
            for job, items in jobs.items()
        ]

    def _sink(self, job: JobKey) -> str:
        given = self.given.states.get(job)
        return given[1].sink if given else FLINK_SINK

    def _unfit(self) -> list[Judged]:
        """Return what would be committed if it could be."""
        return [
            item
            for item in self._asked_for()
            if item.found.state in {BROKEN, PARTIAL}
            and (
                self.options.assume_uncommitted or item.found.checkpoint_id > self._committed(item)
            )
        ]

    def _committed(self, item: Judged) -> int:
        return max_committed(self.table.metadata, self.options.branch, *item.evidence.job)

    def _tell(self) -> None:
        for text in self.given.skipped:
            self.session.warn(text)
        job = self.options.job_id
        if job is not None and not any(item.found.job_id == job for item in self.judged):
            self.session.warn(f"no temporary manifest of job {job} lies there")
        left = [
            item.found
            for item in self._asked_for()
            if item.doubt is Doubt.NUMBER and not self.options.assume_uncommitted
        ]
        if left:
            self.session.warn(
                f"not committed, because unproven: {_numbers(left)}; {left[0].reason}; "
                "--assume-uncommitted commits such checkpoints"
            )

    def _refuse_unfit(self) -> None:
        for item in self._unfit():
            raise RefusedError(
                f"checkpoint {item.found.checkpoint_id} of job {item.found.job_id} is "
                f"{item.found.state}: {item.found.reason}",
                hint="nothing was committed; `lake replay TABLE` lists what lies there and why",
            )

    def _refuse_expired(self) -> None:
        if self.options.assume_uncommitted:
            return
        expired = [item.found for item in self._asked_for() if item.doubt is Doubt.HISTORY]
        if expired:
            raise RefusedError(
                f"{_numbers(expired)}: {expired[0].reason}",
                hint="--assume-uncommitted commits them all the same, if you know that they never were",
            )

    def _refuse_alive(self, job: PendingJob) -> None:
        if job.operator_id == LAKE_OPERATOR_ID:
            return
        newest = max(
            self.findings.newest_ms.get(job.job_id, 0),
            *self._commits_ms(job),
            *self._checkpoints_ms(job),
        )
        age_ms = self.session.clock.now_ms() - newest
        if age_ms < self.options.quiet_ms:
            raise RefusedError(
                f"job {job.job_id} may still be running: its newest file or commit is "
                f"{format_duration(max(age_ms, 0) / 1000)} old",
                hint="stop it, or wait: its own restart commits the same checkpoints; --quiet-time sets how long",
            )

    def _checkpoints_ms(self, job: PendingJob) -> list[int]:
        """Return when the given checkpoint of a job, and later ones beside it, were completed."""
        given = self.given.states.get((job.job_id, job.operator_id))
        if given is None:
            return [0]
        checkpoint = given[0]
        files = later_checkpoints(self.table.storage, checkpoint)
        if files:
            self.session.warn(
                f"checkpoint {max(files)} completed after the given {checkpoint.checkpoint_id}: "
                f"{files[max(files)].location}"
            )
        own = self.table.storage.look_up([checkpoint.location])[checkpoint.location]
        return [file.modified_ms or 0 for file in (own, *files.values()) if file] or [0]

    def _commits_ms(self, job: PendingJob) -> list[int]:
        """Return when the job itself committed, as opposed to a replay in its name."""
        return [0] + [
            item.timestamp_ms
            for item in self.table.metadata.snapshots
            if (commit := job_commit(item))
            and commit.job_id == job.job_id
            and OPERATION_ID not in _summary(item)
        ]

    def _refuse_mode(self, job: PendingJob) -> None:
        """Refuse what does not fit how the job's earlier snapshots were made."""
        kinds = {
            _summary(commit.snapshot).get(REPLACE_PARTITIONS) == "true"
            for commit in job_commits(self.table.metadata, self.options.branch)
            if commit.job_id == job.job_id
            and commit.is_by(job.job_id, job.operator_id)
            and "added-data-files" in _summary(commit.snapshot)
        }
        replaces = self.options.replace_partitions
        if True in kinds and not replaces:
            raise RefusedError(
                f"job {job.job_id} replaced partitions in its earlier snapshots",
                hint="--replace-partitions commits its checkpoints in the same way",
            )
        if kinds == {False} and replaces:
            raise RefusedError(
                f"job {job.job_id} did not replace partitions in its earlier snapshots",
                hint="leave --replace-partitions out",
            )
        if replaces and any(item.delete_files for item in job.checkpoints):
            raise RefusedError(
                f"checkpoints of job {job.job_id} hold delete files, which cannot replace partitions",
                hint="leave --replace-partitions out",
            )
        if replaces and len(job.checkpoints) > 1 and job not in self._with_state():
            raise RefusedError(
                f"job {job.job_id} has several checkpoints to replace partitions with: "
                "which rows stay depends on the sink, which only a checkpoint tells",
                hint="give the job's newest completed checkpoint with --checkpoint",
            )

    def _with_state(self) -> list[PendingJob]:
        return [job for job in self.jobs if (job.job_id, job.operator_id) in self.given.states]

    def _refuse_twice(self) -> None:
        seen: set[str] = set()
        for job in self.jobs:
            numbers = [item.checkpoint_id for item in job.checkpoints]
            if len(set(numbers)) < len(numbers):
                raise RefusedError(
                    f"a checkpoint of job {job.job_id} was written by two attempts: {_numbers(job.checkpoints)}",
                    hint="give the job's newest completed checkpoint with --checkpoint",
                )
            for manifest in (manifest for item in job.checkpoints for manifest in item.manifests):
                files = set(manifest.entries["file_path"].to_pylist())
                if files & seen:
                    raise RefusedError(f"{min(files & seen)} is in two temporary manifests")
                seen |= files


def _trace(snapshot: Snapshot) -> Trace | None:
    commit = job_commit(snapshot)
    if commit is None:
        return None
    return Trace(commit.job_id, commit.operator_id, commit.checkpoint_id, snapshot.timestamp_ms)


def _summary(snapshot: Snapshot) -> dict[str, str]:
    return snapshot.summary.additional_properties if snapshot.summary else {}


def _numbers(found: Iterable[FoundCheckpoint]) -> str:
    items = list(found)
    numbers = ", ".join(str(item.checkpoint_id) for item in items[:10])
    more = f" and {len(items) - 10} more" if len(items) > 10 else ""  # noqa: PLR2004 - shown at most
    return f"checkpoint{'s' * (len(items) > 1)} {numbers}{more} of job {items[0].job_id}"
