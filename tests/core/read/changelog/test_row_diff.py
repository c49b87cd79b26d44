"""What a commit did to rows: judged by counting rows in Python."""

from __future__ import annotations

import itertools
import math
import struct
import tempfile
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import StorageError
from lake.core.data.keys.row_identity import row_codes
from lake.core.read.changelog.row_diff import DELETE, INSERT, UPDATE_AFTER, UPDATE_BEFORE, match
from lake.core.read.changelog.row_spool import RowSpool

KINDS = {
    "int": (pa.int32(), st.integers(0, 2)),
    "float": (pa.float64(), st.sampled_from([0.0, -0.0, math.nan, 1.5])),
    "text": (pa.string(), st.sampled_from(["", "a", "aa", "\x00", "ü"])),
    "decimal": (pa.decimal128(30, 2), st.sampled_from([1, -1, 10**20])),
    "list": (pa.list_(pa.string()), st.lists(st.sampled_from(["", "a", None]), max_size=2)),
    "struct": (
        pa.struct([("a", pa.int64()), ("b", pa.list_(pa.int8()))]),
        st.fixed_dictionaries({"a": st.sampled_from([None, 1]), "b": st.just([1]) | st.none()}),
    ),
    "map": (pa.map_(pa.string(), pa.int64()), st.lists(st.just(("k", 1)) | st.just(("l", None)))),
    "null": (pa.null(), st.none()),
}


def identity(value: Any) -> Any:
    if isinstance(value, float):
        return "nan" if math.isnan(value) else struct.pack("d", value)
    if isinstance(value, dict):
        return tuple(identity(item) for item in value.values())
    return tuple(identity(item) for item in value) if isinstance(value, list | tuple) else value


def identities(batch: pa.RecordBatch) -> list[Any]:
    return [identity(row) for row in batch.to_pylist()]


@st.composite
def batches(draw: st.DrawFn) -> pa.RecordBatch:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, max_size=3, unique=True))
    size = draw(st.integers(0, 12))
    columns = []
    for name in names:
        kind, values = KINDS[name]
        # A column that begins behind other values, as a slice does.
        cells = draw(st.lists(st.none() | values, min_size=size + 2, max_size=size + 2))
        columns.append(pa.array(cells, kind).slice(2))
    return pa.RecordBatch.from_arrays(columns, names=names)


@settings(deadline=None, max_examples=examples(300))
@given(batches())
def test_rows_have_one_code_iff_they_are_the_same(batch: pa.RecordBatch) -> None:
    codes, rows = row_codes(batch).tolist(), identities(batch)

    for mine, row in zip(codes, rows, strict=True):
        for other, another in zip(codes, rows, strict=True):
            assert (mine == other) == (row == another)


@settings(deadline=None, max_examples=examples(300))
@given(batches(), st.data())
def test_changes_are_the_difference_of_both_sides(
    batch: pa.RecordBatch, data: st.DataObject
) -> None:
    size = batch.num_rows
    inserted = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    key = data.draw(st.lists(st.sampled_from(batch.schema.names), unique=True))
    rows = identities(batch)
    come = Counter(row for row, side in zip(rows, inserted, strict=True) if side)
    gone = Counter(row for row, side in zip(rows, inserted, strict=True) if not side)

    matched = match(batch, inserted, key)

    changes: dict[bool, Counter[Any]] = {True: Counter(), False: Counter()}
    for row, kind in zip(matched.rows.tolist(), matched.kinds.tolist(), strict=True):
        changes[kind in {INSERT, UPDATE_AFTER}][rows[row]] += 1
        assert inserted[row] == (kind in {INSERT, UPDATE_AFTER})
    assert changes[True] == come - gone
    assert changes[False] == gone - come


@settings(deadline=None, max_examples=examples(200))
@given(batches(), st.data())
def test_updates_are_keys_that_went_once_and_came_once(
    batch: pa.RecordBatch, data: st.DataObject
) -> None:
    size = batch.num_rows
    inserted = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    key = [batch.schema.names[0]]
    keys = identities(batch.select(key))

    matched = match(batch, inserted, key)

    kinds: dict[Any, list[int]] = {}
    for row, kind in zip(matched.rows.tolist(), matched.kinds.tolist(), strict=True):
        kinds.setdefault(keys[row], []).append(kind)
    for found in kinds.values():
        once = sorted(found) == [UPDATE_BEFORE, UPDATE_AFTER]
        assert once or not {UPDATE_BEFORE, UPDATE_AFTER} & set(found)
        assert once or Counter(found) != Counter([INSERT, DELETE])
        assert found in ([UPDATE_BEFORE, UPDATE_AFTER], sorted(found, reverse=True))
    keys_seen = [keys[row] for row in matched.rows.tolist()]
    assert len(list(itertools.groupby(keys_seen))) == len(set(keys_seen))
    assert matched.ambiguous == sum(len(set(found)) == 2 < len(found) for found in kinds.values())


@pytest.mark.parametrize("key", [[], ["id"]])
def test_rows_that_do_not_fit_in_memory_come_back_by_parts(key: list[str]) -> None:
    rows = pa.RecordBatch.from_pydict(
        {"id": [n % 500 for n in range(4000)], "inserted": [f"x{n % 700}" for n in range(4000)]}
    )
    inserted = np.arange(4000) % 3 == 0
    spool = RowSpool(key, memory_bytes=5000)
    for start in range(0, 4000, 100):
        spool.add(rows.slice(start, 100), inserted[start : start + 100])

    parts = list(spool.parts())
    spool.close()

    assert len(parts) > 50
    found: Counter[Any] = Counter()
    places: dict[Any, int] = {}
    for number, (part, sides) in enumerate(parts):
        for row, side in zip(part.to_pylist(), sides.tolist(), strict=True):
            found[(*row.values(), side)] += 1
            together = row["id"] if key else tuple(row.values())
            assert places.setdefault(together, number) == number
    assert found == Counter(
        (*row.values(), side) for row, side in zip(rows.to_pylist(), inserted.tolist(), strict=True)
    )


def test_a_full_disk_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    spool = RowSpool(["id"], memory_bytes=10)

    with pytest.raises(StorageError, match="No space left on device"):
        spool.add(pa.RecordBatch.from_pydict({"id": [1, 2]}), np.array([True, False]))


def test_few_rows_stay_in_memory() -> None:
    rows = pa.RecordBatch.from_pydict({"id": [1, 2]})
    spool = RowSpool(["id"])
    spool.add(rows, np.array([True, False]))
    spool.add(rows.slice(0, 0), np.array([], bool))

    ((part, sides),) = spool.parts()

    assert part == rows
    assert sides.tolist() == [True, False]
    assert list(RowSpool([]).parts()) == []
