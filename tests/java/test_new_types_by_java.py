"""Types of format version 3 (unknown, which Spark calls void, and variant): Java reads what lake writes."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.iceberg_tables import pyiceberg_catalog

pytestmark = pytest.mark.java

FORMATS = ["parquet", "orc", "avro"]


def made_by_java(java: JavaPeer, warehouse: Path, kind: str) -> None:
    pyiceberg_catalog(warehouse).create_namespace_if_not_exists("db")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id bigint, n void, s struct<a: int, u: void>, p int) USING iceberg "
        f"PARTITIONED BY (p) TBLPROPERTIES ('format-version'='3', 'write.format.default'='{kind}')",
    )
    java.sql(
        warehouse,
        "INSERT INTO {c}.db.t VALUES (1, null, named_struct('a', 1, 'u', null), 0), (2, null, null, 0)",
    )


def source(folder: Path, ids: list[int], name: str, **more: pa.Array) -> Path:
    path = folder / f"{name}.parquet"
    pq.write_table(pa.table({"id": ids, "p": pa.array([0] * len(ids), pa.int32()), **more}), path)
    return path


def rows(java: JavaPeer, warehouse: Path) -> list[tuple[Any, ...]]:
    found = java.sql(warehouse, "SELECT id, n, s.a, s.u, p FROM {c}.db.t ORDER BY id")
    return [tuple(row.values()) for row in found]


@pytest.mark.parametrize("kind", FORMATS)
def test_java_reads_the_table_after_each_write(
    kind: str, lake: CommandLine, warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    made_by_java(java, warehouse, kind)
    structs = pa.array(
        [{"a": 5, "u": None}, None], pa.struct([("a", pa.int32()), ("u", pa.null())])
    )
    expected = {1: 1, 2: None}

    def judged(run: Callable[[], Any], **changed: int | None) -> None:
        run()
        expected.update({int(key[1:]): value for key, value in changed.items()})
        assert rows(java, warehouse) == [
            (number, None, a, None, 0) for number, a in sorted(expected.items())
        ]

    first = source(tmp_path, [3, 4], "first", n=pa.nulls(2), s=structs)
    judged(lambda: lake.ok("ingest", "db.t", first), _3=5, _4=None)
    for number, mode in enumerate(("position", "equality", "copy-on-write")):
        changed = source(tmp_path, [1 + number, 10 + number], mode)
        options = ("--upsert", "--key", "id,p", "--deletes", mode, "--missing", "default")
        new = {f"_{1 + number}": None, f"_{10 + number}": None}
        judged(lambda file=changed, more=options: lake.ok("ingest", "db.t", file, *more), **new)
    judged(lambda: lake.ok("compact", "db.t", "--rewrite-all", "--verify"))
    judged(
        lambda: lake.ok("compact", "db.t", "--rewrite-all", "--strategy", "sort", "--by", "n,id")
    )
    judged(
        lambda: lake.ok("compact", "db.t", "--rewrite-all", "--strategy", "zorder", "--by", "id,n")
    )
    gone = ("--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
    judged(lambda: lake.ok("expire", "db.t", *gone))


def test_java_reads_a_table_partitioned_by_such_a_column(
    lake: CommandLine, warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    pyiceberg_catalog(warehouse).create_namespace_if_not_exists("db")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id bigint, n void) USING iceberg PARTITIONED BY (n) "
        "TBLPROPERTIES ('format-version'='3')",
    )
    java.sql(warehouse, "INSERT INTO {c}.db.t VALUES (1, null)")
    path = tmp_path / "ids.parquet"
    pq.write_table(pa.table({"id": [2, 3]}), path)

    lake.ok("ingest", "db.t", path)
    lake.ok("compact", "db.t", "--rewrite-all")

    found = java.sql(warehouse, "SELECT id, n FROM {c}.db.t ORDER BY id")
    assert [tuple(row.values()) for row in found] == [(1, None), (2, None), (3, None)]


def test_java_reads_rows_that_lake_appends_beside_variant_values(
    lake: CommandLine, warehouse: Path, tmp_path: Path, java: JavaPeer
) -> None:
    pyiceberg_catalog(warehouse).create_namespace_if_not_exists("db")
    java.sql(
        warehouse,
        "CREATE TABLE {c}.db.t (id bigint, v variant, s struct<a: int, w: variant>) USING iceberg "
        "TBLPROPERTIES ('format-version'='3')",
    )
    java.sql(
        warehouse,
        """INSERT INTO {c}.db.t SELECT 1, parse_json('{"x":[1]}'), named_struct('a', 1, 'w', parse_json('7'))""",
    )
    path = tmp_path / "more.parquet"
    pq.write_table(
        pa.table({"id": [2], "s": pa.array([{"a": 20}], pa.struct([("a", pa.int32())]))}), path
    )

    lake.ok("ingest", "db.t", path)
    found = lake.ok("scan", "db.t", "--select", "id,s.a", "--where", "s.a >= 1")

    preview = sorted(found["result"]["preview"], key=lambda row: row["id"])
    assert preview == [{"id": 1, "s": {"a": 1}}, {"id": 2, "s": {"a": 20}}]
    rows_by_java = java.sql(
        warehouse, "SELECT id, to_json(v) v, s.a, to_json(s.w) w FROM {c}.db.t ORDER BY id"
    )
    assert [tuple(row.values()) for row in rows_by_java] == [
        (1, '{"x":[1]}', 1, "7"),
        (2, None, 20, None),
    ]
    lake.ok("expire", "db.t", "--older-than", "0s", "--unsafe-retention", "--retain-last", "1")
    assert len(java.sql(warehouse, "SELECT * FROM {c}.db.t")) == 2
