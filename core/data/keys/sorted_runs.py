"""Sorted keys with sequence numbers in a temporary file, read by ranges of their hashes.

The file has no name, so the system frees it however the process ends.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.base.arrow import Int64s
from lake.core.data.keys.encoding import EncodedKeys, Words, concat_keys, tail_offsets
from lake.core.data.keys.index import grouped
from lake.core.io.temporary_files import read_at, write_at, written

# The entries of each run are counted in this many ranges of hashes.
_RANGES = 4096
_RANGE_SHIFT = np.uint64(64 - 12)
Ranges = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class KeyEntries:
    """Keys with one sequence number each.

    Args:
        hashes: the hashes of the keys.
        sequences: the sequence numbers.
        keys: the keys; None if equal hashes mean equal keys.
    """

    hashes: Words
    sequences: Int64s
    keys: EncodedKeys | None

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def nbytes(self) -> int:
        """Memory in bytes."""
        known: int = self.hashes.nbytes + self.sequences.nbytes
        return known + (0 if self.keys is None else self.keys.nbytes)

    def sorted(self) -> KeyEntries:
        """Return each distinct key with its largest sequence number, in the order of hashes."""
        order, first = grouped(self.hashes, self.keys)
        starts, rows = np.flatnonzero(first), order[first]
        sequences = self.sequences[order]
        if len(starts) < len(order):
            sequences = np.maximum.reduceat(sequences, starts)
        keys = None if self.keys is None else self.keys.take(rows)
        return KeyEntries(self.hashes[rows], sequences, keys)


def concat_entries(parts: Sequence[KeyEntries]) -> KeyEntries:
    """Concatenate entries of keys with the same columns."""
    keys = [part.keys for part in parts if part.keys is not None]
    return KeyEntries(
        np.concatenate([part.hashes for part in parts]),
        np.concatenate([part.sequences for part in parts]),
        concat_keys(keys) if keys else None,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Sorted entries in a spool: their number, the range of their hashes, and the offset of each column."""

    rows: int
    nbytes: int
    first_hash: np.uint64
    last_hash: np.uint64
    hashes: int
    sequences: int
    words: int | None = None
    width: int = 0
    offsets: int | None = None
    texts: int | None = None


class KeySpool:
    """Runs of sorted entries in a temporary file.

    `add` and `read` raise StorageError if the folder for temporary files is full or fails.
    """

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile(prefix="lake-keys-", buffering=0)  # noqa: SIM115
        self._end = 0

    def add(self, entries: KeyEntries) -> Run:
        """Write entries, at least one, in the order of their hashes."""
        keys = entries.keys
        tail = None if keys is None else keys.tail
        offsets = None if tail is None else tail_offsets(tail)
        return Run(
            rows=len(entries),
            nbytes=entries.nbytes,
            first_hash=entries.hashes[0],
            last_hash=entries.hashes[-1],
            hashes=self._write(entries.hashes),
            sequences=self._write(entries.sequences),
            words=None if keys is None else self._write(keys.words),
            width=0 if keys is None else keys.words.shape[1],
            offsets=None if offsets is None else self._write(offsets - offsets[0]),
            texts=None if tail is None else self._write_texts(tail),
        )

    def read(self, run: Run, first: int = 0, last: int | None = None) -> KeyEntries:
        """Read a range of a run's entries."""
        rows = (run.rows if last is None else last) - first
        keys = None
        if run.words is not None:
            words = self._values(run.words, np.uint64, first * run.width, rows * run.width)
            keys = EncodedKeys(words.reshape(rows, run.width), self._read_texts(run, first, rows))
        hashes = self._values(run.hashes, np.uint64, first, rows)
        return KeyEntries(hashes, self._values(run.sequences, np.int64, first, rows), keys)

    def close(self) -> None:
        """Free the disk space. May be called twice."""
        self._file.close()

    def _write(self, values: npt.NDArray[Any]) -> int:
        start = self._end
        data = np.ascontiguousarray(values).reshape(-1).view(np.uint8).data
        with written("keys that do not fit in memory"):
            write_at(self._file.fileno(), data, start)
        self._end += values.nbytes
        return start

    def _write_texts(self, tail: pa.LargeBinaryArray) -> int:
        offsets, data = tail_offsets(tail), tail.buffers()[2]
        size = int(offsets[-1] - offsets[0])
        return self._write(np.frombuffer(data if size else b"", np.uint8, size, int(offsets[0])))

    def _read_texts(self, run: Run, first: int, rows: int) -> pa.LargeBinaryArray | None:
        if run.offsets is None or run.texts is None:
            return None
        offsets = self._values(run.offsets, np.int64, first, rows + 1)
        start, size = int(offsets[0]), int(offsets[-1] - offsets[0])
        texts = self._values(run.texts, np.uint8, start, size)
        buffers = [None, pa.py_buffer(offsets - start), pa.py_buffer(texts)]
        return pa.LargeBinaryArray.from_buffers(pa.large_binary(), rows, buffers)

    def _values(self, start: int, kind: type, first: int, count: int) -> npt.NDArray[Any]:
        size = np.dtype(kind).itemsize
        data = read_at(self._file.fileno(), count * size, start + first * size)
        return np.frombuffer(data, kind)


def range_starts(hashes: Words) -> Ranges:
    """Return where each of many equal ranges begins in ascending hashes, and the number of hashes."""
    limits = np.arange(_RANGES, dtype=np.uint64) << _RANGE_SHIFT
    return np.append(np.searchsorted(hashes, limits), len(hashes)).astype(np.int32)


def merged(
    spool: KeySpool, runs: Sequence[tuple[Run, Ranges]], most_bytes: int
) -> Iterator[KeyEntries]:
    """Yield all entries of runs in the order of hashes, each key once, in parts of about ``most_bytes``.

    Args:
        spool: the spool that contains the runs.
        runs: the runs, each with the `range_starts` of its hashes.
        most_bytes: the size of one part, unless a single range is larger.
    """
    for first, last in _cuts(runs, most_bytes):
        pieces = [
            spool.read(run, int(starts[first]), int(starts[last]))
            for run, starts in runs
            if starts[last] > starts[first]
        ]
        if pieces:
            yield concat_entries(pieces).sorted()


def _cuts(runs: Sequence[tuple[Run, Ranges]], most_bytes: int) -> Iterator[tuple[int, int]]:
    """Yield groups of adjacent ranges with about ``most_bytes`` each."""
    sizes = np.zeros(_RANGES)
    for run, starts in runs:
        sizes += np.diff(starts) * (run.nbytes / run.rows)
    first, size = 0, 0.0
    for number, more in enumerate(sizes.tolist()):
        if size and size + more > most_bytes:
            yield first, number
            first, size = number, 0.0
        size += more
    yield first, _RANGES
