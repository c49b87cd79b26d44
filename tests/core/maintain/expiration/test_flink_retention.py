"""What a Flink job's restore finds before an expiry, it finds afterwards."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadata, TableMetadataV2
from pyiceberg.table.refs import SnapshotRef, SnapshotRefType
from pyiceberg.table.snapshots import Operation, Snapshot, Summary
from support.tiers import examples

from lake.core.base.errors import RefusedError
from lake.core.base.options import Option
from lake.core.maintain.expiration.flink_retention import held_branches
from lake.core.maintain.expiration.retention import KeepReason, RetentionOptions, plan_retention
from lake.core.table.flink.commits import LAKE_OPERATOR_ID

DAY_MS = 24 * 3_600_000
NOW_MS = 1_800_000_000_000
JOBS = ("job-a", "job-b")
OPERATORS = ("op-1", "op-2")


@dataclass(frozen=True)
class Made:
    """One snapshot of a history: on which branch, by whom, how many hours before now."""

    branch: str
    hours: int
    job: str | None = None
    operator: str | None = None
    checkpoint: int | None = None


def history(made: Iterable[Made], **ref_options: dict[str, int]) -> TableMetadata:
    """A table on whose branches snapshots were made one after the other; branches fork off main's head."""
    snapshots: list[Snapshot] = []
    heads: dict[str, int] = {}
    for number, one in enumerate(made, start=1):
        names = {
            "flink.job-id": one.job,
            "flink.operator-id": one.operator,
            "flink.max-committed-checkpoint-id": one.checkpoint,
        }
        properties = {name: str(value) for name, value in names.items() if value is not None}
        snapshots.append(
            Snapshot(
                snapshot_id=number,
                parent_snapshot_id=heads.get(one.branch, heads.get("main")),
                sequence_number=number,
                timestamp_ms=NOW_MS - one.hours * 3_600_000,
                manifest_list=f"file:///t/metadata/snap-{number}.avro",
                summary=Summary(Operation.APPEND, **properties),
                schema_id=0,
            )
        )
        heads[one.branch] = number
    return TableMetadataV2(
        location="file:///t",
        last_column_id=0,
        schemas=[Schema(schema_id=0)],
        current_schema_id=0,
        partition_specs=[PartitionSpec()],
        last_sequence_number=len(snapshots),
        current_snapshot_id=heads.get("main"),
        snapshots=snapshots,
        refs={
            name: SnapshotRef(
                snapshot_id=head,
                snapshot_ref_type=SnapshotRefType.BRANCH,
                **ref_options.get(name, {}),
            )
            for name, head in heads.items()
        },
    )


def expired(metadata: TableMetadata, options: RetentionOptions) -> TableMetadata:
    """The table as an expiry leaves it."""
    plan = plan_retention(metadata, options, NOW_MS)
    return metadata.model_copy(
        update={
            "snapshots": [s for s in metadata.snapshots if s.snapshot_id not in plan.expired],
            "refs": {n: ref for n, ref in metadata.refs.items() if n not in plan.removed_refs},
        }
    )


def restored(metadata: TableMetadata, branch: str, job: str, operator: str) -> tuple[int, int]:
    """The checkpoint that the sink's own restore takes for committed (-1 for none), and its snapshot's age."""
    known = {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}
    ref = metadata.refs.get(branch)
    snapshot = known.get(ref.snapshot_id) if ref else None
    while snapshot is not None:
        summary = snapshot.summary.additional_properties if snapshot.summary else {}
        if summary.get("flink.job-id") == job and summary.get("flink.operator-id") in {
            None,
            operator,
        }:
            checkpoint = summary.get("flink.max-committed-checkpoint-id")
            if checkpoint is not None:
                return int(checkpoint), NOW_MS - snapshot.timestamp_ms
        parent = snapshot.parent_snapshot_id
        snapshot = known.get(parent) if parent is not None else None
    return -1, 0


def plain(hours: int, branch: str = "main") -> Made:
    return Made(branch, hours)


def commit(
    hours: int, checkpoint: int, job: str = "job-a", operator: str | None = "op-1", **more: Any
) -> Made:
    return Made(more.get("branch", "main"), hours, job, operator, checkpoint)


commits = st.builds(
    commit,
    st.just(0),
    st.integers(1, 40),
    job=st.sampled_from(JOBS),
    operator=st.sampled_from([*OPERATORS, None]),
)
snapshots = st.one_of(st.just(plain(0)), commits)


@st.composite
def histories(draw: st.DrawFn) -> TableMetadata:
    branches = draw(st.lists(st.sampled_from(["main", "main", "side"]), min_size=1, max_size=14))
    hours = sorted(
        draw(st.lists(st.integers(0, 20 * 24), min_size=len(branches), max_size=len(branches))),
        reverse=True,
    )
    made = [
        Made(branch, age, one.job, one.operator, one.checkpoint)
        for branch, age, one in zip(
            branches, hours, draw(st.tuples(*[snapshots] * len(branches))), strict=True
        )
    ]
    aged = draw(st.sampled_from([{}, {"max_ref_age_ms": DAY_MS}, {"max_snapshot_age_ms": 1}]))
    return history(made, side=aged)


options = st.builds(
    RetentionOptions,
    older_than=st.one_of(st.none(), st.integers(0, 20 * 24).map(lambda h: NOW_MS - h * 3_600_000)),
    retain_last=st.one_of(st.none(), st.integers(1, 4)),
    branch=st.sampled_from([None, None, "main"]),
    keep_checkpoints=st.sampled_from([0, DAY_MS, 7 * DAY_MS, 100 * DAY_MS]),
)


@settings(max_examples=examples(400), deadline=None)
@given(metadata=histories(), options=options)
def test_a_restore_finds_the_same_checkpoint_after_any_expiry(
    metadata: TableMetadata, options: RetentionOptions
) -> None:
    left = expired(metadata, options)

    for branch, job, operator in itertools.product(("main", "side"), JOBS, OPERATORS):
        checkpoint, age = restored(metadata, branch, job, operator)
        if checkpoint >= 0 and age <= options.keep_checkpoints != 0:
            assert restored(left, branch, job, operator) == (checkpoint, age)


@settings(max_examples=examples(200), deadline=None)
@given(metadata=histories(), options=options)
def test_nothing_stays_that_no_rule_and_no_restore_needs(
    metadata: TableMetadata, options: RetentionOptions
) -> None:
    plan = plan_retention(metadata, options, NOW_MS)
    kept_for_jobs = [s for s, why in plan.kept.items() if why is KeepReason.CHECKPOINT]

    for snapshot_id in kept_for_jobs:
        without = metadata.model_copy(
            update={"snapshots": [s for s in metadata.snapshots if s.snapshot_id != snapshot_id]}
        )
        assert any(
            restored(metadata, *who) != restored(without, *who)
            for who in itertools.product(("main", "side"), JOBS, (*OPERATORS, "another"))
        )


def test_compactions_above_the_jobs_commit_stay_with_it() -> None:
    metadata = history(
        [plain(200), commit(150, 4), commit(140, 5), *map(plain, range(130, 80, -10))]
    )

    plan = plan_retention(metadata, RetentionOptions(older_than=NOW_MS), NOW_MS)

    assert plan.expired == (1, 2)
    assert [s for s, why in plan.kept.items() if why is KeepReason.CHECKPOINT] == [7, 6, 5, 4, 3]


def test_a_job_whose_last_commit_is_older_may_lose_it() -> None:
    metadata = history([commit(7 * 24 + 1, 4), plain(20), plain(10)])

    plan = plan_retention(metadata, RetentionOptions(older_than=NOW_MS), NOW_MS)

    assert (plan.expired, plan.held) == ((1, 2), ())


def test_the_later_rule_that_keeps_more_wins() -> None:
    metadata = history([plain(100), commit(90, 1), plain(80), plain(70), plain(60)])

    few, many = (
        plan_retention(
            metadata, RetentionOptions(older_than=NOW_MS - 65 * 3_600_000, retain_last=n), NOW_MS
        )
        for n in (1, 5)
    )

    assert few.expired == (1,)
    assert many.expired == ()
    assert few.kept[4] is KeepReason.CHECKPOINT
    assert many.kept[4] is KeepReason.LAST_N


def test_a_commit_without_an_operator_is_where_every_restore_of_the_job_ends() -> None:
    metadata = history([commit(50, 1), commit(40, 2, operator=None), plain(30), plain(20)])

    plan = plan_retention(metadata, RetentionOptions(older_than=NOW_MS), NOW_MS)

    assert plan.expired == (1,)
    assert [item.commit.operator_id for item in plan.held[0].checkpoints] == [None]


def test_a_staged_run_of_lakes_keeps_nothing() -> None:
    metadata = history([plain(60), commit(50, 1, operator=LAKE_OPERATOR_ID), plain(40)])

    plan = plan_retention(metadata, RetentionOptions(older_than=NOW_MS), NOW_MS)

    assert (plan.expired, plan.held) == ((1, 2), ())


def test_a_branch_that_a_job_writes_outlives_its_age() -> None:
    age = {"max_ref_age_ms": DAY_MS}
    metadata = history([plain(99), commit(50, 1, branch="side"), plain(9)], side=age)

    assert plan_retention(metadata, RetentionOptions(), NOW_MS).removed_refs == ()
    careless = RetentionOptions(keep_checkpoints=0)
    assert plan_retention(metadata, careless, NOW_MS).removed_refs == ("side",)


def test_a_snapshot_named_on_a_jobs_way_is_refused_with_the_way_out() -> None:
    metadata = history([plain(60), commit(50, 3), plain(40), commit(30, 8, "job-b"), plain(20)])

    with pytest.raises(
        RefusedError, match=r"cannot expire 3: Flink job job-a .* checkpoint 3"
    ) as caught:
        plan_retention(metadata, RetentionOptions(snapshot_ids=(3,)), NOW_MS)

    assert f"{Option.KEEP_CHECKPOINTS} 0s" in (caught.value.hint or "")
    assert caught.value.exit_code == 3
    with pytest.raises(RefusedError, match="job-b"):
        plan_retention(metadata, RetentionOptions(snapshot_ids=(4,)), NOW_MS)
    assert plan_retention(metadata, RetentionOptions(snapshot_ids=(1,)), NOW_MS).expired == (1,)
    careless = RetentionOptions(snapshot_ids=(3,), keep_checkpoints=0)
    assert plan_retention(metadata, careless, NOW_MS).expired == (3,)


@pytest.mark.parametrize(
    ("version", "deletes", "cut", "path"),
    [
        (3, True, False, (4, 3, 2, 1)),
        (3, True, True, (4, 3)),
        (3, False, False, (4, 3)),
        (2, True, False, (4, 3)),
    ],
)
def test_all_of_a_whole_history_is_held_for_a_job_that_must_look_at_it(
    version: int, deletes: bool, cut: bool, path: tuple[int, ...]
) -> None:
    made = [Made("main", 30), Made("main", 20, "job-a", "op-1", 1), Made("main", 10)]
    table = history([made[0], *made])
    properties = {"flink.job-id": "job-a", "flink.max-committed-checkpoint-id": "1"}
    deleting = Summary(
        Operation.OVERWRITE, **properties, **({"added-delete-files": "2"} if deletes else {})
    )
    snapshots = [
        item.model_copy(update={"summary": deleting}) if item.snapshot_id == 3 else item
        for item in table.snapshots
    ]
    table = table.model_copy(update={"snapshots": snapshots[cut:], "format_version": version})

    (held,) = held_branches(table, 0)

    assert held.path == path
    assert [item.steps for item in held.checkpoints] == [len(path)]
