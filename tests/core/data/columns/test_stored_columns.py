"""Columns of the type unknown: data files do not hold them, and they read as NULL."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyarrow import orc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    UnknownType,
)
from support.tables.random_rows import (
    batches,
    fitting,
    read,
    read_settings,
    schemas,
    shown,
    write,
    write_settings,
)
from support.tiers import examples

from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.data.columns.stored_columns import stored_schema
from lake.core.data.rows.file_formats import format_for
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.table.manifests.data_files import DataFile

FORMATS = ["parquet", "orc", "avro"]
INNER = StructType(
    NestedField(3, "a", IntegerType(), required=False),
    NestedField(4, "u", UnknownType(), required=False),
)
SCHEMA = Schema(
    NestedField(1, "n", UnknownType(), required=False),
    NestedField(2, "s", INNER, required=False),
    NestedField(5, "id", LongType(), required=False),
)
ROWS = pa.RecordBatch.from_pylist(
    [
        {"n": None, "s": {"a": 1, "u": None}, "id": 1},
        {"n": None, "s": None, "id": 2},
        {"n": None, "s": {"a": None, "u": None}, "id": 3},
    ],
    arrow_schema(SCHEMA),
)


def with_unknown(kind: IcebergType, numbers: Any) -> IcebergType:
    """Return a type with a field of the type unknown in each struct."""
    if isinstance(kind, StructType):
        fields = [
            item.model_copy(update={"field_type": with_unknown(item.field_type, numbers)})
            for item in kind.fields
        ]
        unknown = NestedField(next(numbers), "unknown", UnknownType(), required=False)
        return StructType(unknown, *fields)
    if isinstance(kind, ListType):
        return kind.model_copy(update={"element_type": with_unknown(kind.element_type, numbers)})
    if isinstance(kind, MapType):
        return kind.model_copy(update={"value_type": with_unknown(kind.value_type, numbers)})
    return kind


def schema_in(path: str) -> str:
    """Return what a file holds, as a reader of its format other than lake's finds it."""
    if path.endswith(".parquet"):
        return str(pq.read_schema(path))
    if path.endswith(".orc"):
        return str(orc.ORCFile(path).schema)
    with open(path, "rb") as file:
        return str(fastavro.reader(file).writer_schema)


@pytest.mark.parametrize("kind", FORMATS)
@settings(deadline=None, max_examples=examples(10))
@given(st.data())
def test_rows_come_back_whatever_holds_a_field_of_the_type_unknown(kind: str, data: Any) -> None:
    plain = data.draw(schemas())
    schema = Schema(*with_unknown(plain.as_struct(), iter(range(1000, 2000))).fields)  # type: ignore[attr-defined]
    rows = fitting(kind, data.draw(batches(schema)))
    with tempfile.TemporaryDirectory() as folder:
        target = write_settings(Path(folder), schema, write__format__default=kind)
        files = write(target, rows)
        found = read(read_settings(schema), *files)
        held = [schema_in(file.path.removeprefix("file://")) for file in files]

    assert found.schema.equals(arrow_schema(schema), check_metadata=True)
    assert shown(found.to_pylist()) == shown(rows.to_pylist())
    assert not any("unknown" in one for one in held)


@pytest.mark.parametrize("kind", ["parquet", "avro"])
def test_a_file_that_holds_the_column_anyway_reads_as_null(kind: str, tmp_path: Path) -> None:
    file_format = format_for(kind, SCHEMA, {})
    file = file_format.create(Storage(), f"file://{tmp_path}/with.{kind}")
    file.write(pa.Table.from_batches([ROWS]))
    entry: DataFile = file.close(spec_id=0, partition=())

    assert read(read_settings(SCHEMA), entry).to_pylist() == ROWS.to_pylist()


@pytest.mark.parametrize("values", [{"n": 7, "s": None}, {"n": None, "s": {"a": 1, "u": 7}}])
def test_values_of_a_column_that_is_unknown_are_never_taken_for_null(
    values: dict[str, Any], tmp_path: Path
) -> None:
    known = StructType(INNER.fields[0], NestedField(4, "u", IntegerType(), required=False))
    written = Schema(
        NestedField(1, "n", IntegerType(), required=False),
        NestedField(2, "s", known, required=False),
    )
    batch = pa.RecordBatch.from_pylist([values], arrow_schema(written))
    files = write(write_settings(tmp_path, written), batch)

    with pytest.raises(CorruptFileError, match="has values, but type unknown in the table"):
        read(read_settings(SCHEMA), *files)


@pytest.mark.parametrize(
    ("kind", "named"),
    [
        (ListType(2, UnknownType(), element_required=False), "c.element of type unknown"),
        (MapType(2, StringType(), 3, UnknownType(), value_required=False), "c.value of type"),
        (StructType(NestedField(2, "u", UnknownType(), required=False)), "column c of type"),
        (
            ListType(2, StructType(NestedField(3, "u", UnknownType())), element_required=False),
            "column c.element of type struct",
        ),
    ],
)
def test_what_would_hold_nothing_else_is_refused_by_name(kind: IcebergType, named: str) -> None:
    schema = Schema(
        NestedField(1, "c", kind, required=False), NestedField(9, "id", LongType(), required=False)
    )

    with pytest.raises(RefusedError, match=named):
        stored_schema(schema)


def test_a_table_of_columns_that_are_all_unknown_is_refused() -> None:
    with pytest.raises(RefusedError, match="no column whose values lake can write"):
        stored_schema(Schema(NestedField(1, "n", UnknownType(), required=False)))
