"""Survey a table: find and classify all checkpoints, and select those that were requested."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from lake.core.load.replay.classification import (
    CheckpointUse,
    ClassificationContext,
    Classified,
    Doubt,
    JobKey,
    classify,
)
from lake.core.load.replay.evidence import Findings, collect_evidence
from lake.core.load.replay.model import (
    BROKEN,
    FOREIGN,
    PARTIAL,
    PENDING,
    FoundCheckpoint,
    PendingJob,
    ReplayPlan,
)
from lake.core.table.flink.commits import job_commit, max_committed
from lake.core.table.flink.state import FLINK_SINK
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.load.replay.checkpoint_selection import SelectedCheckpoints
    from lake.core.load.replay.options import ReplayOptions
    from lake.core.table.catalogs.catalog import Table

# The doubts that `assume_uncommitted` overrides.
_ASSUMABLE = frozenset({Doubt.NUMBER, Doubt.HISTORY})


@dataclass(frozen=True)
class Survey:
    """The state of a table and its temporary manifests at one time."""

    table: Table
    options: ReplayOptions
    given: SelectedCheckpoints
    findings: Findings
    classified: tuple[Classified, ...]
    retained_since_ms: int | None

    @cached_property
    def asked_for(self) -> list[Classified]:
        """The checkpoints that a given state names, or that the operator says completed."""
        assertion = self.options.operator_assertion
        if assertion is None:
            return [item for item in self.classified if item.evidence.named]
        return [
            item
            for item in self.classified
            if item.found.job_id == assertion[0]
            and item.found.checkpoint_id <= assertion[1]
            and not item.is_superseded
        ]

    @cached_property
    def jobs(self) -> list[PendingJob]:
        """The checkpoints to commit, unless a safety rule forbids it; the job that wrote first comes first."""
        assumed = _ASSUMABLE if self.options.assume_uncommitted else frozenset()
        chosen: dict[JobKey, list[Classified]] = {}
        for item in self.asked_for:
            if item.found.state == PENDING or item.doubt in assumed:
                chosen.setdefault(item.evidence.job, []).append(item)
        ordered = sorted(chosen, key=lambda job: (_first_ms(chosen[job]), job))
        return [self._pending(job, [item.found for item in chosen[job]]) for job in ordered]

    @cached_property
    def unfit(self) -> list[Classified]:
        """The requested checkpoints that cannot be committed."""
        own = {item.evidence.job for item in self.asked_for if item.found.state != FOREIGN}
        return [
            item
            for item in self.asked_for
            if (
                item.found.state in {BROKEN, PARTIAL}
                # A sink writes to one table, so a part outside its folders does not belong to another table.
                or (
                    item.found.state == FOREIGN and item.evidence.job in own and item.evidence.named
                )
            )
            and (self.options.assume_uncommitted or self._is_newer(item))
        ]

    def to_plan(self) -> ReplayPlan:
        """Return the plan."""
        head = ancestry.branch_head(self.table.metadata, self.options.branch)
        return ReplayPlan(
            table=self.table,
            branch=self.options.branch,
            base_snapshot_id=head.snapshot_id if head else None,
            found=tuple(item.found for item in self.classified),
            jobs=tuple(self.jobs),
            replace_partitions=self.options.replace_partitions,
            given={job: checkpoint for job, (checkpoint, _) in self.given.states.items()},
        )

    def _pending(self, job: JobKey, found: list[FoundCheckpoint]) -> PendingJob:
        given = self.given.states.get(job)
        sink = given[1].sink if given else FLINK_SINK
        return PendingJob(sink=sink, job_id=job[0], operator_id=job[1], checkpoints=tuple(found))

    def _is_newer(self, item: Classified) -> bool:
        committed = max_committed(self.table.metadata, self.options.branch, *item.evidence.job)
        return item.found.checkpoint_id > committed


def survey(table: Table, options: ReplayOptions, given: SelectedCheckpoints) -> Survey:
    """Find and classify the checkpoints of a table.

    Raises:
        NotFoundError: the branch does not exist.
        BadInputError: metadata of a retained snapshot is damaged or missing.
    """
    metadata, branch = table.metadata, options.branch
    since = retained_since(metadata, branch)
    findings = collect_evidence(table, given)
    jobs = {item.job for item in findings.evidence}
    context = ClassificationContext(
        committed={job: max_committed(metadata, branch, *job) for job in jobs},
        given=given.numbers(),
        uses=[use for item in metadata.snapshots if (use := _use(item))],
        operator_assertion=options.operator_assertion,
        retained_since_ms=since,
    )
    classified = tuple(classify(findings.evidence, context))
    return Survey(table, options, given, findings, classified, since)


def retained_since(metadata: TableMetadata, branch: str) -> int | None:
    """Return the time (ms since 1970) since when all snapshots of a branch are retained; None if all are.

    Raises:
        NotFoundError: the branch does not exist.
    """
    head = ancestry.branch_head(metadata, branch)
    if head is None:
        return None
    *_, oldest = ancestry.ancestors(metadata, head.snapshot_id)
    return None if ancestry.is_first(metadata, oldest) else oldest.timestamp_ms


def _first_ms(items: list[Classified]) -> int:
    return min(item.evidence.written_ms or 0 for item in items)


def _use(snapshot: Snapshot) -> CheckpointUse | None:
    commit = job_commit(snapshot)
    if commit is None:
        return None
    return CheckpointUse(
        commit.job_id, commit.operator_id, commit.checkpoint_id, snapshot.timestamp_ms
    )
