"""Batches stored between the steps of an upsert are read back unchanged, or reported as damaged."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lake.core.base.errors import CorruptFileError
from lake.core.io.storage.storage import Storage
from lake.core.load.ingest.checksummed_batches import batch_file, batches_in

BATCHES = [
    pa.record_batch({"key": pa.array([start, start + 1], pa.int64()), "text": ["a", "b"]})
    for start in (0, 2)
]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    found = tmp_path / "keys.arrow"
    with batch_file(Storage(), str(found)) as file:
        for batch in BATCHES:
            file.write_batch(batch)
    return found


def test_batches_come_back_in_order(path: Path) -> None:
    assert list(batches_in(Storage(), str(path))) == BATCHES


def test_a_file_of_no_batches_is_whole(tmp_path: Path) -> None:
    path = str(tmp_path / "none.arrow")
    with batch_file(Storage(), path):
        pass

    assert list(batches_in(Storage(), path)) == []


def test_any_wrong_byte_is_reported(path: Path) -> None:
    whole = path.read_bytes()
    for place in range(len(whole)):
        wrong = bytearray(whole)
        wrong[place] ^= 1 << place % 8
        path.write_bytes(wrong)
        with pytest.raises(CorruptFileError, match="its content differs from what was written"):
            list(batches_in(Storage(), str(path)))


def test_any_truncation_is_reported(path: Path) -> None:
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CorruptFileError, match="its content differs from what was written"):
            list(batches_in(Storage(), str(path)))


def test_a_block_that_fails_leaves_no_whole_file(tmp_path: Path) -> None:
    path = str(tmp_path / "half.arrow")
    with pytest.raises(KeyError), batch_file(Storage(), path) as file:
        file.write_batch(BATCHES[0])
        raise KeyError

    with pytest.raises(CorruptFileError):
        list(batches_in(Storage(), path))
