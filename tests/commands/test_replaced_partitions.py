"""`lake ingest --replace-partitions` after a change of the partitioning: no old row stays beside the new ones."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import after, files_below

Row = tuple[int, str | None, float | None, str]

OLD: list[Row] = [
    (1, "mon", 1.5, "2026-01-05"),
    (2, "tue", float("nan"), "2026-01-06"),
    (3, None, None, "1969-12-31"),
]


def source(lake: CommandLine, name: str, rows: list[Row]) -> Path:
    lake.warehouse.parent.mkdir(parents=True, exist_ok=True)
    path = lake.warehouse.parent / f"{name}.parquet"
    times = [dt.datetime.fromisoformat(f"{row[3]}T12:00:00") for row in rows]
    columns: dict[str, Any] = {
        "id": pa.array([row[0] for row in rows], pa.int64()),
        "day": pa.array([row[1] for row in rows], pa.string()),
        "share": pa.array([row[2] for row in rows], pa.float64()),
        "ts": pa.array(times, pa.timestamp("us")),
    }
    pq.write_table(pa.table(columns), path)
    return path


def changed(lake: CommandLine, before: str, now: str) -> None:
    """Make a table with the old rows, and change its partitioning."""
    options = ("--partition-by", before) if before else ()
    lake.ok("ingest", "db.t", source(lake, "old", OLD), "--create", *options)
    lake.ok("alter", "db.t", "--partition-by", now)


MAY_STAY: list[tuple[str, str, Row]] = [
    ("day", "day, bucket(2, id)", (9, "mon", 0.0, "2026-01-01")),
    ("day, bucket(2, id)", "bucket(2, id)", (1, "sun", 0.0, "2026-01-01")),
    ("day", "truncate(day, 2)", (9, "moon", 0.0, "2026-01-01")),
    ("day", "truncate(day, 2)", (9, None, 0.0, "2026-01-01")),
    # By the bounds of the columns.
    ("", "day(ts)", (9, "mon", 0.0, "2026-01-05")),
    ("", "day(ts)", (9, "mon", 0.0, "1969-12-31")),
    ("", "month(ts)", (9, "mon", 0.0, "1999-01-05")),
    ("", "day", (9, None, 0.0, "2026-01-05")),
    ("day(ts)", "month(ts)", (9, "sun", 0.0, "2026-01-31")),
    ("", "truncate(id, 5)", (4, "mon", 0.0, "2026-01-05")),
    # Nothing shows where old rows are.
    ("day", "bucket(4, ts)", (9, "sun", 0.0, "2026-03-01")),
    ("", "share", (9, "sun", float("nan"), "2026-03-01")),
    ("share", "share, bucket(2, id)", (9, "sun", float("nan"), "2026-03-01")),
]
GO: list[tuple[str, str, Row]] = [
    ("day", "day, bucket(2, id)", (9, "sun", 0.0, "2026-01-05")),
    ("day", "truncate(day, 2)", (9, "sun", 0.0, "2026-01-05")),
    ("day, bucket(2, id)", "day", (9, "sun", 0.0, "2026-01-05")),
    ("", "day(ts)", (9, "mon", 0.0, "2026-01-07")),
    ("", "truncate(id, 5)", (5, "mon", 0.0, "2026-01-05")),
    ("day(ts)", "month(ts)", (9, "sun", 0.0, "2026-02-01")),
    ("ts", "month(ts), bucket(4, id)", (9, "sun", 0.0, "2026-02-01")),
    ("", "id", (9, None, None, "2026-01-05")),
    ("share", "share, bucket(2, id)", (9, "sun", 2.5, "2026-03-01")),
]


@pytest.mark.parametrize(("before", "now", "row"), MAY_STAY)
def test_partitions_are_not_replaced_if_old_rows_may_stay_in_files_of_another_spec(
    lake: CommandLine, before: str, now: str, row: Row
) -> None:
    changed(lake, before, now)
    rows, files = lake.rows(by="id"), files_below(lake.warehouse)
    new = source(lake, "new", [row])

    for dry_run in ([], ["--dry-run"]):
        refused = lake("ingest", "db.t", new, "--replace-partitions", *dry_run)
        assert refused.exit_code == 3, refused
        assert "of another partition spec" in refused.stderr

    assert repr(lake.rows(by="id")) == repr(rows)
    assert files_below(lake.warehouse) == files
    lake.ok("compact", "db.t", "--old-specs")
    lake.ok("ingest", "db.t", new, "--replace-partitions")
    assert lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0


@pytest.mark.parametrize(("before", "now", "row"), GO)
def test_files_of_another_spec_that_have_no_row_of_the_partitions_stay(
    lake: CommandLine, before: str, now: str, row: Row
) -> None:
    changed(lake, before, now)
    new = source(lake, "new", [row])

    lake.ok("ingest", "db.t", new, "--replace-partitions", "--dry-run")
    for _ in range(2):
        lake.ok("ingest", "db.t", new, "--replace-partitions")

    assert [found["id"] for found in lake.rows(by="id")] == [1, 2, 3, row[0]]


def test_a_table_that_is_not_partitioned_any_more_is_replaced_as_a_whole(
    lake: CommandLine,
) -> None:
    changed(lake, "day", "")

    lake.ok("ingest", "db.t", source(lake, "new", OLD[:1]), "--replace-partitions")

    assert [found["id"] for found in lake.rows(by="id")] == [1]


@pytest.mark.parametrize(("theirs", "code"), [("mon", 3), ("sun", 0)])
def test_rows_that_another_writer_adds_in_another_spec_do_not_stay_beside_the_new_ones(
    lake: CommandLine, theirs: str, code: int
) -> None:
    lake.ok("ingest", "db.t", source(lake, "old", OLD), "--create", "--partition-by", "day")
    other = source(lake, "other", [(7, theirs, 0.0, "2026-01-05")])

    def race() -> None:
        lake.ok("alter", "db.t", "--partition-by", "day, bucket(2, id)")
        lake.ok("ingest", "db.t", other)
        lake.ok("alter", "db.t", "--partition-by", "day")

    new = source(lake, "new", [(9, "mon", 0.0, "2026-01-05")])
    result = lake.with_faults(after(race))("ingest", "db.t", new, "--replace-partitions")

    assert result.exit_code == code, result
    if code:
        assert "of another partition spec" in result.stderr
    kept = [1, 2, 3, 7] if code else [2, 3, 7, 9]
    assert [found["id"] for found in lake.rows(by="id")] == kept
    assert len(list(lake.warehouse.rglob("*.parquet"))) == (4 if code else 5)


def test_a_snapshot_that_replaced_partitions_is_not_applied_beside_rows_of_another_spec(
    lake: CommandLine,
) -> None:
    changed(lake, "day", "day, bucket(2, id)")
    lake.ok("alter", "db.t", "--partition-by", "day")
    lake.ok("ref", "db.t", "--branch-create", "audit")
    new = source(lake, "new", [(9, "mon", 0.0, "2026-01-05")])
    picked = lake.ok("ingest", "db.t", new, "--replace-partitions", "--branch", "audit")
    lake.ok("alter", "db.t", "--partition-by", "day, bucket(2, id)")
    lake.ok("ingest", "db.t", source(lake, "other", [(7, "mon", 0.0, "2026-01-05")]))

    for dry_run in (["--dry-run"], []):
        refused = lake("cherry-pick", "db.t", picked["snapshot_ids"][0], *dry_run)

        assert refused.exit_code == 3, refused
        assert "of another partition spec" in refused.stderr
    assert [found["id"] for found in lake.rows(by="id")] == [1, 2, 3, 7]
