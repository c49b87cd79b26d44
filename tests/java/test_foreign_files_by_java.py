"""Data files that other engines wrote and added to a table: Iceberg Java says which rows they hold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from command_line import CommandLine
from java_peer import JavaPeer
from table_support import pyiceberg_catalog

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
    told = java_instants(java, warehouse, "t")
    expected = {number: time and time + zone for number, time in told.items()}

    assert instants(lake, "db.t") == expected
    later = f"ts >= '1900-01-01T00:00:00{'+00:00' if zone else ''}'"
    assert set(instants(lake, "db.t", "--where", later)) == {6, 7, 8}
    lake.ok("compact", "db.t", "--rewrite-all", "--verify")
    assert instants(lake, "db.t") == expected
    assert java_instants(java, warehouse, "t") == told
