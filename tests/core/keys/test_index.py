"""The key index against a Python dictionary."""

import datetime as dt
import math
import struct
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.errors import InvalidRequestError, RefusedError
from lake.core.keys import encoding
from lake.core.keys.encoding import hash_keys, partition_of
from lake.core.keys.index import NOT_FOUND, KeyIndex

FLOATS = st.sampled_from(
    [0.0, -0.0, 1.5, -1.5, math.nan, -math.nan, math.inf, -math.inf, 5e-324, 1.0]
)
TEXTS = st.one_of(
    st.text("abé", max_size=3),
    st.sampled_from(["", "x" * 7, "x" * 8, "x" * 9, "x" * 16, "x" * 300, "x" * 299 + "y", "\0"]),
)
UTC = dt.UTC
KINDS = [
    (pa.int32(), st.integers(-3, 3) | st.sampled_from([2**31 - 1, -(2**31)])),
    (pa.int64(), st.integers(-3, 3) | st.sampled_from([2**63 - 1, -(2**63), 2**32, 2**33])),
    (pa.bool_(), st.booleans()),
    (pa.float32(), FLOATS.map(lambda value: value if value != 5e-324 else 2.0)),
    (pa.float64(), FLOATS),
    (pa.date32(), st.dates(dt.date(1969, 12, 30), dt.date(1970, 1, 2))),
    (pa.time64("us"), st.sampled_from([dt.time(0), dt.time(1, 2, 3, 4)])),
    (pa.timestamp("us"), st.sampled_from([dt.datetime(1969, 1, 1), dt.datetime(2020, 1, 1)])),
    (
        pa.timestamp("us", "UTC"),
        st.sampled_from([dt.datetime(1969, 1, 1, tzinfo=UTC), dt.datetime(2020, 1, 1, tzinfo=UTC)]),
    ),
    (pa.timestamp("ns"), st.sampled_from([dt.datetime(1969, 1, 1), dt.datetime(2020, 1, 1)])),
    (pa.decimal128(9, 2), st.sampled_from([Decimal("-1.00"), Decimal("0.00"), Decimal("1.23")])),
    (
        pa.decimal128(38, 2),
        st.sampled_from([Decimal("-1.00"), Decimal(10**35), Decimal(10**35 + 1), Decimal("-0.01")]),
    ),
    (pa.string(), TEXTS),
    (pa.binary(), TEXTS.map(lambda text: text.encode())),
    (pa.binary(16), st.sampled_from([bytes(16), bytes(15) + b"\1", b"\1" + bytes(15)])),
    (pa.binary(3), st.sampled_from([b"abc", b"abd", b"\0\0\0"])),
    (pa.binary(40), st.sampled_from([bytes(40), bytes(39) + b"\1"])),
    (pa.null(), st.none()),
]


def as_key(row):
    """Return a row as a dictionary's key by Iceberg Java's equality."""
    return tuple(
        (
            ("nan",)
            if isinstance(value, float) and math.isnan(value)
            else struct.pack("<d", value)
            if isinstance(value, float)
            else value
        )
        for value in row
    )


@st.composite
def key_rows(draw):
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    row = st.tuples(*(values | st.none() for _, values in kinds))
    keys = draw(st.lists(row, max_size=30))
    probes = draw(st.lists(st.sampled_from(keys) | row if keys else row, max_size=30))
    return [kind for kind, _ in kinds], keys, probes


def batch_of(types, rows, *, sliced=False):
    """Return rows as a batch; a sliced one's columns do not begin where their memory does."""
    before = [rows[0]] * 3 if sliced and rows else []
    arrays = [
        pa.array([row[column] for row in [*before, *rows]], kind)
        for column, kind in enumerate(types)
    ]
    schema = pa.schema([(f"c{column}", kind) for column, kind in enumerate(types)])
    return pa.RecordBatch.from_arrays(arrays, schema=schema).slice(len(before))


@given(case=key_rows(), pieces=st.integers(1, 3), sliced=st.booleans(), data=st.data())
@settings(deadline=None, max_examples=examples(300))
def test_the_index_finds_what_a_dictionary_finds(case, pieces, sliced, data):
    types, keys, probes = case
    ranks = data.draw(
        st.none() | st.lists(st.integers(0, 3), min_size=len(keys), max_size=len(keys))
    )
    check(types, keys, probes, ranks, pieces=pieces, sliced=sliced)


@given(case=key_rows(), kept=st.sampled_from([0, 1, 1 << 63, 3 << 62]))
@settings(deadline=None, max_examples=examples(100))
def test_keys_whose_hashes_are_equal_are_distinguished(case, kept):
    types, keys, probes = case
    real = encoding.EncodedKeys.hashes
    encoding.EncodedKeys.hashes = lambda self: real(self) & np.uint64(kept)
    try:
        check(types, keys, probes, None)
    finally:
        encoding.EncodedKeys.hashes = real


def check(types, keys, probes, ranks, *, pieces=1, sliced=False):
    expected, strongest = {}, {}
    for number, row in enumerate(keys):
        rank = number if ranks is None else ranks[number]
        if rank >= strongest.get(as_key(row), rank):
            strongest[as_key(row)], expected[as_key(row)] = rank, number
    step = max(1, -(-len(keys) // pieces))
    parts = [keys[start : start + step] for start in range(0, len(keys), step)] or [[]]
    table = pa.Table.from_batches([batch_of(types, part, sliced=sliced) for part in parts])
    index = KeyIndex.build(table, rank=None if ranks is None else np.array(ranks, np.int64))
    found = index.find(batch_of(types, probes, sliced=sliced))
    assert found.tolist() == [expected.get(as_key(row), NOT_FOUND) for row in probes]
    assert sorted(index.rows().tolist()) == sorted(expected.values())
    assert len(index) == len(expected)
    in_order = KeyIndex.build(table.take(pa.array(index.rows())))
    again = in_order.find(batch_of(types, probes, sliced=sliced))
    places = {number: place for place, number in enumerate(index.rows().tolist())}
    assert again.tolist() == [places.get(number, NOT_FOUND) for number in found.tolist()]


@given(case=key_rows(), count=st.integers(1, 100))
@settings(deadline=None, max_examples=examples(100))
def test_equal_keys_are_in_one_partition(case, count):
    types, keys, _ = case
    whole = partition_of(hash_keys(batch_of(types, keys)), count)
    alone = [partition_of(hash_keys(batch_of(types, [row])), count)[0] for row in keys]
    assert whole.tolist() == alone
    assert all(0 <= number < count for number in alone)
    numbers = {}
    for row, number in zip(keys, alone, strict=True):
        assert numbers.setdefault(as_key(row), number) == number


def test_partitions_are_about_equal():
    keys = pa.record_batch({"k": pa.array(range(100_000), pa.int64())})
    counts = np.bincount(partition_of(hash_keys(keys), 64), minlength=64)
    assert counts.min() > 1300
    assert counts.max() < 1800


@pytest.mark.parametrize("column", [np.arange(200_000), np.arange(200_000) << 40])
def test_many_keys_are_found_across_blocks(column):
    index = KeyIndex.build(pa.table({"k": column[::2]}))
    found = index.find(pa.record_batch({"k": column}))
    assert (found[::2] == np.arange(100_000)).all()
    assert (found[1::2] == NOT_FOUND).all()


def test_keys_that_crowd_one_bucket_are_found():
    hashes = np.arange(1, 5000, dtype=np.uint64) << np.uint64(8)
    keys = unmixed(hashes)
    index = KeyIndex.build(pa.table({"k": keys.view(np.int64)}))
    near = unmixed(hashes + np.uint64(1))
    assert (index.find(pa.record_batch({"k": keys.view(np.int64)})) == np.arange(4999)).all()
    assert (index.find(pa.record_batch({"k": near.view(np.int64)})) == NOT_FOUND).all()


@pytest.mark.parametrize("present", [True, False])
def test_the_largest_hash_is_a_key_like_any_other(present):
    largest = int(unmixed(np.array([2**64 - 1], np.uint64)).view(np.int64)[0])
    keys = [1, 2, largest] if present else [1, 2]
    index = KeyIndex.build(pa.table({"k": pa.array(keys, pa.int64())}))
    probe = pa.record_batch({"k": pa.array([largest, 2], pa.int64())})
    assert index.find(probe).tolist() == ([2, 1] if present else [NOT_FOUND, 1])


def unmixed(hashes):
    """Invert `mixed`."""
    values = hashes.copy()
    for factor in (0xC4CEB9FE1A85EC53, 0xFF51AFD7ED558CCD):
        values ^= values >> np.uint64(33)
        values *= np.uint64(pow(factor, -1, 2**64))
    return values ^ (values >> np.uint64(33))


def test_dictionaries_and_uuids_are_keys_by_their_values():
    encoded = pa.array(["b", "a", None, "b"]).dictionary_encode()
    index = KeyIndex.build(pa.record_batch({"k": encoded}))
    assert index.find(pa.record_batch({"k": encoded})).tolist() == [3, 1, 2, 3]
    uuids = pa.array([b"\1" * 16, b"\2" * 16], pa.uuid())
    index = KeyIndex.build(pa.record_batch({"k": uuids}))
    assert index.find(pa.record_batch({"k": uuids})).tolist() == [0, 1]


def test_a_key_of_more_than_64_columns_distinguishes_all_nulls():
    types = [pa.int32()] * 70
    rows = [tuple([None] * place + [1] + [None] * (69 - place)) for place in range(70)]
    index = KeyIndex.build(batch_of(types, rows))
    assert index.find(batch_of(types, rows)).tolist() == list(range(70))
    assert index.find(batch_of(types, [tuple([None] * 70)])).tolist() == [NOT_FOUND]


def test_nested_columns_are_refused():
    with pytest.raises(RefusedError, match=r"column k is list<.*>: only plain columns can be keys"):
        KeyIndex.build(pa.record_batch({"k": [[1]]}))


def test_other_types_than_the_keys_are_refused():
    index = KeyIndex.build(pa.record_batch({"k": [1]}))
    with pytest.raises(InvalidRequestError, match="do not have the types"):
        index.find(pa.record_batch({"k": pa.array([1], pa.int32())}))


def test_a_key_without_columns_is_refused():
    with pytest.raises(InvalidRequestError, match="a key needs a column"):
        KeyIndex.build(pa.table({}))
