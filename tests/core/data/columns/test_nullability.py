"""Required parts of NULL structs are filled unseen; what can be seen stays as it is."""

from __future__ import annotations

import datetime as dt
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.data.columns.nullability import fill_masked

LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    (pa.int32(), st.integers(-9, 9)),
    (pa.int64(), st.integers(-9, 9)),
    (pa.float32(), st.just(1.5)),
    (pa.float64(), st.just(1.5)),
    (pa.decimal128(9, 2), st.decimals(0, 9, places=2)),
    (pa.date32(), st.dates()),
    (pa.time64("us"), st.times()),
    (pa.timestamp("us"), st.datetimes()),
    (pa.timestamp("us", "UTC"), st.datetimes(timezones=st.just(dt.UTC))),
    (pa.string(), st.text(max_size=3)),
    (pa.binary(), st.binary(max_size=3)),
    (pa.binary(4), st.binary(min_size=4, max_size=4)),
]
Kind = tuple[pa.DataType, st.SearchStrategy[Any]]


def maybe(values: st.SearchStrategy[Any], nullable: bool) -> st.SearchStrategy[Any]:
    return st.one_of(st.none(), values) if nullable else values


def struct_of(inner: Kind, required: bool) -> Kind:
    kind, values = inner
    fields = [pa.field("x", kind, nullable=not required), pa.field("y", pa.int64())]
    rows = st.fixed_dictionaries(
        {"x": maybe(values, not required), "y": st.one_of(st.none(), st.integers(0, 9))}
    )
    return pa.struct(fields), rows


def list_of(inner: Kind, required: bool) -> Kind:
    kind, values = inner
    element = pa.field("element", kind, nullable=not required)
    return pa.list_(element), st.lists(maybe(values, not required), max_size=2)


def map_of(inner: Kind, required: bool) -> Kind:
    kind, values = inner
    entries = st.dictionaries(st.text(max_size=1), maybe(values, not required), max_size=2)
    value = pa.field("value", kind, nullable=not required)
    return pa.map_(pa.string(), value), entries.map(lambda one: list(one.items()))


@st.composite
def kinds(draw: st.DrawFn) -> Kind:
    kind = draw(st.sampled_from(LEAVES))
    for _ in range(draw(st.integers(1, 3))):
        wrap = draw(st.sampled_from([struct_of, list_of, map_of]))
        kind = wrap(kind, draw(st.booleans()))
    return kind


@settings(max_examples=examples(100), deadline=None)
@given(data=st.data(), kind=kinds(), cut=st.booleans())
def test_rows_stay_equal_and_parquet_takes_them(data: st.DataObject, kind: Kind, cut: bool) -> None:
    type_, values = kind
    rows = data.draw(st.lists(st.one_of(st.none(), values), min_size=1, max_size=6))
    table = pa.table({"c": pa.array(rows, type_)})
    if cut:
        table, rows = table.slice(1), rows[1:]

    filled = fill_masked(table)

    assert filled.to_pylist() == table.to_pylist()
    filled.validate(full=True)
    sink = io.BytesIO()
    pq.write_table(filled, sink)
    assert pq.read_table(sink).to_pylist() == table.to_pylist()


def test_a_null_that_can_be_seen_is_not_filled() -> None:
    kind = pa.struct([pa.field("x", pa.int64(), nullable=False)])
    column = pa.StructArray.from_arrays(
        [pa.array([None, None], pa.int64())], fields=list(kind), mask=pa.array([True, False])
    )

    filled = fill_masked(pa.table({"c": column}))

    assert filled["c"].to_pylist() == [None, {"x": None}]
    with pytest.raises(pa.ArrowInvalid):
        pq.write_table(filled, io.BytesIO())
