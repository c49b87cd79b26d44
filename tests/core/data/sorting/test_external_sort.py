"""Rows in order, however little memory there is, and in ranges that hardly overlap."""

from __future__ import annotations

import bisect
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType
from support.tables.random_rows import write_settings
from support.tiers import examples

from lake.core.base.errors import StoppedError
from lake.core.data.rows.sorted_writer import open_ordered_writer
from lake.core.data.sorting import external_sort
from lake.core.data.sorting.external_sort import RowSorter, keys_of, with_keys, without_keys
from lake.core.data.sorting.range_partitioning import KeySample, Ranges, SampledKeys, cuts
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.engine.tasks import TaskContext
from lake.core.io.storage.storage import Storage

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "name", StringType(), required=False),
)
BY_ID = RowOrder(
    fields=(SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_FIRST),)
)


def rows_with(ids: list[int | None]) -> pa.RecordBatch:
    """Return rows whose names are their numbers."""
    names = [str(number) for number in range(len(ids))]
    return pa.record_batch([pa.array(ids, pa.int64()), pa.array(names)], names=["id", "name"])


def sort_all(ids: list[int | None], batch_rows: int, sorter: RowSorter) -> list[Any]:
    rows = with_keys(rows_with(ids), BY_ID, SCHEMA)
    for start in range(0, len(ids), batch_rows):
        sorter.add(rows.slice(start, batch_rows))
    return [row for part in sorter.ordered() for row in without_keys(part).to_pylist()]


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(st.one_of(st.none(), st.integers(-5, 5), st.integers(0, 10**6)), max_size=300),
    st.integers(1, 40),
    st.sampled_from([1, 400, 3000, 10**6]),
)
def test_all_rows_come_back_once_in_order_whatever_fits_in_memory(
    ids: list[int | None], batch_rows: int, memory: int
) -> None:
    sorter = RowSorter(memory_bytes=memory)
    found = sort_all(ids, batch_rows, sorter)
    sorter.close()
    ranks = [(row["id"] is not None, row["id"] or 0) for row in found]
    assert ranks == sorted(ranks)
    assert sorted((int(row["name"]), row["id"]) for row in found) == list(enumerate(ids))


def test_more_parts_than_are_merged_at_once_are_merged_in_levels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(external_sort, "_MOST_RUNS", 3)
    monkeypatch.setattr(external_sort, "_BLOCK_BYTES", 200)
    ids: list[int | None] = [random.Random(1).randrange(50) for _ in range(600)]
    ids += [random.Random(2).randrange(50) for _ in range(600)]
    sorter = RowSorter(memory_bytes=400)
    found = sort_all(ids, 20, sorter)
    assert len(sorter._levels) > 2
    assert all(len(level) < 3 for level in sorter._levels)
    assert [row["id"] for row in found] == sorted(ids, key=lambda value: value or 0)
    assert len({row["name"] for row in found}) == len(ids)


def test_a_stopped_task_leaves_no_file(tmp_path: Path) -> None:
    context = TaskContext(Storage(), "a")
    place = write_settings(tmp_path, SCHEMA)
    chosen = type(place)(
        **{name: getattr(place, name) for name in place.__dataclass_fields__} | {"order": BY_ID}
    )
    with (
        pytest.raises(StoppedError),
        open_ordered_writer(context, chosen, task=0) as writer,
    ):
        writer.write(rows_with([3, 1, 2]))
        context.stopped.set()
        writer.close()
    assert not list(tmp_path.rglob("*.parquet"))


# Ranges


@settings(deadline=None, max_examples=examples(40))
@given(st.lists(st.one_of(st.none(), st.integers(0, 40)), min_size=1, max_size=200), st.data())
def test_each_row_goes_to_one_range_and_ranges_touch_only_at_their_bounds(
    ids: list[int | None], data: st.DataObject
) -> None:
    rows = with_keys(rows_with(ids), BY_ID, SCHEMA)
    keys = keys_of(rows).to_pylist()
    bounds = sorted(data.draw(st.lists(st.sampled_from(keys), max_size=5)))
    sent: Counter[str] = Counter()
    for number, part in Ranges(bounds).split(rows):
        sent.update(part.column("name").to_pylist())
        for key in keys_of(part).to_pylist():
            assert bisect.bisect_left(bounds, key) <= number <= bisect.bisect_right(bounds, key)
    assert sent == Counter(str(number) for number in range(len(ids)))


@settings(deadline=None, max_examples=examples(40))
@given(
    st.lists(st.one_of(st.none(), st.integers(0, 20)), min_size=1, max_size=200),
    st.integers(1, 4),
    st.data(),
)
def test_equal_rows_of_one_writer_are_in_one_of_its_ranges(
    ids: list[int | None], parts: int, data: st.DataObject
) -> None:
    rows = with_keys(rows_with(ids), BY_ID, SCHEMA)
    keys = st.sampled_from(keys_of(rows).to_pylist())
    bounds = sorted(data.draw(st.lists(keys, min_size=2 * parts - 1, max_size=2 * parts - 1)))
    sent: Counter[str] = Counter()
    ranges: dict[tuple[int, bytes], set[int]] = {}
    for number, part in Ranges(bounds, parts).split(rows):
        sent.update(part.column("name").to_pylist())
        for key in keys_of(part).to_pylist():
            assert bisect.bisect_left(bounds, key) <= number <= bisect.bisect_right(bounds, key)
            ranges.setdefault((number // parts, key), set()).add(number)
    assert sent == Counter(str(number) for number in range(len(ids)))
    assert all(len(numbers) == 1 for numbers in ranges.values())


def sampled(ids: list[int | None], number: int = 0, size: int = 400) -> SampledKeys:
    found = KeySample(size, number)
    rows = rows_with(ids)
    for start in range(0, len(ids), 1000):
        found.add(BY_ID.keys(rows.slice(start, 1000), SCHEMA))
    return found.result()


def shares(ids: list[int | None], bounds: list[bytes]) -> list[int]:
    ranges, counts = Ranges(bounds), [0] * (len(bounds) + 1)
    for number, part in ranges.split(with_keys(rows_with(ids), BY_ID, SCHEMA)):
        counts[number] += part.num_rows
    return counts


def test_a_sample_cuts_rows_into_about_equal_ranges() -> None:
    source = random.Random(5)
    small: list[int | None] = [source.randrange(1000) for _ in range(1000)]
    large: list[int | None] = [source.randrange(10**6) for _ in range(9000)]
    bounds = cuts([sampled(small, 0), sampled(large, 1)], 5)
    assert bounds == sorted(bounds)
    # The smaller task's keys stand for fewer rows.
    assert all(1500 < share < 2500 for share in shares(small + large, bounds))


def test_a_value_that_most_rows_have_is_spread_over_several_ranges() -> None:
    ids: list[int | None] = [7] * 9000 + list(range(1000))
    random.Random(1).shuffle(ids)
    bounds = cuts([sampled(ids)], 10)
    assert len(set(bounds)) < len(bounds)
    assert max(shares(ids, bounds)) < 2500


def test_a_sample_is_the_same_in_every_run_and_no_larger_than_asked() -> None:
    ids: list[int | None] = list(range(5000))
    assert sampled(ids) == sampled(ids)
    found = sampled(ids, size=50)
    assert (found.rows, len(found.keys)) == (5000, 50)
    assert cuts([SampledKeys(rows=0, keys=[])], 3) == []
