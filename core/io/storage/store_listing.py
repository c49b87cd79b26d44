"""List the files below a folder of a store, several of its folders at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from lake.core.io.work_ahead import ahead

# Files as columns; sizes in bytes, and last changes in ms since 1970, NULL if they are not known.
LISTING = pa.schema([("path", pa.string()), ("bytes", pa.int64()), ("modified_ms", pa.int64())])
# The threads in which Arrow lists.
_REQUESTS = 8
# Folders are divided until there are this many of them.
_PARTS = 64
# One request returns up to 1,000 files: to list fewer than these, a few requests one after the other are enough.
_MANY_FILES = 10_000
# A folder is not divided into folders with fewer files than these on average: each folder takes a request.
_FILES_OF_PART = 100
# The files of folders that are listed at the same time, on average. Arrow holds them in memory together.
_FILES_AT_ONCE = 400_000


class Lister(Protocol):
    """Lists a folder by Arrow."""

    def __call__(self, folder: str, *, recursive: bool) -> Sequence[Any]:
        """Return what is in a folder, or in it and all folders below."""


@dataclass(frozen=True, slots=True)
class StoreListing:
    """Lists folders of a store.

    Args:
        listed: returns what is in a folder, or below it.
        path_of: returns the path of a folder in Arrow's file system.
        files: how many files are expected. If there are many, folders are listed one by one, down to a level with
            many of them: this takes more requests, which are sent at the same time, and Arrow holds the files of few
            folders in memory at once.
    """

    listed: Lister
    path_of: Callable[[str], str]
    files: int = 0

    def below(self, folder: str) -> Iterator[pa.Table]:
        """Yield the files below a folder (`LISTING`), those of one or several folders at a time."""
        whole = [folder.rstrip("/")]
        with ThreadPoolExecutor(_REQUESTS) as pool:
            if self.files >= _MANY_FILES:
                divided = _Divided(self, pool)
                yield from divided.files_of(whole[0])
                whole = divided.parts
            average = self.files // (len(whole) or 1) + 1
            most = min(_REQUESTS, max(1, _FILES_AT_ONCE // average))
            yield from ahead(pool, self._whole, whole, most - 1)

    def flat(self, folder: str) -> tuple[pa.Table, list[str] | None]:
        """Return the files (`LISTING`) and the folders in a folder; None if it has folders that Arrow does not name.

        The name of a folder in a store may be empty, as keys may contain two slashes together.
        """
        found = self.listed(folder, recursive=False)
        path = self.path_of(folder).rstrip("/")
        below = [info for info in found if info.type == pafs.FileType.Directory]
        is_named = all(info.path == f"{path}/{info.base_name}" for info in below)
        names = [f"{folder}/{info.base_name}" for info in below] if is_named else None
        return self._files(folder, found), names

    def _whole(self, folder: str) -> pa.Table:
        return self._files(folder, self.listed(folder, recursive=True))

    def _files(self, folder: str, found: Sequence[Any]) -> pa.Table:
        """Return those of the found entries that are files."""
        start = len(self.path_of(folder).rstrip("/"))
        files = [info for info in found if info.type == pafs.FileType.File]
        times = pa.array([info.mtime_ns for info in files], pa.int64())
        columns = [
            pa.array([f"{folder}{info.path[start:]}" for info in files], pa.string()),
            pa.array([info.size for info in files], pa.int64()),
            pc.divide(times, 1_000_000),
        ]
        return pa.table(columns, LISTING)


class _Divided:
    """A folder divided into many folders, level by level."""

    def __init__(self, listing: StoreListing, pool: ThreadPoolExecutor) -> None:
        self._listing = listing
        self._pool = pool
        # The folders that are left to list with all that is below them.
        self.parts: list[str] = []

    def files_of(self, folder: str) -> Iterator[pa.Table]:
        """Yield the files in the folder and in folders below it that are not in one of the parts."""
        most = self._listing.files // _FILES_OF_PART
        level = [folder]
        while level and len(level) < _PARTS:
            deeper: list[str] = []
            listed = ahead(self._pool, self._listing.flat, level, _REQUESTS)
            for parent, (files, below) in zip(level, listed, strict=True):
                if below is None or len(self.parts) + len(deeper) + len(below) > most:
                    self.parts.append(parent)
                else:
                    yield files
                    deeper += below
            level = deeper
        self.parts += level
