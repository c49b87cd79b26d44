"""The name of a type in messages is Iceberg's, whatever the library calls it."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa
import pytest
from pyiceberg import types

from lake.core.spec.types.type_text import in_iceberg_words, type_text

STRUCT = types.StructType(
    types.NestedField(7, "a", types.LongType()), types.NestedField(8, "b", types.StringType())
)


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (types.LongType(), "long"),
        (types.DecimalType(9, 2), "decimal(9, 2)"),
        (STRUCT, "struct<a: long, b: string>"),
        (types.ListType(1, STRUCT), "list<struct<a: long, b: string>>"),
        (pa.bool_(), "boolean"),
        (pa.int8(), "int"),
        (pa.uint16(), "unsigned 16-bit integer"),
        (pa.int64(), "long"),
        (pa.uint32(), "unsigned 32-bit integer"),
        (pa.uint64(), "unsigned 64-bit integer"),
        (pa.float16(), "16-bit float"),
        (pa.float64(), "double"),
        (pa.decimal128(9, 2), "decimal(9, 2)"),
        (pa.decimal256(50, 2), "decimal(50, 2)"),
        (pa.date32(), "date"),
        (pa.date64(), "date"),
        (pa.time64("us"), "time"),
        (pa.time32("s"), "time_s"),
        (pa.time64("ns"), "time_ns"),
        (pa.timestamp("s"), "timestamp"),
        (pa.timestamp("us", "UTC"), "timestamptz"),
        (pa.timestamp("ns"), "timestamp_ns"),
        (pa.timestamp("ns", "Europe/Berlin"), "timestamptz_ns"),
        (pa.large_string(), "string"),
        (pa.string_view(), "string"),
        (pa.large_binary(), "binary"),
        (pa.binary(16), "fixed[16]"),
        (pa.null(), "unknown"),
        (pa.uuid(), "uuid"),
        (pa.bool8(), "boolean"),
        (pa.json_(), "string"),
        (pa.duration("s"), "duration"),
        (pa.month_day_nano_interval(), "interval"),
        (pa.dictionary(pa.int32(), pa.large_string()), "string"),
        (pa.run_end_encoded(pa.int32(), pa.int64()), "long"),
        (pa.large_list(pa.int64()), "list<long>"),
        (pa.list_(pa.int64(), 3), "list<long>"),
        (pa.map_(pa.string(), pa.timestamp("ms", "UTC")), "map<string, timestamptz>"),
        (pa.struct([("int64", pa.int32())]), "struct<int64: int>"),
        (pa.sparse_union([pa.field("a", pa.int64())]), "union"),
    ],
    ids=str,
)
def test_a_type_has_icebergs_name(kind: object, text: str) -> None:
    assert type_text(kind) == text


def test_errors_of_arrow_are_in_icebergs_words() -> None:
    column = pa.array([1_000_000_001], pa.timestamp("ns", "UTC"))
    with pytest.raises(pa.ArrowInvalid) as caught:
        column.cast(pa.timestamp("us", "UTC"))
    assert in_iceberg_words(caught.value) == (
        "Casting from timestamptz_ns to timestamptz would lose data: 1000000001"
    )
    with pytest.raises(pa.ArrowException) as caught:
        pa.array([Decimal("1.5")], pa.decimal128(2, 1)).cast(pa.large_list(pa.float64()))
    assert "decimal128" not in in_iceberg_words(caught.value)
    assert "a.int64 at int64ish" in in_iceberg_words(ValueError("a.int64 at int64ish: int64"))
