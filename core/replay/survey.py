"""One look at a table and what lies beside it: everything found and judged, and what of it was asked for."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lake.core.flink.commits import job_commit, max_committed
from lake.core.flink.state import FLINK_SINK
from lake.core.replay.classification import (
    CheckpointUse,
    Doubt,
    JobKey,
    Judged,
    Surroundings,
    judge,
)
from lake.core.replay.evidence import Findings, gather
from lake.core.replay.model import (
    BROKEN,
    FOREIGN,
    PARTIAL,
    PENDING,
    FoundCheckpoint,
    PendingJob,
    ReplayPlan,
)
from lake.core.replay.retention_horizon import retained_since
from lake.core.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.catalogs.catalog import Table
    from lake.core.replay.checkpoint_selection import SelectedCheckpoints
    from lake.core.replay.options import ReplayOptions

# What --assume-uncommitted overrules.
_ASSUMABLE = frozenset({Doubt.NUMBER, Doubt.HISTORY})


@dataclass(frozen=True)
class Look:
    """What a table and the files beside it said at one moment.

    Args:
        table: the table.
        options: what was asked for.
        given: what the given checkpoints say.
        findings: what lies there.
        judged: what it is.
    """

    table: Table
    options: ReplayOptions
    given: SelectedCheckpoints
    findings: Findings
    judged: tuple[Judged, ...]

    @cached_property
    def asked_for(self) -> list[Judged]:
        """The checkpoints that a given state names, or that the operator's word covers."""
        word = self.options.word
        if word is None:
            return [item for item in self.judged if item.evidence.named]
        return [
            item
            for item in self.judged
            if item.found.job_id == word[0]
            and item.found.checkpoint_id <= word[1]
            and not item.is_over
        ]

    @cached_property
    def jobs(self) -> list[PendingJob]:
        """What is to be committed, unless something forbids it; the job that wrote first comes first."""
        assumed = _ASSUMABLE if self.options.assume_uncommitted else frozenset()
        chosen: dict[JobKey, list[Judged]] = {}
        for item in self.asked_for:
            if item.found.state == PENDING or item.doubt in assumed:
                chosen.setdefault(item.evidence.job, []).append(item)
        ordered = sorted(chosen, key=lambda job: (_first_ms(chosen[job]), job))
        return [self._pending(job, [item.found for item in chosen[job]]) for job in ordered]

    @cached_property
    def unfit(self) -> list[Judged]:
        """What would be committed if it could be."""
        own = {item.evidence.job for item in self.asked_for if item.found.state != FOREIGN}
        return [
            item
            for item in self.asked_for
            if (
                item.found.state in {BROKEN, PARTIAL}
                # A sink writes to one table: a part that lies elsewhere is no other table's.
                or (
                    item.found.state == FOREIGN and item.evidence.job in own and item.evidence.named
                )
            )
            and (self.options.assume_uncommitted or self._is_newer(item))
        ]

    @property
    def lost(self) -> bool:
        """Whether manifests of what would be committed are not there."""
        return any(item.evidence.lost for item in self.unfit)

    def to_plan(self) -> ReplayPlan:
        """Return the plan."""
        head = ancestry.branch_head(self.table.metadata, self.options.branch)
        return ReplayPlan(
            table=self.table,
            branch=self.options.branch,
            base_snapshot_id=head.snapshot_id if head else None,
            found=tuple(item.found for item in self.judged),
            jobs=tuple(self.jobs),
            replace_partitions=self.options.replace_partitions,
        )

    def _pending(self, job: JobKey, found: list[FoundCheckpoint]) -> PendingJob:
        given = self.given.states.get(job)
        sink = given[1].sink if given else FLINK_SINK
        return PendingJob(sink=sink, job_id=job[0], operator_id=job[1], checkpoints=tuple(found))

    def _is_newer(self, item: Judged) -> bool:
        committed = max_committed(self.table.metadata, self.options.branch, *item.evidence.job)
        return item.found.checkpoint_id > committed


def look(table: Table, options: ReplayOptions, given: SelectedCheckpoints) -> Look:
    """Find what lies there and judge it.

    Raises:
        NotFoundError: there is no such branch.
        BadInputError: metadata of a retained snapshot is damaged or missing.
    """
    metadata, branch = table.metadata, options.branch
    since = retained_since(metadata, branch)
    findings = gather(table, given)
    jobs = {item.job for item in findings.evidence}
    around = Surroundings(
        committed={job: max_committed(metadata, branch, *job) for job in jobs},
        given=given.numbers(),
        traces=[trace for item in metadata.snapshots if (trace := _trace(item))],
        word=options.word,
        retained_since_ms=since,
    )
    return Look(table, options, given, findings, tuple(judge(findings.evidence, around)))


def _first_ms(items: list[Judged]) -> int:
    return min(item.evidence.written_ms or 0 for item in items)


def _trace(snapshot: Snapshot) -> CheckpointUse | None:
    commit = job_commit(snapshot)
    if commit is None:
        return None
    return CheckpointUse(
        commit.job_id, commit.operator_id, commit.checkpoint_id, snapshot.timestamp_ms
    )
