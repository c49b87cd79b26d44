"""What a power cut leaves of a folder: only what was flushed to the disk, and what existed before.

A file's name is durable after a flush of its folder, its contents after a flush of the file; half of unflushed
contents remain. Deleted files do not return: after a real power cut some may, but nothing depends on that.
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
    """Tracks which files below a folder would survive a power cut.

    Args:
        root: the folder; its existing files are durable.
        trusted: prefixes of the names of files that are always durable: a database flushes its own files.
    """

    def __init__(self, root: Path, trusted: str) -> None:
        self._root = root
        self._trusted = trusted
        # By the inode of a folder, the names in it and their inodes; by inode of a file, its contents.
        self._names: dict[int, dict[str, int]] = {}
        self._contents: dict[int, _Contents] = {}
        for folder, _, files in os.walk(root):
            self._flushed(folder)
            for file in files:
                self._flushed(os.path.join(folder, file))
        self._flushed(str(root.parent))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Record the flushes during the block."""
        real = os.fsync

        def flush(descriptor: int) -> None:
            real(descriptor)
            self._flushed(os.readlink(f"/proc/self/fd/{descriptor}"))

        with patch.object(os, "fsync", flush):
            yield

    def _flushed(self, path: str) -> None:
        status = os.stat(path)
        if stat.S_ISDIR(status.st_mode):
            self._names[status.st_ino] = {item.name: item.inode() for item in os.scandir(path)}
        else:
            self._contents[status.st_ino] = _contents(status)

    def copy(self, target: Path) -> None:
        """Copy the surviving files."""
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        self._copy(str(self._root), target)

    def _copy(self, folder: str, target: Path) -> None:
        durable = self._names.get(os.stat(folder).st_ino, {})
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
                shutil.copystat(item.path, target / item.name)


def _contents(status: os.stat_result) -> _Contents:
    return status.st_size, status.st_mtime_ns
