"""New tables get the types, partitions and orders that were asked for."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IntegerType,
    ListType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)

from lake.core.base.errors import BadInputError, InvalidRequestError, NotFoundError
from lake.core.base.options import quote_options
from lake.core.data.schemas.evolution import evolved
from lake.core.data.schemas.new_tables import NewColumns
from lake.core.data.schemas.source_checks import SourceColumns, check_sources
from lake.core.spec.types.transform_syntax import partition_spec, sort_order

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=True),
    NestedField(2, "ts", TimestampType(), required=False),
    NestedField(3, "name", StringType(), required=False),
    NestedField(
        4, "at", StructType(NestedField(5, "day", DateType(), required=False)), required=False
    ),
)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        (pa.int8(), "int"),
        (pa.uint16(), "int"),
        (pa.uint32(), "long"),
        (pa.uint64(), "long"),
        (pa.float16(), "float"),
        (pa.null(), "string"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(7), "fixed[7]"),
        (pa.uuid(), "uuid"),
        (pa.date64(), "date"),
        (pa.time32("s"), "time"),
        (pa.timestamp("s"), "timestamp"),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamptz"),
        (pa.decimal128(9, 2), "decimal(9, 2)"),
        (pa.decimal32(5, 2), "decimal(5, 2)"),
        (pa.decimal64(12, 0), "decimal(12, 0)"),
        (pa.decimal256(38, 9), "decimal(38, 9)"),
        (pa.bool8(), "boolean"),
        (pa.json_(), "string"),
        (pa.list_(pa.int32(), 3), "list<int>"),
        (pa.dictionary(pa.int8(), pa.string()), "string"),
        (pa.list_(pa.uint8()), "list<int>"),
        (pa.large_list(pa.timestamp("ns")), "list<timestamp>"),
        (pa.map_(pa.string(), pa.uint32()), "map<string, long>"),
        (pa.struct([("x", pa.uint8())]), "struct<2: x: optional int>"),
    ],
)
def test_every_arrow_type_that_iceberg_can_hold_becomes_a_column(
    source: Any, expected: str
) -> None:
    assert str(NewColumns().schema_of(pa.schema([("c", source)])).find_type("c")) == expected


NULLS = pa.struct([("a", pa.int32()), ("u", pa.null())])


@pytest.mark.parametrize(
    ("source", "version", "expected", "warning"),
    [
        (pa.null(), 2, "string", "becomes a string (with `properties` format-version=3"),
        (pa.null(), 3, "unknown", None),
        (NULLS, 3, "struct<2: a: optional int, 3: u: optional unknown>", None),
        (NULLS, 1, "struct<2: a: optional int, 3: u: optional string>", "column c.u has no type"),
        (pa.list_(pa.null()), 3, "list<string>", "column c.element has no type"),
        (pa.struct([("u", pa.null())]), 3, "struct<2: u: optional string>", "column c.u has no"),
        (
            pa.timestamp("ns"),
            2,
            "timestamp",
            "(with `properties` format-version=3 it becomes timest",
        ),
        (pa.timestamp("ns"), 3, "timestamp_ns", None),
        (pa.timestamp("ns", "Asia/Tokyo"), 3, "timestamptz_ns", None),
        (pa.list_(pa.timestamp("ns", "UTC")), 2, "list<timestamptz>", "column c.element is times"),
        (pa.time64("ns"), 3, "time", "column c is time_ns: the table has microseconds"),
        (pa.opaque(pa.binary(), "x", "y"), 3, "binary", "the extension type arrow.opaque"),
    ],
)
def test_a_type_that_changes_is_reported(
    source: Any, version: int, expected: str, warning: str | None
) -> None:
    said: list[str] = []
    made = NewColumns(version, said.append).schema_of(pa.schema([("c", source)]))

    assert str(made.find_type("c")) == expected
    assert len(said) == (warning is not None)
    assert not warning or warning in quote_options(said[0])


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ([("a", pa.duration("s"))], "column a is duration"),
        ([("a", pa.decimal256(50, 2))], "column a is decimal"),
        ([("a", pa.decimal128(5, -2))], "column a is decimal"),
        ([("a.b", pa.int64()), ("a", pa.struct([("b", pa.int64())]))], "the name a.b"),
        ([("a", pa.struct([]))], "a struct without fields"),
        ([("a", pa.list_(pa.month_day_nano_interval()))], "column a is list"),
        ([("", pa.int64())], "without a name"),
        ([("a", pa.int64()), ("a", pa.int64())], "two columns named a"),
    ],
)
def test_columns_that_cannot_become_a_table_are_named(columns: list[Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        NewColumns().schema_of(pa.schema(columns))


def test_partition_terms_are_read_as_spark_names_them() -> None:
    text = "days(ts), bucket(16, id), truncate(name, 4), identity(id), void(ts), at.day, year(at.day), name"

    spec = partition_spec(text, SCHEMA)

    assert [(f.name, f.source_id, str(f.transform)) for f in spec.fields] == [
        ("ts_day", 2, "day"),
        ("id_bucket", 1, "bucket[16]"),
        ("name_trunc", 3, "truncate[4]"),
        ("id", 1, "identity"),
        ("ts_null", 2, "void"),
        ("at_day", 5, "identity"),
        ("at_day_year", 5, "year"),
        ("name", 3, "identity"),
    ]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("day(nope)", NotFoundError),
        ("day(name)", InvalidRequestError),
        ("bucket(id)", InvalidRequestError),
        ("bucket(-1, id)", InvalidRequestError),
        ("day(ts, 3)", InvalidRequestError),
        ("day(ts) hour(ts)", InvalidRequestError),
        ("day(ts),,id", InvalidRequestError),
        ("day(ts), day(ts)", InvalidRequestError),
        ("identity(at)", InvalidRequestError),
        ("day((ts))", InvalidRequestError),
    ],
)
def test_partition_terms_that_mean_nothing_are_refused(text: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        partition_spec(text, SCHEMA)


def test_sort_terms_have_sparks_defaults() -> None:
    order = sort_order("id, name desc, ts asc nulls last, at.day DESC NULLS FIRST", SCHEMA)

    assert [str(field) for field in order.fields] == [
        "1 ASC NULLS FIRST",
        "3 DESC NULLS LAST",
        "2 ASC NULLS LAST",
        "5 DESC NULLS FIRST",
    ]
    assert sort_order(None, SCHEMA).is_unsorted


def test_new_columns_go_behind_with_fresh_ids_and_the_rest_keeps_its_own() -> None:
    table = Schema(
        NestedField(1, "id", LongType(), required=True),
        NestedField(
            2,
            "tags",
            ListType(
                3,
                StructType(NestedField(4, "k", IntegerType(), required=True)),
                element_required=True,
            ),
            required=False,
        ),
        schema_id=3,
        identifier_field_ids=[1],
    )
    source = pa.schema(
        [
            ("new", pa.struct([("x", pa.int64())])),
            ("tags", pa.list_(pa.struct([("v", pa.string()), ("k", pa.int32())]))),
        ]
    )

    after = evolved(table, 40, 7, source)

    assert {name: after.find_field(name).field_id for name in after.column_names} == {
        "id": 1,
        "tags": 2,
        "tags.element": 3,
        "tags.element.k": 4,
        "tags.element.v": 41,
        "new": 42,
        "new.x": 43,
    }
    assert (after.schema_id, after.identifier_field_ids) == (7, [1])
    assert after.find_field("id").required
    assert after.find_field("tags.element.k").required
    assert not after.find_field("tags.element.v").required
    assert evolved(table, 40, 7, pa.schema([("id", pa.int32())])) is table


def test_problems_of_equal_files_are_reported_once() -> None:
    columns = pa.schema([("ID", pa.int64())])
    files = [SourceColumns(f"{number}.parquet", columns) for number in range(9)]

    with pytest.raises(BadInputError) as caught:
        check_sources(SCHEMA, files, evolve=False)

    assert caught.value.message == (
        "the source does not fit the table: 0.parquet (and 8 more files) lacks the required column "
        "id (long); has column ID (long), which the table lacks (did you mean id?)"
    )
