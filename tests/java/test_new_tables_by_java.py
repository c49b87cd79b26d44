"""Tables that lake makes: Iceberg Java reads them, also those without a row; the names that Java does not read."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

from lake.core.spec.types.arrow_schema import RESERVED_NAMES

pytestmark = pytest.mark.java


def test_a_table_created_without_rows_is_read_and_filled_by_java(
    lake: CommandLine, warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    source = tmp_path / "in.parquet"
    for name, version in (("t2", 2), ("t3", 3)):
        pq.write_table(pa.table({"id": pa.array([], pa.int64())}), source)
        made = ("--create", "--partition-by", "bucket(2, id)")
        lake.ok("ingest", f"db.{name}", source, *made, "--property", f"format-version={version}")

        assert java.sql(warehouse, f"SELECT * FROM {{c}}.db.{name}") == []
        java.sql(warehouse, f"INSERT INTO {{c}}.db.{name} VALUES (1)")
        pq.write_table(pa.table({"id": pa.array([2], pa.int64())}), source)
        lake.ok("ingest", f"db.{name}", source, "--create")
        lake.ok("ingest", f"db.{name}", source, "--overwrite-where", "id < 3")

        rows = java.sql(warehouse, f"SELECT id FROM {{c}}.db.{name} ORDER BY id")
        assert [row["id"] for row in rows] == [2]


def test_an_overwrite_by_no_rows_empties_the_table_for_java(
    lake: CommandLine, warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    source = tmp_path / "in.parquet"
    pq.write_table(pa.table({"id": [1, 2, 3]}), source)
    lake.ok("ingest", "db.t", source, "--create")
    pq.write_table(pa.table({"id": pa.array([], pa.int64())}), source)

    lake.ok("ingest", "db.t", source, "--overwrite-where", "id > 1", "--allow-empty")
    some = java.sql(warehouse, "SELECT id FROM {c}.db.t")
    lake.ok("ingest", "db.t", source, "--overwrite", "--allow-empty")

    assert some == [{"id": 1}]
    assert java.sql(warehouse, "SELECT id FROM {c}.db.t") == []


def test_java_reads_no_table_with_a_reserved_name(warehouse: Path, java: JavaPeer) -> None:
    pyiceberg_catalog(warehouse).create_namespace("db")
    read = set()
    for name in sorted({*RESERVED_NAMES, "_change_type", "file_path", "_POS"}):
        java.sql(warehouse, f"CREATE TABLE {{c}}.db.`t{name}` (`{name}` INT) USING iceberg")
        java.sql(warehouse, f"INSERT INTO {{c}}.db.`t{name}` VALUES (1)")
        try:
            java.sql(warehouse, f"SELECT * FROM {{c}}.db.`t{name}`")
        except RuntimeError as error:
            assert "reserved for Iceberg metadata columns" in str(error)
        else:
            read.add(name)

    assert read == {"_change_type", "file_path", "_POS"}
