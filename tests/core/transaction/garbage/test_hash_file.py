"""Hashes on disk are those that were given, whatever their order and their number."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import StorageError
from lake.core.transaction.garbage import hash_file
from lake.core.transaction.garbage.hash_file import HashCollector, Run, StoredRun
from lake.core.transaction.garbage.name_set import NameSet

# Hashes of all parts of the file, and at the edges of the parts.
HASHES = st.one_of(
    st.integers(0, 2**64 - 1),
    st.builds(lambda part, more: (part << 56) + more, st.integers(0, 255), st.integers(0, 2)),
)
PIECES = st.lists(st.lists(HASHES, max_size=12), max_size=6)


def collected(pieces: list[list[int]], few: int) -> Run | StoredRun:
    with patch.object(hash_file, "_FEW", few):
        collector = HashCollector()
        for piece in pieces:
            collector.add(np.array(piece, np.uint64))
        return collector.run()


def hashes_of(run: Run | StoredRun) -> list[int]:
    if isinstance(run, StoredRun):
        run = run._read(np.arange(len(run._firsts)))
    return run.hashes.tolist()  # type: ignore[no-any-return]


@settings(max_examples=examples(200), deadline=None)
@given(
    PIECES, st.integers(0, 20), st.lists(HASHES, max_size=9), st.integers(1, 5), st.integers(1, 5)
)
def test_a_run_has_the_hashes_of_all_pieces_in_order(
    pieces: list[list[int]], few: int, others: list[int], page: int, asked_at_once: int
) -> None:
    every = {one for piece in pieces for one in piece}
    with (
        patch.object(hash_file, "_PAGE", page),
        patch.object(hash_file, "_ASKED", asked_at_once),
    ):
        run = collected(pieces, few)
        hashes = hashes_of(run)
        asked = sorted({*every, *others})
        found = run.has(np.array(asked, np.uint64)).tolist() if len(run) else []

    assert sorted(set(hashes)) == sorted(every)
    assert hashes == sorted(hashes)
    assert len(hashes) == len(run)
    assert found == [one in every for one in asked if every]


@settings(max_examples=examples(50), deadline=None)
@given(st.lists(st.lists(st.integers(0, 60), max_size=30), max_size=4), st.integers(0, 10))
def test_a_union_of_sets_on_disk_has_the_names_of_all(groups: list[list[int]], few: int) -> None:
    with patch.object(hash_file, "_FEW", few):
        joined = NameSet.joined(
            NameSet.of(pa.array([f"/t/{one}" for one in group], pa.string())) for group in groups
        )

    found = joined.has(pa.array([f"/t/{number}" for number in range(70)])).to_pylist()
    every = {one for group in groups for one in group}
    assert [number for number, is_in in enumerate(found) if is_in] == sorted(every)


def test_a_set_on_disk_is_not_copied_into_a_union() -> None:
    with patch.object(hash_file, "_FEW", 10):
        large = NameSet.of(pa.array([f"/t/{number}" for number in range(50)]))
    joined = NameSet.joined([large, NameSet.of(pa.array(["/t/a"]))])

    assert isinstance(large.runs[0], StoredRun)
    assert large.runs[0] in joined.runs
    assert joined.has(pa.array(["/t/a", "/t/7", "/t/b"])).to_pylist() == [True, True, False]


def test_a_full_disk_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(hash_file.tempfile, "TemporaryFile", full)

    with pytest.raises(StorageError, match="names of files cannot be written"):
        collected([[1, 2, 3]], few=1)
