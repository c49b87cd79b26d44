"""Which snapshots a sink makes of its pending checkpoints, case by case as its committer decides."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.tables.replay_plans import JOB, OPERATOR, checkpoint

from lake.core.base.errors import InvalidRequestError, RefusedError
from lake.core.load.replay.model import UNPROVEN, FoundCheckpoint, PendingJob
from lake.core.load.replay.snapshot_steps import ReplayStep, replay_steps
from lake.core.table.flink.state import DYNAMIC_SINK, FLINK_SINK, ICEBERG_SINK
from lake.core.transaction.commit.operations import (
    AppendFiles,
    EntryTable,
    ReplacePartitions,
    RowDelta,
)
from lake.core.transaction.staging.temporary_manifests import TemporaryManifest

SINKS = (FLINK_SINK, ICEBERG_SINK, DYNAMIC_SINK)
ONE_BY_ONE = (ICEBERG_SINK, DYNAMIC_SINK)
ALWAYS = {"flink.max-continuous-empty-commits": "1"}


def taken(number: int, data: int = 1, deletes: int = 0, **more: object) -> FoundCheckpoint:
    """A checkpoint with the given numbers of data and delete files, named after it."""
    kinds = [(0, [f"{number}/data{n}" for n in range(data)])]
    kinds.append((1, [f"{number}/deletes{n}" for n in range(deletes)]))
    manifests = [
        TemporaryManifest(
            path=f"{number}-{content}.avro",
            length=1,
            modified_ms=None,
            content=content,
            spec_id=0,
            entries=pa.table({"file_path": names}),
        )
        for content, names in kinds
        if names
    ]
    return checkpoint(number, manifests, **more)


def steps_of(
    sink: str,
    checkpoints: Iterable[FoundCheckpoint],
    *,
    committed: int = -1,
    replace: bool = False,
    properties: Mapping[str, str] | None = None,
) -> list[ReplayStep]:
    job = PendingJob(sink=sink, job_id=JOB, operator_id=OPERATOR, checkpoints=tuple(checkpoints))
    return replay_steps(
        job, committed=committed, replace_partitions=replace, properties=properties or {}
    )


def files(parts: Iterable[object]) -> list[str]:
    found = []
    for part in parts:
        assert isinstance(part, EntryTable)
        found += part.entries["file_path"].to_pylist()
    return found


def described(steps: Iterable[ReplayStep]) -> list[tuple[str, str, list[str]]]:
    """Return each step's operation, label and files."""
    found = []
    for step in steps:
        operation = step.operation
        deletes = operation.deletes if isinstance(operation, RowDelta) else ()
        assert (step.summary["flink.job-id"], step.summary["flink.operator-id"]) == (JOB, OPERATOR)
        label = step.summary["flink.max-committed-checkpoint-id"]
        names = files([*operation.added, *deletes])
        found.append((type(operation).__name__, label, names))
    return found


def test_flink_sink_appends_all_checkpoints_at_once_under_the_largest_number() -> None:
    steps = steps_of(FLINK_SINK, [taken(4), taken(5, data=2), taken(9)])

    assert described(steps) == [("AppendFiles", "9", ["4/data0", "5/data0", "5/data1", "9/data0"])]
    assert [item.checkpoint_id for item in steps[0].checkpoints] == [4, 5, 9]


def test_iceberg_sink_appends_checkpoint_by_checkpoint() -> None:
    steps = steps_of(ICEBERG_SINK, [taken(4), taken(5)])

    assert described(steps) == [
        ("AppendFiles", "4", ["4/data0"]),
        ("AppendFiles", "5", ["5/data0"]),
    ]


def test_the_dynamic_sink_makes_a_row_delta_of_every_checkpoint() -> None:
    steps = steps_of(DYNAMIC_SINK, [taken(4), taken(5)])

    assert described(steps) == [("RowDelta", "4", ["4/data0"]), ("RowDelta", "5", ["5/data0"])]


@pytest.mark.parametrize("sink", SINKS)
def test_with_deletes_each_checkpoint_is_a_step_under_its_own_number(sink: str) -> None:
    steps = steps_of(sink, [taken(4, deletes=1), taken(5, deletes=2)])

    assert described(steps) == [
        ("RowDelta", "4", ["4/data0", "4/deletes0"]),
        ("RowDelta", "5", ["5/data0", "5/deletes0", "5/deletes1"]),
    ]
    for step in steps:
        assert isinstance(step.operation, RowDelta)
        assert not step.operation.validates


def test_one_checkpoint_with_deletes_parts_all_of_flink_sinks() -> None:
    steps = steps_of(FLINK_SINK, [taken(4), taken(5, data=0, deletes=1), taken(6)])

    assert described(steps) == [
        ("RowDelta", "4", ["4/data0"]),
        ("RowDelta", "5", ["5/deletes0"]),
        ("RowDelta", "6", ["6/data0"]),
    ]


def test_iceberg_sink_looks_for_deletes_in_each_checkpoint_alone() -> None:
    steps = steps_of(ICEBERG_SINK, [taken(4), taken(5, deletes=1)])

    assert [name for name, _, _ in described(steps)] == ["AppendFiles", "RowDelta"]


def test_an_entry_without_manifests_is_a_snapshot_of_its_own_among_flink_sinks_deltas() -> None:
    steps = steps_of(FLINK_SINK, [taken(3, deletes=1), taken(4, data=0), taken(5, deletes=1)])

    assert [(name, label) for name, label, _ in described(steps)] == [
        ("RowDelta", "3"),
        ("RowDelta", "4"),
        ("RowDelta", "5"),
    ]


def test_an_entry_of_no_bytes_is_passed_over_among_flink_sinks_deltas() -> None:
    blank = taken(4, data=0, blank=True)

    steps = steps_of(FLINK_SINK, [taken(3, deletes=1), blank, taken(5, deletes=1)])

    assert [label for _, label, _ in described(steps)] == ["3", "5"]


def test_an_entry_of_no_bytes_counts_for_the_label_of_flink_sinks_append() -> None:
    steps = steps_of(FLINK_SINK, [taken(3), taken(4, data=0, blank=True)])

    assert described(steps) == [("AppendFiles", "4", ["3/data0"])]


@pytest.mark.parametrize("blank", [False, True])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("sink", SINKS)
def test_checkpoints_without_files_leave_nothing(sink: str, replace: bool, blank: bool) -> None:
    empty = [taken(number, data=0, blank=blank) for number in range(3, 12)]

    assert steps_of(sink, empty, replace=replace) == []


def test_flink_sink_counts_all_empty_checkpoints_of_a_restore_as_one() -> None:
    empty = [taken(number, data=0, blank=True) for number in range(3, 40)]

    assert steps_of(FLINK_SINK, empty) == []
    assert described(steps_of(FLINK_SINK, empty, properties=ALWAYS)) == [("AppendFiles", "39", [])]


@pytest.mark.parametrize(
    ("sink", "kind"), [(ICEBERG_SINK, "AppendFiles"), (DYNAMIC_SINK, "RowDelta")]
)
def test_every_third_empty_checkpoint_in_a_row_is_committed(sink: str, kind: str) -> None:
    every = {"flink.max-continuous-empty-commits": "3"}
    sizes = [0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    checkpoints = [taken(number, data=size) for number, size in enumerate(sizes, 1)]

    assert described(steps_of(sink, checkpoints, properties=every)) == [
        (kind, "3", ["3/data0"]),
        (kind, "6", []),
        (kind, "9", []),
    ]


@pytest.mark.parametrize("text", ["0", "-1", "many", "", "1.5"])
def test_a_limit_of_empty_commits_that_is_not_positive_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="it must be a whole number from 1"):
        steps_of(FLINK_SINK, [taken(1)], properties={"flink.max-continuous-empty-commits": text})


def test_flink_sink_replaces_partitions_by_all_checkpoints_at_once() -> None:
    steps = steps_of(FLINK_SINK, [taken(4), taken(5)], replace=True)

    assert described(steps) == [("ReplacePartitions", "5", ["4/data0", "5/data0"])]


@pytest.mark.parametrize("sink", ONE_BY_ONE)
def test_the_other_sinks_replace_partitions_one_after_the_other(sink: str) -> None:
    steps = steps_of(sink, [taken(4), taken(5)], replace=True)

    assert described(steps) == [
        ("ReplacePartitions", "4", ["4/data0"]),
        ("ReplacePartitions", "5", ["5/data0"]),
    ]
    for step in steps:
        assert isinstance(step.operation, ReplacePartitions)
        assert not step.operation.validates


@pytest.mark.parametrize("sink", SINKS)
def test_an_overwrite_without_files_has_no_steps(sink: str) -> None:
    assert steps_of(sink, [taken(4, data=0)], replace=True, properties=ALWAYS) == []


@pytest.mark.parametrize("sink", SINKS)
def test_delete_files_cannot_replace_partitions(sink: str) -> None:
    with pytest.raises(RefusedError, match="delete files"):
        steps_of(sink, [taken(4), taken(5, deletes=1)], replace=True)


def test_an_unproven_checkpoint_never_lowers_the_label() -> None:
    checkpoints = [taken(2, state=UNPROVEN), taken(4, state=UNPROVEN), taken(8)]

    steps = steps_of(ICEBERG_SINK, checkpoints, committed=6)

    assert [label for _, label, _ in described(steps)] == ["6", "6", "8"]
    assert described(steps_of(FLINK_SINK, checkpoints[:2], committed=6))[0][1] == "6"


def test_the_end_of_a_bounded_input_is_a_number_like_others() -> None:
    last = 2**63 - 1

    assert described(steps_of(FLINK_SINK, [taken(3), taken(last)]))[0][1] == str(last)


def test_a_staged_ingest_keeps_its_run_id() -> None:
    steps = steps_of(FLINK_SINK, [taken(1, run="nightly")])

    assert steps[0].summary["lake.run-id"] == "nightly"
    assert "lake.run-id" not in steps_of(FLINK_SINK, [taken(1)])[0].summary


def test_a_job_without_checkpoints_makes_nothing() -> None:
    assert [steps_of(sink, []) for sink in SINKS] == [[], [], []]


@given(
    sink=st.sampled_from(SINKS),
    sizes=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=8),
    every=st.integers(1, 4),
    committed=st.integers(-1, 12),
)
def test_every_file_is_committed_once_in_order_and_labels_only_rise(
    sink: str, sizes: list[tuple[int, int, bool]], every: int, committed: int
) -> None:
    checkpoints = [
        taken(number, data, deletes, blank=blank and not (data or deletes))
        for number, (data, deletes, blank) in enumerate(sizes, 1)
    ]

    steps = steps_of(
        sink,
        checkpoints,
        committed=committed,
        properties={"flink.max-continuous-empty-commits": str(every)},
    )

    committed_files = [name for _, _, names in described(steps) for name in names]
    wanted = [
        name
        for item in checkpoints
        for manifest in item.manifests
        for name in manifest.entries["file_path"].to_pylist()
    ]
    assert sorted(committed_files) == sorted(wanted)
    order = [int(name.split("/")[0]) for name in committed_files]
    assert order == sorted(order)
    labels = [int(label) for _, label, _ in described(steps)]
    assert all(first <= second for first, second in itertools.pairwise([committed, *labels]))
    deltas = [step for step in steps if isinstance(step.operation, RowDelta)]
    assert all(len(step.checkpoints) == 1 for step in deltas)
    assert all(
        not isinstance(step.operation, AppendFiles)
        or not any(item.delete_files for item in step.checkpoints)
        for step in steps
    )
