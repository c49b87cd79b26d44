"""Batches that are stored on disk are read again as they were written, in any order."""

from __future__ import annotations

import tempfile
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import StorageError
from lake.core.data.sorting.spill_file import BatchSpool

TEXTS = st.sampled_from(["", "a", "é", "\U0001f600", "%", "x" * 1000, "\x00"]) | st.none()
batches = st.lists(st.tuples(TEXTS, st.none() | st.integers(-5, 5)), max_size=8).map(
    lambda rows: pa.record_batch(
        [
            pa.array([text for text, _ in rows], pa.string()),
            pa.array([None if n is None else [n] * 2 for _, n in rows], pa.list_(pa.int64())),
        ],
        names=["text", "numbers"],
    )
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.tuples(batches, st.integers(0, 8), st.integers(0, 8)), max_size=6), st.data())
def test_batches_are_read_in_any_order_between_writes(
    written: list[tuple[pa.RecordBatch, int, int]], data: st.DataObject
) -> None:
    kept: list[pa.RecordBatch] = []
    with closing(BatchSpool("rows")) as spool:
        for whole, start, length in written:
            # A part of a batch shares its buffers, and must not take the other rows with it.
            batch = whole.slice(start, length)
            assert spool.write(batch) == len(kept)
            kept.append(batch)
            assert len(spool) == len(kept)
            number = data.draw(st.integers(0, len(kept) - 1))
            assert spool.read(number).equals(kept[number])
        for number in data.draw(st.permutations(range(len(kept)))):
            assert spool.read(number).equals(kept[number])
        assert (spool.widest > 0) == bool(kept)


def test_batches_of_different_schemas_are_stored_together() -> None:
    first = pa.record_batch([pa.array([1])], names=["a"])
    second = pa.record_batch([pa.array(["x"]), pa.array([None])], names=["a", "b"])
    with closing(BatchSpool("rows")) as spool:
        spool.write(first)
        spool.write(second)
        assert spool.read(1).equals(second)
        assert spool.read(0).equals(first)


def test_a_part_of_a_batch_takes_the_space_of_its_own_rows() -> None:
    whole = pa.record_batch([pa.array(["x" * 100] * 10_000)], names=["text"])
    with closing(BatchSpool("rows")) as spool:
        spool.write(whole.slice(5, 1))
        small = spool.widest
        spool.write(whole)
        assert small < 2000 < len(whole) < spool.widest


def test_a_spool_without_batches_uses_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/nonexistent")
    with closing(BatchSpool("rows")) as spool:
        assert (len(spool), spool.widest) == (0, 0)
        with pytest.raises(ValueError, match="nothing was written"):
            spool.read(0)
        with pytest.raises(StorageError, match="rows cannot be written to /nonexistent"):
            spool.write(pa.record_batch([pa.array([1])], names=["a"]))


def test_the_file_of_a_spool_has_no_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with closing(BatchSpool("rows")) as spool:
        spool.write(pa.record_batch([pa.array([1])], names=["a"]))
        assert list(folder.iterdir()) == []
