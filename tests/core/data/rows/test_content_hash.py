"""The content hash distinguishes rows that differ in any bit."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.data.rows.content_hash import hash_all

ROW = pa.schema(
    [
        ("id", pa.int64()),
        ("small", pa.int32()),
        ("flag", pa.bool_()),
        ("d", pa.float64()),
        ("price", pa.decimal128(20, 2)),
        ("text", pa.string()),
        ("raw", pa.binary()),
        ("code", pa.binary(16)),
        ("odd", pa.binary(3)),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("tags", pa.list_(pa.string())),
        ("point", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ("attrs", pa.map_(pa.string(), pa.int64())),
        ("nothing", pa.null()),
    ]
)
MIDDLE_AGES = datetime.datetime(1066, 1, 1)
texts = st.text(max_size=20)
rows = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.none() | st.integers(-(2**63), 2**63 - 1),
            "small": st.none() | st.integers(-5, 5),
            "flag": st.none() | st.booleans(),
            "d": st.none() | st.floats(allow_nan=False),
            "price": st.none() | st.decimals(-999, 999, places=2),
            "text": st.none() | texts,
            "raw": st.none() | st.binary(max_size=20),
            "code": st.none() | st.binary(min_size=16, max_size=16),
            "odd": st.none() | st.binary(min_size=3, max_size=3),
            "day": st.none() | st.dates(),
            "ts": st.none() | st.datetimes(MIDDLE_AGES, timezones=st.just(datetime.UTC)),
            "tags": st.none() | st.lists(st.none() | texts, max_size=3),
            "point": st.none()
            | st.fixed_dictionaries({"x": st.none() | st.integers(-3, 3), "y": st.none() | texts}),
            "attrs": st.none()
            | st.lists(st.tuples(texts, st.none() | st.integers(0, 9)), max_size=3),
            "nothing": st.none(),
        }
    ),
    max_size=12,
)


def batch(values: list[dict[str, object]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(values, schema=ROW)


@settings(deadline=None, max_examples=examples(60))
@given(values=rows, seed=st.randoms(use_true_random=False), cut=st.integers(0, 12))
def test_neither_order_nor_batches_change_the_hash(
    values: list[dict[str, object]], seed: random.Random, cut: int
) -> None:
    whole = batch(values)
    order = list(range(len(values)))
    seed.shuffle(order)
    shuffled = whole.take(pa.array(order, pa.int64()))

    assert hash_all([whole]) == hash_all([shuffled.slice(cut), shuffled.slice(0, cut)])


@settings(deadline=None, max_examples=examples(100))
@given(values=rows, others=rows, column=st.sampled_from(ROW.names))
def test_another_value_anywhere_changes_the_hash(
    values: list[dict[str, object]], others: list[dict[str, object]], column: str
) -> None:
    before = batch(values)
    changed = batch(
        [{**row, column: other[column]} for row, other in zip(values, others, strict=False)]
        + values[len(others) :]
    )

    assert (hash_all([before]) == hash_all([changed])) == _same_rows(before, changed)


def _same_rows(one: pa.RecordBatch, other: pa.RecordBatch) -> bool:
    def keys(table: pa.RecordBatch) -> list[str]:
        # repr distinguishes -0.0 from 0.0, which == does not.
        return sorted(repr(row) for row in table.to_pylist())

    return keys(one) == keys(other)


def column(values: list[object], kind: pa.DataType) -> str:
    return hash_all([pa.RecordBatch.from_arrays([pa.array(values, kind)], ["c"])])


@pytest.mark.parametrize(
    ("kind", "one", "other"),
    [
        (pa.string(), None, ""),
        (pa.string(), "ab", "ab\0"),
        (pa.string(), "x" * 9, "x" * 10),
        (pa.float64(), 0.0, -0.0),
        (pa.float64(), None, float("nan")),
        (pa.int64(), None, 0),
        (pa.bool_(), None, False),
        (pa.decimal128(5, 2), Decimal("1.00"), Decimal("1.01")),
        (pa.list_(pa.int64()), None, []),
        (pa.list_(pa.int64()), [], [None]),
        (pa.list_(pa.int64()), [1, 2], [2, 1]),
        (pa.struct([("a", pa.int64())]), None, {"a": None}),
        (pa.map_(pa.string(), pa.int64()), None, []),
    ],
)
def test_values_that_are_easily_taken_for_each_other_hash_apart(
    kind: pa.DataType, one: object, other: object
) -> None:
    assert column([one], kind) != column([other], kind)
    assert column([one, other], kind) == column([other, one], kind)


def test_a_value_that_moves_to_another_column_or_row_changes_the_hash() -> None:
    def pairs(*values: tuple[int | None, int | None]) -> str:
        left, right = zip(*values, strict=True)
        arrays = [pa.array(left, pa.int64()), pa.array(right, pa.int64())]
        return hash_all([pa.RecordBatch.from_arrays(arrays, ["a", "b"])])

    assert pairs((1, 2)) != pairs((2, 1))
    assert pairs((1, 2), (3, 4)) != pairs((1, 4), (3, 2))
    assert pairs((0, 0)) != pairs((0, 0), (0, 0))
    assert pairs((1, 1), (2, 2)) != pairs((1, 1), (1, 1))
