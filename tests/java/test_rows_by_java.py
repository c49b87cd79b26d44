"""Iceberg Java reads what lake wrote, and lake works on what Java wrote: rows are judged by Java."""

from __future__ import annotations

import datetime
import decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tiers import in_turn

pytestmark = pytest.mark.java

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("flag", pa.bool_()),
        ("f", pa.float32()),
        ("d", pa.float64()),
        ("price", pa.decimal128(9, 2)),
        ("big", pa.decimal128(30, 4)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("name", pa.string()),
        ("raw", pa.binary()),
        ("tags", pa.list_(pa.string())),
        ("point", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("attrs", pa.map_(pa.string(), pa.int64())),
    ]
)


def rows(count: int, start: int = 0) -> pa.Table:
    """Return rows of every type, with NULLs, NaN, times before 1970 and odd texts."""
    texts = ["", "a/b", "a b", "é", "\U0001f600", "x" * 40, "50%", "#?", None]
    made = [
        {
            "id": number,
            "small": None if number % 7 == 0 else number % 100 - 50,
            "flag": [True, False, None][number % 3],
            "f": float("nan") if number % 11 == 0 else number / 3,
            "d": [None, -0.0, float("inf"), number * 1e10][number % 4],
            "price": decimal.Decimal(number * 7 - 500) / 100,
            "big": decimal.Decimal(number) ** 3 / 10000 if number % 5 else None,
            "day": datetime.date(1969, 12, 25) + datetime.timedelta(days=number % 20),
            "ts": datetime.datetime(1969, 12, 31, 22) + datetime.timedelta(hours=number % 50),
            "tz": datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
            + datetime.timedelta(minutes=number),
            "name": texts[number % len(texts)],
            "raw": bytes([number % 256, 0, 255]),
            "tags": [None, [], ["a", None, "b"]][number % 3],
            "point": None if number % 6 == 0 else {"x": number, "y": str(number)},
            "attrs": [("k", number), ("n", None)] if number % 2 else [],
        }
        for number in range(start, start + count)
    ]
    return pa.Table.from_pylist(made, schema=COLUMNS)


PARTITIONINGS = {
    "none": None,
    "times": "day(ts), hour(tz)",
    "values": "name, bucket(4, id)",
    "cut": "truncate(2, name), truncate(10, small), month(day)",
    "buckets": "bucket(3, price), bucket(3, raw), bucket(3, day), bucket(3, tz)",
    "identities": "flag, day",
}


@pytest.mark.parametrize(
    ("partitioning", "version"), in_turn([(name,) for name in PARTITIONINGS], ["2", "1"])
)
def test_java_reads_the_rows_that_lake_ingested_and_compacted(
    java: JavaPeer, tmp_path: Path, partitioning: str, version: str
) -> None:
    lake = CommandLine(tmp_path / "w", engine="inline")
    options: list[str] = ["--property", f"format-version={version}"]
    if PARTITIONINGS[partitioning]:
        options += ["--partition-by", str(PARTITIONINGS[partitioning])]
    java.sql(tmp_path / "w", "SELECT 1")
    for number in range(3):
        source = tmp_path / f"{number}.parquet"
        pq.write_table(rows(40, number * 40), source)
        lake.ok("ingest", "db.t", source, "--create", *options)
    before = java.checksum(lake.warehouse, "db.t")
    whole = tmp_path / "all.parquet"
    pq.write_table(rows(120), whole)
    lake.ok("ingest", "db.whole", whole, "--create")

    assert before == java.checksum(lake.warehouse, "db.whole")
    first = lake.ok("snapshots", "db.t")["result"]["snapshots"][-1]["snapshot_id"]
    early = java.checksum(lake.warehouse, "db.t", f"VERSION AS OF {first}")

    done = lake.ok("compact", "db.t", "--verify", "--min-input-files", "2")
    assert done["status"] == "done"
    assert java.checksum(lake.warehouse, "db.t") == before
    assert java.checksum(lake.warehouse, "db.t", f"VERSION AS OF {first}") == early
    assert lake.ok("compact", "db.t", "--min-input-files", "2")["status"] == "nothing-to-do"

    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    assert java.checksum(lake.warehouse, "db.t") == before


def test_java_prunes_nothing_that_it_should_find(java: JavaPeer, tmp_path: Path) -> None:
    lake = CommandLine(tmp_path / "w", engine="inline")
    source = tmp_path / "s.parquet"
    pq.write_table(rows(200), source)
    lake.ok("ingest", "db.t", source, "--create", "--partition-by", "bucket(4, name), day(ts)")
    lake.ok("ingest", "db.flat", source, "--create")
    conditions = (
        "name = 'a/b'",
        "name = ''",
        "name IS NULL",
        "ts < TIMESTAMP '1970-01-01 00:00:00'",
        "price = -4.30",
        "big > 100",
        "small < -10",
        "day = DATE '1969-12-31'",
        "f > 10 AND NOT isnan(f)",
        "tz = TIMESTAMP '2020-01-01 00:05:00'",
        f"name = '{'x' * 40}'",
        "flag",
    )

    def found(table: str) -> dict[int, int]:
        """Return how many rows of a table Java finds by each condition."""
        each = (
            f"SELECT {number} at, count(*) n FROM {{c}}.db.{table} WHERE {condition}"
            for number, condition in enumerate(conditions)
        )
        listed = java.sql(lake.warehouse, " UNION ALL ".join(each))
        return {row["at"]: row["n"] for row in listed}

    counts = ", ".join(f"count_if({condition})" for condition in conditions)
    (matching,) = java.sql(lake.warehouse, f"SELECT array({counts}) each FROM {{c}}.db.flat")

    assert found("t") == found("flat") == dict(enumerate(matching["each"]))


@pytest.mark.parametrize("version", ["1", "2"])
def test_lake_compacts_expires_and_scans_a_table_that_java_wrote(
    java: JavaPeer, tmp_path: Path, version: str
) -> None:
    warehouse = tmp_path / "w"
    lake = CommandLine(warehouse, engine="inline")
    seed = tmp_path / "seed.parquet"
    pq.write_table(rows(10), seed)
    lake.ok("ingest", "db.seed", seed, "--create")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id BIGINT, name STRING, ts TIMESTAMP_NTZ, price DECIMAL(9,2)) "
        f"USING iceberg PARTITIONED BY (days(ts)) TBLPROPERTIES ('format-version'='{version}')",
    )
    for number in range(6):
        java.sql(
            warehouse,
            "INSERT INTO {c}.db.t SELECT id, concat('n', id), "
            f"TIMESTAMP_NTZ '2024-01-01 00:00:00' + make_dt_interval(id % 3), id / 4 "
            f"FROM range({number * 30}, {number * 30 + 30})",
        )
    before = java.checksum(warehouse, "db.t")

    plan = lake.ok("scan", "db.t", "--plan")["plan"]
    assert plan["records"] == 180
    done = lake.ok("compact", "db.t", "--verify")
    assert done["result"]["added_files"] == 3
    assert java.checksum(warehouse, "db.t") == before
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    assert java.checksum(warehouse, "db.t") == before
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (999, 'after', NULL, NULL)")
    assert java.checksum(warehouse, "db.t")["rows"] == 181


def test_deletes_that_java_committed_meanwhile_are_never_undone(
    java: JavaPeer, tmp_path: Path
) -> None:
    """Two commits between plan and swap: looking at the head alone would miss the first."""
    from support.tables.iceberg_tables import after, inject, open_session

    from lake.core.maintain.compaction.execute import execute
    from lake.core.maintain.compaction.options import CompactionOptions
    from lake.core.maintain.compaction.plan import plan_compaction

    warehouse = tmp_path / "w"
    lake = CommandLine(warehouse, engine="inline")
    source = tmp_path / "s.parquet"
    for number in range(6):
        pq.write_table(rows(5, number * 5), source)
        lake.ok(
            "ingest",
            "db.t",
            source,
            "--create",
            "--property",
            "write.delete.mode=merge-on-read",
        )
    session = open_session(warehouse)
    plan = plan_compaction(session.table("db.t"), CompactionOptions())

    def others() -> None:
        java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id = 3")
        pq.write_table(rows(5, 100), source)
        lake.ok("ingest", "db.t", source)

    inject(session, [after(others)])
    done = execute(session, plan)

    found: list[dict[str, Any]] = java.sql(warehouse, "SELECT id FROM {c}.db.t ORDER BY id")
    expected = [number for number in (*range(30), *range(100, 105)) if number != 3]
    assert [row["id"] for row in found] == expected
    assert done.result.rows_dropped_by_deletes == 1
