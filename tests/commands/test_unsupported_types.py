"""Tables with columns of the types variant, geometry and geography: what works, and what is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StructType,
)
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import make_table, open_session

from lake.core.data.rows.reader import FileSlice
from lake.core.spec.types.specification_types import GeographyType, GeometryType, VariantType
from lake.core.table.catalogs import pyiceberg_patches
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles

VARIANT = pa.struct(
    [
        pa.field("metadata", pa.binary(), nullable=False),
        pa.field("value", pa.binary(), nullable=False),
    ]
)
TYPES: list[tuple[IcebergType, pa.DataType, Any]] = [
    (VariantType(), VARIANT, {"metadata": b"\x01\x00\x00", "value": b"\x0c\x07"}),
    (GeometryType("EPSG:4326"), pa.binary(), bytes(21)),
    (GeographyType(), pa.binary(), bytes(21)),
]
GONE = ("--older-than", "0s", "--unsafe-retention", "--retain-last", "1")


@pytest.fixture(params=TYPES, ids=["variant", "geometry", "geography"])
def kind(request: pytest.FixtureRequest, warehouse: Path) -> IcebergType:
    """A table db.t (id, v, s <a, v>) with a column of each type in turn, and a file with values of it."""
    kind, stored, value = request.param
    pyiceberg_patches.apply()
    parts = StructType(
        NestedField(4, "a", IntegerType(), required=False),
        NestedField(5, "v", kind, required=False),
    )
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "v", kind, required=False),
        NestedField(3, "s", parts, required=False),
    )
    make_table(warehouse, schema=schema, format_version="3")
    add_file(
        warehouse,
        pa.table(
            {
                "id": pa.array([1, 2, 3]),
                "v": pa.array([value, None, value], stored),
                "s": pa.array(
                    [{"a": 10, "v": value}, None, {"a": 30, "v": None}],
                    pa.struct([numbered("a", pa.int32(), 4), numbered("v", stored, 5)]),
                ),
            }
        ),
    )
    return kind


def numbered(name: str, kind: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, kind, metadata={"PARQUET:field_id": str(number)})


def add_file(warehouse: Path, rows: pa.Table) -> None:
    """Commit rows as another engine would: with the columns' ids, from 1."""
    fields = [numbered(item.name, item.type, number) for number, item in enumerate(rows.schema, 1)]
    session = open_session(warehouse)
    table = session.table("db.t")
    path = Path(table.data_location.removeprefix("file://")) / "theirs.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.cast(pa.schema(fields)), path)
    file = DataFile(
        path=f"file://{path}", spec_id=0, record_count=rows.num_rows, size_bytes=path.stat().st_size
    )
    assert FileSlice.of(file).format == "PARQUET"
    commit_snapshot(session, table, AppendFiles(added=[file]), CommitRequest(operation_id="theirs"))


def source(folder: Path, **columns: Any) -> Path:
    path = folder / "source.parquet"
    pq.write_table(pa.table(columns), path)
    return path


def files_in(warehouse: Path) -> set[Path]:
    return {path for path in warehouse.rglob("*") if path.is_file()}


def ids(lake: CommandLine, *options: str) -> list[int]:
    found = lake.ok("scan", "db.t", "--select", "id", *options)
    return sorted(row["id"] for row in found["result"]["preview"])


@pytest.mark.parametrize("engine", ["inline", "spark"])
def test_other_columns_are_read_and_filtered(
    kind: IcebergType, engine: str, warehouse: Path, tmp_path: Path
) -> None:
    lake = CommandLine(warehouse, engine=engine)

    assert ids(lake) == [1, 2, 3]
    assert ids(lake, "--where", "id > 1") == [2, 3]
    assert ids(lake, "--where", "s.a > 10") == [3]
    found = lake.ok("scan", "db.t", "--select", "s.a", "--where", "s.a > 10")
    assert found["result"]["preview"] == [{"s": {"a": 30}}]
    out = tmp_path / "out"
    lake.ok("scan", "db.t", "--select", "id,s.a", "--output", out, "--output-format", "parquet")
    assert sorted(pq.read_table(out)["id"].to_pylist()) == [1, 2, 3]
    assert lake.ok("scan", "db.t", "--plan")["plan"]["records"] == 3


BY_KEY = ("--upsert", "--key", "id", "--missing", "default")


@pytest.mark.parametrize(
    ("command", "column"),
    [
        (("scan", "db.t"), "v"),
        (("scan", "db.t", "--select", "id,s"), "s.v"),
        (("scan", "db.t", "--select", "id", "--where", "v is null"), "v"),
        (("scan", "db.t", "--output", "out.parquet"), "v"),
        (("scan", "db.t", "--changes"), "v"),
        (("compact", "db.t", "--rewrite-all"), "v"),
        (("ingest", "db.t", "SOURCE", *BY_KEY), "v"),
        (("ingest", "db.t", "SOURCE", *BY_KEY, "--deletes", "equality"), "v"),
        (
            ("ingest", "db.t", "SOURCE", *BY_KEY, "--deletes", "copy-on-write"),
            "v",
        ),
        (("ingest", "db.t", "SOURCE", "--overwrite-where", "id > 1"), "v"),
        (("ingest", "db.new", "--from-table", "db.t", "--create"), "v"),
    ],
)
def test_what_would_touch_the_values_is_refused_by_name(
    kind: IcebergType,
    command: tuple[str, ...],
    column: str,
    lake: CommandLine,
    warehouse: Path,
    tmp_path: Path,
) -> None:
    rows = source(tmp_path, id=[2])
    before = files_in(warehouse)

    refused = lake(*(rows if word == "SOURCE" else word for word in command))

    assert refused.exit_code == 3, refused
    assert f"column {column} is of the type {kind}" in refused.stderr
    assert "--select" in refused.stderr
    assert files_in(warehouse) == before
    assert not (tmp_path / "out.parquet").exists()


@pytest.mark.parametrize("name", ["v.parquet", "v.csv", "v.json"])
def test_a_source_with_values_of_the_column_is_refused(
    kind: IcebergType, name: str, lake: CommandLine, tmp_path: Path
) -> None:
    path = tmp_path / name
    texts = {"v.csv": "id,v\n9,x\n", "v.json": '{"id": 9, "v": {"x": 1}}\n'}
    if name in texts:
        path.write_text(texts[name])
    else:
        pq.write_table(pa.table({"id": [9], "v": [b"x"]}), path)

    refused = lake("ingest", "db.t", path)

    assert refused.exit_code == 3, refused
    assert f"has values for column v of type {kind}" in refused.stderr
    assert ids(lake) == [1, 2, 3]


def test_an_append_without_the_column_snapshots_and_expire_work(
    kind: IcebergType, lake: CommandLine, tmp_path: Path
) -> None:
    lake.ok("ingest", "db.t", source(tmp_path, id=[4], v=pa.nulls(1)))
    lake.ok("ingest", "db.t", source(tmp_path, id=[5]))

    assert ids(lake) == [1, 2, 3, 4, 5]
    assert lake.ok("compact", "db.t", "--rewrite-all", "--dry-run")["plan"]["input_files"] == 3
    assert len(lake.ok("snapshots", "db.t")["result"]["snapshots"]) == 3
    assert lake.ok("expire", "db.t", *GONE)["result"]["snapshots"] == 2
    assert ids(lake) == [1, 2, 3, 4, 5]
    lake.ok("ingest", "db.t", source(tmp_path, id=[6]), "--overwrite")
    assert ids(lake) == [6]


def test_a_required_column_is_refused(lake: CommandLine, warehouse: Path, tmp_path: Path) -> None:
    pyiceberg_patches.apply()
    lists = ListType(4, VariantType(), element_required=False)
    schema = Schema(
        NestedField(1, "id", LongType(), required=False),
        NestedField(2, "x", lists, required=False),
    )
    make_table(warehouse, schema=schema, format_version="3")

    refused = lake("ingest", "db.t", source(tmp_path, id=[1]))

    assert refused.exit_code == 3, refused
    assert "column x.element is of the type variant" in refused.stderr


@pytest.mark.parametrize("option", ["--partition-by", "--sort-by"])
@pytest.mark.parametrize("column", ["v", "s.v"])
def test_no_table_is_partitioned_or_sorted_by_such_a_column(
    kind: IcebergType, lake: CommandLine, option: str, column: str
) -> None:
    created = ("create", "db.new", "--from", "db.t", "--format-version", "3")
    for command in (("alter", "db.t"), created):
        refused = lake(*command, option, column)

        assert refused.exit_code == 2, refused
        assert f"{column} ({kind}) by identity" in refused.stderr
    assert ids(lake) == [1, 2, 3]
