"""`lake compact` through the command line, on tables that PyIceberg wrote; rows are judged by PyIceberg."""

from __future__ import annotations

import datetime
import decimal
import json
import signal
import subprocess
import time
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import EqualTo
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, IdentityTransform
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_equality_delete, commit_position_delete
from support.tables.iceberg_tables import (
    files_below,
    ids_in,
    make_table,
    named_rows,
    open_session,
    pyiceberg_table,
)

from lake.core.base.errors import StorageError
from lake.core.base.settings import Settings
from lake.core.data.rows.writer import WriteSettings, open_writer
from lake.core.maintain.compaction import execute
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles
from lake.core.transaction.session import Session

PLAN_KEYS = [
    "groups",
    "input_files",
    "input_bytes",
    "input_delete_files",
    "expected_output_files",
    "row_groups_to_copy",
    "file_groups",
    "left_alone",
    "total_data_files",
    "total_files_size",
]
RESULT_KEYS = [
    "rewritten_files",
    "added_files",
    "rewritten_bytes",
    "added_bytes",
    "removed_delete_files",
    "rows_in",
    "rows_out",
    "rows_dropped_by_deletes",
    "failed_groups",
    "copied_row_groups",
]
MIB = 1024 * 1024
BY_ID = PartitionSpec(PartitionField(1, 1000, IdentityTransform(), "id"), spec_id=0)


def six_files(warehouse: Path, **more: Any) -> Any:
    """Return a table of six appends of two rows each."""
    table = make_table(warehouse, **more)
    for number in range(6):
        table.append(named_rows(2 * number, 2 * number + 1))
    return table


def loaded(warehouse: Path, name: str = "db.t") -> Any:
    return pyiceberg_table(warehouse, name)


def sorted_rows(table: Any, snapshot_id: int | None = None) -> list[str]:
    return sorted(repr(row) for row in table.scan(snapshot_id=snapshot_id).to_arrow().to_pylist())


def live_paths(table: Any) -> list[str]:
    return sorted(task.file.file_path for task in table.scan().plan_files())


def test_small_files_become_one_and_no_row_changes(lake_on: CommandLine) -> None:
    before = six_files(lake_on.warehouse)
    base = before.current_snapshot()

    done = lake_on.ok("compact", "db.t")

    after = loaded(lake_on.warehouse)
    head = after.current_snapshot()
    assert done["status"] == "done"
    assert (done["command"], done["table"], done["branch"]) == ("compact", "db.t", "main")
    assert done["base_snapshot_id"] == str(base.snapshot_id)
    assert done["snapshot_ids"] == [str(head.snapshot_id)]
    assert done["operation_id"] == head.summary["lake.operation-id"]
    assert list(done["plan"]) == PLAN_KEYS
    assert list(done["result"]) == RESULT_KEYS
    plan, result = done["plan"], done["result"]
    assert (plan["groups"], plan["input_files"], plan["expected_output_files"]) == (1, 6, 1)
    assert (result["rewritten_files"], result["added_files"]) == (6, 1)
    assert (result["rows_in"], result["rows_out"], result["failed_groups"]) == (12, 12, 0)
    assert result["rewritten_bytes"] == plan["input_bytes"]
    [file] = after.inspect.files().to_pylist()
    assert (
        result["added_bytes"]
        == file["file_size_in_bytes"]
        == Path(file["file_path"].removeprefix("file://")).stat().st_size
    )
    assert head.summary.operation.value == "replace"
    assert (head.summary["added-records"], head.summary["deleted-records"]) == ("12", "12")
    assert head.summary["total-data-files"] == "1"
    # In the order in which they were committed.
    assert after.scan().to_arrow()["id"].to_pylist() == list(range(12))
    assert sorted_rows(after, base.snapshot_id) == sorted_rows(after)


def test_a_dry_run_starts_nothing_and_touches_nothing(warehouse: Path) -> None:
    six_files(warehouse)
    before = files_below(warehouse)

    def open_session(settings: Settings) -> Session:
        from lake.core.transaction import session as sessions

        opened = sessions.open_session(settings)
        opened.engine = lambda *_: pytest.fail("a dry run started an engine")  # type: ignore[method-assign]
        return opened

    shown = CommandLine(warehouse, open_session=open_session).ok("compact", "db.t", "--dry-run")

    assert shown["status"] == "dry-run"
    assert shown["plan"]["input_files"] == 6
    assert shown["snapshot_ids"] == []
    assert files_below(warehouse) == before


def test_a_second_run_has_nothing_to_do_and_commits_nothing(lake: CommandLine) -> None:
    six_files(lake.warehouse)
    lake.ok("compact", "db.t")
    before = files_below(lake.warehouse)

    done = lake.ok("compact", "db.t")

    assert done["status"] == "nothing-to-do"
    assert done["result"] == dict.fromkeys(RESULT_KEYS, 0)
    assert done["snapshot_ids"] == []
    assert files_below(lake.warehouse) == before


def test_an_empty_table_has_nothing_to_do(lake: CommandLine) -> None:
    make_table(lake.warehouse)

    assert lake.ok("compact", "db.t")["status"] == "nothing-to-do"


@pytest.mark.slow
def test_five_compactions_with_expiry_between_keep_the_rows(lake: CommandLine) -> None:
    table = make_table(lake.warehouse)
    for turn in range(5):
        for number in range(2):
            table.append(named_rows(turn * 2 + number))
        assert lake.ok("compact", "db.t", "--min-input-files", "2")["status"] == "done"
        lake.ok("expire", "db.t", "--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
        table = loaded(lake.warehouse)
        assert ids_in(lake.warehouse) == list(range(turn * 2 + 2))


# What is written


def test_new_files_keep_the_sequence_number_that_they_were_planned_on(lake: CommandLine) -> None:
    base = six_files(lake.warehouse).current_snapshot()

    lake.ok("compact", "db.t")

    head = loaded(lake.warehouse).current_snapshot()
    assert _data_sequence_numbers(lake.warehouse) == [base.sequence_number]
    assert head.sequence_number == base.sequence_number + 1


def test_new_files_get_the_new_sequence_number_when_asked(lake: CommandLine) -> None:
    six_files(lake.warehouse)

    lake.ok("compact", "db.t", "--no-starting-sequence-number")

    head = loaded(lake.warehouse).current_snapshot()
    assert _data_sequence_numbers(lake.warehouse) == [head.sequence_number]


def _data_sequence_numbers(warehouse: Path) -> list[int]:
    table = loaded(warehouse)
    entries = table.inspect.entries().to_pylist()
    return [entry["sequence_number"] for entry in entries if entry["status"] != 2]


def test_a_table_of_version_1_is_compacted(lake: CommandLine) -> None:
    six_files(lake.warehouse, format_version="1")

    assert lake.ok("compact", "db.t")["result"]["added_files"] == 1
    assert ids_in(lake.warehouse) == list(range(12))


def test_as_many_files_are_written_as_planned(lake_on: CommandLine) -> None:
    table = make_table(lake_on.warehouse)
    names = [uuid.uuid5(uuid.NAMESPACE_DNS, str(row)).hex * 3 for row in range(30_000)]
    for start in range(0, 30_000, 3000):
        table.append(
            pa.table(
                {"id": pa.array(range(start, start + 3000)), "name": names[start : start + 3000]}
            )
        )
    before = sorted_rows(table)

    done = lake_on.ok("compact", "db.t", "--target-size", "300KB", "--verify")

    expected = done["plan"]["expected_output_files"]
    assert expected > 2
    assert done["result"]["added_files"] == expected
    table = loaded(lake_on.warehouse)
    assert sorted_rows(table) == before
    files = [task.file.file_path for task in table.scan().plan_files()]
    ends = sorted(
        (min(ids), max(ids), len(ids))
        for ids in (pq.read_table(path.removeprefix("file://"))["id"].to_pylist() for path in files)
    )
    assert all(high - low + 1 == count for low, high, count in ends)
    assert lake_on.ok("compact", "db.t", "--target-size", "300KB")["status"] == "nothing-to-do"


@pytest.mark.parametrize(
    "target", [("--target-size", "100B"), ("--option", "target-file-size-bytes=100")]
)
def test_files_are_not_cut_into_files_that_are_mostly_footers(
    lake: CommandLine, target: tuple[str, str]
) -> None:
    table = make_table(lake.warehouse)
    for start in (0, 1000):
        ids = pa.array(range(start, start + 1000))
        table.append(pa.table({"id": ids, "name": [f"n{number}" * 9 for number in range(1000)]}))
    before = files_below(lake.warehouse)

    assert lake.ok("compact", "db.t", *target, "--dry-run")["plan"]["groups"] == 0
    assert lake.ok("compact", "db.t", *target)["status"] == "nothing-to-do"

    assert files_below(lake.warehouse) == before
    done = lake.ok("compact", "db.t", "--target-size", "3KB")
    made = done["result"]["added_files"]
    assert made > 2
    assert done["warnings"] == [f"the rewrite turns 2 files into {made}: the target size is 3.0 KB"]
    assert ids_in(lake.warehouse) == list(range(2000))


def test_a_dry_run_names_each_group_s_partition_and_the_reason(lake: CommandLine) -> None:
    table = make_table(lake.warehouse)
    for number in range(2):
        table.append(named_rows(number))
    with table.update_spec() as change:
        change.add_field("name", IdentityTransform(), "part")
    table = loaded(lake.warehouse)
    for _ in range(2):
        table.append(named_rows(7, 8))

    groups = lake.ok("compact", "db.t", "--min-input-files", "2", "--dry-run")["plan"][
        "file_groups"
    ]

    assert [(item["partition"], item["files"], item["rows"]) for item in groups] == [
        ("", 2, 2),
        ("part=n7", 2, 2),
        ("part=n8", 2, 2),
    ]
    # The rows of the older spec move to two partitions.
    assert [item["expected_output_files"] for item in groups] == [2, 1, 1]
    assert {tuple(item["reasons"]) for item in groups} == {("small-files",)}
    assert sum(item["bytes"] for item in groups) == sum(
        file["file_size_in_bytes"] for file in table.inspect.files().to_pylist()
    )


def test_a_dry_run_shows_the_first_groups_and_json_has_all(lake: CommandLine) -> None:
    table = make_table(lake.warehouse, spec=BY_ID)
    for _ in range(2):
        table.append(named_rows(*range(60)))
    command = ("compact", "db.t", "--min-input-files", "2", "--dry-run")

    shown, every = lake(*command), lake("--verbose", *command)

    assert (
        shown.stdout.splitlines()[0] == "group\tpartition\tfiles\tbytes\trows\toutput files\treason"
    )
    assert len(shown.stdout.splitlines()) == 1 + 50
    assert "10 more groups are not shown (--verbose shows all)" in shown.stderr
    assert len(every.stdout.splitlines()) == 1 + 60
    assert len(lake.ok(*command)["plan"]["file_groups"]) == 60


def test_a_large_file_is_cut_into_files_near_the_target(lake: CommandLine) -> None:
    table = make_table(lake.warehouse, write__parquet__row_group_limit="1000")
    names = [uuid.uuid5(uuid.NAMESPACE_DNS, str(row)).hex * 3 for row in range(20_000)]
    table.append(pa.table({"id": pa.array(range(20_000)), "name": names}))

    done = lake.ok("compact", "db.t", "--target-size", "200KB")

    assert done["result"]["rewritten_files"] == 1
    assert done["result"]["added_files"] == done["plan"]["expected_output_files"] > 2
    assert ids_in(lake.warehouse) == list(range(20_000))


def test_groups_may_be_committed_as_they_finish(lake_on: CommandLine) -> None:
    table = make_table(lake_on.warehouse, spec=BY_ID)
    for _ in range(2):
        table.append(named_rows(*range(5)))

    done = lake_on.ok(
        "compact", "db.t", "--min-input-files", "2", "--partial-progress", "--max-commits", "3"
    )

    table = loaded(lake_on.warehouse)
    assert done["result"]["added_files"] == 5
    assert len(done["snapshot_ids"]) == 3
    assert ids_in(lake_on.warehouse) == sorted([*range(5), *range(5)])
    marks = {
        table.snapshot_by_id(int(made)).summary["lake.operation-id"]
        for made in done["snapshot_ids"]
    }
    assert len(marks) == 3
    assert done["operation_id"] in marks


def test_only_files_that_may_hold_the_rows_of_a_filter_are_rewritten(lake: CommandLine) -> None:
    table = make_table(lake.warehouse, spec=BY_ID)
    for _ in range(5):
        table.append(named_rows(1, 2))
    others = [path for path in live_paths(table) if "id=2" in path]

    done = lake.ok("compact", "db.t", "--where", "id = 1")

    assert done["result"]["rewritten_files"] == 5
    assert [path for path in live_paths(loaded(lake.warehouse)) if "id=2" in path] == others
    assert ids_in(lake.warehouse) == [1] * 5 + [2] * 5


def test_a_branch_is_compacted_and_main_stays(lake: CommandLine) -> None:
    table = six_files(lake.warehouse)
    head = table.current_snapshot().snapshot_id
    table.manage_snapshots().create_branch(head, "audit").commit()

    done = lake.ok("compact", "db.t", "--branch", "audit")

    refs = loaded(lake.warehouse).refs()
    assert done["branch"] == "audit"
    assert refs["main"].snapshot_id == head
    assert [str(refs["audit"].snapshot_id)] == done["snapshot_ids"]


def test_options_may_be_given_by_sparks_names(lake: CommandLine) -> None:
    six_files(lake.warehouse)

    assert lake.ok("compact", "db.t", "--option", "min-input-files=7")["status"] == "nothing-to-do"
    done = lake.ok("compact", "db.t", "--option", "max-files-to-rewrite=3")
    assert done["result"]["rewritten_files"] == 3


# Tables that changed


def test_a_schema_that_evolved_is_read_by_field_id(lake_on: CommandLine) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=False),
        NestedField(2, "old", StringType(), required=False),
        NestedField(3, "again", StringType(), required=False),
        NestedField(4, "price", DecimalType(5, 2), required=False),
        NestedField(5, "f", FloatType(), required=False),
        NestedField(
            6,
            "point",
            StructType(
                NestedField(7, "x", IntegerType(), required=False),
                NestedField(8, "gone", StringType(), required=False),
            ),
            required=False,
        ),
    )
    table = make_table(lake_on.warehouse, schema=schema)
    first = pa.Table.from_pylist(
        [
            {
                "id": 1,
                "old": "a",
                "again": "dropped",
                "price": decimal.Decimal("1.25"),
                "f": 0.1,
                "point": {"x": 1, "gone": "g"},
            },
            {"id": None, "point": None},
        ],
        schema=table.schema().as_arrow(),
    )
    table.append(first)
    table.append(first)
    old = table.current_snapshot().snapshot_id
    with table.update_schema(allow_incompatible_changes=True) as change:
        change.rename_column("old", "renamed")
        change.delete_column("again")
        change.update_column("id", LongType())
        change.update_column("price", DecimalType(12, 2))
        change.update_column("f", DoubleType())
        change.update_column(("point", "x"), LongType())
        change.delete_column(("point", "gone"))
        change.add_column(("point", "y"), StringType())
        change.move_first("f")
    with table.update_schema() as change:
        change.add_column("again", StringType())
    table = loaded(lake_on.warehouse)
    table.append(
        pa.Table.from_pylist(
            [
                {
                    "id": 2**40,
                    "renamed": "b",
                    "again": "new",
                    "f": 0.5,
                    "point": {"x": 2**40, "y": "y"},
                }
            ],
            schema=table.schema().as_arrow(),
        )
    )
    before, was = sorted_rows(table), sorted_rows(table, old)

    done = lake_on.ok("compact", "db.t", "--min-input-files", "2", "--verify")

    table = loaded(lake_on.warehouse)
    assert done["result"]["added_files"] == 1
    assert sorted_rows(table) == before
    assert sorted_rows(table, old) == was
    assert "dropped" not in "".join(before)
    assert table.schema().column_names == loaded(lake_on.warehouse).schema().column_names


def test_files_of_older_specs_move_to_the_current_one(lake_on: CommandLine) -> None:
    table = make_table(lake_on.warehouse)
    table.append(named_rows(1, 2, 3))
    table.append(named_rows(1, 2, 4))
    with table.update_spec() as change:
        change.add_field("id", IdentityTransform(), "part")
    table = loaded(lake_on.warehouse)
    table.append(named_rows(1))
    with table.update_spec() as change:
        change.add_field("name", BucketTransform(2), "b")
    table = loaded(lake_on.warehouse)
    table.append(named_rows(1, 5))
    before = sorted_rows(table)

    done = lake_on.ok("compact", "db.t", "--rewrite-all", "--verify")

    table = loaded(lake_on.warehouse)
    assert done["plan"]["groups"] == 3
    assert sorted_rows(table) == before
    assert {task.file.spec_id for task in table.scan().plan_files()} == {table.spec().spec_id}
    for number in range(1, 6):
        tasks = list(table.scan(row_filter=EqualTo("id", number)).plan_files())
        found = table.scan(row_filter=EqualTo("id", number)).to_arrow()
        assert found["id"].to_pylist() == [n for n in [1, 2, 3, 1, 2, 4, 1, 1, 5] if n == number]
        assert all(task.file.partition[0] == number for task in tasks)


def test_old_specs_are_rewritten_exactly_and_once(lake: CommandLine, tmp_path: Path) -> None:
    source = tmp_path / "rows.csv"
    for first in (0, 4):
        source.write_text(
            "id,part\n" + "".join(f"{row},{row % 4}\n" for row in range(first, first + 4))
        )
        lake.ok("ingest", "db.t", source, "--create")
    lake.ok("alter", "db.t", "--partition-by", "part")
    source.write_text("id,part\n8,0\n9,1\n")
    lake.ok("ingest", "db.t", source)
    new = {
        file["file_path"]
        for file in lake.table().inspect.files().to_pylist()[:]
        if file["spec_id"] == 1
    }

    document = lake.ok("compact", "db.t", "--old-specs")

    files = lake.table().inspect.files().to_pylist()
    assert (document["result"]["rewritten_files"], document["result"]["added_files"]) == (2, 4)
    assert document["plan"]["left_alone"]["current"]["files"] == 2
    assert {file["spec_id"] for file in files} == {1}
    assert new < {file["file_path"] for file in files}
    assert sorted(ids_in(lake.warehouse)) == list(range(10))
    assert lake.ok("compact", "db.t", "--old-specs")["status"] == "nothing-to-do"


def test_files_without_the_sort_order_are_sorted_exactly_and_once(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    source.write_text("id,part\n3,0\n1,1\n2,0\n")
    lake.ok("ingest", "db.t", source, "--create")
    lake.ok("alter", "db.t", "--sort-by", "id")
    source.write_text("id,part\n7,0\n5,1\n")
    lake.ok("ingest", "db.t", source)

    own = lake.table().sort_order().order_id
    before = lake.table().inspect.files()["sort_order_id"].to_pylist()
    unsorted = sum(order_id != own for order_id in before)

    document = lake.ok("compact", "db.t", "--old-sort-orders")

    files = lake.table().inspect.files().to_pylist()
    orders = {file["sort_order_id"] for file in files}
    assert orders == {own}
    assert document["plan"]["sorted_by"] == ["id asc nulls first"]
    assert document["result"]["rewritten_files"] == unsorted
    assert sorted(ids_in(lake.warehouse)) == [1, 2, 3, 5, 7]
    for file in files:
        ids = pq.read_table(file["file_path"].removeprefix("file://"))["id"].to_pylist()
        assert ids == sorted(ids)
    assert lake.ok("compact", "db.t", "--old-sort-orders")["status"] == "nothing-to-do"


def overlapping(lake: CommandLine, folder: Path, ranges: list[tuple[int, int]]) -> None:
    """Write a file with the ids of each range, in a table that is sorted by id."""
    for number, (first, end) in enumerate(ranges):
        source = folder / f"{number}.csv"
        source.write_text("id,name\n" + "".join(f"{id_},n{id_}\n" for id_ in range(first, end)))
        lake.ok("ingest", "db.t", source, *(["--create"] if number == 0 else []))
        if number == 0:
            lake.ok("alter", "db.t", "--sort-by", "id, name")


def test_files_that_overlap_too_many_others_are_sorted_once(
    lake: CommandLine, tmp_path: Path
) -> None:
    ranges = [(0, 10), (10, 20), *[(20 + number, 40 + number) for number in range(6)], (60, 70)]
    overlapping(lake, tmp_path, ranges)
    before = sorted(ids_in(lake.warehouse))
    kept = {
        file["file_path"]
        for file in lake.table().inspect.files().to_pylist()
        if file["record_count"] == 10
    }

    dry = lake.ok("compact", "db.t", "--where-overlap", "2", "--dry-run")
    document = lake.ok("compact", "db.t", "--where-overlap", "2", "--verify")

    for plan in (dry["plan"], document["plan"]):
        assert plan["sorted_by"] == ["id asc nulls first", "name asc nulls first"]
        assert plan["depth"] == {"average": 2.67, "worst": 6}
        assert plan["expected_depth"] == {"average": 1.0, "worst": 1}
        assert plan["left_alone"].keys() == {"few-overlaps"}
        assert [group["reasons"] for group in plan["file_groups"]] == [["overlap"]]
    result = document["result"]
    assert (result["rewritten_files"], result["added_files"]) == (6, 1)
    assert result["depth"] == {"average": 1.0, "worst": 1}
    assert kept < {file["file_path"] for file in lake.table().inspect.files().to_pylist()}
    assert sorted(ids_in(lake.warehouse)) == before
    for most in ("2", "0"):
        again = lake.ok("compact", "db.t", "--where-overlap", most)
        assert again["status"] == "nothing-to-do"
        assert "depth" not in again["result"]


def test_files_that_overlap_are_sorted_in_each_partition_and_within_the_limits(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    for number in range(3):
        rows = [f"{id_},{part}\n" for part in (1, 2) for id_ in (number, 5 + number)]
        source.write_text("id,part\n" + "".join(rows))
        create = ["--create", "--partition-by", "part"] if number == 0 else []
        lake.ok("ingest", "db.t", source, *create)
    by = ("--strategy", "sort", "--by", "id desc")

    few = lake.ok("compact", "db.t", "--where-overlap", "1", *by, "--max-files", "4")
    less = lake.ok("compact", "db.t", "--where-overlap", "1", *by, "--max-files", "2")
    rest = lake.ok("compact", "db.t", "--where-overlap", "1", *by)

    assert few["plan"]["depth"]["worst"] == 3
    # The files that overlap are sorted together or not at all.
    assert (few["result"]["rewritten_files"], few["plan"]["remaining_files"]) == (3, 3)
    assert (less["status"], less["plan"]["remaining_files"]) == ("nothing-to-do", 3)
    assert (rest["result"]["rewritten_files"], rest["result"]["depth"]["worst"]) == (3, 1)
    assert lake.ok("compact", "db.t", "--where-overlap", "0", *by)["status"] == "nothing-to-do"
    assert sorted(ids_in(lake.warehouse)) == sorted([0, 1, 2, 5, 6, 7] * 2)


def test_files_without_bounds_and_of_older_specs_are_left_alone_by_an_overlap(
    lake: CommandLine, tmp_path: Path
) -> None:
    overlapping(lake, tmp_path, [(0, 9), (1, 9), (2, 9)])
    lake.ok("alter", "db.t", "--set", "write.metadata.metrics.default=none")
    source = tmp_path / "bare.csv"
    source.write_text("id,name\n5,a\n")
    lake.ok("ingest", "db.t", source)
    lake.ok("alter", "db.t", "--set", "write.metadata.metrics.default=full")
    plan = lake.ok("compact", "db.t", "--where-overlap", "1", "--dry-run")["plan"]
    assert (plan["input_files"], plan["left_alone"]["no-bounds"]["files"]) == (3, 1)

    lake.ok("alter", "db.t", "--partition-by", "truncate(100, id)")

    plan = lake.ok("compact", "db.t", "--where-overlap", "0", "--dry-run")["plan"]
    assert (plan["input_files"], plan["left_alone"]["other-spec"]["files"]) == (0, 4)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (("--where-overlap", "1"), "has no sort order"),
        (("--where-overlap", "1", "--strategy", "zorder", "--by", "id"), "takes --strategy sort"),
        (("--where-overlap", "-1"), "must be >= 0"),
        (("--where-overlap", "1", "--rewrite-all"), "contradicts --rewrite-all"),
        (("--where-overlap", "1", "--spec-id", "0"), "contradicts --spec-id"),
        (
            ("--where-overlap", "1", "--strategy", "sort", "--by", "bucket(4, id)"),
            "do not show the order",
        ),
        (("--old-sort-orders", "--by", "id"), "sort without --by"),
        (("--old-sort-orders", "--strategy", "zorder", "--by", "id"), "--strategy sort"),
        (("--old-specs", "--rewrite-all"), "contradicts --old-specs"),
        (("--old-sort-orders",), "has no sort order"),
    ],
)
def test_old_files_are_chosen_by_options_that_agree(
    lake: CommandLine, options: tuple[str, ...], problem: str
) -> None:
    lake.load("id\n1\n", "--create")

    result = lake("compact", "db.t", *options)

    assert (result.exit_code, problem in result.stderr) == (2, True), result


def test_files_that_a_new_spec_would_turn_into_more_are_left_alone_with_the_reason(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    for first in range(0, 15, 3):
        lines = "".join(f"{row},{row % 4}\n" for row in range(first, first + 8))
        source.write_text("id,part\n" + lines)
        lake.ok("ingest", "db.t", source, "--create")
    before = sorted(ids_in(lake.warehouse))
    lake.ok("alter", "db.t", "--partition-by", "id")

    done = lake.ok("compact", "db.t")
    assert done["status"] == "nothing-to-do"
    [(reason, alone)] = done["plan"]["left_alone"].items()
    # The ids are those from 0 to 19.
    assert (reason, alone["files"], alone["expected_output_files"]) == ("more-partitions", 5, 20)
    said = " ".join(lake("compact", "db.t").stdout.split())
    assert "5 files of older partition specs would become about 20 in partition spec 1" in said
    listed = lake("compact", "db.t", "--dry-run", "--explain").stdout
    assert any(line.startswith("more-partitions\t") for line in listed.splitlines())

    warned = (
        "the rewrite turns 5 files into {}20: partition spec 1 puts their rows into more partitions"
    )
    for options in (("--spec-id", "1"), ("--old-specs",)):
        asked = lake.ok("compact", "db.t", *options, "--dry-run")
        assert asked["warnings"] == [warned.format("about ")]
        # The plan has the numbers of files before and after.
        assert (asked["plan"]["input_files"], asked["plan"]["expected_output_files"]) == (5, 20)
    lake.ok("alter", "db.t", "--partition-by", "part")
    # No more than 4 partitions, which the bounds say.
    assert lake.ok("compact", "db.t", "--dry-run")["plan"]["input_files"] == 5
    lake.ok("alter", "db.t", "--partition-by", "id")
    forced = lake.ok("compact", "db.t", "--rewrite-all")
    assert forced["result"]["added_files"] == 20
    assert len(forced["warnings"]) == 1
    assert sorted(ids_in(lake.warehouse)) == before


def test_files_of_an_older_spec_are_rewritten_if_nothing_says_how_many_texts_they_have(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    for first in range(6):
        lines = "".join(f"{row},{'nmk'[row % 3]}\n" for row in range(first, first + 8))
        source.write_text("id,country\n" + lines)
        lake.ok("ingest", "db.t", source, "--create")
    lake.ok("alter", "db.t", "--partition-by", "country")

    done = lake.ok("compact", "db.t")

    assert (done["plan"]["input_files"], done["result"]["added_files"]) == (6, 3)
    assert done["warnings"] == []


def test_an_older_spec_may_be_written(lake: CommandLine) -> None:
    table = make_table(lake.warehouse)
    with table.update_spec() as change:
        change.add_field("id", IdentityTransform(), "part")
    table = loaded(lake.warehouse)
    for _ in range(2):
        table.append(named_rows(1, 2))

    done = lake.ok("compact", "db.t", "--min-input-files", "2", "--spec-id", "0")

    table = loaded(lake.warehouse)
    assert done["result"]["added_files"] == 2
    assert {task.file.spec_id for task in table.scan().plan_files()} == {0}
    assert ids_in(lake.warehouse) == [1, 1, 2, 2]


def test_files_without_field_ids_are_read_by_the_name_mapping(
    lake: CommandLine, tmp_path: Path
) -> None:
    table = make_table(lake.warehouse)
    paths = []
    for number in range(5):
        path = tmp_path / f"{number}.parquet"
        # Another order than the schema's.
        pq.write_table(named_rows(number).select(["name", "id"]), path)
        paths.append(str(path))
    table.add_files(paths)

    assert lake.ok("compact", "db.t", "--verify")["result"]["added_files"] == 1
    assert sorted_rows(loaded(lake.warehouse)) == sorted(
        repr(r) for r in named_rows(*range(5)).to_pylist()
    )


FEW = ["red", None, "green"]
TEXTS: dict[str, tuple[list[str | None], dict[str, Any]]] = {
    "few": (FEW * 1000, {}),
    "other few": (["blue", "red", "blue"] * 1000, {}),
    "all NULL": ([None] * 3000, {}),
    "few without a dictionary": (FEW * 1000, {"use_dictionary": False}),
    "many": ([f"text {number:09}" for number in range(9000)], {}),
    "few and many": (
        FEW * 1000 + [f"{number:09}" for number in range(6000)],
        {"dictionary_pagesize_limit": 256, "data_page_size": 1024},
    ),
}


@pytest.mark.parametrize("order", [list(TEXTS), list(reversed(TEXTS))], ids=["few", "many"])
@pytest.mark.parametrize("row_group", [16 * 1024, 128 * 1024 * 1024], ids=["groups", "group"])
def test_texts_are_carried_with_and_without_their_dictionaries(
    lake: CommandLine, tmp_path: Path, order: list[str], row_group: int
) -> None:
    properties = {
        "write.parquet.row-group-size-bytes": str(row_group),
        "write.parquet.dict-size-bytes": "32768",
        "write.metadata.metrics.default": "full",
    }
    table = make_table(lake.warehouse, **properties)
    rows, paths = [], []
    for name in order:
        texts, options = TEXTS[name]
        first = 10_000 * len(paths)
        part = pa.table({"id": pa.array(range(first, first + len(texts))), "name": texts}).cast(
            pa.schema([("id", pa.int64()), ("name", pa.string())])
        )
        paths.append(str(tmp_path / f"{len(paths)}.parquet"))
        pq.write_table(part, paths[-1], **options)
        rows.append(part)
    table.add_files(paths)
    wanted = pa.concat_tables(rows)

    assert lake.ok("compact", "db.t")["result"]["added_files"] == 1

    after = loaded(lake.warehouse)
    [file] = after.inspect.files().to_pylist()
    stored = pq.ParquetFile(
        file["file_path"].removeprefix("file://"), page_checksum_verification=True
    )
    assert stored.read().equals(wanted.cast(stored.schema_arrow))
    assert (stored.num_row_groups > 3) == (row_group < MIB)
    metrics = file["readable_metrics"]["name"]
    texts = [text for text in wanted["name"].to_pylist() if text is not None]
    assert (metrics["lower_bound"], metrics["upper_bound"]) == (min(texts), max(texts))
    assert metrics["null_value_count"] == wanted["name"].null_count
    start = 0
    for number in range(stored.num_row_groups):
        group = stored.metadata.row_group(number)
        own = [text for text in wanted["name"].slice(start, group.num_rows).to_pylist() if text]
        found = group.column(1).statistics
        assert found.null_count == group.num_rows - len(own)
        assert not own or (found.min <= min(own) and max(own) <= found.max)
        start += group.num_rows
    if order == list(TEXTS) and row_group < MIB:
        assert stored.metadata.row_group(0).column(1).has_dictionary_page


TYPES = {
    "flag": (BooleanType(), [True, False, None]),
    "small": (IntegerType(), [-1, 2**31 - 1, None]),
    "long": (LongType(), [-(2**63), 5, None]),
    "f": (FloatType(), [0.5, -1.5, None]),
    "d": (DoubleType(), [0.1, -1e300, None]),
    "price": (DecimalType(20, 3), [decimal.Decimal("-1.001"), decimal.Decimal("99999.999"), None]),
    "tiny": (DecimalType(4, 2), [decimal.Decimal("-1.01"), decimal.Decimal("99.99"), None]),
    "day": (DateType(), [datetime.date(1969, 12, 31), datetime.date(2020, 2, 29), None]),
    "clock": (TimeType(), [datetime.time(0, 0, 0, 1), datetime.time(23, 59, 59, 999999), None]),
    "ts": (
        TimestampType(),
        [datetime.datetime(1969, 1, 1, 1), datetime.datetime(2030, 1, 1), None],
    ),
    "tz": (
        TimestamptzType(),
        [
            datetime.datetime(1969, 1, 1, 1, tzinfo=datetime.UTC),
            datetime.datetime(2030, 1, 1, 0, 0, 0, 7, tzinfo=datetime.UTC),
            None,
        ],
    ),
    "text": (StringType(), ["a/b=c %", "", None]),
    "raw": (BinaryType(), [b"\x00\xff", b"ab", None]),
    "fixed": (FixedType(3), [b"abc", b"\xff\x00\x01", None]),
    "code": (UUIDType(), [uuid.UUID(int=1).bytes, uuid.UUID(int=2**127 + 5).bytes, None]),
}


def every_type() -> Schema:
    fields = [
        NestedField(number, name, kind, required=False)
        for number, (name, (kind, _)) in enumerate(TYPES.items(), 1)
    ]
    number = len(fields)
    nested = [
        NestedField(number + 1, "tags", ListType(number + 2, StringType(), False), required=False),
        NestedField(
            number + 3,
            "attrs",
            MapType(number + 4, StringType(), number + 5, DoubleType(), False),
            required=False,
        ),
        NestedField(
            number + 6,
            "point",
            StructType(
                NestedField(number + 7, "at", FixedType(2), required=False),
                NestedField(
                    number + 8, "deep", ListType(number + 9, LongType(), False), required=False
                ),
            ),
            required=False,
        ),
    ]
    return Schema(*fields, *nested)


def typed_rows(table: Any) -> pa.Table:
    made = [
        {
            **{name: values[row] for name, (_, values) in TYPES.items()},
            "tags": [["a", None], [], None][row],
            "attrs": [[("k", 0.5), ("l", None)], [], None][row],
            "point": [{"at": b"\x00\x09", "deep": [1, None]}, {"at": None, "deep": None}, None][
                row
            ],
        }
        for row in range(3)
    ]
    return pa.Table.from_pylist(made, schema=table.schema().as_arrow())


def append_by_lake(warehouse: Path, data: pa.Table) -> None:
    session = open_session(warehouse)
    table = session.table("db.t")
    operation = session.ids.uuid()
    settings = WriteSettings.of(table, operation)
    fields = [
        item.with_type(item.type.storage_type)
        if isinstance(item.type, pa.BaseExtensionType)
        else item
        for item in data.schema
    ]
    with open_writer(table.storage, settings, task=0, attempt="t") as writer:
        plain = [column.cast(item.type) for column, item in zip(data.columns, fields, strict=True)]
        shaped = pa.table(plain, schema=pa.schema(fields)).cast(arrow_schema(table.schema))
        writer.write(shaped.combine_chunks().to_batches()[0])
        files = writer.close()
    commit_snapshot(session, table, AppendFiles(added=files), CommitRequest(operation_id=operation))


def test_values_of_every_type_are_carried_bit_by_bit(lake_on: CommandLine) -> None:
    table = make_table(lake_on.warehouse, schema=every_type())
    for _ in range(5):
        table.append(typed_rows(table))
    before = sorted_rows(table)

    done = lake_on.ok("compact", "db.t", "--verify")

    assert done["result"]["added_files"] == 1
    assert sorted_rows(loaded(lake_on.warehouse)) == before


@pytest.mark.slow
@pytest.mark.parametrize("column", [name for name in TYPES if name not in {"f", "d"}])
def test_rows_are_found_by_their_partition_of_any_type_afterwards(
    lake: CommandLine, column: str
) -> None:
    schema = every_type()
    source = schema.find_field(column).field_id
    spec = PartitionSpec(PartitionField(source, 1000, IdentityTransform(), "part"), spec_id=0)
    table = make_table(lake.warehouse, schema=schema, spec=spec)
    for _ in range(2):
        # PyIceberg cannot split rows by a UUID.
        append_by_lake(lake.warehouse, typed_rows(table))
    table = loaded(lake.warehouse)
    before = sorted_rows(table)

    done = lake.ok("compact", "db.t", "--min-input-files", "2", "--verify")

    table = loaded(lake.warehouse)
    assert done["result"]["added_files"] == 3
    assert sorted_rows(table) == before
    partitions = [task.file.partition[0] for task in table.scan().plan_files()]
    assert len(set(partitions)) == 3
    for value in TYPES[column][1][:2]:
        if column == "code":
            # PyIceberg finds no row by a UUID, whatever program wrote the file.
            wanted = f"code = '{uuid.UUID(bytes=value)}'"
            assert lake.ok("scan", "db.t", "--where", wanted)["result"]["rows"] == 2
            continue
        found = table.scan(row_filter=EqualTo(column, value)).to_arrow()
        assert found[column].to_pylist() == [value, value]


# What is refused


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["db.missing"], 7),
        (["db.t", "--branch", "missing"], 7),
        (["db.t", "--spec-id", "9"], 7),
        (["db.t", "--where", "missing = 1"], 7),
        (["db.t", "--where", "id = 'x'"], 7),
        (["db.t", "--where", "id ="], 7),
        (["db.t", "--strategy", "sort"], 2),
        (["db.t", "--strategy", "sort", "--by", "missing"], 7),
        (["db.t", "--strategy", "sort", "--by", "id sideways"], 2),
        (["db.t", "--strategy", "sort", "--by", "day(id)"], 2),
        (["db.t", "--strategy", "zorder"], 2),
        (["db.t", "--strategy", "hilbert"], 2),
        (["db.t", "--strategy", "zorder", "--by", "id, missing"], 7),
        (["db.t", "--strategy", "zorder", "--by", "id, id"], 2),
        (["db.t", "--strategy", "sort", "--by", "id", "--option", "max-output-size=1"], 2),
        (["db.t", "--strategy", "zorder", "--by", "id", "--option", "max-output-size=0"], 2),
        (["db.t", "--option", "compression-factor=1.5"], 2),
        (["db.t", "--strategy", "best"], 2),
        (["db.t", "--by", "id"], 2),
        (["db.t", "--target-size", "many"], 2),
        (["db.t", "--target-size", "100"], 2),
        (["db.t", "--max-group-size", "1000000"], 2),
        (["db.t", "--min-size", "1GB"], 2),
        (["db.t", "--min-input-files", "0"], 2),
        (["db.t", "--job-order", "size"], 2),
        (["db.t", "--option", "nonsense=1"], 2),
        (["db.t", "--option", "min-input-files"], 2),
        (["db.t", "--delete-ratio", "7"], 2),
        (["db.t", "--max-commits", "0"], 2),
    ],
)
def test_what_cannot_be_done_is_refused_with_one_document_and_no_change(
    lake: CommandLine, arguments: list[str], code: int
) -> None:
    make_table(lake.warehouse).append(named_rows(1))
    before = files_below(lake.warehouse)

    result = lake("--json", "compact", *arguments)

    assert result.exit_code == code
    assert result.json()["error"]["message"]
    assert files_below(lake.warehouse) == before


def test_an_unknown_option_is_answered_with_those_there_are(lake: CommandLine) -> None:
    six_files(lake.warehouse)

    error = lake("--json", "compact", "db.t", "--option", "nonsense=1").json()["error"]

    assert "max-file-group-size-bytes" in error["hint"]


# Deletes


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_deleted_rows_are_left_out_and_counted(warehouse: Path, engine: str) -> None:
    lake = CommandLine(warehouse, engine=engine)
    table = six_files(warehouse)
    commit_position_delete(warehouse, live_paths(table)[0], 0)
    commit_equality_delete(warehouse, [3, 7, 1000])
    before = read(lake)

    planned = lake.ok("compact", "db.t", "--dry-run")
    done = lake.ok("compact", "db.t", "--verify")

    assert planned["plan"]["input_delete_files"] == 2
    assert (done["result"]["rows_in"], done["result"]["rows_dropped_by_deletes"]) == (12, 3)
    assert done["result"]["rows_out"] == len(before) == 9
    assert done["result"]["removed_delete_files"] == 1
    assert read(lake) == before


def test_files_with_many_deleted_rows_or_delete_files_are_rewritten_whatever_their_size(
    lake: CommandLine, warehouse: Path
) -> None:
    table = six_files(warehouse)
    chosen = ("--option", "min-file-size-bytes=0", "--min-input-files", "100")
    assert lake.ok("compact", "db.t", *chosen)["status"] == "nothing-to-do"
    commit_position_delete(warehouse, live_paths(table)[2], 0)
    before = read(lake)

    by_ratio = lake.ok("compact", "db.t", *chosen, "--dry-run", "--delete-ratio", "0.5")
    unburdened = lake.ok("compact", "db.t", *chosen, "--dry-run", "--delete-ratio", "0.6")
    by_count = lake.ok(
        "compact", "db.t", *chosen, "--delete-ratio", "1", "--delete-file-threshold", "1"
    )

    assert by_ratio["plan"]["input_files"] == 1
    assert unburdened["status"] == "dry-run"
    assert unburdened["plan"]["input_files"] == 0
    assert by_count["result"]["rewritten_files"] == 1
    assert read(lake) == before


def test_dangling_deletes_go_where_they_are_asked_to(lake: CommandLine, warehouse: Path) -> None:
    six_files(warehouse)
    commit_equality_delete(warehouse, [3])
    before = read(lake)

    kept = lake.ok("compact", "db.t")
    gone = lake.ok("compact", "db.t", "--remove-dangling-deletes")
    again = lake.ok("compact", "db.t", "--remove-dangling-deletes")

    assert kept["result"]["removed_delete_files"] == 0
    assert (gone["status"], gone["result"]["removed_delete_files"]) == ("done", 1)
    assert len(gone["snapshot_ids"]) == 1
    assert again["status"] == "nothing-to-do"
    assert read(lake) == before


def test_a_delete_that_still_applies_is_not_dangling(lake: CommandLine, warehouse: Path) -> None:
    six_files(warehouse)
    commit_equality_delete(warehouse, [3, 11])
    before = read(lake)

    lake.ok("compact", "db.t", "--where", "id < 6", "--remove-dangling-deletes")

    assert lake.ok("scan", "db.t", "--plan")["plan"]["delete_files"] == 1
    assert read(lake) == before


def test_a_compaction_that_left_dangling_deletes_is_not_done(
    lake: CommandLine, warehouse: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    six_files(warehouse)
    commit_equality_delete(warehouse, [3])
    before = read(lake)

    def unreadable(*_: Any, **__: Any) -> Any:
        raise StorageError("no permission")

    monkeypatch.setattr(execute, "dangling_deletes", unreadable)
    ended = lake("--json", "compact", "db.t", "--remove-dangling-deletes")
    monkeypatch.undo()

    assert ended.exit_code == 6
    document = json.loads(ended.stdout)
    assert (document["status"], document["result"]["failed_groups"]) == ("partial", 0)
    assert document["warnings"] == [
        "stopped before the delete files that apply to no data file were removed: no permission"
    ]
    assert read(lake) == before
    gone = lake.ok("compact", "db.t", "--remove-dangling-deletes")
    assert (gone["status"], gone["result"]["removed_delete_files"]) == ("done", 1)


def read(lake: CommandLine) -> list[dict[str, Any]]:
    """Return all rows as lake reads them, in order."""
    rows: list[dict[str, Any]] = lake.ok("scan", "db.t")["result"]["preview"]
    return sorted(rows, key=lambda row: (row["id"] is None, row["id"]))


# What goes wrong


def test_a_broken_input_file_changes_nothing_and_leaves_nothing(lake_on: CommandLine) -> None:
    table = six_files(lake_on.warehouse)
    path = Path(live_paths(table)[3].removeprefix("file://"))
    path.write_bytes(path.read_bytes()[:-9])
    before = files_below(lake_on.warehouse)

    result = lake_on("--json", "compact", "db.t")

    assert result.exit_code == 7
    assert path.name in result.json()["error"]["message"]
    assert files_below(lake_on.warehouse) == before


def test_a_file_with_other_rows_than_metadata_says_is_refused(lake: CommandLine) -> None:
    table = six_files(lake.warehouse)
    path = Path(live_paths(table)[3].removeprefix("file://"))
    schema = pq.read_schema(path)
    pq.write_table(pa.table({"id": [1], "name": ["n1"]}).cast(schema), path)
    before = files_below(lake.warehouse)

    assert lake("compact", "db.t").exit_code == 7
    assert files_below(lake.warehouse) == before


@pytest.mark.slow
def test_a_stopped_compaction_leaves_nothing_behind(lake: CommandLine) -> None:
    table = make_table(lake.warehouse)
    names = [uuid.uuid5(uuid.NAMESPACE_DNS, str(row)).hex * 20 for row in range(20_000)]
    for start in range(0, 400_000, 20_000):
        table.append(pa.table({"id": pa.array(range(start, start + 20_000)), "name": names}))
    before = files_below(lake.warehouse)
    inline = CommandLine(lake.warehouse, engine="inline")

    for number in (signal.SIGINT, signal.SIGTERM):
        process = inline.start("--json", "compact", "db.t")
        _wait_for_new_file(lake.warehouse, before, process)
        process.send_signal(number)
        process.communicate(timeout=300)

        assert process.returncode == 128 + number
        assert files_below(lake.warehouse) == before


def _wait_for_new_file(warehouse: Path, before: set[str], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 300
    while not any(name.endswith(".parquet") for name in files_below(warehouse) - before):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_files_that_are_left_alone_are_counted_by_reason_and_listed_on_request(
    lake: CommandLine, tmp_path: Path
) -> None:
    source = tmp_path / "rows.csv"
    for number in range(3):
        source.write_text("id,day\n" + "".join(f"{number},{day}\n" for day in "abc"[number:]))
        lake.ok("ingest", "db.t", source, "--create", "--partition-by", "day")

    done = lake.ok("compact", "db.t")
    assert done["status"] == "nothing-to-do"
    assert {reason: item["files"] for reason, item in done["plan"]["left_alone"].items()} == {
        "only-file": 1,
        "few-files": 5,
    }
    said = lake("compact", "db.t").stdout
    assert "nothing to compact: 5 of 6 files" in said
    assert "--min-input-files" in said
    listed = lake("compact", "db.t", "--dry-run", "--explain").stdout.splitlines()
    assert [line.split("\t")[:3] for line in listed if "-file" in line and "day=" in line] == [
        ["few-files", "day=c", "3"],
        ["few-files", "day=b", "2"],
        ["only-file", "day=a", "1"],
    ]
    assert lake("compact", "db.t", "--explain").exit_code == 2
    chosen = lake.ok("compact", "db.t", "--dry-run", "--min-input-files", "3")["plan"]
    assert (chosen["input_files"], chosen["left_alone"]["few-files"]["files"]) == (3, 2)
