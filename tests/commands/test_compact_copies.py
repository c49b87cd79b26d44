"""`lake compact --copy-row-groups` through the command line; PyIceberg judges the rows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.delete_files import commit_position_delete
from support.tables.iceberg_tables import pyiceberg_table

# Row groups of 8 KB and more are large.
SMALL = "write.parquet.row-group-size-bytes=65536"
LARGE_ROWS, SMALL_ROWS = 2000, 5


def rows_of(number: int, rows: int) -> pa.Table:
    rng = np.random.default_rng(number)
    return pa.table(
        {
            "id": pa.array(np.arange(rows) + number * 100_000),
            "text": pa.array([rng.bytes(8).hex() for _ in range(rows)]),
            "ratio": pa.array([None if at % 3 == 0 else at / 7 for at in range(rows)]),
            "tags": pa.array([[str(at)] * (at % 3) for at in range(rows)], pa.list_(pa.string())),
        }
    )


def load(lake: CommandLine, sizes: Sequence[int], *more: str) -> Any:
    """Make a table of one file for each number of rows, and return it."""
    path = lake.warehouse.parent / "rows.parquet"
    options = [part for item in (SMALL, *more) for part in ("--property", item)]
    for number, rows in enumerate(sizes):
        pq.write_table(rows_of(number, rows), path)
        lake.ok("ingest", "db.t", path, *(("--create", *options) if number == 0 else ()))
    return pyiceberg_table(lake.warehouse)


def rows_in(table: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("id").to_pylist()
    return found


def row_groups(table: Any) -> list[int]:
    """Return the stored sizes of the row groups of all live files."""
    paths = [task.file.file_path.removeprefix("file://") for task in table.scan().plan_files()]
    found = [pq.read_metadata(path) for path in paths]
    return [
        sum(metadata.row_group(at).column(one).total_compressed_size for one in range(4))
        for metadata in found
        for at in range(metadata.num_row_groups)
    ]


def test_large_row_groups_are_copied_and_small_ones_merged(lake_on: CommandLine) -> None:
    before = load(lake_on, [LARGE_ROWS, SMALL_ROWS] * 4)
    expected = rows_in(before)
    large = sum(size >= 8192 for size in row_groups(before))
    mode = ("--copy-row-groups", "always")

    dry = lake_on("compact", "db.t", *mode, "--dry-run")
    done = lake_on.ok("compact", "db.t", *mode, "--verify")

    assert f"copying {large} row groups" in dry.stderr
    assert dry.exit_code == 0
    assert done["plan"]["row_groups_to_copy"] == large
    assert done["result"]["copied_row_groups"] == large
    assert "decoded_row_groups" not in done["result"]
    after = pyiceberg_table(lake_on.warehouse)
    assert rows_in(after) == expected
    (file,) = [task.file for task in after.scan().plan_files()]
    assert file.record_count == len(expected)
    assert all(size >= 8192 for size in row_groups(after)[:-1])
    # Bounds and counts are those of all rows.
    for condition in ("id = 0", "id = 601999", "ratio IS NULL", "id < 0"):
        found = lake_on.ok("scan", "db.t", "--where", condition, "--plan")
        assert (found["plan"]["files"] > 0) == (condition != "id < 0")
    lake_on.ok("check", "db.t", "--deep")


def test_auto_copies_if_most_row_groups_are_large(lake: CommandLine) -> None:
    load(lake, [SMALL_ROWS, LARGE_ROWS, *[SMALL_ROWS] * 6])
    few = lake.ok("compact", "db.t", "--dry-run")["plan"]["row_groups_to_copy"]
    path = lake.warehouse.parent / "rows.parquet"
    for number in range(10, 16):
        pq.write_table(rows_of(number, LARGE_ROWS), path)
        lake.ok("ingest", "db.t", path)

    many = lake.ok("compact", "db.t", "--dry-run")["plan"]["row_groups_to_copy"]
    never = lake.ok("compact", "db.t", "--copy-row-groups", "never")

    assert few == 0
    assert many >= 7
    assert never["plan"]["row_groups_to_copy"] == never["result"]["copied_row_groups"] == 0
    assert lake("compact", "db.t", "--copy-row-groups", "x").exit_code == 2


@pytest.mark.parametrize("why", ["row ids", "deletes", "order", "old spec", "orc"])
def test_rows_that_are_moved_or_deleted_are_decoded(lake: CommandLine, why: str) -> None:
    table = load(lake, [LARGE_ROWS] * 5, *(["format-version=3"] if why == "row ids" else []))
    expected = rows_in(table)
    options: tuple[str, ...] = ()
    if why == "deletes":
        (path, *_) = (task.file.file_path for task in table.scan().plan_files())
        commit_position_delete(lake.warehouse, path, 0)
        expected = rows_in(pyiceberg_table(lake.warehouse))
    elif why == "order":
        options = ("--strategy", "sort", "--by", "text")
    elif why == "old spec":
        lake.ok("alter", "db.t", "--partition-by", "bucket(2, id)")
        options = ("--old-specs",)
    elif why == "orc":
        lake.ok("alter", "db.t", "--set", "write.format.default=orc")

    done = lake.ok("compact", "db.t", "--copy-row-groups", "always", *options)

    assert done["plan"]["row_groups_to_copy"] == done["result"]["copied_row_groups"] == 0
    assert done["result"]["rewritten_files"] == 5
    assert rows_in(pyiceberg_table(lake.warehouse)) == expected


def test_files_from_before_a_change_of_the_schema_are_decoded(lake: CommandLine) -> None:
    load(lake, [LARGE_ROWS] * 3)
    lake.ok("alter", "db.t", "--add-column", "more long")
    path = lake.warehouse.parent / "rows.parquet"
    for number in (7, 8):
        pq.write_table(rows_of(number, LARGE_ROWS), path)
        lake.ok("ingest", "db.t", path)
    expected = rows_in(pyiceberg_table(lake.warehouse))

    done = lake.ok("compact", "db.t", "--copy-row-groups", "always", "--verify")

    result = done["result"]
    assert result["decoded_row_groups"] == {
        "schema": done["plan"]["row_groups_to_copy"] - result["copied_row_groups"]
    }
    assert result["copied_row_groups"] > 1
    assert rows_in(pyiceberg_table(lake.warehouse)) == expected


def test_a_large_file_is_split_between_its_row_groups(lake: CommandLine) -> None:
    table = load(lake, [20 * LARGE_ROWS])
    expected = rows_in(table)
    size = sum(task.file.file_size_in_bytes for task in table.scan().plan_files())

    done = lake.ok(
        *("compact", "db.t", "--copy-row-groups", "always", "--verify"),
        *("--target-size", f"{size // 3 // 1024}KB"),
    )

    assert done["result"]["added_files"] > 2
    assert done["result"]["copied_row_groups"] >= done["plan"]["row_groups_to_copy"] - 1 > 5
    assert rows_in(pyiceberg_table(lake.warehouse)) == expected


@pytest.mark.parametrize(
    ("sizes", "part"), [([900] * 10, 1.35), ([10 * LARGE_ROWS], 0.04)], ids=["small", "large"]
)
def test_row_groups_that_no_file_of_the_right_size_has_are_decoded(
    lake: CommandLine, sizes: Sequence[int], part: float
) -> None:
    # Two of them are too large for a file, and one is too small; or one is too large.
    table = load(lake, sizes)
    expected = rows_in(table)
    size = max(task.file.file_size_in_bytes for task in table.scan().plan_files())
    lake.ok("alter", "db.t", "--set", f"write.target-file-size-bytes={int(size * part)}")

    first = lake.ok("compact", "db.t", "--copy-row-groups", "always")
    second = lake.ok("compact", "db.t", "--copy-row-groups", "always")

    assert first["plan"]["row_groups_to_copy"] == first["result"]["copied_row_groups"] == 0
    assert (first["status"], second["status"]) == ("done", "nothing-to-do")
    assert rows_in(pyiceberg_table(lake.warehouse)) == expected


def test_a_changed_page_is_found_and_nothing_is_committed(lake: CommandLine) -> None:
    table = load(lake, [LARGE_ROWS] * 5)
    (task, *_) = table.scan().plan_files()
    path = Path(task.file.file_path.removeprefix("file://"))
    data = bytearray(path.read_bytes())
    offset = pq.read_metadata(path).row_group(0).column(1).data_page_offset
    data[offset + 200] ^= 1
    path.write_bytes(bytes(data))

    failed = lake("compact", "db.t", "--copy-row-groups", "always")

    assert failed.exit_code != 0
    assert pyiceberg_table(lake.warehouse).current_snapshot() == table.current_snapshot()
