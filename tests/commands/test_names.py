"""Names that a table or a column cannot have: a view's, and those that Iceberg reserves."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import files_below, ids_in, make_table, pyiceberg_catalog


def parquet(folder: Path, rows: pa.Table) -> Path:
    pq.write_table(rows, folder / "in.parquet")
    return folder / "in.parquet"


def with_view(warehouse: Path) -> None:
    """Give a catalog the view db.v as Iceberg's JdbcCatalog keeps one."""
    pyiceberg_catalog(warehouse).create_namespace_if_not_exists("db")
    with sqlite3.connect(warehouse / "catalog.db") as database:
        database.execute(
            "INSERT INTO iceberg_tables (catalog_name, table_namespace, table_name, metadata_location, "
            "iceberg_type) VALUES ('lake', 'db', 'v', 'file:///nowhere/v.metadata.json', 'VIEW')"
        )


@pytest.mark.parametrize("options", [[], ["--create"], ["--create", "--dry-run"]], ids=" ".join)
def test_the_name_of_a_view_is_reported_as_a_view(
    lake: CommandLine, warehouse: Path, tmp_path: Path, options: list[str]
) -> None:
    with_view(warehouse)
    before = files_below(warehouse)

    result = lake("ingest", "db.v", parquet(tmp_path, pa.table({"id": [1]})), *options)

    assert result.exit_code == 7, result
    assert "db.v is a view, not a table" in result.stderr
    assert "run the command again" not in result.stderr
    assert files_below(warehouse) == before
    assert "db.v is a view" in lake("scan", "db.v").stderr


RESERVED = [
    "_file",
    "_pos",
    "_deleted",
    "_spec_id",
    "_partition",
    "_row_id",
    "_last_updated_sequence_number",
]


@pytest.mark.parametrize("name", RESERVED)
def test_a_name_that_iceberg_reserves_is_refused(
    lake: CommandLine, warehouse: Path, tmp_path: Path, name: str
) -> None:
    """Iceberg Java reads no table that has such a column."""
    make_table(warehouse)
    before = files_below(warehouse)
    wider = pa.table({"id": pa.array([1], pa.int64()), name: pa.array([2], pa.int64())})
    source = parquet(tmp_path, wider)

    created = lake("ingest", "db.new", source, "--create")
    evolved = lake("ingest", "db.t", source, "--evolve")

    assert (created.exit_code, evolved.exit_code) == (7, 7)
    for result in (created, evolved):
        assert f"the column name {name} is reserved" in result.stderr
        assert "rename" in result.stderr
    assert files_below(warehouse) == before


def test_a_reserved_name_in_a_struct_is_an_ordinary_one(
    lake: CommandLine, warehouse: Path, tmp_path: Path
) -> None:
    nested = pa.table({"id": [1], "in": [{"_row_id": 2}], "_change_type": ["x"]})

    lake.ok(
        "ingest", "db.t", parquet(tmp_path, nested), "--create", "--property", "format-version=3"
    )
    lake.ok("ingest", "db.t", tmp_path / "in.parquet", "--upsert", "--key", "id")
    lake.ok("compact", "db.t", "--rewrite-all")

    assert ids_in(warehouse) == [1]


@pytest.mark.parametrize("name", ["_row_id", "_last_updated_sequence_number"])
def test_rows_of_a_table_with_a_column_of_row_lineage_are_not_moved(
    lake: CommandLine, warehouse: Path, tmp_path: Path, name: str
) -> None:
    """Other writers make such tables; a file cannot hold two columns of one name."""
    other = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, name, LongType(), required=False),
    )
    path = Path(make_table(warehouse, schema=other).metadata_location.removeprefix("file://"))
    path.write_text(
        json.dumps(json.loads(path.read_text()) | {"format-version": 3, "next-row-id": 0})
    )
    columns = {"id": pa.array([1, 2], pa.int64()), name: pa.array([8, 9], pa.int64())}
    source = parquet(tmp_path, pa.table(columns))
    lake.ok("ingest", "db.t", source)
    before = files_below(warehouse)

    results = [
        lake("ingest", "db.t", source, "--upsert", "--key", "id"),
        lake("ingest", "db.t", source, "--upsert", "--key", "id", "--deletes", "copy-on-write"),
        lake("ingest", "db.t", source, "--overwrite-where", "id = 1"),
        lake("compact", "db.t", "--rewrite-all"),
        lake("compact", "db.t", "--rewrite-all", "--dry-run"),
    ]

    assert [result.exit_code for result in results] == [3] * 5, results
    assert all(
        f"the column name {name} is reserved for row lineage" in one.stderr for one in results
    )
    assert files_below(warehouse) == before
    assert lake.ok("scan", "db.t", "--where", f"{name} > 8")["result"]["preview"] == [
        {"id": 2, name: 9}
    ]


@pytest.mark.parametrize("other", ["NAMÉ", "name\u0301"], ids=["case", "normal form"])
def test_names_that_engines_may_confuse_cause_a_warning(
    lake: CommandLine, warehouse: Path, tmp_path: Path, other: str
) -> None:
    make_table(warehouse, schema=Schema(NestedField(1, "namé", LongType(), required=False)))
    both = parquet(tmp_path, pa.table({"namé": [1], other: [2]}))

    created = lake.ok("ingest", "db.new", both, "--create")
    evolved = lake.ok("ingest", "db.t", both, "--evolve")
    again = lake.ok("ingest", "db.t", both, "--evolve")

    said = (
        f"the column names namé and {other} differ only in case or in the form of their characters"
    )
    for document in (created, evolved):
        assert [text.startswith(said) for text in document["warnings"]] == [True]
    assert all(text.startswith("the same files were loaded") for text in again["warnings"])


@pytest.mark.parametrize("by", ["s.http.status", "truncate(10, s.http.status)"])
def test_a_field_of_a_struct_with_a_dot_in_its_name_is_a_partition_column(
    lake: CommandLine, tmp_path: Path, by: str
) -> None:
    rows = [{"id": n, "s": {"http.status": 200 + n % 2, "t": {"a": n, "b": -n}}} for n in range(6)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    pq.write_table(pa.Table.from_pylist(rows[1:2]), tmp_path / "new.parquet")

    lake.ok("ingest", "db.t", tmp_path / "rows.parquet", "--create", "--partition-by", by)

    found = lake.scanned("--where", "s.http.status = 201")
    assert [row["id"] for row in found] == [1, 3, 5]
    options = ("--upsert", "--key", "s.http.status,id", "--deletes", "position")
    done = lake.ok("ingest", "db.t", tmp_path / "new.parquet", *options)
    assert done["result"]["rows_updated"] == 1
    assert lake.ok("delete", "db.t", "--where", "s.http.status = 200")["result"]["rows"] == 3
    assert [row["id"] for row in lake.rows(by="id")] == [1, 3, 5]
    assert lake.ok("check", "db.t", "--deep")["result"]["errors"] == 0


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_a_field_of_a_struct_may_be_named_like_a_path_to_another(
    lake: CommandLine, tmp_path: Path, kind: str
) -> None:
    row = {"id": 1, "s": {".x": 1.5, "x": float("nan")}}
    source = parquet(tmp_path, pa.Table.from_pylist([row]))

    lake.ok("ingest", "db.t", source, "--create", "--property", f"write.format.default={kind}")

    found = lake.scanned("--where", 's.".x" = 1.5')
    assert found == [{"id": 1, "s": {".x": 1.5, "x": "NaN"}}]


def test_values_of_such_a_field_are_not_those_of_the_other(
    lake: CommandLine, tmp_path: Path
) -> None:
    row = {"id": 1, "s": {".x": "2026-01-01", "x": "2026-02-02"}}
    source = tmp_path / "rows.json"
    source.write_text(json.dumps(row))
    lake.ok("create", "db.t", "id long", "s struct<`.x`: date, x: date>")

    lake.ok("ingest", "db.t", source)

    assert lake.scanned() == [row]
