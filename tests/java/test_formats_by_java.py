"""ORC and Avro tables of Iceberg Java in `lake`, and those of `lake` in Iceberg Java; soak has all combinations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.format_course import (
    FORMATS,
    ROWS,
    copied,
    formats_of,
    java_to_lake,
    lake_to_java,
    properties,
)
from support.tables.iceberg_tables import pyiceberg_catalog, pyiceberg_table

pytestmark = pytest.mark.java


@pytest.mark.parametrize(("kind", "version"), [("orc", 2), ("avro", 3)])
def test_lake_reads_and_rewrites_what_java_wrote(
    java: JavaPeer, tmp_path: Path, kind: str, version: int
) -> None:
    java_to_lake(java, tmp_path, kind, version)


@pytest.mark.parametrize(("kind", "deletes"), [("orc", "position"), ("avro", "equality")])
def test_java_reads_what_lake_upserted(
    java: JavaPeer, tmp_path: Path, kind: str, deletes: str
) -> None:
    lake_to_java(java, tmp_path, kind, deletes)


def test_a_table_of_all_formats_becomes_one_of_its_default(java: JavaPeer, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    lake = CommandLine(warehouse, engine="inline")
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(
        warehouse,
        f"CREATE TABLE {{c}}.db.t USING iceberg TBLPROPERTIES ({properties('avro', 2)}) "
        f"AS {ROWS.format(start=0, end=50)}",
    )
    for start, kind in ((50, "orc"), (100, "parquet"), (150, "orc")):
        formats = f"'write.format.default' = '{kind}', 'write.delete.format.default' = 'avro'"
        java.sql(warehouse, f"ALTER TABLE {{c}}.db.t SET TBLPROPERTIES ({formats})")
        java.sql(warehouse, f"INSERT INTO {{c}}.db.t {ROWS.format(start=start, end=start + 50)}")
    java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id % 10 = 4")
    java.sql(warehouse, "ALTER TABLE {c}.db.t RENAME COLUMN name TO label")
    java.sql(warehouse, "ALTER TABLE {c}.db.t ALTER COLUMN small TYPE BIGINT")
    java.sql(warehouse, "ALTER TABLE {c}.db.t ALTER COLUMN f TYPE DOUBLE")
    java.sql(warehouse, "ALTER TABLE {c}.db.t ADD COLUMN point.z STRING")
    java.sql(warehouse, "ALTER TABLE {c}.db.t ADD COLUMN later INT")
    java.sql(warehouse, "ALTER TABLE {c}.db.t DROP COLUMN raw")
    expected = java.checksum(warehouse, "db.t")
    formats = formats_of(java, warehouse, "db.t")
    assert formats == {("AVRO", 0), ("ORC", 0), ("PARQUET", 0), ("AVRO", 1)}

    assert copied(lake, java, tmp_path, "db.t") == expected
    where = [
        "later IS NULL and label = 'é' and small > 0",
        "f < 10",
        "point.x IS NULL",
        "day < '1970-01-01'",
    ]
    for condition in where:
        found = lake(
            "scan", "db.t", "--where", condition, "--output", "-", "--output-format", "json"
        )
        asked = condition.replace("'1970-01-01'", "DATE '1970-01-01'")
        rows = java.sql(warehouse, f"SELECT id FROM {{c}}.db.t WHERE {asked}")
        ids = sorted(json.loads(line)["id"] for line in found.stdout.splitlines())
        # Java's own filter loses what it does not count as NULL in ORC files: asked of all rows, it finds it.
        if condition == "point.x IS NULL":
            rows = java.sql(warehouse, "SELECT id, point FROM {c}.db.t")
            rows = [row for row in rows if row["point"] is None]
        assert ids == sorted(row["id"] for row in rows), condition
        assert ids, condition
    lake.ok("compact", "db.t", "--verify", "--rewrite-all")
    assert java.checksum(warehouse, "db.t") == expected
    assert formats_of(java, warehouse, "db.t") - {("AVRO", 1)} == {("ORC", 0)}


def test_figures_of_columns_are_those_of_java(java: JavaPeer, tmp_path: Path) -> None:
    warehouse = tmp_path / "w"
    lake = CommandLine(warehouse, engine="inline")
    pyiceberg_catalog(warehouse).create_namespace("db")
    for kind in FORMATS:
        java.sql(
            warehouse,
            f"CREATE TABLE {{c}}.db.{kind}_java USING iceberg TBLPROPERTIES ({properties(kind, 2)}) "
            f"AS SELECT * FROM ({ROWS.format(start=1, end=120)}) DISTRIBUTE BY 1 SORT BY id",
        )
        rows = tmp_path / f"{kind}.parquet"
        lake.ok("scan", f"db.{kind}_java", "--output", rows)
        options = ["--property", f"write.format.default={kind}"]
        lake.ok("ingest", f"db.{kind}_lake", rows, "--create", *options)
        figures = (
            "record_count, value_counts, null_value_counts, nan_value_counts, lower_bounds, "
            "upper_bounds, split_offsets"
        )
        of_java, of_lake = (
            java.sql(warehouse, f"SELECT {figures} FROM {{c}}.db.{kind}_{who}.files")
            for who in ("java", "lake")
        )
        # What a NULL struct would have held counts as NULL here, so that filters find it; in Java it does not.
        parts = {str(item.field_id) for item in nested_fields(warehouse, f"{kind}_java")}
        for row in (*of_java, *of_lake):
            for name in ("value_counts", "null_value_counts"):
                row[name] = {k: v for k, v in (row[name] or {}).items() if k not in parts}
        assert of_java == of_lake


def nested_fields(warehouse: Path, name: str) -> list[Any]:
    """Return the fields of a table's structs, however deep."""
    schema = pyiceberg_table(warehouse, f"db.{name}").schema()
    tops = {item.field_id for item in schema.fields}
    return [schema.find_field(number) for number in schema._lazy_id_to_name if number not in tops]
