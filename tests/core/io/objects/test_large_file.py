"""A large object is read with few requests, whatever is read of it, and never from two versions."""

from __future__ import annotations

import io
import os
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.core.io.objects.large_file import LargeFile
from lake.core.io.objects.requests import StoreError
from lake.core.io.objects.whole_objects import Part

MIB = 1024 * 1024
DATA = os.urandom(40 * MIB + 7)


class Store:
    """An object in memory; records the requested ranges.

    Args:
        data: its bytes.
        end: how many of them the first request returned.
    """

    def __init__(self, data: bytes = DATA, end: int = MIB) -> None:
        self.data = data
        self.tag = '"1"'
        self.asked: list[tuple[int, int]] = []
        self.file = LargeFile.of(self.fetch, self._part(len(data) - end, end))

    def fetch(self, start: int, size: int) -> Part:
        self.asked.append((start, start + size))
        return self._part(start, size)

    def _part(self, start: int, size: int) -> Part:
        return Part(len(self.data), self.tag, start, pa.py_buffer(self.data[start : start + size]))


def test_reads_anywhere_return_what_is_there() -> None:
    store, chance = Store(), Random(3)
    with store.file as file:
        assert file.size() == len(DATA)
        for _ in range(200):
            start = chance.randrange(len(DATA) + 10)
            size = chance.choice((1, 100, 70_000, 3 * MIB))
            file.seek(start)
            assert file.read(size) == DATA[start : start + size]
            assert file.tell() == min(start + size, max(start, len(DATA)))


def test_a_file_that_is_read_from_one_end_to_the_other_takes_few_requests() -> None:
    store = Store()
    with store.file as file:
        read = b"".join(iter(lambda: file.read(100_000), b""))
    assert read == DATA
    assert len(store.asked) == 8
    assert sum(stop - start for start, stop in store.asked) == len(DATA) - MIB


def test_announced_ranges_are_fetched_together_where_they_are_close() -> None:
    store = Store()
    with store.file as file:
        near = [(0, 10), (MIB, MIB + 10)]
        far = [(5 * MIB, 15 * MIB), (len(DATA) - 10, len(DATA) + MIB), (-5, 5), (9, 3)]
        file.fetch([*far, *near])
        for start, stop in (*near, *far[:2]):
            file.seek(start)
            assert file.read(stop - start) == DATA[start:stop]
        assert file.holds(5 * MIB, 15 * MIB)
        assert not file.holds(5 * MIB, 15 * MIB + 1)
    assert sorted(store.asked) == [(0, MIB + 10), (5 * MIB, 13 * MIB), (13 * MIB, 15 * MIB)]


def test_what_is_read_later_is_fetched_once_and_only_if_it_is_small() -> None:
    store = Store()
    with store.file as file:
        file.fetch([(0, MIB)], [(3 * MIB, 4 * MIB)])
        assert file.read(MIB) == DATA[:MIB]
        file.fetch([(3 * MIB, 4 * MIB)], [(3 * MIB, 39 * MIB)])
        assert file.read_at(10, 3 * MIB) == DATA[3 * MIB : 3 * MIB + 10]
        assert not file.holds(0, MIB)
    assert sorted(store.asked) == [(0, MIB), (3 * MIB, 4 * MIB)]


def test_an_object_that_is_replaced_while_it_is_read_is_an_error() -> None:
    store = Store()
    with store.file as file:
        assert file.read(10) == DATA[:10]
        store.tag = '"2"'
        with pytest.raises(StoreError, match="changed while it was read"):
            file.read_at(10, 20 * MIB)


def test_an_error_of_the_store_passes_through_arrow_unchanged() -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"n": range(2_000_000)}), sink, use_dictionary=False)
    store = Store(sink.getvalue(), 64 * 1024)
    failure = StoreError("AWS Error SLOW_DOWN", 503)

    def fail(_start: int, _size: int) -> Part:
        raise failure

    store.file._source.fetch = fail
    with store.file as file, pytest.raises(StoreError) as raised:
        pq.read_table(file, pre_buffer=False)
    assert raised.value is failure
