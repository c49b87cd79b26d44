"""A bucket of Google's or a container of Azure's as a file system of Arrow.

Arrow's own file systems are not used: that of Azure names containers otherwise than Iceberg's locations do, and their
requests and errors are other ones than those of the client that lake uses for single objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from lake.core.io.objects.cloud import Cloud

_FILE, _FOLDER, _NONE = pafs.FileType.File, pafs.FileType.Directory, pafs.FileType.NotFound
# The most bytes that one request of a copy reads.
_COPY_BYTES = 8 * 1024 * 1024


class CloudFiles(pafs.FileSystemHandler):  # type: ignore[misc]
    """What Arrow asks of a file system; a path is the authority of a location, and the key.

    Args:
        cloud: the bucket.
        authority: it, as locations name it.
    """

    def __init__(self, cloud: Cloud, authority: str) -> None:
        self._cloud = cloud
        self._authority = authority

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CloudFiles) and self._cloud is other._cloud

    def __hash__(self) -> int:
        return hash(self._authority)

    def get_type_name(self) -> str:
        """Return a name for messages."""
        return "cloud"

    def normalize_path(self, path: str) -> str:
        """Return the path itself: each text is another key."""
        return path

    def get_file_info(self, paths: Sequence[str]) -> list[Any]:
        """Return what is at paths."""
        return [self._info(path) for path in paths]

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        """Return what is in a folder; it is empty if it does not exist."""
        folder = self._key(selector.base_dir).rstrip("/")
        return [
            _info(f"{self._authority}/{entry.key}", entry.size, entry.changed_seconds)
            for entry in self._cloud.entries(folder, recursive=selector.recursive)
        ]

    def create_dir(self, path: str, recursive: bool) -> None:  # noqa: FBT001 - Arrow's signature
        """Do nothing: a folder exists with its files."""

    def delete_file(self, path: str) -> None:
        """Delete an object."""
        self._cloud.remove(self._key(path))

    def copy_file(self, src: str, dest: str) -> None:
        """Copy an object through this machine, in parts."""
        source = self.open_input_file(src)
        sink = self._cloud.writer(self._key(dest))
        try:
            while data := source.read(_COPY_BYTES):
                sink.write(data)
        except BaseException:
            sink.abandon()
            raise
        sink.close()

    def open_input_file(self, path: str) -> Any:
        """Open an object for random access."""
        entry = self._cloud.find(self._key(path))
        if entry is None:
            raise FileNotFoundError(path)
        return pa.PythonFile(_Reading(self._cloud, entry.key, entry.size), mode="r")

    def open_input_stream(self, path: str) -> Any:
        """Open an object."""
        return self.open_input_file(path)

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        """Open a new object for writing."""
        del metadata
        return pa.PythonFile(self._cloud.writer(self._key(path)), mode="w")

    def delete_dir(self, path: str) -> None:
        """Refuse it: lake deletes files only."""
        raise NotImplementedError

    delete_dir_contents = delete_root_dir_contents = open_append_stream = move = delete_dir

    def _key(self, path: str) -> str:
        return path.removeprefix(self._authority).removeprefix("/")

    def _info(self, path: str) -> Any:
        key = self._key(path).rstrip("/")
        entry = self._cloud.find(key) if key else None
        if entry:
            return _info(path, entry.size, entry.changed_seconds)
        is_folder = not key or bool(self._cloud.entries(key, recursive=False))
        return pafs.FileInfo(path, _FOLDER if is_folder else _NONE)


class _Reading:
    """A file of Python's that reads an object by one request for each piece."""

    def __init__(self, cloud: Cloud, key: str, size: int) -> None:
        self._cloud = cloud
        self._key = key
        self._size = size
        self._at = 0
        self.closed = False

    def readable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def seekable(self) -> bool:
        return True

    def size(self) -> int:
        return self._size

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + {0: 0, 1: self._at, 2: self._size}[whence]
        return self._at

    def read(self, size: int | None = None) -> bytes:
        left = max(self._size - self._at, 0)
        wanted = left if size is None or size < 0 else min(size, left)
        data = self._cloud.read_part(self._key, self._at, wanted)
        if data is None:
            raise FileNotFoundError(self._key)
        self._at += len(data)
        return data

    def close(self) -> None:
        self.closed = True


def _info(path: str, size: int, changed_seconds: float | None) -> Any:
    if changed_seconds is None:
        return pafs.FileInfo(path, _FOLDER)
    return pafs.FileInfo(path, _FILE, size=size, mtime_ns=int(changed_seconds * 1000) * 1_000_000)
