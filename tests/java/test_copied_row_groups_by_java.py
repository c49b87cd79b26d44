"""Iceberg Java reads files of copied row groups, its own and those of lake, with filters and the page index."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.format_course import ROWS, properties
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java


def test_java_reads_the_rows_that_were_copied_from_its_own_files_and_from_those_of_lake(
    java: JavaPeer, tmp_path: Path
) -> None:
    warehouse = tmp_path / "w"
    lake = CommandLine(warehouse, engine="inline")
    pyiceberg_catalog(warehouse).create_namespace("db")
    small = {
        "write.parquet.row-group-size-bytes": "16384",
        "write.parquet.row-group-check-min-record-count": "10",
        "write.parquet.bloom-filter-enabled.column.name": "true",
        "write.parquet.bloom-filter-enabled.column.id": "true",
    }
    java.sql(
        warehouse, f"CREATE TABLE {{c}}.db.seed USING iceberg AS {ROWS.format(start=0, end=2010)}"
    )
    # Spark writes columns that cannot be NULL as required ones; those of a table can.
    java.sql(
        warehouse,
        f"CREATE TABLE {{c}}.db.t USING iceberg TBLPROPERTIES ({properties('parquet', 2, **small)}) "
        "AS SELECT * FROM {c}.db.seed WHERE id < 2000",
    )
    java.sql(warehouse, "INSERT INTO {c}.db.t SELECT * FROM {c}.db.seed WHERE id >= 2000")
    rows = tmp_path / "rows.parquet"
    lake.ok("scan", "db.t", "--output", rows)
    lake.ok("ingest", "db.t", rows)
    expected = java.checksum(warehouse, "db.t")

    done = lake.ok("compact", "db.t", "--rewrite-all", "--copy-row-groups", "always")

    assert done["result"]["copied_row_groups"] > 2
    assert "decoded_row_groups" not in done["result"]
    assert java.checksum(warehouse, "db.t") == expected
    for condition in ("name = 'a/b'", "id = 1234", "id BETWEEN 1990 AND 2005", "point.x > 1980"):
        found = java.sql(warehouse, f"SELECT count(*) n FROM {{c}}.db.t WHERE {condition}")
        seen = lake.ok("scan", "db.t", "--where", condition, "--plan")
        assert found[0]["n"] > 0, (condition, seen)
