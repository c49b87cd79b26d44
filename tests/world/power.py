"""What a power cut leaves of a folder: only what was flushed to the disk, and what lay there before.

A file's name lasts once the folder that holds it was flushed, its contents once it was; of contents that were not,
half is there. What was deleted is gone: some of it may be back, but nothing depends on that.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

_Contents = tuple[int, int]


class Disk:
    """Knows which files below a folder would outlive a power cut.

    Args:
        root: the folder; what lies in it now does.
        trusted: beginnings of the names of files that always do: a database flushes its own.
    """

    def __init__(self, root: Path, trusted: str) -> None:
        self._root = root
        self._trusted = trusted
        # By folder the names in it and their inodes; by inode what it holds.
        self._names: dict[str, dict[str, int]] = {}
        self._contents: dict[int, _Contents] = {}
        for folder, _, files in os.walk(root):
            self._flushed(folder)
            for file in files:
                self._flushed(os.path.join(folder, file))
        self._flushed(str(root.parent))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Notice what is flushed meanwhile."""
        real = os.fsync

        def flush(descriptor: int) -> None:
            real(descriptor)
            self._flushed(os.readlink(f"/proc/self/fd/{descriptor}"))

        with patch.object(os, "fsync", flush):
            yield

    def _flushed(self, path: str) -> None:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            self._names[path] = {item.name: item.inode() for item in os.scandir(path)}
        else:
            self._contents[status.st_ino] = _contents(status)

    def copy(self, target: Path) -> None:
        """Copy what is left."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        self._copy(str(self._root), target)

    def _copy(self, folder: str, target: Path) -> None:
        durable = self._names.get(folder, {})
        for item in os.scandir(folder):
            trusted = item.name.startswith(self._trusted)
            if durable.get(item.name) != item.inode() and not trusted:
                continue
            if item.is_dir():
                (target / item.name).mkdir()
                self._copy(item.path, target / item.name)
            else:
                data = Path(item.path).read_bytes()
                whole = self._contents.get(item.inode()) == _contents(os.stat(item.path))
                (target / item.name).write_bytes(
                    data if whole or trusted else data[: len(data) // 2]
                )


def _contents(status: os.stat_result) -> _Contents:
    return status.st_size, status.st_mtime_ns
