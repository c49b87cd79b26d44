"""Equality deletes against a dictionary, in memory and on disk."""

import os
import subprocess
import sys
import tempfile

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import InvalidRequestError, RefusedError, StorageError
from lake.core.data.deletes.equality import EqualityDeletes
from lake.core.data.deletes.spilled_equality import RowKeys
from lake.core.data.keys import encoding, sorted_runs

INTEGERS = (pa.int64(), st.integers(-3, 3))
TEXTS = (pa.string(), st.sampled_from(["", "a", "ab", "x" * 20, "x" * 300]))
FLAGS = (pa.bool_(), st.booleans())


@st.composite
def cases(draw):
    kinds = draw(st.lists(st.sampled_from([INTEGERS, TEXTS, FLAGS]), min_size=1, max_size=2))
    row = st.tuples(*(values | st.none() for _, values in kinds))
    part = st.tuples(st.integers(0, 4), st.lists(row, max_size=8))
    types = [kind for kind, _ in kinds]
    return types, draw(st.lists(part, max_size=5)), draw(st.lists(part, max_size=5))


def batch_of(types, rows):
    arrays = [pa.array([row[at] for row in rows], kind) for at, kind in enumerate(types)]
    return pa.RecordBatch.from_arrays(arrays, names=[f"c{at}" for at in range(len(types))])


@given(case=cases(), memory_bytes=st.sampled_from([0, 300, 1000, 10**8]), chunk=st.booleans())
@settings(deadline=None, max_examples=examples(300))
def test_rows_go_whose_key_a_later_delete_has(case, memory_bytes, chunk):
    types, deletes, data = case
    largest = {}
    for number, rows in deletes:
        for row in rows:
            largest[row] = max(number, largest.get(row, 0))
    expected = [
        (file, at + 10)
        for file, (number, rows) in enumerate(data)
        for at, row in enumerate(rows)
        if largest.get(row, -1) > number
    ]
    batches = ((batch_of(types, rows), number) for number, rows in deletes)
    with EqualityDeletes.load(batches, memory_bytes=memory_bytes) as loaded:
        parts = [
            RowKeys(file, 10, number, batch_of(types, rows))
            for file, (number, rows) in enumerate(data)
        ]
        if chunk and not loaded.in_memory:
            loaded._spool._memory_bytes = 10**6
        found = [
            (file, at) for file, places in loaded.deleted_rows(parts) for at in places.tolist()
        ]
        assert found == expected
        if loaded.in_memory:
            masks = [loaded.deleted(part.keys, part.sequence_number) for part in parts]
            assert [
                (file, at + 10) for file, mask in enumerate(masks) for at in np.flatnonzero(mask)
            ] == expected
        for part in parts:
            if any(file == part.file for file, _ in expected):
                assert loaded.may_delete(part.sequence_number)


@given(case=cases())
@settings(deadline=None, max_examples=examples(60))
def test_keys_on_disk_whose_hashes_are_equal_are_distinguished(case):
    real = encoding.EncodedKeys.hashes
    encoding.EncodedKeys.hashes = lambda self: real(self) & np.uint64(1 << 63)
    try:
        test_rows_go_whose_key_a_later_delete_has.hypothesis.inner_test(case, 300, chunk=True)
    finally:
        encoding.EncodedKeys.hashes = real


def test_many_deletes_on_disk_find_what_those_in_memory_find():
    rng = np.random.default_rng(7)
    keys = rng.integers(0, 400_000, 300_000)
    columns = {"a": keys, "b": np.char.add("customer-", keys.astype(str))}
    deletes = pa.record_batch(columns)
    parts = [(deletes.slice(start, 10_000), start // 10_000) for start in range(0, 300_000, 10_000)]
    probes = rng.integers(0, 800_000, 100_000)
    rows = pa.record_batch({"a": probes, "b": np.char.add("customer-", probes.astype(str))})
    with EqualityDeletes.load(parts, memory_bytes=10**9) as loaded:
        assert loaded.in_memory
        expected = np.flatnonzero(loaded.deleted(rows, 15))
    with EqualityDeletes.load(parts, memory_bytes=5_000_000) as loaded:
        assert not loaded.in_memory
        assert len(loaded._spool._parts) > 10
        pieces = [RowKeys(3, at, 15, rows.slice(at, 999)) for at in range(0, 100_000, 999)]
        found = list(loaded.deleted_rows(pieces))
    assert {file for file, _ in found} == {3}
    assert (np.concatenate([places for _, places in found]) == expected).all()
    assert 10_000 < len(expected) < 40_000


def test_columns_may_be_named_otherwise_in_each_file():
    batches = [(pa.record_batch({"a": [1]}), 5), (pa.record_batch({"b": [2]}), 5)]
    with EqualityDeletes.load(batches) as loaded:
        assert loaded.deleted(pa.record_batch({"c": [1, 2, 3]}), 4).tolist() == [True, True, False]


def test_single_batches_are_refused_while_the_deletes_are_on_disk():
    keys = pa.record_batch({"a": [1]})
    with EqualityDeletes.load([(keys, 1)], memory_bytes=0) as loaded:
        with pytest.raises(InvalidRequestError, match="do not fit in memory"):
            loaded.deleted(keys, 0)


def open_spools():
    links = [f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd")]
    return [link for link in links if os.path.exists(link) and "lake-keys" in os.readlink(link)]


@pytest.fixture
def named(monkeypatch):
    """Make temporary files that can be recognized among those that are open."""
    monkeypatch.setattr(
        sorted_runs.tempfile,
        "TemporaryFile",
        lambda **_: tempfile.NamedTemporaryFile("w+b", 0, prefix="lake-keys-"),  # noqa: SIM115
    )


def test_temporary_files_go_when_all_is_done(named):
    with EqualityDeletes.load([(pa.record_batch({"a": [1]}), 1)], memory_bytes=0) as loaded:
        assert not loaded.in_memory
        assert len(open_spools()) == 1
    assert open_spools() == []


def test_temporary_files_go_after_an_error(named):
    def batches():
        yield pa.record_batch({"a": [1]}), 1
        assert len(open_spools()) == 1
        yield pa.record_batch({"a": [[1]]}), 1

    with pytest.raises(RefusedError):
        EqualityDeletes.load(batches(), memory_bytes=0)
    assert open_spools() == []


def test_a_full_disk_is_reported(monkeypatch):
    full = open("/dev/full", "r+b", buffering=0)  # noqa: SIM115 - closed as a spool is
    monkeypatch.setattr(sorted_runs.tempfile, "TemporaryFile", lambda **_: full)
    with pytest.raises(StorageError, match="No space left on device"):
        EqualityDeletes.load([(pa.record_batch({"a": [1]}), 1)], memory_bytes=0)
    assert full.closed


def test_nested_keys_are_refused():
    with pytest.raises(RefusedError, match="only plain columns can be keys"):
        EqualityDeletes.load([(pa.record_batch({"a": [[1]]}), 1)])


_TASK = """
import sys
import numpy as np, pyarrow as pa
from lake.core.data.deletes.equality import EqualityDeletes
from lake.core.data.deletes.spilled_equality import RowKeys
import lake.core.data.deletes.apply  # what a task loads in any case

def numbers(start, count):
    column = pa.array(np.arange(start, start + count) * 7919 % 20_000_003)
    return pa.record_batch({"a": column.cast(pa.string()) if sys.argv[1] == "text" else column})

keys = ((numbers(at, 100_000), 5) for at in range(0, 5_000_000, 100_000))
rows = (RowKeys(0, at, 4, numbers(at, 100_000)) for at in range(4_000_000, 6_000_000, 100_000))
with EqualityDeletes.load(keys) as loaded:
    found = sum(len(places) for _, places in loaded.deleted_rows(rows))
lines = open("/proc/self/status").read().splitlines()
peak = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
print(found, loaded.in_memory, peak // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["integer", "text"])
def test_a_task_with_more_keys_than_memory_stays_below_256_mib(kind):
    done = subprocess.run(
        [sys.executable, "-c", _TASK, kind], check=True, capture_output=True, text=True
    )
    found, in_memory, peak = done.stdout.split()
    assert (found, in_memory) == ("1000000", "False")
    assert int(peak) < 256
