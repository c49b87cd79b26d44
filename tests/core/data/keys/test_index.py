"""The key index against a Python dictionary."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables.random_keys import as_key, batch_of, key_rows
from support.tiers import examples

from lake.core.base.errors import InvalidRequestError, RefusedError
from lake.core.data.keys import encoding
from lake.core.data.keys.encoding import hash_keys, partition_of
from lake.core.data.keys.index import NOT_FOUND, KeyIndex


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
    with pytest.raises(
        RefusedError, match=r"column k is of type list<.*>: only plain columns can be keys"
    ):
        KeyIndex.build(pa.record_batch({"k": [[1]]}))


def test_other_types_than_the_keys_are_refused():
    index = KeyIndex.build(pa.record_batch({"k": [1]}))
    with pytest.raises(InvalidRequestError, match="do not have the types"):
        index.find(pa.record_batch({"k": pa.array([1], pa.int32())}))


def test_a_key_without_columns_is_refused():
    with pytest.raises(InvalidRequestError, match="a key needs a column"):
        KeyIndex.build(pa.table({}))
