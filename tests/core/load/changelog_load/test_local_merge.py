"""A local merge keeps the last change of each key, whatever the sizes at which it merges."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.data.deletes.delta_writer import DELETE, INSERT, UPDATE_AFTER, Kinds
from lake.core.load.changelog_load import local_merge
from lake.core.load.changelog_load.local_merge import LocalMerge

Change = tuple[int, int, int]
KINDS = [INSERT, UPDATE_AFTER, DELETE]
# A key and a number of 8 bytes each, and a kind of one byte.
CHANGE_BYTES = 17


def batch_of(changes: list[Change]) -> tuple[pa.RecordBatch, Kinds]:
    keys, numbers, kinds = (list(part) for part in zip(*changes, strict=True))
    rows = pa.RecordBatch.from_pydict({"k": keys, "n": numbers})
    return rows, np.array(kinds, np.int8)


def changes_of(rows: pa.RecordBatch, kinds: Kinds) -> list[Change]:
    columns = (rows["k"].to_pylist(), rows["n"].to_pylist(), kinds.tolist())
    return list(zip(*columns, strict=True))


@given(
    log=st.lists(st.tuples(st.integers(0, 9), st.sampled_from(KINDS)), max_size=80),
    size=st.integers(1, 9),
    limit=st.integers(1, 12 * CHANGE_BYTES),
    merged_bytes=st.integers(1, 12 * CHANGE_BYTES),
)
@settings(deadline=None, max_examples=examples(300))
def test_the_last_change_of_each_key_comes_out_in_the_order_of_the_log(
    log: list[tuple[int, int]], size: int, limit: int, merged_bytes: int
) -> None:
    changes = [(key, number, kind) for number, (key, kind) in enumerate(log)]
    found: list[Change] = []
    with mock.patch.object(local_merge, "_MERGED_BYTES", merged_bytes):
        merge = LocalMerge(["k"], limit)
        for start in range(0, len(changes), size):
            for part in merge.add(*batch_of(changes[start : start + size])):
                found += changes_of(*part)
        flushed = len(found)
        for part in merge.rest():
            found += changes_of(*part)

    assert set(found) <= set(changes)
    assert [number for _, number, _ in found] == sorted({number for _, number, _ in found})
    last = {key: (number, kind) for key, number, kind in changes}
    assert {key: (number, kind) for key, number, kind in found} == last
    assert merge.take_count() == len(changes) - len(found)
    # Changes are given up only if those of different keys have the size.
    assert flushed * CHANGE_BYTES >= limit or flushed == 0
    if len(last) * CHANGE_BYTES < limit:
        assert len(found) == len(last)
