"""Many hashes in little memory: sorted, in a temporary file that is mapped into memory."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from collections.abc import Iterator
from typing import IO, TypeAlias

import numpy as np
import numpy.typing as npt

from lake.core.io.temporary_files import read_at, write_at, written

Hashes: TypeAlias = npt.NDArray[np.uint64]
# Hashes that stay in memory: 32 MiB.
_FEW = 4 * 1024 * 1024
# The parts of a file by the first bits of a hash: each is sorted in memory.
_PARTS = 256
_EDGES = np.arange(1, _PARTS, dtype=np.uint64) << np.uint64(56)
_WIDTH = 8
# After this number of hashes, the pages in which they were looked for are given back: at most 128 MiB.
_ASKED = 32 * 1024
_ROWS = "the names of files"


class Run:
    """Sorted hashes, in memory or in a mapped file."""

    def __init__(self, hashes: Hashes, mapped: mmap.mmap | None = None) -> None:
        self.hashes = hashes
        self.mapped = mapped
        self._asked = 0

    def __len__(self) -> int:
        return len(self.hashes)

    def has(self, wanted: Hashes) -> npt.NDArray[np.bool_]:
        """Return which of some sorted hashes are in the run."""
        places = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
        found: npt.NDArray[np.bool_] = self.hashes[places] == wanted
        self._asked += len(wanted)
        if self.mapped is not None and self._asked >= _ASKED:
            # Its pages remain in the system's cache, and do not count as memory of this process.
            self.mapped.madvise(mmap.MADV_DONTNEED)
            self._asked = 0
        return found


class HashCollector:
    """Sorts hashes that come in pieces; more than a few are on disk, in a file without a name."""

    def __init__(self) -> None:
        self._waiting: list[Hashes] = []
        self._count = 0
        self._file: IO[bytes] | None = None
        # For each sorted piece in the file, where each of its parts begins, and where the last one ends.
        self._bounds: list[npt.NDArray[np.int64]] = []

    def add(self, hashes: Hashes) -> None:
        """Add hashes in any order.

        Raises:
            StorageError: there is not enough space.
        """
        self._waiting.append(hashes)
        self._count += len(hashes)
        if self._count > _FEW:
            self._spill()

    def run(self) -> Run:
        """Return all hashes, sorted; the collector is empty then.

        Raises:
            StorageError: there is not enough space.
        """
        if self._file is None:
            return Run(self._taken())
        if self._count:
            self._spill()
        with self._file, tempfile.TemporaryFile(prefix="lake-names-") as merged:
            with written(_ROWS):
                length = sum(merged.write(part.data) for part in self._parts(self._file))
                merged.flush()
                mapped = mmap.mmap(merged.fileno(), length, access=mmap.ACCESS_READ)
            self._file, self._bounds = None, []
        return Run(np.frombuffer(mapped, np.uint64), mapped)

    def _taken(self) -> Hashes:
        every = np.concatenate([np.empty(0, np.uint64), *self._waiting])
        every.sort()
        self._waiting, self._count = [], 0
        return every

    def _spill(self) -> None:
        piece = self._taken()
        with written(_ROWS):
            if self._file is None:
                self._file = tempfile.TemporaryFile(prefix="lake-names-", buffering=0)  # noqa: SIM115
                weakref.finalize(self, self._file.close)
            end = self._file.seek(0, os.SEEK_END)
            write_at(self._file.fileno(), piece.data.cast("B"), end)
        inner = np.searchsorted(piece, _EDGES)
        self._bounds.append(
            end // _WIDTH + np.concatenate(([0], inner, [len(piece)])).astype(np.int64)
        )

    def _parts(self, file: IO[bytes]) -> Iterator[Hashes]:
        """Yield the parts in their order, which is that of all hashes; each hash once."""
        for number in range(_PARTS):
            pieces = []
            for bounds in self._bounds:
                start, end = int(bounds[number]), int(bounds[number + 1])
                data = read_at(file.fileno(), (end - start) * _WIDTH, start * _WIDTH)
                pieces.append(np.frombuffer(data, np.uint64))
            yield np.unique(np.concatenate(pieces))
