"""Keys compare, byte by byte, as the rows do by Iceberg's own rules."""

from __future__ import annotations

import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    IdentityTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
)
from pyiceberg.types import (
    BooleanType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampType,
)
from support.tables.random_rows import EVERY_TYPE
from support.tiers import examples

from lake.core.data.sorting.key_bytes import PREFIX, bound_ranks, byte_order
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.spec.types.arrow_schema import arrow_schema, arrow_type

KINDS = list(EVERY_TYPE)
Row = Sequence[Any]


def compare(left: Any, right: Any, kind: IcebergType) -> int:
    """Compare two values by the specification; floats by value, sign of zero, and sign of NaN."""
    if isinstance(kind, FloatType | DoubleType):
        left, right = float_rank(left), float_rank(right)
    return (left > right) - (left < right)


def float_rank(value: float) -> tuple[int, float, float]:
    sign = math.copysign(1.0, value)
    if math.isnan(value):
        return int(2 * sign), 0.0, 0.0
    return 0, value, sign


def comparison(order: RowOrder, kinds: Sequence[IcebergType]) -> Callable[[Row, Row], int]:
    """Return what compares rows whose columns have the ids 1, 2, ..."""

    def rows(left: Row, right: Row) -> int:
        for item in order.fields:
            mine, other = left[item.source_id - 1], right[item.source_id - 1]
            if (mine is None) != (other is None):
                first = item.null_order == NullOrder.NULLS_FIRST
                return -1 if (mine is None) == first else 1
            if mine is None:
                continue
            found = compare(mine, other, kinds[item.source_id - 1])
            if found:
                return -found if item.direction == SortDirection.DESC else found
        return 0

    return rows


def sort_field(column: int, direction: Any, nulls: Any, transform: Any = None) -> SortField:
    return SortField(column, transform or IdentityTransform(), direction, nulls)


@st.composite
def ordered_rows(draw: st.DrawFn) -> tuple[Schema, RowOrder, list[Row]]:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    schema = Schema(
        *(NestedField(n, f"c{n}", kind, required=False) for n, kind in enumerate(kinds, 1))
    )
    fields = [
        sort_field(n, draw(st.sampled_from(SortDirection)), draw(st.sampled_from(NullOrder)))
        for n in draw(st.permutations(range(1, len(kinds) + 1)))
    ]
    # Few different values, so that later columns decide the order too.
    values = [
        draw(st.lists(st.one_of(st.none(), EVERY_TYPE[kind]), min_size=1, max_size=4))
        for kind in kinds
    ]
    rows = draw(st.lists(st.tuples(*map(st.sampled_from, values)), min_size=1, max_size=30))
    return schema, RowOrder(fields=tuple(fields)), rows


def batch_of(schema: Schema, rows: Sequence[Row]) -> pa.RecordBatch:
    columns = [
        pa.array([row[place] for row in rows], arrow_type(item.field_type))
        for place, item in enumerate(schema.fields)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (FloatType(), ("7fc00001", "7f800001", "7fc00000", "ffc00001", "ff800002")),
        (DoubleType(), ("7ff8000000000001", "7ff0000000000001", "7ff8000000000000",
                        "fff8000000000001", "fff0000000000002")),
    ],
)  # fmt: skip
def test_nans_of_one_sign_are_equal_whatever_their_other_bits_are(
    kind: IcebergType, texts: Sequence[str]
) -> None:
    schema = Schema(NestedField(1, "x", kind, required=False))
    raw = b"".join(bytes.fromhex(text)[::-1] for text in texts)
    numbers = pa.Array.from_buffers(arrow_type(kind), len(texts), [None, pa.py_buffer(raw)])
    batch = pa.RecordBatch.from_arrays([numbers], schema=arrow_schema(schema))

    for order in (
        RowOrder(curve=(1,)),
        RowOrder(fields=(sort_field(1, SortDirection.ASC, NullOrder.NULLS_FIRST),)),
    ):
        first, second, third, *negative = order.keys(batch, schema).to_pylist()
        assert first == second == third > max(negative)
        assert len(set(negative)) == 1


@settings(deadline=None, max_examples=examples(100))
@given(ordered_rows(), st.integers(0, 3))
def test_keys_order_rows_of_every_type_as_the_specification_does(
    drawn: tuple[Schema, RowOrder, list[Row]], skipped: int
) -> None:
    schema, order, rows = drawn
    # Slices of a batch have keys of their own rows.
    batch = batch_of(schema, [rows[0]] * skipped + rows).slice(skipped)
    keys = order.keys(batch, schema).to_pylist()
    rule = comparison(order, [item.field_type for item in schema.fields])
    for left, mine in zip(rows, keys, strict=True):
        for right, other in zip(rows, keys, strict=True):
            assert (mine > other) - (mine < other) == rule(left, right)


@pytest.mark.parametrize("kind", [FloatType(), DoubleType()], ids=str)
@pytest.mark.parametrize("direction", list(SortDirection), ids=lambda item: item.name)
def test_nan_of_either_sign_sorts_beyond_the_infinities(
    kind: IcebergType, direction: SortDirection
) -> None:
    form, mask = ("<f", "<I") if isinstance(kind, FloatType) else ("<d", "<Q")
    sign = 1 << (8 * struct.calcsize(mask) - 1)
    positive = struct.unpack(mask, struct.pack(form, math.nan))[0] & ~sign
    nans = [struct.unpack(form, struct.pack(mask, bits))[0] for bits in (positive | sign, positive)]
    ascending = [nans[0], -math.inf, -1.5, -0.0, 0.0, 1.5, math.inf, nans[1]]
    schema = Schema(NestedField(1, "x", kind, required=False))
    order = RowOrder(fields=(sort_field(1, direction, NullOrder.NULLS_FIRST),))
    arrow = pa.float32() if isinstance(kind, FloatType) else pa.float64()
    keys = order.keys(pa.record_batch([pa.array(ascending, arrow)], names=["x"]), schema)
    expected = sorted(keys.to_pylist(), reverse=direction == SortDirection.DESC)
    assert keys.to_pylist() == expected
    assert len(set(expected)) == len(ascending)


TRANSFORMED = [
    (LongType(), BucketTransform(7), st.integers(-(2**63), 2**63 - 1)),
    (StringType(), TruncateTransform(2), st.text("aé\U0001f600", max_size=4)),
    (IntegerType(), TruncateTransform(10), st.integers(-(2**31) + 10, 2**31 - 1)),
    (TimestampType(), DayTransform(), st.integers(-(10**15), 10**15)),
    (TimestampType(), YearTransform(), st.integers(-(10**15), 10**15)),
    (LongType(), VoidTransform(), st.integers(0, 3)),
]


@settings(deadline=None, max_examples=examples(60))
@given(st.sampled_from(TRANSFORMED), st.data())
def test_transforms_order_as_their_values_do(case: Any, data: st.DataObject) -> None:
    kind, transform, values = case
    rows = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=12))
    schema = Schema(NestedField(1, "x", kind, required=False))
    field = sort_field(1, SortDirection.ASC, NullOrder.NULLS_FIRST, transform)
    keys = RowOrder(fields=(field,)).keys(batch_of(schema, [[row] for row in rows]), schema)
    found = [transform.transform(kind)(row) for row in rows]
    ranks = [(value is not None, value if value is not None else 0) for value in found]
    if isinstance(kind, StringType):
        ranks = [(value is not None, value or "") for value in found]
    by_key = sorted(range(len(rows)), key=lambda n: keys[n].as_py())
    assert [ranks[n] for n in by_key] == sorted(ranks)


def test_a_column_inside_a_struct_orders_rows_and_its_parents_null_is_null() -> None:
    inner = StructType(NestedField(2, "x", LongType(), required=False))
    schema = Schema(NestedField(1, "s", inner, required=False))
    order = RowOrder(fields=(sort_field(2, SortDirection.ASC, NullOrder.NULLS_LAST),))
    batch = pa.RecordBatch.from_arrays(
        [pa.array([{"x": 2}, None, {"x": None}, {"x": -1}], arrow_schema(schema).field(0).type)],
        schema=arrow_schema(schema),
    )
    keys = order.keys(batch, schema).to_pylist()
    assert keys[3] < keys[0] < keys[1] == keys[2]


# A Z-order


def interleaved(columns: Sequence[bytes], most: int) -> bytes:
    """Take a bit of each column in turn, as Iceberg's ZOrderByteUtils.interleaveBits describes it."""
    texts = ["".join(f"{byte:08b}" for byte in column) for column in columns]
    bits = "".join(
        text[place] for place in range(max(map(len, texts))) for text in texts if place < len(text)
    )
    bits = bits[: 8 * most]
    return bytes(int(bits[place : place + 8], 2) for place in range(0, len(bits), 8))


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(-(2**31), 2**31 - 1)),
            st.one_of(st.none(), st.text("ab\x00é", max_size=9)),
            st.one_of(st.none(), st.floats(width=32, allow_nan=False)),
        ),
        min_size=1,
        max_size=8,
    ),
    st.integers(1, 12),
    st.integers(1, 30),
)
def test_a_z_order_takes_the_bits_of_its_columns_in_turn(
    rows: list[Row], text_bytes: int, most: int
) -> None:
    kinds = (IntegerType(), StringType(), FloatType())
    schema = Schema(
        *(NestedField(n, f"c{n}", kind, required=False) for n, kind in enumerate(kinds, 1))
    )
    order = RowOrder(curve=(1, 2, 3), text_bytes=text_bytes, most_bytes=most)
    found = order.keys(batch_of(schema, rows), schema).to_pylist()
    for (number, text, real), key in zip(rows, found, strict=True):
        whole = b"\x00" * 8 if number is None else (number + 2**63).to_bytes(8, "big")
        words = (text or "").encode()[:text_bytes].ljust(text_bytes, b"\x00")
        assert key == interleaved([whole, words, ordered_double(real)], most)


def ordered_double(value: float | None) -> bytes:
    if value is None:
        return b"\x00" * 8
    bits = int(struct.unpack(">Q", struct.pack(">d", value))[0])
    return ((bits ^ (2**64 - 1)) if bits >> 63 else bits | 2**63).to_bytes(8, "big")


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_every_type_has_a_place_in_a_z_order(kind: IcebergType) -> None:
    @settings(deadline=None, max_examples=examples(15))
    @given(st.lists(EVERY_TYPE[kind], min_size=2, max_size=6))
    def check(values: list[Any]) -> None:
        schema = Schema(NestedField(1, "x", kind, required=False))
        keys = RowOrder(curve=(1,)).keys(batch_of(schema, [[value] for value in values]), schema)
        rule = functools.partial(compare, kind=kind)
        for left, mine in zip(values, keys.to_pylist(), strict=True):
            assert len(mine) == 8
            for right, other in zip(values, keys.to_pylist(), strict=True):
                # Eight bytes may leave a tie, but never contradict the whole key.
                assert (mine > other) - (mine < other) in {0, rule(left, right)}
        distinct = {BooleanType(): 2, IntegerType(): len(set(values)), LongType(): len(set(values))}
        if kind in distinct:
            assert len(set(keys.to_pylist())) == min(distinct[kind], len(set(values)))

    check()


# Bytes


def binary_keys(texts: list[bytes]) -> pa.BinaryArray:
    """Return texts as keys of which none begins another."""
    return pa.array(
        [text.replace(b"\x00", b"\x00\xff") + b"\x00\x00" for text in texts], pa.binary()
    )


TEXTS = st.lists(
    st.one_of(
        st.binary(max_size=4),
        st.tuples(st.sampled_from([60, 61, 62, 63, 64, 70]), st.binary(max_size=4)).map(
            lambda pair: b"x" * pair[0] + pair[1]
        ),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=examples(60))
@given(TEXTS, st.integers(0, 2))
def test_byte_order_is_the_order_of_whole_keys(texts: list[bytes], skipped: int) -> None:
    keys = binary_keys(texts).slice(skipped)
    order = byte_order(keys)
    found = keys.to_pylist() if order is None else [keys[int(n)].as_py() for n in order]
    assert found == sorted(keys.to_pylist())
    assert order is None or sorted(order.tolist()) == list(range(len(keys)))


@settings(deadline=None, max_examples=examples(40))
@given(TEXTS, TEXTS)
def test_ranks_among_bounds_are_by_their_first_bytes(texts: list[bytes], more: list[bytes]) -> None:
    keys, bounds = binary_keys(texts), sorted(binary_keys(more).to_pylist())
    first, last = bound_ranks(keys, bounds)
    cut = [bound[:PREFIX] for bound in bounds]
    for key, less, up_to in zip(keys.to_pylist(), first, last, strict=True):
        assert less == sum(bound < key[:PREFIX] for bound in cut)
        assert up_to == sum(bound <= key[:PREFIX] for bound in cut)
