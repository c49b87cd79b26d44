"""Statistics of Parquet footers: only those that hold become bounds and counts, and only by them rows are skipped."""

from __future__ import annotations

import struct
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.parquet_footers import with_statistics, written_by

PARQUET_MR = "parquet-mr version 1.8.2 (build c6522788629e590a53eb79874b95f6c3ff11f16c)"
OLD_CPP = "parquet-cpp-arrow version 3.0.0"
CLICKHOUSE = "ClickHouse v25.6.1.1"


@pytest.fixture
def folder(lake: CommandLine) -> Path:
    """A folder for files, beside the warehouse."""
    found = lake.warehouse.parent / "landing"
    found.mkdir()
    return found


def scanned(lake: CommandLine, where: str) -> int:
    found = lake("scan", "db.t", "--where", where, "--output", "-", "--output-format", "json")
    assert found.exit_code == 0, found
    return len(found.stdout.splitlines())


def stored(lake: CommandLine, metric: str) -> dict[str, bytes]:
    """Return a metric of the only file, by column."""
    table = lake.table()
    (found,) = table.inspect.files()[metric].to_pylist()
    return {table.schema().find_column_name(number) or "": value for number, value in found or ()}


def decimals() -> pa.Array:
    return pa.array([Decimal(cents) / 100 for cents in range(100, 2500, 100)], pa.decimal128(25, 2))


def signed_bytes(cents: int) -> bytes:
    return cents.to_bytes(11, "big", signed=True)


@pytest.mark.parametrize(
    ("writer", "deprecated"), [(PARQUET_MR, True), (OLD_CPP, False), (CLICKHOUSE, False)]
)
def test_a_decimal_that_its_writer_compared_as_bytes_has_no_bounds(
    lake: CommandLine, folder: Path, writer: str, deprecated: bool
) -> None:
    # In signed bytes, c8 is the least last byte and 64 is not: 2.00 is the minimum and 1.00 is below it.
    path = folder / "a.parquet"
    pq.write_table(pa.table({"value": decimals()}), path)
    with_statistics(path, bounds=(signed_bytes(200), signed_bytes(2400)))
    written_by(path, writer, deprecated=deprecated)
    lake.ok("create", "db.t", "value decimal(25,2)")

    lake.ok("add-files", "db.t", path)

    assert scanned(lake, "value = 1") == 1
    assert scanned(lake, "value < 2") == 1
    assert lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0
    assert stored(lake, "lower_bounds") == stored(lake, "upper_bounds") == {}


def test_a_decimal_of_a_writer_that_compares_numbers_has_bounds(
    lake: CommandLine, folder: Path
) -> None:
    path = folder / "a.parquet"
    pq.write_table(pa.table({"value": decimals()}), path)
    written_by(path, "parquet-mr version 1.12.3 (build f8dced182c4c1fbdec6ccb3185537b5a01e6ed6b)")
    lake.ok("create", "db.t", "value decimal(25,2)")
    lake.ok("add-files", "db.t", path)
    assert stored(lake, "lower_bounds") == {"value": b"\x64"}


@pytest.mark.parametrize("writer", [PARQUET_MR, None, "unknown", "impala version 2.9.0"])
def test_deprecated_bounds_hold_for_signed_numbers_only(
    lake: CommandLine, folder: Path, writer: str | None
) -> None:
    types = {
        "text": pa.string(),
        "bytes": pa.binary(),
        "fixed": pa.binary(4),
        "price": pa.decimal128(30, 2),
        "whole": pa.int32(),
        "long": pa.int64(),
        "real": pa.float64(),
        "day": pa.date32(),
        "time": pa.timestamp("us"),
        "flag": pa.bool_(),
    }
    last = ["z", b"z", b"zzzz", Decimal(2), 7, 7, 7.0, 7, 7, True]
    first = ["a", b"a", b"aaaa", Decimal(1), -1, -1, -0.5, -1, -1, False]
    columns = zip(first, last, types.values(), strict=True)
    path = folder / "a.parquet"
    made = [pa.array([one, other], kind) for one, other, kind in columns]
    pq.write_table(pa.table(made, names=list(types)), path)
    written_by(path, writer, deprecated=True)
    lake.ok("ingest", "db.t", path, "--create")
    lake.ok("add-files", "db.t", path)
    table = lake.table()
    (added,) = [
        row for row in table.inspect.files().to_pylist() if row["file_path"].endswith("/a.parquet")
    ]
    found = {table.schema().find_column_name(number) for number, _ in added["lower_bounds"]}
    # An early Impala lets a NaN spoil the bounds of numbers with fractions.
    known = set() if writer == "impala version 2.9.0" else {"real"}
    assert found == {"whole", "long", "day", "time", "flag"} | known
    assert {number for number, _ in added["null_value_counts"]} >= set(range(4, 11))


def test_row_groups_are_not_skipped_by_statistics_that_do_not_hold(
    lake: CommandLine, folder: Path
) -> None:
    lake.ok("create", "db.t", "price decimal(25,2)", "name string")
    path = folder / "a.parquet"
    rows = pa.table({"price": decimals().slice(0, 4), "name": ["é", "a", "ü", "b"]})
    pq.write_table(rows, path, row_group_size=2)
    with_statistics(path, bounds=(signed_bytes(200), signed_bytes(2400)))
    # In signed bytes, é is the minimum and a the maximum.
    with_statistics(path, column=1, bounds=("é".encode(), b"a"))
    written_by(path, PARQUET_MR, deprecated=True)
    lake.ok("add-files", "db.t", path)

    assert scanned(lake, "price = 1") == 1
    assert scanned(lake, "name >= 'é'") == 2
    change = folder / "change.csv"
    change.write_text("price,name\n1,new\n")
    done = lake.ok("ingest", "db.t", change, "--upsert", "--key", "price")["result"]
    assert (done["rows_updated"], done["rows_inserted"]) == (1, 0)


def test_a_zero_bound_contains_both_zeros(lake: CommandLine, folder: Path) -> None:
    lake.ok("create", "db.t", "x double")
    path = folder / "a.parquet"
    pq.write_table(pa.table({"x": [-0.0, 0.0, -0.0]}), path)
    # Some writers order neither zero before the other: the first one is the minimum and the maximum.
    with_statistics(path, bounds=(struct.pack("<d", 0.0), struct.pack("<d", -0.0)))
    lake.ok("add-files", "db.t", path)
    assert stored(lake, "lower_bounds") == {"x": struct.pack("<d", -0.0)}
    assert stored(lake, "upper_bounds") == {"x": struct.pack("<d", 0.0)}


@pytest.mark.parametrize("nulls", [0, 3])
def test_null_counts_of_a_writer_that_multiplies_them_hold_if_they_are_zero(
    lake: CommandLine, folder: Path, nulls: int
) -> None:
    lake.ok("create", "db.t", "x string")
    path = folder / "a.parquet"
    values = ["a", None, "b"] if nulls else ["a", "c", "b"]
    pq.write_table(pa.table({"x": values}), path)
    with_statistics(path, nulls=nulls)
    written_by(path, "Polars")
    lake.ok("add-files", "db.t", path)
    assert scanned(lake, "x is not null") == len([value for value in values if value])
    assert stored(lake, "null_value_counts") == ({} if nulls else {"x": 0})


def test_a_null_count_that_contradicts_bounds_does_not_hold(
    lake: CommandLine, folder: Path
) -> None:
    lake.ok("create", "db.t", "x long")
    path = folder / "a.parquet"
    pq.write_table(pa.table({"x": [1, None, 2, None]}), path, row_group_size=2)
    with_statistics(path, nulls=2)
    lake.ok("add-files", "db.t", path)
    assert scanned(lake, "x = 1") == 1
    assert scanned(lake, "x is not null") == 2


def test_truncated_statistics_are_not_reported_as_wrong_bounds(
    lake: CommandLine, folder: Path
) -> None:
    lake.ok("create", "db.t", "x string")
    path = folder / "a.parquet"
    pq.write_table(pa.table({"x": ["aaaa", "abcd"]}), path)
    with_statistics(path, bounds=(b"aaaa", b"abcd"))
    lake.ok("add-files", "db.t", path)
    with_statistics(path, bounds=(b"aaaa", b"ac"), truncated=True)
    found = lake("--json", "check", "db.t", "--rows").json()["result"]["findings"]
    assert [item["code"] for item in found if item["code"].startswith("D")] == []
