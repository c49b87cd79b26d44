"""Numbers of keys against Python's dictionaries."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.data.keys import numbering
from lake.core.data.keys.encoding import EncodedKeys
from lake.core.data.keys.numbering import KeyDictionary

LONGS = st.one_of(st.none(), st.integers(-3, 3), st.integers(-(2**63), 2**63 - 1))
TEXTS = st.one_of(st.none(), st.sampled_from(["", "a", "b", "aa"]), st.text(max_size=12))
ONE = st.tuples(LONGS)
TWO = st.tuples(TEXTS, LONGS)
KINDS = [pa.string(), pa.int64()]


def batch(rows: list[tuple[Any, ...]], kinds: list[pa.DataType]) -> pa.RecordBatch:
    columns = [pa.array([row[place] for row in rows], kind) for place, kind in enumerate(kinds)]
    return pa.RecordBatch.from_arrays(columns, [str(place) for place in range(len(kinds))])


def check(batches: list[list[tuple[Any, ...]]], kinds: list[pa.DataType]) -> None:
    numbers = KeyDictionary()
    seen: dict[tuple[Any, ...], int] = {}
    for rows in batches:
        found = numbers.of(batch(rows, kinds)).tolist()
        for row, number in zip(rows, found, strict=True):
            assert seen.setdefault(row, number) == number
    assert sorted(seen.values()) == list(range(len(seen)))
    assert len(numbers) == len(seen)


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.lists(ONE, max_size=30), max_size=5))
def test_equal_keys_have_one_number(batches: list[list[tuple[Any, ...]]]) -> None:
    check(batches, [pa.int64()])


@settings(deadline=None, max_examples=examples(100))
@given(st.lists(st.lists(TWO, max_size=30), max_size=5))
def test_equal_keys_of_two_columns_have_one_number(batches: list[list[tuple[Any, ...]]]) -> None:
    check(batches, KINDS)


@settings(deadline=None, max_examples=examples(50))
@given(st.lists(st.lists(TWO, max_size=30), max_size=5))
def test_keys_whose_hashes_are_all_the_same_are_distinguished(
    batches: list[list[tuple[Any, ...]]],
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EncodedKeys, "hashes", lambda self: np.full(len(self), 7, np.uint64))
        patch.setattr(numbering, "_SMALLEST_TABLE", 2)
        check(batches, KINDS)


@pytest.mark.parametrize("kinds", [[pa.int64()], KINDS], ids=["one column", "two columns"])
def test_many_keys_keep_their_numbers_as_the_table_grows(kinds: list[pa.DataType]) -> None:
    chosen = np.random.default_rng(1)
    numbers = KeyDictionary()
    first: dict[int, int] = {}
    for _ in range(6):
        values = chosen.integers(0, 60_000, 20_000)
        texts = pa.array([f"key {value // 2}" for value in values])
        columns = [texts, pa.array(values)][2 - len(kinds) :]
        names = [str(place) for place in range(len(kinds))]
        found = numbers.of(pa.RecordBatch.from_arrays(columns, names))
        for value, number in zip(values.tolist(), found.tolist(), strict=True):
            assert first.setdefault(value, number) == number
    assert sorted(first.values()) == list(range(len(numbers)))


def test_a_null_is_a_key_of_its_own_and_nan_one_key() -> None:
    numbers = KeyDictionary()
    one = batch([(0.0,), (None,), (float("nan"),), (-0.0,)], [pa.float64()])
    two = batch([(float("nan"),), (None,), (-0.0,)], [pa.float64()])

    assert sorted(numbers.of(one).tolist()) == [0, 1, 2, 3]
    assert len(numbers) == 4
    before = numbers.of(one).tolist()
    assert numbers.of(two).tolist() == [before[2], before[1], before[3]]
