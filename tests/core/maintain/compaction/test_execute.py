"""What others commit while rows are rewritten, and what a rewrite that goes wrong leaves: nothing."""

from __future__ import annotations

import contextlib
import itertools
import math
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.exceptions import CommitFailedException, ServerError
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.transforms import IdentityTransform
from support.cli.command_line import CommandLine
from support.tables.delete_files import (
    commit_deletes,
    commit_equality_delete,
    commit_position_delete,
    position_file,
)
from support.tables.iceberg_tables import (
    FixedClock,
    after,
    applied_then,
    files_below,
    ids_in,
    inject,
    named_rows,
    open_session,
    refused_with,
    write_file,
)
from support.tables.table_harness import TableHarness
from support.tiers import examples

from lake.core.base.errors import (
    CommitConflictError,
    CommitUnknownError,
    CorruptFileError,
    EngineError,
    LakeError,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.data.rows.writer import TableWriter
from lake.core.engine.thread_stream import Pool
from lake.core.maintain.compaction import rewrite, tasks
from lake.core.maintain.compaction.execute import execute
from lake.core.maintain.compaction.options import compaction_options
from lake.core.maintain.compaction.plan import CompactionPlan, plan_compaction
from lake.core.table.manifests.api import read_manifest_list, read_manifests
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=0)
Fault = Callable[[Callable[[], Any]], Any]


class FragmentedTable(TableHarness):
    """A table of many small files, a session on it, and other writers."""

    def __init__(
        self, warehouse: Path, *, spec: PartitionSpec | None = None, **properties: str
    ) -> None:
        super().__init__(warehouse, **({"spec": spec} if spec else {}), **properties)
        table = self.pyiceberg
        for number in range(5):
            table.append(named_rows(1, 2) if spec else named_rows(2 * number, 2 * number + 1))
        self.session.settings = type(self.session.settings)(
            warehouse=str(warehouse), engine="inline"
        )
        self.before = files_below(warehouse)

    def plan(self, **options: object) -> CompactionPlan:
        asked = compaction_options({"min_input_files": 2, **options}, {}, {})
        return plan_compaction(self.load(), asked)

    def compact(self, *faults: Fault | None, **options: object) -> Outcome:
        plan = self.plan(**options)
        inject(self.session, list(faults))
        return execute(self.session, plan)

    def assert_no_data_file_is_left_over(self) -> None:
        """Every data file on disk is one that some snapshot holds."""
        table = self.pyiceberg
        held = {
            Path(path.removeprefix("file://")).name
            for path in table.inspect.all_files()["file_path"].to_pylist()
        }
        assert {Path(name).name for name in self.data_files()} <= held


@pytest.fixture
def harness(tmp_path: Path) -> FragmentedTable:
    return FragmentedTable(tmp_path)


@pytest.fixture
def parts(tmp_path: Path) -> FragmentedTable:
    """A table of the partitions 1 and 2, five files each."""
    return FragmentedTable(tmp_path, spec=BY_ID)


# Other writers


def test_a_plan_reads_the_statistics_of_the_files_that_are_rewritten_only(
    harness: FragmentedTable,
) -> None:
    plan = harness.plan(where="id >= 4", max_files=2)

    (group,) = plan.with_statistics().groups

    assert plan.found is not None
    assert "lower_bounds" not in plan.found.by_spec[0].column_names
    every = harness.pyiceberg.inspect.files()
    for name in ("lower_bounds", "upper_bounds", "null_value_counts", "value_counts"):
        known = dict(zip(every["file_path"].to_pylist(), every[name].to_pylist(), strict=True))
        found = [
            [(each["key"], each["value"]) for each in row] for row in group.files[name].to_pylist()
        ]
        assert found == [known[path] for path in group.paths]
    assert len(group.paths) == 2


def test_appends_meanwhile_are_not_a_conflict(harness: FragmentedTable) -> None:
    done = harness.compact(after(lambda: harness.pyiceberg.append(named_rows(100))))

    assert (done.status, done.result.failed_groups) == (Status.DONE, 0)
    assert harness.ids == [*range(10), 100]
    assert len(harness.live_paths()) == 2


def test_a_busy_writer_that_always_comes_first_is_outlasted(tmp_path: Path) -> None:
    harness = FragmentedTable(tmp_path, commit__retry__num_retries="1")
    faults = [after(lambda: harness.pyiceberg.append(named_rows(100))) for _ in range(5)]

    done = harness.compact(*faults)

    assert done.status is Status.DONE
    assert harness.ids == [*range(10), *[100] * 5]
    harness.assert_no_data_file_is_left_over()


def test_groups_that_do_not_clash_are_committed_and_the_others_planned_again(
    parts: FragmentedTable,
) -> None:
    def rewritten() -> None:
        parts.pyiceberg.overwrite(named_rows(2, 2, 2), overwrite_filter=EqualTo("id", 2))
        parts.pyiceberg.append(named_rows(2))

    done = parts.compact(after(rewritten))

    # Partition 2 was other files by then; none of those planned is left, so it is reported.
    assert done.status is Status.PARTIAL
    assert done.exit_code == 6
    assert done.result.failed_groups == 1
    assert done.result.rewritten_files == 5
    assert len(done.snapshot_ids) == 1
    assert parts.ids == [1] * 5 + [2] * 4
    parts.assert_no_data_file_is_left_over()


def test_a_group_that_clashed_is_committed_by_the_second_plan(parts: FragmentedTable) -> None:
    first = next(path for path in parts.live_paths() if "id=2" in path)

    done = parts.compact(after(lambda: drop_file(parts, first)))

    assert done.status is Status.DONE
    assert done.result.failed_groups == 0
    assert done.result.rewritten_files == 9
    assert len(done.snapshot_ids) == 2
    assert parts.ids == [1] * 5 + [2] * 4
    assert len(parts.live_paths()) == 2
    parts.assert_no_data_file_is_left_over()


def drop_file(harness: FragmentedTable, path: str) -> None:
    """Remove one data file from the table as another engine would."""
    from lake.core.transaction.commit.operations import OverwriteFiles

    session = open_session(harness.warehouse)
    table = session.table("db.t")
    base = table.metadata.current_snapshot_id
    operation = OverwriteFiles(added=[], removed_paths=[path], base_snapshot_id=base)
    commit_snapshot(session, table, operation, CommitRequest(operation_id=session.ids.uuid()))


def test_nothing_is_changed_when_all_that_was_planned_is_gone(harness: FragmentedTable) -> None:
    plan = harness.plan()
    harness.pyiceberg.overwrite(named_rows(7))
    before = files_below(harness.warehouse)

    with pytest.raises(CommitConflictError):
        execute(harness.session, plan)

    assert harness.ids == [7]
    assert files_below(harness.warehouse) == before


def test_two_compactions_at_once_keep_every_row_once(harness: FragmentedTable) -> None:
    plan = harness.plan()
    other = open_session(harness.warehouse, FixedClock())
    execute(other, plan_compaction(other.table("db.t"), plan.options))

    with pytest.raises(CommitConflictError):
        execute(harness.session, plan)

    assert harness.ids == list(range(10))
    harness.assert_no_data_file_is_left_over()


def test_a_position_delete_meanwhile_is_found_however_many_commits_follow(
    harness: FragmentedTable,
) -> None:
    path = harness.live_paths()[0]

    def others() -> None:
        commit_position_delete(harness.warehouse, path, 0)
        harness.pyiceberg.append(named_rows(100))

    done = harness.compact(after(others))

    assert (done.status, done.result.rows_dropped_by_deletes) == (Status.DONE, 1)
    assert len(harness.ids) == 10
    assert path not in harness.live_paths()
    harness.assert_no_data_file_is_left_over()


def deletes_before_each(harness: FragmentedTable, times: int) -> list[Fault]:
    """Another writer deletes the first row of one more file before each of some commits."""
    return [
        after(lambda path=path: commit_position_delete(harness.warehouse, path, 0))
        for path in harness.live_paths()[:times]
    ]


def test_a_group_that_is_lost_twice_is_committed_by_the_third_plan(
    harness: FragmentedTable,
) -> None:
    done = harness.compact(*deletes_before_each(harness, 2))

    assert (done.status, done.result.failed_groups) == (Status.DONE, 0)
    assert (done.result.lost_groups, done.result.rows_dropped_by_deletes) == (None, 2)
    assert not harness.session.warnings
    assert len(harness.ids) == 8
    harness.assert_no_data_file_is_left_over()


def test_the_writer_that_was_faster_three_times_is_named(harness: FragmentedTable) -> None:
    commits = len(harness.pyiceberg.history())
    with pytest.raises(CommitConflictError):
        harness.compact(*deletes_before_each(harness, 3))

    (warning,) = [text for text in harness.session.warnings if "left for the next run" in text]
    assert warning == (
        "groups of files that are left for the next run: 1; lost to lake 0.1.0, 3 times"
    )
    assert len(harness.ids) == 7
    assert len(harness.pyiceberg.refresh().history()) == commits + 3
    harness.assert_no_data_file_is_left_over()


def test_only_the_partition_that_is_lost_three_times_is_left_and_named(
    parts: FragmentedTable,
) -> None:
    paths = [path for path in parts.live_paths() if "id=2" in path]
    # The first commit is without the lost group at once, so two faults are those of the next two rounds.
    faults = [after(lambda path=path: drop_file(parts, path)) for path in paths[:3]]
    done = parts.compact(faults[0], None, *faults[1:])

    assert (done.status, done.exit_code, done.result.failed_groups) == (Status.PARTIAL, 6, 1)
    (lost,) = done.result.lost_groups
    assert (lost.partition, lost.files, lost.times) == ("id=2", 3, 3)
    assert lost.lost_to == {"lake 0.1.0": 3}
    assert "id=2 was lost to lake 0.1.0, 3 times" in parts.session.warnings[-1]
    assert parts.ids == [1] * 5 + [2] * 2
    parts.assert_no_data_file_is_left_over()


def test_a_lost_group_is_not_planned_again_when_the_time_has_ended(parts: FragmentedTable) -> None:
    path = next(path for path in parts.live_paths() if "id=2" in path)
    parts.session.until = parts.session.clock.monotonic() - 1

    done = parts.compact(after(lambda: drop_file(parts, path)))

    assert (done.status, done.result.failed_groups) == (Status.PARTIAL, 1)
    assert [item.times for item in done.result.lost_groups] == [1]
    assert parts.ids == [1] * 5 + [2] * 4
    parts.assert_no_data_file_is_left_over()


def test_a_position_delete_meanwhile_in_a_partition_of_nan_is_found(tmp_path: Path) -> None:
    lake = CommandLine(tmp_path / "wh")
    found = [pa.table({"id": [2 * n, 2 * n + 1], "x": [math.nan] * 2}) for n in range(2)]
    for number, data in enumerate(found):
        pq.write_table(data, tmp_path / f"{number}.parquet")
        source = tmp_path / f"{number}.parquet"
        lake.ok("ingest", "db.t", source, "--create", *(() if number else ("--partition-by", "x")))
    session = open_session(lake.warehouse, FixedClock())
    table = session.table("db.t")
    paths = [task.file.file_path for task in table.handle.scan().plan_files()]
    # Another engine has other bits for NaN.
    partition = (struct.pack("<Q", 0xFFF8 << 48),)
    delete = position_file(table, [(path, 0) for path in paths], partition=partition)
    plan = plan_compaction(table, compaction_options({"min_input_files": 2}, {}, {}))
    inject(session, [after(lambda: commit_deletes(table, delete))])

    done = execute(session, plan)

    assert (done.status, done.result.rows_dropped_by_deletes) == (Status.DONE, 2)
    assert ids_in(lake.warehouse) == [1, 3]


def test_an_equality_delete_meanwhile_still_applies_to_the_rewritten_rows(
    harness: FragmentedTable,
) -> None:
    done = harness.compact(after(lambda: commit_equality_delete(harness.warehouse, [3])))

    table = harness.session.table("db.t")
    head = table.metadata.current_snapshot()
    manifests = read_manifest_list(table.storage, head.manifest_list)
    [entries] = read_manifests(table.storage, manifests, table.metadata, live_only=True).values()
    numbers = {row["content"]: row["sequence_number"] for row in entries.to_pylist()}
    assert done.status is Status.DONE
    assert numbers[0] < numbers[2]


def test_an_equality_delete_meanwhile_is_applied_to_files_of_a_new_sequence_number(
    harness: FragmentedTable,
) -> None:
    delete = after(lambda: commit_equality_delete(harness.warehouse, [3]))

    done = harness.compact(delete, no_starting_sequence_number=True)

    assert (done.status, done.result.rows_dropped_by_deletes) == (Status.DONE, 1)
    assert rows_read(harness) == [*range(3), *range(4, 10)]
    harness.assert_no_data_file_is_left_over()


def test_a_rollback_meanwhile_is_a_conflict(harness: FragmentedTable) -> None:
    first = harness.pyiceberg.history()[0].snapshot_id

    def rolled_back() -> None:
        harness.pyiceberg.manage_snapshots().rollback_to_snapshot(first).commit()

    with pytest.raises(CommitConflictError):
        harness.compact(after(rolled_back))

    assert harness.ids == [0, 1]
    harness.assert_no_data_file_is_left_over()


# The catalog's answers


@pytest.mark.slow
def test_a_commit_that_is_always_refused_leaves_nothing(harness: FragmentedTable) -> None:
    faults = [refused_with(CommitFailedException("409")) for _ in range(100)]

    with pytest.raises(CommitConflictError):
        harness.compact(*faults)

    assert files_below(harness.warehouse) == harness.before


def test_an_answer_lost_after_the_commit_is_recognised(harness: FragmentedTable) -> None:
    done = harness.compact(applied_then(CommitFailedException("sent twice")))

    assert done.status is Status.DONE
    assert harness.ids == list(range(10))
    assert len(harness.live_paths()) == 1


def test_an_unanswered_commit_keeps_every_file(harness: FragmentedTable) -> None:
    with pytest.raises(CommitUnknownError):
        harness.compact(refused_with(ServerError("503")))

    assert len(harness.data_files()) == 6
    assert harness.ids == list(range(10))


def test_partial_progress_keeps_what_was_committed_when_a_later_group_fails(
    parts: FragmentedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = next(path for path in parts.live_paths() if "id=2" in path)
    plan = parts.plan(partial_progress=True, max_commits=2)
    Path(broken.removeprefix("file://")).write_bytes(b"PAR1")
    in_turn(monkeypatch)

    done = execute(parts.session, plan)

    assert done.status is Status.PARTIAL
    assert (done.result.rewritten_files, done.result.failed_groups) == (5, 1)
    assert len(done.snapshot_ids) == 1
    assert "cannot be read" in parts.session.warnings[0]
    parts.assert_no_data_file_is_left_over()


def in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the engine run one task after the other, so that the first is committed before the second."""
    from lake.core.engine import inline

    real = inline.InlineEngine.run

    def run(self: Any, given: list[Any], function: Any, *, storage: Any, meter: Any) -> Any:
        for number, task in enumerate(given):
            for result in real(self, [task], function, storage=storage):
                yield type(result)(number, result.value)

    monkeypatch.setattr(inline.InlineEngine, "run", run)


def test_without_partial_progress_a_failing_group_changes_nothing(parts: FragmentedTable) -> None:
    broken = next(path for path in parts.live_paths() if "id=2" in path)
    plan = parts.plan()
    Path(broken.removeprefix("file://")).write_bytes(b"PAR1")

    with pytest.raises(CorruptFileError):
        execute(parts.session, plan)

    assert files_below(parts.warehouse) == parts.before


# Rewrites that go wrong


def wrong_writer(
    monkeypatch: pytest.MonkeyPatch, spoil: Callable[[pa.RecordBatch], pa.RecordBatch]
) -> None:
    real = TableWriter.write
    monkeypatch.setattr(TableWriter, "write", lambda self, batch: real(self, spoil(batch)))


def _with_name(batch: pa.RecordBatch, names: list[str | None]) -> pa.RecordBatch:
    item = batch.schema.field(1).with_type(pa.string())
    return batch.set_column(1, item, pa.array(names, pa.string()))


SPOILERS: dict[str, Callable[[pa.RecordBatch], pa.RecordBatch]] = {
    "a row is lost": lambda batch: batch.slice(1),
    "a row is doubled": lambda batch: pa.concat_batches([batch, batch.slice(0, 1)]),
    "a value becomes NULL": lambda batch: _with_name(
        batch, [None, *batch.column(1).to_pylist()[1:]]
    ),
    "a bound moves out": lambda batch: _with_name(batch, ["z", *batch.column(1).to_pylist()[1:]]),
    "the largest value is lost": lambda batch: _with_name(batch, ["n0"] * batch.num_rows),
}


@pytest.mark.parametrize("spoiler", SPOILERS)
def test_a_wrong_rewrite_is_noticed_before_the_commit(
    harness: FragmentedTable, monkeypatch: pytest.MonkeyPatch, spoiler: str
) -> None:
    wrong_writer(monkeypatch, SPOILERS[spoiler])

    with pytest.raises(LakeError, match="nothing was committed") as caught:
        harness.compact()

    assert caught.value.exit_code == 1
    assert files_below(harness.warehouse) == harness.before


def test_verifying_notices_values_that_no_figure_shows(
    harness: FragmentedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def swapped(batch: pa.RecordBatch) -> pa.RecordBatch:
        names = batch.column(1).to_pylist()
        return _with_name(batch, [names[1], names[0], *names[2:]])

    wrong_writer(monkeypatch, swapped)

    with pytest.raises(LakeError, match="content hash"):
        harness.compact(verify=True)

    assert files_below(harness.warehouse) == harness.before


def test_wrong_counts_of_the_input_are_distinguished_from_a_wrong_rewrite(tmp_path: Path) -> None:
    harness = FragmentedTable(tmp_path)
    table = harness.session.table("db.t")
    honest = write_file(table, [50, 51])
    lying = DataFile(
        path=honest.path,
        spec_id=0,
        record_count=2,
        size_bytes=honest.size_bytes,
        value_counts={1: 2, 2: 2},
        null_value_counts={1: 0, 2: 2},
    )
    operation = AppendFiles(added=[lying])
    commit_snapshot(
        harness.session, table, operation, CommitRequest(operation_id=harness.session.ids.uuid())
    )

    assert harness.compact().status is Status.DONE
    assert harness.ids == [*range(10), 50, 51]


def test_loose_bounds_do_not_stop_a_compaction(tmp_path: Path) -> None:
    harness = FragmentedTable(tmp_path)
    table = harness.session.table("db.t")
    honest = write_file(table, [50, 51])
    loose = DataFile(
        path=honest.path,
        spec_id=0,
        record_count=2,
        size_bytes=honest.size_bytes,
        lower_bounds={1: (-9).to_bytes(8, "little", signed=True), 2: b"a"},
        upper_bounds={1: (99).to_bytes(8, "little"), 2: b"z"},
    )
    operation = AppendFiles(added=[loose])
    commit_snapshot(
        harness.session, table, operation, CommitRequest(operation_id=harness.session.ids.uuid())
    )

    assert harness.compact().status is Status.DONE
    assert harness.ids == [*range(10), 50, 51]


def test_a_task_that_the_engine_loses_is_noticed(
    harness: FragmentedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    spread = Pool.spread
    monkeypatch.setattr(Pool, "spread", lambda pool, count, work: spread(pool, count - 1, work))

    with pytest.raises(EngineError, match="lost 1 task"):
        harness.compact()

    assert files_below(harness.warehouse) == harness.before


def test_an_output_never_has_the_name_of_an_input(
    harness: FragmentedTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = harness.live_paths()[0]

    def same_name(task: tasks.RewriteTask, context: Any) -> Iterator[tasks.RewriteReport]:
        for report in tasks.rewrite(task, context):
            first, *others = report.files
            yield replace(report, files=[replace(first, path=taken), *others])

    same_name.__module__, same_name.__qualname__ = tasks.__name__, "same_name"
    monkeypatch.setattr(tasks, "same_name", same_name, raising=False)
    monkeypatch.setattr(rewrite, "rewrite", same_name)

    with pytest.raises(LakeError, match="remove a file that it adds"):
        harness.compact()

    assert taken in harness.live_paths()
    assert harness.ids == list(range(10))


def test_a_file_of_another_format_than_its_entry_says_changes_nothing(
    harness: FragmentedTable,
) -> None:
    table = harness.session.table("db.t")
    file = write_file(table, [50])
    orc = DataFile(path=file.path, format="ORC", spec_id=0, record_count=1, size_bytes=9)
    operation = AppendFiles(added=[orc])
    commit_snapshot(
        harness.session, table, operation, CommitRequest(operation_id=harness.session.ids.uuid())
    )

    with pytest.raises(CorruptFileError, match="cannot be read"):
        harness.compact()


# Any order of other writers

EVENTS: dict[str, Callable[[FragmentedTable], None]] = {
    "append": lambda harness: harness.pyiceberg.append(named_rows(100)),
    "drop": lambda harness: drop_file(harness, data_paths(harness)[-1]),
    "position delete": lambda harness: commit_position_delete(
        harness.warehouse, data_paths(harness)[0], 1
    ),
    "equality delete": lambda harness: commit_equality_delete(harness.warehouse, [5]),
}
counter = itertools.count()


@pytest.mark.slow
@settings(deadline=None, max_examples=examples(12))
@given(events=st.lists(st.sampled_from(sorted(EVENTS)), min_size=1, max_size=3))
def test_no_order_of_other_writers_loses_or_doubles_a_row(
    tmp_path_factory: pytest.TempPathFactory, events: list[str]
) -> None:
    harness = FragmentedTable(tmp_path_factory.mktemp(f"race{next(counter)}"))

    def others() -> None:
        for event in events:
            EVENTS[event](harness)

    serial = FragmentedTable(tmp_path_factory.mktemp(f"race{next(counter)}"))
    for event in events:
        EVENTS[event](serial)
    with contextlib.suppress(CommitConflictError):
        harness.compact(after(others))

    assert rows_read(harness) == rows_read(serial)
    harness.assert_no_data_file_is_left_over()


def rows_read(harness: FragmentedTable) -> list[int]:
    """Return the ids that `lake scan` reads."""
    found = CommandLine(harness.warehouse).ok("scan", "db.t")["result"]["preview"]
    return sorted(row["id"] for row in found)


def _entries(table: Any) -> list[dict[str, Any]]:
    head = table.metadata.current_snapshot()
    manifests = read_manifest_list(table.storage, head.manifest_list)
    tables = read_manifests(table.storage, manifests, table.metadata, live_only=True)
    return [row for entries in tables.values() for row in entries.to_pylist()]


def data_paths(harness: FragmentedTable) -> list[str]:
    """Return the live data files, the oldest first."""
    entries = [row for row in _entries(harness.session.table("db.t")) if row["content"] == 0]
    return [row["file_path"] for row in sorted(entries, key=lambda row: row["sequence_number"])]
