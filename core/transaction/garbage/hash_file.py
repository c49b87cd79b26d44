"""Many hashes in little memory: sorted, in a temporary file."""

from __future__ import annotations

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
# The hashes of a page, which is read whole, and the number of hashes that are looked for at once: at most 32 MiB.
_PAGE = 512
_ASKED = 8 * 1024
_ROWS = "the names of files"


class Run:
    """Sorted hashes in memory."""

    def __init__(self, hashes: Hashes) -> None:
        self.hashes = hashes

    def __len__(self) -> int:
        return len(self.hashes)

    def has(self, wanted: Hashes) -> npt.NDArray[np.bool_]:
        """Return which of some sorted hashes are in the run."""
        places = np.minimum(np.searchsorted(self.hashes, wanted), len(self.hashes) - 1)
        found: npt.NDArray[np.bool_] = self.hashes[places] == wanted
        return found


class StoredRun:
    """Sorted hashes in a file.

    They are read, not mapped: Linux maps each page that is used with those around it, which count as memory of the
    process.

    Args:
        file: the hashes, eight bytes each; closed with the run.
        firsts: the first hash of each page.
        count: the number of hashes.
    """

    def __init__(self, file: IO[bytes], firsts: Hashes, count: int) -> None:
        self._descriptor = file.fileno()
        self._firsts = firsts
        self._count = count
        weakref.finalize(self, file.close)

    def __len__(self) -> int:
        return self._count

    def has(self, wanted: Hashes) -> npt.NDArray[np.bool_]:
        """Return which of some sorted hashes are in the run.

        Raises:
            StorageError: the file cannot be read.
        """
        pages = np.maximum(np.searchsorted(self._firsts, wanted, side="right") - 1, 0)
        found = [
            self._read(np.unique(pages[start : start + _ASKED])).has(wanted[start : start + _ASKED])
            for start in range(0, len(wanted), _ASKED)
        ]
        return np.concatenate([np.zeros(0, np.bool_), *found])

    def _read(self, pages: npt.NDArray[np.int64]) -> Run:
        """Return the hashes of some ascending pages; those that follow each other are read at once."""
        parts = []
        for some in np.split(pages, np.flatnonzero(np.diff(pages) > 1) + 1):
            start, end = int(some[0]) * _PAGE, min((int(some[-1]) + 1) * _PAGE, self._count)
            data = read_at(self._descriptor, (end - start) * _WIDTH, start * _WIDTH)
            parts.append(np.frombuffer(data, np.uint64))
        return Run(np.concatenate(parts))


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

    def run(self) -> Run | StoredRun:
        """Return all hashes, sorted; the collector is empty then.

        Raises:
            StorageError: there is not enough space.
        """
        if self._file is None:
            return Run(self._taken())
        if self._count:
            self._spill()
        count, firsts = 0, []
        with self._file, written(_ROWS):
            merged = _temporary_file()
            for part in self._parts(self._file):
                write_at(merged.fileno(), part.data.cast("B"), count * _WIDTH)
                # A copy: a view would keep all of the part in memory.
                firsts.append(part[-count % _PAGE :: _PAGE].copy())
                count += len(part)
        self._file, self._bounds = None, []
        return StoredRun(merged, np.concatenate(firsts), count)

    def _taken(self) -> Hashes:
        every = np.concatenate([np.empty(0, np.uint64), *self._waiting])
        every.sort()
        self._waiting, self._count = [], 0
        return every

    def _spill(self) -> None:
        piece = self._taken()
        with written(_ROWS):
            if self._file is None:
                self._file = _temporary_file()
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


def _temporary_file() -> IO[bytes]:
    """Return a file without a name, which exists as long as it is open."""
    return tempfile.TemporaryFile(prefix="lake-names-", buffering=0)
