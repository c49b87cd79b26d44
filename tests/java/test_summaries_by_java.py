"""Summaries of snapshots are those of Iceberg Java for the same operations; Java reads packed metadata."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog, pyiceberg_table

pytestmark = pytest.mark.java

COLUMNS = "id BIGINT, s STRING, b BOOLEAN, d DATE, t TIMESTAMP, n DECIMAL(9, 2), x BINARY"
SPECS = {
    "many": "s, b, days(t), bucket(4, id), truncate(10, n), months(d), x",
    "one": "s",
}
ROWS = """
    (1, 'a/b=c d~ü', true, DATE '2024-02-29', TIMESTAMP '2024-02-29 01:02:03', 12.34, X'00ff'),
    (2, NULL, NULL, NULL, NULL, NULL, NULL),
    (3, '', false, DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59', -0.05, X''),
    (4, '', false, DATE '1969-12-31', TIMESTAMP '1969-12-31 23:59:59', -0.05, X'')
"""
OWN = {
    "lake.operation-id",
    "lake.command",
    "lake.source",
    "lake.source-digest",
    "lake.user",
    "engine-name",
    "engine-version",
    "iceberg-version",
    "app-id",
    "app-name",
}


def summaries(warehouse: Path, table: str) -> list[tuple[str, dict[str, str]]]:
    """Return the operation and the summary of each snapshot, without what depends on the writer."""
    metadata = pyiceberg_table(warehouse, f"db.{table}").metadata
    found = []
    for snapshot in sorted(metadata.snapshots, key=lambda item: item.sequence_number or 0):
        assert snapshot.summary is not None
        summary = dict(snapshot.summary.additional_properties)
        plain = {
            key: re.sub(r"files-size=\d+", "files-size=", value)
            for key, value in summary.items()
            if key not in OWN and not key.startswith("spark.") and not key.endswith("files-size")
        }
        found.append((snapshot.summary.operation.value, plain))
    return found


@pytest.mark.parametrize("name", SPECS)
def test_java_and_lake_count_the_same(java: JavaPeer, tmp_path: Path, name: str) -> None:
    warehouse = tmp_path / "warehouse"
    pyiceberg_catalog(warehouse).create_namespace("db")
    for table in ("java", "lake"):
        java.sql(
            warehouse,
            f"CREATE TABLE lake.db.{table} ({COLUMNS}) USING iceberg PARTITIONED BY ({SPECS[name]}) "
            "TBLPROPERTIES ('format-version' = '2', 'write.summary.partition-limit' = '4', "
            "'write.merge.mode' = 'merge-on-read', 'write.update.mode' = 'merge-on-read')",
        )
    java.sql(warehouse, f"INSERT INTO lake.db.java VALUES {ROWS}")
    source = tmp_path / "rows.parquet"
    pq.write_table(pyiceberg_table(warehouse, "db.java").scan().to_arrow(), source)
    lake = CommandLine(warehouse)
    lake.ok("ingest", "db.lake", source)
    lake.ok("compact", "db.lake", "--rewrite-all")
    java.sql(
        warehouse,
        "CALL lake.system.rewrite_data_files(table => 'db.java', options => map('rewrite-all', 'true'))",
    )
    # One row of a file with two, by position.
    changed = tmp_path / "changed.parquet"
    rows = pq.read_table(source)
    pq.write_table(rows.filter([value.as_py() == 4 for value in rows["id"]]), changed)
    lake.ok("ingest", "db.lake", changed, "--upsert", "--key", "id")
    java.sql(warehouse, "UPDATE lake.db.java SET n = n WHERE id = 4")

    by_java = summaries(warehouse, "java")
    operations = ["append", "replace", "overwrite"]
    assert [operation for operation, _ in by_java] == operations
    assert [operation for operation, _ in summaries(warehouse, "lake")] == operations
    for (_, own), (operation, expected) in zip(summaries(warehouse, "lake"), by_java, strict=True):
        names = own.keys() | expected.keys()
        pairs = {key: (own.get(key), expected.get(key)) for key in names}
        assert {key: pair for key, pair in pairs.items() if pair[0] != pair[1]} == {}, operation
    assert by_java[0][1]["partition-summaries-included"] == "true"
    assert len([key for key in by_java[0][1] if key.startswith("partitions.")]) in {3, 4}


def test_java_reads_metadata_that_lake_packs_and_the_reverse(
    java: JavaPeer, tmp_path: Path
) -> None:
    warehouse = tmp_path / "warehouse"
    lake = CommandLine(warehouse)
    (tmp_path / "x.csv").write_text("id\n1\n")
    create = ("--create", "--property", "write.metadata.compression-codec=gzip")
    lake.ok("ingest", "db.t", tmp_path / "x.csv", *create)
    java.sql(warehouse, "INSERT INTO lake.db.t VALUES (2)")
    lake.ok("ingest", "db.t", tmp_path / "x.csv")
    location = pyiceberg_table(warehouse).metadata_location

    assert location.endswith(".gz.metadata.json")
    assert "/00002-" in location
    rows = java.sql(warehouse, "SELECT id FROM lake.db.t ORDER BY id")
    assert [row["id"] for row in rows] == [1, 1, 2]
