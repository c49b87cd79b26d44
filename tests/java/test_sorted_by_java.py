"""Iceberg Java judges sorted files: the same rows, in Spark's own order, under the sort order that Java claims."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer

pytestmark = pytest.mark.java

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("d", pa.float64()),
        ("price", pa.decimal128(20, 2)),
        ("day", pa.date32()),
    ]
)
DDL = "id bigint, name string, d double, price decimal(20, 2), day date"


def rows(count: int, start: int = 0) -> pa.Table:
    """Return rows in no order, with NULLs, NaN, negative numbers and texts beyond the first plane."""
    texts = ["", "a", "a\U0001f600", "\uffff", "é", "b", None]
    made = [
        {
            "id": number * 7919 % 1000 - 300,
            "name": texts[number % len(texts)],
            "d": [None, float("nan"), -1.5, float("-inf"), number / 3][number % 5],
            "price": None if number % 9 == 0 else number * 31 % 100 - 50,
            "day": number * 13 % 40 - 20,
        }
        for number in range(start, start + count)
    ]
    return pa.Table.from_pylist(
        [{**row, "day": None if row["day"] == 0 else row["day"]} for row in made],
        schema=COLUMNS.set(4, pa.field("day", pa.int32())),
    ).cast(COLUMNS)


def ingest(lake: CommandLine, folder: Path, files: int, *options: str) -> dict[str, Any]:
    folder.mkdir(exist_ok=True)
    made = []
    for number in range(files):
        made.append(folder / f"{number}.parquet")
        pq.write_table(rows(100, number * 100), made[-1])
    return lake.ok("ingest", "db.t", *made, *options)


def out_of_order(java: JavaPeer, lake: CommandLine, order: str) -> int:
    """Return how many rows Spark would put elsewhere in their file."""
    ranked = (
        f"SELECT _pos, row_number() OVER (PARTITION BY _file ORDER BY {order}, _pos) - 1 AS place "
        "FROM {c}.db.t"
    )
    found = java.sql(lake.warehouse, f"SELECT count(*) n FROM ({ranked}) WHERE _pos <> place")
    return int(found[0]["n"])


def claimed(java: JavaPeer, lake: CommandLine) -> set[int | None]:
    found = java.sql(lake.warehouse, "SELECT DISTINCT sort_order_id s FROM {c}.db.t.files")
    return {row["s"] for row in found}


def test_an_order_that_java_declared_is_kept_and_claimed_as_java_does(
    java: JavaPeer, tmp_path: Path
) -> None:
    lake = CommandLine(tmp_path / "w", engine="inline")
    lake.ok("ingest", "db.other", _one(tmp_path), "--create")
    java.sql(lake.warehouse, f"CREATE TABLE {{c}}.db.t ({DDL}) USING iceberg")
    terms = "bucket(4, id) DESC, name DESC NULLS LAST, d, price DESC"
    java.sql(lake.warehouse, f"ALTER TABLE {{c}}.db.t WRITE ORDERED BY {terms}")
    order = (
        "{c}.system.bucket(4, id) DESC NULLS LAST, name DESC NULLS LAST, d, price DESC NULLS LAST"
    )

    # WRITE ORDERED BY sets range distribution too.
    assert ingest(lake, tmp_path / "in", 3)["plan"]["distribution"] == "range"

    ours = java.checksum(lake.warehouse, "db.t")
    assert out_of_order(java, lake, order) == 0
    assert claimed(java, lake) == {1}
    options = "strategy => 'sort', options => map('rewrite-all', 'true')"
    java.sql(lake.warehouse, f"CALL {{c}}.system.rewrite_data_files(table => 'db.t', {options})")
    assert java.checksum(lake.warehouse, "db.t") == ours
    assert claimed(java, lake) == {1}

    done = lake.ok("compact", "db.t", "--strategy", "sort", "--rewrite-all", "--verify")

    assert done["result"]["rows_out"] == 300
    assert java.checksum(lake.warehouse, "db.t") == ours
    assert out_of_order(java, lake, order) == 0
    assert claimed(java, lake) == {1}


def test_sorted_files_are_in_sparks_order(java: JavaPeer, tmp_path: Path) -> None:
    lake = CommandLine(tmp_path / "w", engine="inline")
    ingest(lake, tmp_path / "in", 6, "--create", "--partition-by", "truncate(500, id)")
    before = java.checksum(lake.warehouse, "db.t")

    for order in ("name, id DESC", "d DESC, day NULLS LAST", "price NULLS LAST, name DESC, id"):
        lake.ok("compact", "db.t", "--strategy", "sort", "--by", order, "--rewrite-all", "--verify")
        assert out_of_order(java, lake, order) == 0
    assert java.checksum(lake.warehouse, "db.t") == before
    assert claimed(java, lake) <= {0, None}


def test_files_along_a_z_order_are_ordered_as_javas(java: JavaPeer, tmp_path: Path) -> None:
    lake = CommandLine(tmp_path / "w", engine="inline")
    ingest(lake, tmp_path / "in", 6, "--create")
    columns, listed = "id, name, d, day", "SELECT id, name, d, day FROM {c}.db.t ORDER BY _pos"
    lake.ok("compact", "db.t", "--strategy", "zorder", "--by", columns, "--rewrite-all", "--verify")
    ours = java.sql(lake.warehouse, listed)
    options = "map('rewrite-all', 'true')"
    call = f"table => 'db.t', strategy => 'sort', sort_order => 'zorder({columns})', options => {options}"

    java.sql(lake.warehouse, f"CALL {{c}}.system.rewrite_data_files({call})")

    assert [str(row) for row in java.sql(lake.warehouse, listed)] == [str(row) for row in ours]


def test_files_along_a_hilbert_curve_have_the_rows_that_java_read_before(
    java: JavaPeer, tmp_path: Path
) -> None:
    lake = CommandLine(tmp_path / "w", engine="inline")
    ingest(lake, tmp_path / "in", 6, "--create", "--partition-by", "truncate(500, id)")
    before = java.checksum(lake.warehouse, "db.t")
    columns = ("--strategy", "hilbert", "--by", "id, name, d, price, day")

    lake.ok("compact", "db.t", *columns, "--rewrite-all", "--verify")

    assert java.checksum(lake.warehouse, "db.t") == before
    assert claimed(java, lake) <= {0, None}


def test_files_that_overlap_are_sorted_into_the_same_rows_as_java_reads(
    java: JavaPeer, tmp_path: Path
) -> None:
    lake = CommandLine(tmp_path / "w", engine="inline")
    for files in range(1, 4):
        ingest(lake, tmp_path / str(files), files, "--create")
    before = java.checksum(lake.warehouse, "db.t")
    options = ("--where-overlap", "0", "--strategy", "sort", "--by", "name, id DESC, d")

    done = lake.ok("compact", "db.t", *options, "--target-size", "4KB", "--verify")

    assert done["plan"]["depth"]["worst"] > done["result"]["depth"]["worst"] == 1
    assert done["result"]["added_files"] > 1
    assert java.checksum(lake.warehouse, "db.t") == before
    assert lake.ok("compact", "db.t", *options)["status"] == "nothing-to-do"


def _one(folder: Path) -> Path:
    pq.write_table(rows(1), folder / "one.parquet")
    return folder / "one.parquet"
