"""Tables of ORC and Avro files that go from Iceberg Java to lake and back; Java judges the rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

FORMATS = ["orc", "avro"]
# Every type that Spark has, NULL and not, on both sides of 1970 (but without fractions of seconds before, which
# Java itself reads wrong out of ORC), three structs deep.
ROWS = """
SELECT id,
  if(id % 7 = 0, NULL, cast(id % 100 - 50 AS INT)) AS small,
  CASE id % 3 WHEN 0 THEN true WHEN 1 THEN false END AS flag,
  if(id % 11 = 0, float('NaN'), cast(id / 3 AS FLOAT)) AS f,
  CASE id % 4 WHEN 0 THEN NULL WHEN 1 THEN double('-0.0') WHEN 2 THEN double('Infinity') ELSE id * 1e10 END AS d,
  cast(id * 7 - 500 AS DECIMAL(9, 2)) / 100 AS price,
  if(id % 5 = 0, NULL, cast(-id * id AS DECIMAL(38, 10))) AS big,
  date_add(DATE '1969-12-25', cast(id % 20 AS INT)) AS day,
  TIMESTAMP_NTZ '1969-12-31 23:59:57' + make_dt_interval(0, 0, 0, if(id < 3, id, id / 7 + 3)) AS ts,
  timestamp_micros(if(id < 9, -id * 86399000000, id * 123456789)) AS tz,
  element_at(array('', 'a/b', 'é', '\U0001f600', repeat('x', 40), NULL), cast(id % 6 + 1 AS INT)) AS name,
  if(id % 2 = 0, NULL, unhex(hex(id))) AS raw,
  CASE id % 3 WHEN 0 THEN NULL WHEN 1 THEN array() ELSE array('a', NULL, cast(id AS STRING)) END AS tags,
  if(id % 6 = 0, NULL, named_struct('x', cast(id AS INT), 'in', if(id % 4 = 0, NULL,
    named_struct('deep', if(id % 3 = 0, NULL, named_struct('b', unhex('00'), 'l', array(id, NULL))))))) AS point,
  if(id % 2 = 0, map(), map('k', id, 'n', NULL)) AS attrs,
  if(id % 5 = 0, NULL, map(cast(id AS INT), array(named_struct('y', timestamp_micros(id))))) AS pairs
FROM range({start}, {end})
"""


def properties(kind: str, version: int, **more: str) -> str:
    values = {
        "format-version": version,
        "write.format.default": kind,
        "write.delete.mode": "merge-on-read",
        "write.update.mode": "merge-on-read",
        "write.merge.mode": "merge-on-read",
        **more,
    }
    return ", ".join(f"'{key}' = '{value}'" for key, value in values.items())


def copied(lake: CommandLine, java: JavaPeer, folder: Path, table: str) -> dict[str, Any]:
    """Return Java's checksum of what `lake scan` reads of a table, as a Parquet table."""
    rows = folder / "rows.parquet"
    lake.ok("scan", table, "--output", rows, "--replace")
    lake.ok("ingest", "db.copy", rows, "--create", "--overwrite", "--property", "format-version=2")
    return java.checksum(lake.warehouse, "db.copy")


def formats_of(java: JavaPeer, warehouse: Path, table: str) -> set[tuple[str, int]]:
    files = java.sql(warehouse, f"SELECT DISTINCT file_format, content FROM {{c}}.{table}.files")
    return {(row["file_format"], row["content"]) for row in files}


def java_to_lake(java: JavaPeer, folder: Path, kind: str, version: int) -> None:
    """Let Java write a table of a format and version, and lake read and rewrite it."""
    warehouse = folder / "w"
    lake = CommandLine(warehouse, engine="inline")
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(
        warehouse,
        f"CREATE TABLE {{c}}.db.t USING iceberg PARTITIONED BY (bucket(2, id)) "
        f"TBLPROPERTIES ({properties(kind, version)}) AS {ROWS.format(start=0, end=150)}",
    )
    java.sql(warehouse, f"INSERT INTO {{c}}.db.t {ROWS.format(start=150, end=300)}")
    if version > 1:
        java.sql(warehouse, "DELETE FROM {c}.db.t WHERE id % 7 = 3")
        java.sql(warehouse, "UPDATE {c}.db.t SET name = 'new' WHERE id % 11 = 3")
    expected = java.checksum(warehouse, "db.t")
    deletes = {1: set(), 2: {(kind.upper(), 1)}, 3: {("PUFFIN", 1)}}[version]
    assert formats_of(java, warehouse, "db.t") == {(kind.upper(), 0)} | deletes

    assert copied(lake, java, folder, "db.t") == expected
    ids = "SELECT id, _row_id, _last_updated_sequence_number n FROM {c}.db.t ORDER BY id"
    lineage = java.sql(warehouse, ids) if version > 2 else None
    lake.ok("compact", "db.t", "--verify", "--rewrite-all")
    assert java.checksum(warehouse, "db.t") == expected
    assert copied(lake, java, folder, "db.t") == expected
    if version > 2:
        assert java.sql(warehouse, ids) == lineage
    assert (kind.upper(), 0) in formats_of(java, warehouse, "db.t")


def lake_to_java(java: JavaPeer, folder: Path, kind: str, deletes: str) -> None:
    """Let lake load and upsert a table of a format, and Java read it."""
    warehouse = folder / "w"
    lake = CommandLine(warehouse, engine="inline")
    pyiceberg_catalog(warehouse).create_namespace("db")
    java.sql(
        warehouse,
        f"CREATE TABLE {{c}}.db.seed USING iceberg AS {ROWS.format(start=0, end=120)}",
    )
    rows, more = folder / "s.parquet", folder / "m.parquet"
    lake.ok("scan", "db.seed", "--output", rows)
    table = pq.read_table(rows).slice(60)
    changed = table.set_column(1, table.schema.field(1), pa.array([777] * 60, pa.int32()))
    again = changed.set_column(0, "id", pa.array(range(100, 160)))
    pq.write_table(pa.concat_tables([changed.slice(0, 40), again]), more)
    for name, form in (("t", kind), ("p", "parquet")):
        options = ["--property", f"write.format.default={form}"]
        lake.ok("ingest", f"db.{name}", rows, "--create", *options)
        lake.ok("ingest", f"db.{name}", more, "--upsert", "--key", "id", "--deletes", deletes)
    expected = java.checksum(warehouse, "db.p")

    assert java.checksum(warehouse, "db.t") == expected
    content = {"position": {1}, "equality": {1, 2}, "copy-on-write": set()}[deletes]
    found = formats_of(java, warehouse, "db.t")
    assert {name for name, _ in found} == {kind.upper()}
    assert {number for _, number in found} - {0} <= content
    assert content == set() or found > {(kind.upper(), 0)}
    lake.ok("compact", "db.t", "--verify", "--min-input-files", "2")
    assert java.checksum(warehouse, "db.t") == expected


COURSES = [
    *((java_to_lake, kind, version) for kind in FORMATS for version in (1, 2, 3)),
    *(
        (lake_to_java, kind, deletes)
        for kind in FORMATS
        for deletes in ("position", "equality", "copy-on-write")
    ),
]
