"""Rows as files: every type in every format, read back by others and by lake itself."""

from __future__ import annotations

import io
import json
import math
import uuid
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UnknownType,
    UUIDType,
)
from support.tiers import examples

from lake.core.base.choices import EXPORT_FORMATS
from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.data.columns.text_encoding import json_lines
from lake.core.data.sources.batches import source_batches
from lake.core.data.sources.discovery import Source
from lake.core.io.storage.storage import Storage
from lake.core.read.exports.formats import open_sink, plain_rows
from lake.core.spec.types.arrow_schema import arrow_schema

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.sampled_from(
    ["", "null", "NaN", '"', "\\", "\n", "a,b", " x ", "\x00\x1f\x7f", "1", "true", "\u2028", "𝄞"]
)
DOUBLES = st.floats() | st.sampled_from([1.0, -0.0, 1e300, 2.0**53])
MOMENTS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
FLAT: dict[str, tuple[Any, st.SearchStrategy[Any]]] = {
    "flag": (BooleanType(), st.booleans()),
    "small": (IntegerType(), st.integers(-(2**31), 2**31 - 1)),
    "big": (LongType(), st.integers(-(2**63), 2**63 - 1)),
    "single": (FloatType(), st.floats(width=32)),
    "double": (DoubleType(), DOUBLES),
    "money": (DecimalType(20, 4), st.decimals(-(10**12), 10**12, places=4)),
    "day": (DateType(), st.dates()),
    "clock": (TimeType(), st.times()),
    "local": (TimestampType(), MOMENTS),
    "moment": (TimestamptzType(), MOMENTS.map(lambda at: at.replace(tzinfo=None))),
    "nanos": (TimestampNanoType(), st.integers(-(2**62), 2**62)),
    "text": (StringType(), TEXTS),
    "id": (UUIDType(), st.binary(min_size=16, max_size=16)),
    "three": (FixedType(3), st.binary(min_size=3, max_size=3)),
    "bytes": (BinaryType(), st.binary(max_size=5)),
    "nothing": (UnknownType(), st.none()),
}


def _nested() -> dict[str, tuple[Any, st.SearchStrategy[Any]]]:
    pair = StructType(
        NestedField(101, "x", DoubleType(), required=True),
        NestedField(102, "who", UUIDType(), required=False),
    )
    pairs = st.fixed_dictionaries(
        {"x": DOUBLES, "who": st.none() | st.binary(min_size=16, max_size=16)}
    )
    return {
        "pair": (pair, pairs),
        "list": (
            ListType(110, DecimalType(9, 2), element_required=False),
            st.lists(st.none() | st.decimals(-1000, 1000, places=2), max_size=3),
        ),
        "named": (
            MapType(120, StringType(), 121, pair, value_required=False),
            st.dictionaries(TEXTS, st.none() | pairs, max_size=3).map(lambda m: list(m.items())),
        ),
        "numbered": (
            MapType(
                130,
                LongType(),
                131,
                ListType(132, DateType(), element_required=True),
                value_required=True,
            ),
            st.dictionaries(st.integers(-9, 9), st.lists(st.dates(), max_size=2), max_size=3).map(
                lambda m: list(m.items())
            ),
        ),
    }


KINDS = FLAT | _nested()
SCHEMA = Schema(
    *(
        NestedField(number, name, kind, required=False)
        for number, (name, (kind, _)) in enumerate(KINDS.items(), 1)
    )
)
ROWS = st.lists(
    st.fixed_dictionaries({name: st.none() | values for name, (_, values) in KINDS.items()}),
    max_size=5,
)


def batch_of(rows: list[dict[str, Any]], schema: Schema = SCHEMA) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, schema=arrow_schema(schema))


def written(format_name: str, batches: list[pa.RecordBatch], schema: Schema = SCHEMA) -> bytes:
    stream = io.BytesIO()
    sink = open_sink(format_name, stream, schema)
    for batch in batches:
        sink.write(batch)
    sink.close()
    assert not stream.closed
    return stream.getvalue()


def plainly(value: Any, kind: Any) -> Any:
    """A value as JSON should show it, one value at a time."""
    if value is None:
        return None
    if isinstance(kind, StructType):
        return {item.name: plainly(value[item.name], item.field_type) for item in kind.fields}
    if isinstance(kind, ListType):
        return [plainly(one, kind.element_type) for one in value]
    if isinstance(kind, MapType):
        pairs = [[plainly(a, kind.key_type), plainly(b, kind.value_type)] for a, b in value]
        return dict(pairs) if isinstance(kind.key_type, StringType) else pairs
    if isinstance(kind, UUIDType):
        return str(uuid.UUID(bytes=value))
    if isinstance(kind, DecimalType):
        return value
    return value


@settings(deadline=None, max_examples=examples(60))
@given(ROWS, st.integers(0, 4))
def test_json_lines_hold_every_value(rows: list[dict[str, Any]], skipped: int) -> None:
    batch = batch_of(rows).slice(skipped)
    lines = "".join(json_lines(batch, SCHEMA).to_pylist())

    found = [json.loads(line) for line in lines.split("\n")[:-1]]

    assert len(found) == batch.num_rows
    for got, row in zip(found, rows[skipped:], strict=True):
        assert list(got) == list(KINDS)
        for name, (kind, _) in KINDS.items():
            assert same(got[name], row[name], kind), (name, got[name], row[name])


def same(shown: Any, value: Any, kind: Any) -> bool:
    """Whether a JSON value shows a row's value, exactly."""
    if value is None or shown is None:
        return value is shown
    if isinstance(kind, StructType):
        return list(shown) == [item.name for item in kind.fields] and all(
            same(shown[item.name], value[item.name], item.field_type) for item in kind.fields
        )
    if isinstance(kind, ListType):
        return len(shown) == len(value) and all(
            same(a, b, kind.element_type) for a, b in zip(shown, value, strict=True)
        )
    if isinstance(kind, MapType):
        pairs = list(shown.items()) if isinstance(kind.key_type, StringType) else shown
        return len(pairs) == len(value) and all(
            same(a[0], b[0], kind.key_type) and same(a[1], b[1], kind.value_type)
            for a, b in zip(pairs, value, strict=True)
        )
    return same_leaf(shown, value, kind)


def same_leaf(shown: Any, value: Any, kind: Any) -> bool:
    if isinstance(kind, FloatType | DoubleType):
        if not math.isfinite(value):
            return shown == {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
        exact = (
            pa.scalar(float(shown), pa.float32()).as_py() if isinstance(kind, FloatType) else shown
        )
        return (
            isinstance(shown, float)
            and math.copysign(1, shown) == math.copysign(1, value)
            and exact == value
        )
    if isinstance(kind, DecimalType):
        return isinstance(shown, str) and Decimal(shown) == value
    if isinstance(kind, DateType):
        return date.fromisoformat(shown) == value
    if isinstance(kind, TimeType):
        return time.fromisoformat(shown) == value
    if isinstance(kind, TimestampType):
        return datetime.fromisoformat(shown) == value
    if isinstance(kind, TimestamptzType):
        return shown.endswith("Z") and datetime.fromisoformat(shown[:-1]) == value
    if isinstance(kind, TimestampNanoType):
        return pa.scalar(shown).cast(pa.timestamp("ns")).value == value
    if isinstance(kind, UUIDType):
        return uuid.UUID(shown).bytes == value
    if isinstance(kind, BinaryType | FixedType):
        import base64

        return base64.b64decode(shown) == value
    return type(shown) is type(value) and shown == value


@pytest.mark.parametrize("format_name", EXPORT_FORMATS)
def test_lake_reads_back_what_it_wrote(format_name: str, tmp_path: Path) -> None:
    # CSV has no nested columns, and text without values has no type.
    names = [
        name
        for name in (FLAT if format_name in {"csv", "tsv"} else KINDS)
        if name != "nothing" or format_name in {"parquet", "arrow"}
    ]
    schema = SCHEMA.select(*names)

    @settings(deadline=None, max_examples=examples(25))
    @given(ROWS)
    def check(rows: list[dict[str, Any]]) -> None:
        batch = batch_of([{name: row[name] for name in names} for row in rows], schema)
        path = tmp_path / f"rows.{format_name}"
        path.write_bytes(written(format_name, [batch.slice(0, 2), batch.slice(2)], schema))
        # A source of tab-separated values is a CSV file, whose delimiter its name shows.
        read_as = "csv" if format_name == "tsv" else format_name
        source = Source(path=str(path), format=read_as, size_bytes=path.stat().st_size)

        found = list(source_batches(Storage(), source, schema))

        table = pa.Table.from_batches(found, schema=arrow_schema(schema))
        expected = pa.Table.from_batches([batch])
        # As text NaN equals itself and -0.0 is not 0.0.
        assert repr(table.to_pylist()) == repr(expected.to_pylist())

    check()


def test_others_read_the_files(tmp_path: Path) -> None:
    import pandas

    schema = SCHEMA.select("big", "text", "local", "money")
    rows = [
        {
            "big": 2**62,
            "text": "",
            "local": datetime(2026, 1, 31, 12, 0, 0, 5),
            "money": Decimal("1.5"),
        },
        {"big": None, "text": None, "local": None, "money": None},
    ]
    for name in EXPORT_FORMATS:
        (tmp_path / f"rows.{name}").write_bytes(written(name, [batch_of(rows, schema)], schema))

    assert pq.read_table(tmp_path / "rows.parquet").to_pylist() == rows
    assert pyarrow.feather.read_table(tmp_path / "rows.arrow").to_pylist() == rows
    assert pandas.read_feather(tmp_path / "rows.arrow")["text"][0] == ""
    csv = pandas.read_csv(tmp_path / "rows.csv", dtype={"big": "Int64"}, parse_dates=["local"])
    assert csv["big"][0] == 2**62
    assert csv["local"][0] == pandas.Timestamp("2026-01-31T12:00:00.000005")
    tabs = pandas.read_csv(tmp_path / "rows.tsv", sep="\t", dtype={"big": "Int64"})
    assert tabs["big"][0] == 2**62
    lines = pandas.read_json(tmp_path / "rows.json", lines=True, dtype=False)
    assert list(lines["text"].fillna("NULL")) == ["", "NULL"]


def test_cells_of_tsv_are_in_quotes_only_where_a_reader_needs_them() -> None:
    texts = ["plain, text", "a\tb", 'say "x"', "two\nlines", "", None, "\\", "NULL"]
    data = written(
        "tsv",
        [batch_of([{"text": text, "big": 1} for text in texts], SCHEMA.select("text", "big"))],
        SCHEMA.select("text", "big"),
    )

    assert data.decode().removeprefix("big\ttext\n") == (
        '1\tplain, text\n1\t"a\tb"\n1\t"say ""x"""\n1\t"two\nlines"\n1\t""\n1\t\n1\t\\\n1\tNULL\n'
    )


def test_a_stream_of_arrow_is_read_as_one() -> None:
    data = written("arrow-stream", [batch_of([{"big": 1}])])

    assert pa.ipc.open_stream(data).read_all()["big"].to_pylist() == [1]


@pytest.mark.parametrize("format_name", EXPORT_FORMATS)
def test_a_file_without_rows_has_the_columns(format_name: str) -> None:
    data = written(format_name, [])

    if format_name == "parquet":
        assert pq.read_schema(io.BytesIO(data)).names == list(KINDS)
    elif format_name == "arrow":
        assert pa.ipc.open_file(data).schema.names == list(KINDS)
    else:
        assert data.count(b"\n") == int(format_name in {"csv", "tsv"})


def test_required_columns_and_parts_stay_required() -> None:
    schema = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(
            2,
            "tags",
            MapType(
                3,
                StringType(),
                4,
                ListType(5, StringType(), element_required=True),
                value_required=True,
            ),
            required=True,
        ),
    )
    data = written("parquet", [batch_of([{"id": 1, "tags": [("a", ["b"])]}], schema)], schema)

    found = pq.read_schema(io.BytesIO(data))
    assert not found.field("id").nullable
    assert not found.field("tags").type.item_field.nullable
    assert not found.field("tags").type.item_type.value_field.nullable
    assert b"field_id" not in str(found.field("tags").type).encode()


def test_maps_with_numbers_as_keys_have_no_dictionaries_in_parquet() -> None:
    counts = MapType(11, IntegerType(), 12, LongType(), value_required=True)
    labels = MapType(13, StringType(), 14, StringType(), value_required=True)
    inside = StructType(NestedField(15, "counts", counts), NestedField(16, "text", StringType()))
    schema = Schema(
        NestedField(1, "counts", counts),
        NestedField(2, "labels", labels),
        NestedField(3, "inside", inside),
    )
    row = {
        "counts": [(1, 2), (3, 4)],
        "labels": [("a", "b")],
        "inside": {"counts": [(5, 6)], "text": "c"},
    }
    nulls = dict.fromkeys(row)
    data = written("parquet", [batch_of([row, nulls], schema)], schema)

    file = pq.ParquetFile(io.BytesIO(data))
    assert file.read().to_pylist() == [row, nulls]
    group = file.metadata.row_group(0)
    leaves = [group.column(number) for number in range(group.num_columns)]
    assert {leaf.path_in_schema for leaf in leaves if leaf.has_dictionary_page} == {
        "labels.key_value.key",
        "labels.key_value.value",
        "inside.text",
    }


def test_uuids_are_marked_as_such_in_parquet() -> None:
    data = written("parquet", [batch_of([{"id": b"0123456789abcdef"}])])

    column = pq.ParquetFile(io.BytesIO(data)).schema.column(list(FLAT).index("id"))
    assert str(column.logical_type) == "UUID"


@pytest.mark.parametrize("name", ["local", "moment"])
def test_a_time_that_no_calendar_holds_is_not_written_as_text(name: str) -> None:
    schema = SCHEMA.select(name)
    batch = batch_of([{name: None}], schema)
    column = pa.array([2**62], pa.int64()).cast(batch.schema.field(0).type)
    far = pa.RecordBatch.from_arrays([column], schema=batch.schema)

    with pytest.raises(BadInputError, match="outside the years"):
        written("csv", [far], schema)
    with pytest.raises(BadInputError, match="outside the years"):
        plain_rows(far, schema)
    kept = pq.read_table(io.BytesIO(written("parquet", [far], schema)))[name]
    assert kept.cast(pa.int64()).to_pylist() == [2**62]


def test_names_of_columns_are_escaped() -> None:
    schema = Schema(NestedField(1, 'a "b"\n', LongType(), required=False))

    assert plain_rows(batch_of([{'a "b"\n': 1}], schema), schema) == [{'a "b"\n': 1}]


def test_an_unknown_format_is_a_usage_error() -> None:
    with pytest.raises(
        InvalidRequestError, match="'xml' is not one of parquet, csv, tsv, json, arrow"
    ):
        open_sink("xml", io.BytesIO(), SCHEMA)
