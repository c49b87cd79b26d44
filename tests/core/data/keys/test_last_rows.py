"""The last row of each key against a Python dictionary."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tables.random_keys import as_key, batch_of, key_rows
from support.tiers import examples

from lake.core.base.errors import InvalidRequestError, RefusedError
from lake.core.data.keys.last_rows import last_rows


@given(case=key_rows(), pieces=st.integers(1, 3), sliced=st.booleans())
@settings(deadline=None, max_examples=examples(300))
def test_the_last_row_of_each_key_is_the_one_that_a_dictionary_keeps(
    case: Any, pieces: int, *, sliced: bool
) -> None:
    types, keys, _ = case
    keys = [key for key in keys if not any(map(_is_nan, key))]
    size = max(1, -(-len(keys) // pieces))
    parts = [keys[start : start + size] for start in range(0, len(keys), size)] or [[]]
    table = pa.Table.from_batches([batch_of(types, part, sliced=sliced) for part in parts])

    expected = sorted({as_key(key): row for row, key in enumerate(keys)}.values())
    assert last_rows(table).tolist() == expected


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def test_extension_types_and_dictionaries_are_keys_too() -> None:
    words = pa.array(["a", "b", "a", None, None]).dictionary_encode()
    uuids = pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * 5, pa.binary(16)))
    table = pa.table({"w": words, "u": uuids})

    assert last_rows(table).tolist() == [1, 2, 4]


@pytest.mark.parametrize("kind", [pa.int8(), pa.int32(), pa.int64()])
@pytest.mark.parametrize("end", ["least", "greatest"])
@given(data=st.data())
@settings(deadline=None, max_examples=examples(30))
def test_integers_near_one_another_are_keys_up_to_the_ends_of_their_type(
    data: Any, kind: pa.DataType, end: str
) -> None:
    bits = kind.bit_width - 1
    first = -(2**bits) if end == "least" else 2**bits - 20
    offsets = data.draw(st.lists(st.integers(0, 19), min_size=1, max_size=60))
    numbers = pa.array([first + offset for offset in offsets], kind)
    column = pa.chunked_array([numbers[:7], numbers[7:]])

    last = {offset: row for row, offset in enumerate(offsets)}
    assert last_rows(pa.table({"a": column})).tolist() == sorted(last.values())
    texts = pa.chunked_array([pa.array([str(offset % 3) for offset in offsets])])
    assert last_rows(pa.table({"a": column, "b": texts})).tolist() == sorted(last.values())


def test_many_keys_in_two_columns_are_distinguished() -> None:
    numbers = np.arange(200_000)
    table = pa.table(
        {"a": numbers // 500, "b": [f"k{number % 500}" for number in numbers.tolist()]}
    )

    assert last_rows(pa.concat_tables([table, table])).tolist() == (numbers + 200_000).tolist()


def test_a_key_without_a_column_and_a_nested_key_are_refused() -> None:
    with pytest.raises(InvalidRequestError):
        last_rows(pa.table({}))
    with pytest.raises(RefusedError):
        last_rows(pa.table({"a": [[1]]}))
