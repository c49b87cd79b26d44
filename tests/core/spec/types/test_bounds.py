"""Bounds come out of manifests' maps as typed values, and bracket what they were cut from."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.conversions import from_bytes
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
    UnknownType,
    UUIDType,
)
from pyiceberg.utils.truncate import truncate_upper_bound_text_string
from support.tables.random_filters import (
    KINDS,
    File,
    Kind,
    arrow_column,
    encode_bound,
    entries_table,
    kinds,
    values,
)
from support.tiers import examples

from lake.core.spec.types.bounds import (
    bound_array,
    comparable,
    count_array,
    decode_bounds,
    prefix_end,
    truncate_lower,
    truncate_upper,
)
from lake.core.spec.types.single_values import single_value

CHARACTERS = st.characters(exclude_categories=["Cs"]) | st.sampled_from(
    "a\x7f\x80\ud7ff\ue000\uffff\U00010000\U0010fffe\U0010ffff\u0301"
)
TEXT = st.text(CHARACTERS, max_size=8)
BYTES = st.binary(max_size=6) | st.lists(st.sampled_from([0, 254, 255]), max_size=6).map(bytes)


@settings(deadline=None, max_examples=examples(300))
@given(value=TEXT | BYTES, length=st.integers(1, 5))
def test_truncated_bounds_bracket_the_value(value: Any, length: int) -> None:
    lower, upper = truncate_lower(value, length), truncate_upper(value, length)
    assert len(lower) <= length
    assert as_bytes(lower) <= as_bytes(value)
    if upper is not None:
        assert len(upper) <= length
        assert as_bytes(value) <= as_bytes(upper)


@settings(deadline=None, max_examples=examples(300))
@given(prefix=TEXT, rest=TEXT, other=TEXT)
def test_the_end_of_a_prefix_divides_text_by_that_prefix(
    prefix: str, rest: str, other: str
) -> None:
    end = prefix_end(prefix)
    assert end is None or as_bytes(prefix + rest) < as_bytes(end)
    if not other.startswith(prefix):
        before = as_bytes(other) < as_bytes(prefix)
        assert before or (end is not None and as_bytes(other) >= as_bytes(end))


def as_bytes(value: str | bytes) -> bytes:
    return value if isinstance(value, bytes) else value.encode()


def test_the_character_after_d7ff_is_not_a_surrogate() -> None:
    assert truncate_upper("a" * 15 + "\ud7ff" + "b", 16) == "a" * 15 + "\ue000"
    assert truncate_upper("a\U0010ffffb", 2) == "b"
    assert truncate_upper("\U0010ffff" * 3, 2) is None
    assert truncate_upper("\U0010ffff" * 2, 2) == "\U0010ffff" * 2
    assert truncate_upper(b"\xff\xff\xff", 2) is None
    assert truncate_upper(b"\x00\xff\xff", 2) == b"\x01"


@settings(deadline=None, max_examples=examples(200))
@given(value=st.text(st.characters(max_codepoint=0xD7FE), max_size=8), length=st.integers(1, 5))
def test_upper_bounds_of_text_are_those_of_pyiceberg(value: str, length: int) -> None:
    assert truncate_upper(value, length) == truncate_upper_bound_text_string(value, length)


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data(), kind=kinds)
def test_bounds_are_decoded_as_pyiceberg_decodes_them(data: Any, kind: Kind) -> None:
    column = data.draw(st.lists(values(kind), min_size=1, max_size=10))
    files = [File(record_count=1) for _ in column]
    for file, value in zip(files, column, strict=True):
        file.lower_bounds[7] = b"other"
        if value is not None:
            file.lower_bounds[3] = encode_bound(value, kind.type_)
            assert equal(from_bytes(kind.type_, file.lower_bounds[3]), value)
    decoded = bound_array(entries_table(files), "lower_bounds", 3, kind.type_)
    assert decoded.type == arrow_column([], kind.type_).type
    plain = comparable(decoded, kind.type_).to_pylist()
    assert all(equal(got, value) for got, value in zip(plain, column, strict=True))


def equal(left: Any, right: Any) -> bool:
    nan = isinstance(right, float) and math.isnan(right)
    return math.isnan(left) if nan else bool(left == right)


@settings(deadline=None, max_examples=examples(150))
@given(data=st.data(), kind=kinds, raw=st.lists(st.binary(max_size=20), min_size=1, max_size=6))
def test_any_bytes_are_a_value_or_unknown(data: Any, kind: Kind, raw: list[bytes]) -> None:
    decoded = decode_bounds(pa.array(raw, pa.binary()), kind.type_)
    decoded.validate()
    for value, got in zip(raw, comparable(decoded, kind.type_).to_pylist(), strict=True):
        if got is not None and not isinstance(kind.type_, BooleanType | LongType | DoubleType):
            assert equal(from_bytes(kind.type_, value), got)


@pytest.mark.parametrize(
    ("type_", "raw", "value"),
    [
        (LongType(), struct.pack("<i", -5), -5),
        (DoubleType(), struct.pack("<f", 0.5), 0.5),
        (DecimalType(20, 2), b"\x80", Decimal("-1.28")),
        (DecimalType(20, 2), b"\xff" * 15 + b"\x80", Decimal("-1.28")),
        (DecimalType(38, 0), (10**38 - 1).to_bytes(16, "big"), Decimal(10**38 - 1)),
    ],
)
def test_bounds_from_before_a_promotion_are_read(type_: Any, raw: bytes, value: Any) -> None:
    assert decode_bounds(pa.array([raw, None]), type_).to_pylist() == [value, None]


@pytest.mark.parametrize(
    ("type_", "raw"),
    [
        (IntegerType(), b"\x00" * 8),
        (LongType(), b"\x00" * 5),
        (DateType(), b""),
        (TimestampType(), b"\x00" * 4),
        (DecimalType(9, 2), b""),
        (DecimalType(9, 2), b"\x00" * 17),
        (StringType(), b"a\xff"),
        (UUIDType(), b"a" * 15),
        (FixedType(2), b"abc"),
        (BooleanType(), b"\x00\x01"),
    ],
)
def test_bytes_that_are_not_a_value_are_unknown_and_do_not_affect_others(
    type_: Any, raw: bytes
) -> None:
    good = {kind.type_: kind.pool[0] for kind in KINDS}[type_]
    decoded = decode_bounds(pa.array([raw, encode_bound(good, type_), None]), type_)
    assert comparable(decoded, type_).to_pylist() == [None, good, None]


@pytest.mark.parametrize("type_", [StructType(), UnknownType()])
def test_types_without_an_order_have_no_bounds(type_: Any) -> None:
    assert decode_bounds(pa.array([b"a"]), type_).to_pylist() == [None]


def test_columns_of_maps_may_be_absent_null_empty_sliced_and_chunked() -> None:
    pairs = pa.list_(pa.struct([("key", pa.int32()), ("value", pa.int64())]))
    maps = pa.array(
        [
            [{"key": 1, "value": 10}],
            [],
            None,
            [{"key": 2, "value": 5}, {"key": 1, "value": 11}],
            [{"key": 1, "value": None}],
            [{"key": 3, "value": 3}],
        ],
        pairs,
    )
    chunked = pa.chunked_array([maps.slice(0, 2), maps.slice(2, 0), maps.slice(2)])
    entries = pa.table({"value_counts": chunked, "lower_bounds": pa.nulls(6)})
    assert count_array(entries, "value_counts", 1).to_pylist() == [10, None, None, 11, None, None]
    assert count_array(entries.slice(3, 2), "value_counts", 1).to_pylist() == [11, None]
    assert count_array(entries.slice(0, 0), "value_counts", 1).to_pylist() == []
    assert count_array(entries, "nan_value_counts", 1).to_pylist() == [None] * 6
    assert bound_array(entries, "lower_bounds", 1, BinaryType()).to_pylist() == [None] * 6


def test_a_null_map_with_bytes_behind_it_has_no_values() -> None:
    full = pa.array(
        [[{"key": 1, "value": 7}]] * 2,
        type=pa.list_(pa.struct([("key", pa.int32()), ("value", pa.int64())])),
    )
    hidden = pa.ListArray.from_arrays(full.offsets, full.values, mask=pa.array([True, False]))
    entries = pa.table({"value_counts": hidden})
    assert count_array(entries, "value_counts", 1).to_pylist() == [None, 7]


@pytest.mark.parametrize(("number", "raw"), [(-128, "80"), (-32768, "8000"), (128, "0080")])
def test_decimals_take_as_few_bytes_as_they_can(number: int, raw: str) -> None:
    value = pa.scalar(Decimal(number), pa.decimal128(38, 0))
    encoded = single_value(value, DecimalType(38, 0))
    assert encoded is not None
    assert encoded.hex() == raw
