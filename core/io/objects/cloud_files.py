"""A bucket of Google's or a container of Azure's as a file system of Arrow.

Arrow's own file systems are not used: that of Azure names containers otherwise than Iceberg's locations do, and their
requests and errors are other ones than those of the client that lake uses for single objects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow.fs as pafs

from lake.core.base.errors import BadInputError
from lake.core.io.objects.cloud import Cloud
from lake.core.io.objects.requests import NOT_FOUND, StoreError
from lake.core.io.objects.upload import PUT_BYTES

_FILE, _FOLDER, _NONE = pafs.FileType.File, pafs.FileType.Directory, pafs.FileType.NotFound


class CloudFiles(pafs.FileSystemHandler):  # type: ignore[misc]
    """What Arrow asks of a file system; a path is the authority of a location, and the key."""

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
        key, at = self._key(src), 0
        begin = self._cloud.read_part(key, 0, PUT_BYTES)
        if begin is None:
            raise FileNotFoundError(src)
        if begin.size <= PUT_BYTES:
            self._cloud.put(self._key(dest), begin.data)
            return
        with self._cloud.writer(self._key(dest)) as sink:
            while at < begin.size:
                part = self._cloud.read_part(key, at, PUT_BYTES)
                if part is None or (part.size, part.tag) != (begin.size, begin.tag):
                    raise StoreError(f"the object changed while it was copied: {src}", NOT_FOUND)
                sink.write(part.data)
                at += part.data.size

    def open_input_file(self, path: str) -> Any:
        """Refuse it: `lake.core.io.storage` opens all objects whose names the client can ask for."""
        raise BadInputError(f"not a usable name of an object: {path}")

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        """Refuse it; see `open_input_file`."""
        del metadata
        return self.open_input_file(path)

    open_input_stream = open_input_file

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
        is_folder = not key or self._cloud.has_any(f"{key}/")
        return pafs.FileInfo(path, _FOLDER if is_folder else _NONE)


def _info(path: str, size: int, changed_seconds: float | None) -> Any:
    if changed_seconds is None:
        return pafs.FileInfo(path, _FOLDER)
    return pafs.FileInfo(path, _FILE, size=size, mtime_ns=int(changed_seconds * 1000) * 1_000_000)
