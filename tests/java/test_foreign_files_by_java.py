"""Data files that other engines wrote and added to a table: Iceberg Java says which rows they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

TIMES = [
    "0001-01-01 00:00:00",
    "0001-01-01 00:00:00.000001",
    "1500-02-28 12:34:56.789012",
    "1582-10-15 00:00:00",
    "1883-11-18 12:00:00",
    "1899-12-31 23:59:59.999999",
    "1969-12-31 23:59:59.999999",
    "2024-02-29 01:02:03.456789",
    "9999-12-31 23:59:59.999999",
]


def spark_files(java: JavaPeer, warehouse: Path, folder: Path, **settings: str) -> None:
    """Let Spark write a folder of Parquet files in which timestamps are INT96."""
    java.sql(warehouse, "SET spark.sql.parquet.outputTimestampType = INT96")
    for name, value in settings.items():
        java.sql(warehouse, f"SET spark.sql.parquet.{name} = {value}")
    rows = ", ".join(f"({number}, TIMESTAMP '{time}Z')" for number, time in enumerate(TIMES))
    java.sql(
        warehouse,
        f"INSERT OVERWRITE DIRECTORY '{folder}' USING parquet "
        "SELECT /*+ REPARTITION(1) */ id, ts, named_struct('ts', ts) AS n, array(ts, null) AS l "
        f"FROM VALUES {rows}, (100, null) AS t(id, ts)",
    )


def instants(lake: CommandLine, *arguments: str) -> dict[int, Any]:
    """Return what `lake scan` shows: each row's time by its id."""
    found = lake.ok("scan", *arguments)
    rows = found["result"]["preview"]
    for row in rows:
        assert row["n"]["ts"] == row["ts"]
        assert row["l"] == [row["ts"], None]
    return {row["id"]: row["ts"] for row in rows}


def java_instants(java: JavaPeer, warehouse: Path, table: str) -> dict[int, Any]:
    rows = java.sql(
        warehouse,
        f"SELECT id, date_format(ts, \"yyyy-MM-dd'T'HH:mm:ss.SSSSSS\") AS ts FROM {{c}}.db.{table}",
    )
    return {row["id"]: row["ts"] for row in rows}


@pytest.mark.parametrize("mode", ["CORRECTED", "LEGACY"])
@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz"])
def test_int96_is_read_over_the_whole_range(
    java: JavaPeer, tmp_path: Path, kind: str, mode: str
) -> None:
    warehouse, folder = tmp_path / "w", tmp_path / "files"
    lake = CommandLine(warehouse, engine="inline")
    pyiceberg_catalog(warehouse).create_namespace("db")
    spark_files(java, warehouse, folder, int96RebaseModeInWrite=mode)
    java.sql(
        warehouse,
        f"CREATE TABLE {{c}}.db.t (id INT, ts {kind}, n STRUCT<ts: {kind}>, l ARRAY<{kind}>) "
        "USING iceberg",
    )
    java.sql(
        warehouse,
        f"CALL {{c}}.system.add_files(table => 'db.t', source_table => 'parquet.`{folder}`')",
    )
    zone = "Z" if kind == "timestamp" else ""
    by_java = java_instants(java, warehouse, "t")
    expected = {number: time and time + zone for number, time in by_java.items()}

    assert instants(lake, "db.t") == expected
    later = f"ts >= '1900-01-01T00:00:00{'+00:00' if zone else ''}'"
    assert set(instants(lake, "db.t", "--where", later)) == {6, 7, 8}
    lake.ok("compact", "db.t", "--rewrite-all", "--verify")
    assert instants(lake, "db.t") == expected
    assert java_instants(java, warehouse, "t") == by_java


def test_imported_milliseconds_are_compacted_and_found_again(
    java: JavaPeer, tmp_path: Path
) -> None:
    warehouse, folder = tmp_path / "w", tmp_path / "files"
    lake = CommandLine(warehouse, engine="inline")
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(warehouse, "SET spark.sql.parquet.outputTimestampType = TIMESTAMP_MILLIS")
    java.sql(
        warehouse,
        f"INSERT OVERWRITE DIRECTORY '{folder}' USING parquet "
        "SELECT /*+ REPARTITION(2) */ id, timestamp_millis(id * 1000 - 5000) AS ts FROM range(100)",
    )
    java.sql(warehouse, "CREATE TABLE {c}.db.t (id BIGINT, ts TIMESTAMP) USING iceberg")
    java.sql(
        warehouse,
        f"CALL {{c}}.system.add_files(table => 'db.t', source_table => 'parquet.`{folder}`')",
    )
    everything = java.checksum(warehouse, "db.t")

    done = lake.ok("compact", "db.t", "--rewrite-all")

    assert ["wrong bounds" in warning for warning in done["warnings"]] == [True]
    assert java.checksum(warehouse, "db.t") == everything
    rows = java.sql(
        warehouse, "SELECT id FROM {c}.db.t WHERE ts > TIMESTAMP '1970-01-01 00:01:30Z'"
    )
    assert sorted(row["id"] for row in rows) == list(range(96, 100))
    assert lake.ok("compact", "db.t", "--rewrite-all")["warnings"] == []


def test_java_finds_rows_by_the_bloom_filters_and_page_indexes_of_lake(
    java: JavaPeer, tmp_path: Path
) -> None:
    warehouse = tmp_path / "w"
    lake = CommandLine(warehouse, engine="inline")
    pyiceberg_catalog(warehouse).create_namespace("db")
    columns = {
        "l": "cast(id as bigint)",
        "i": "cast(id as int)",
        "s": "md5(cast(id as string))",
        "d": "cast(id as decimal(9, 2))",
        "wide": "cast(id as decimal(30, 2))",
        "f": "cast(id as double)",
        "b": "cast(cast(id as string) as binary)",
        "day": "date_add(date '1970-01-01', cast(id as int))",
        "ts": "timestamp_seconds(id * 86400)",
        "n": "named_struct('s', cast(id as string))",
    }
    names = [name if name != "n" else "n.s" for name in columns]
    properties = ", ".join(
        f"'write.parquet.bloom-filter-enabled.column.{name}' = 'true'" for name in names
    )
    chosen = ", ".join(f"{text} AS {name}" for name, text in columns.items())
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t USING iceberg TBLPROPERTIES ("
        f"{properties}, 'write.parquet.page-row-limit' = '100') AS SELECT {chosen} FROM range(5000)",
    )
    expected = java.checksum(warehouse, "db.t")

    before = set((warehouse / "db" / "t" / "data").glob("*.parquet"))
    lake.ok("compact", "db.t", "--rewrite-all")

    (path,) = {
        path for path in (warehouse / "db" / "t" / "data").glob("*.parquet") if path not in before
    }
    group = pq.read_metadata(path).row_group(0)
    chunks = [group.column(index) for index in range(group.num_columns)]
    assert {chunk.path_in_schema for chunk in chunks if chunk.bloom_filter_offset} == set(names)
    assert all(chunk.has_column_index and chunk.has_offset_index for chunk in chunks)
    assert java.checksum(warehouse, "db.t") == expected
    for number in (0, 99, 100, 4999):
        values = {name: text.replace("id", str(number)) for name, text in columns.items()}
        # Spark computes the values first, so that Iceberg is given literals: each must pass its column's filter.
        wanted = [f"{name} = {text}" for name, text in values.items() if name != "n"]
        condition = " AND ".join([*wanted, f"n.s = '{number}'"])
        found = java.sql(warehouse, f"SELECT l FROM {{c}}.db.t WHERE {condition}")
        assert [row["l"] for row in found] == [number]
