"""Bytes in and out of wherever a table lies: one object per set of storage properties.

PyIceberg's PyArrow FileIO builds the file systems, so users configure storage as they know it; names are
parsed by `lake.core.paths`, because that FileIO drops the tail of a name behind ``#`` or ``?``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from lake.core import paths
from lake.core.errors import BadInputError, CorruptFileError, NotAuthorisedError, NotFoundError
from lake.core.table.storage_errors import storage_error

MAX_METADATA_BYTES = 512 * 1024 * 1024
_DELETE_THREADS = 16
_LOOK_UP_THREADS = 32


@dataclass(slots=True)
class DeleteOutcome:
    """What became of files that were to be deleted; a file that was not there counts as deleted."""

    deleted: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A file as storage knows it: length in bytes, last change in ms since 1970 (None where it is not told)."""

    location: str
    length: int
    modified_ms: int | None


class Storage:
    """Reads, writes and deletes files by location.

    Args:
        properties: storage properties as PyIceberg's FileIO takes them. They may hold secrets: they are
            never printed, and `properties` goes to executors in a binary column only.
    """

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self.properties: dict[str, str] = dict(properties or {})
        self._filesystem = lru_cache(maxsize=64)(self._make_filesystem)

    def __repr__(self) -> str:
        return "Storage(…)"

    def _make_filesystem(self, scheme: str, authority: str) -> Any:
        if scheme == "file":
            return pafs.LocalFileSystem()
        from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - costs 0.2 s, remote stores only

        try:
            return PyArrowFileIO(self.properties).fs_by_scheme(scheme, authority or None)
        except ValueError as error:
            raise BadInputError(f"no file system for {scheme}:// locations") from error

    def resolve(self, location: str) -> tuple[Any, str]:
        """Return the PyArrow file system and the path in it that a location names."""
        parsed = paths.parse(location)
        filesystem = self._filesystem(parsed.scheme, parsed.authority)
        if parsed.scheme in {"file", "hdfs", "viewfs"}:
            return filesystem, parsed.path
        return filesystem, f"{parsed.authority}{parsed.path}"

    def open_input(self, location: str) -> Any:
        """Open a file for random access (a `pyarrow.NativeFile`).

        Raises:
            BadInputError: it is a folder, a pipe or a device: opening one could wait for ever.
            NotFoundError: there is no such file.
        """
        filesystem, path = self.resolve(location)
        with _typed_errors(location):
            if isinstance(filesystem, pafs.LocalFileSystem) and not stat.S_ISREG(
                os.stat(path).st_mode
            ):
                raise BadInputError(f"{location} is not a file")
            return filesystem.open_input_file(path)

    def open_output(self, location: str) -> Any:
        """Open a new file for writing (a `pyarrow.NativeFile`); local folders are made."""
        filesystem, path = self.resolve(location)
        with _typed_errors(location):
            if isinstance(filesystem, pafs.LocalFileSystem):
                os.makedirs(os.path.dirname(path), exist_ok=True)
            return filesystem.open_output_stream(path)

    def size(self, location: str) -> int:
        """Return a file's length in bytes.

        Raises:
            NotFoundError: there is no such file.
        """
        filesystem, path = self.resolve(location)
        with _typed_errors(location):
            info = filesystem.get_file_info(path)
        if info.type != pafs.FileType.File:
            raise NotFoundError(f"no such file: {location}")
        return int(info.size)

    def exists(self, location: str) -> bool:
        """Whether a file is there."""
        try:
            self.size(location)
        except NotFoundError:
            return False
        return True

    def read(self, location: str, *, limit: int = MAX_METADATA_BYTES) -> bytes:
        """Return a whole file of metadata.

        Raises:
            CorruptFileError: it is longer than ``limit`` bytes.
            NotFoundError: there is no such file.
        """
        with self.open_input(location) as source, _typed_errors(location):
            length = source.size()
            if length > limit:
                raise CorruptFileError(
                    f"{location} has {length} bytes, more than the {limit} allowed"
                )
            return bytes(source.read())

    def write(self, location: str, data: bytes | pa.Buffer, *, durable: bool = True) -> None:
        """Write a whole file and, on a local disk, make it survive a power cut."""
        with self.open_output(location) as sink, _typed_errors(location):
            sink.write(data)
        if durable:
            self.persist(location)

    def persist(self, location: str) -> None:
        """Flush a written local file and its folder to the disk; other stores do so on close."""
        parsed = paths.parse(location)
        if not parsed.is_local:
            return
        for path, flags in (
            (parsed.path, os.O_RDONLY),
            (os.path.dirname(parsed.path), os.O_RDONLY),
        ):
            descriptor = os.open(path, flags)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def is_folder(self, location: str) -> bool:
        """Whether a location is a folder with something in it."""
        filesystem, path = self.resolve(location)
        with _typed_errors(location):
            return bool(filesystem.get_file_info(path).type == pafs.FileType.Directory)

    def make_folder(self, location: str) -> None:
        """Make a folder and those above it where they are missing."""
        filesystem, path = self.resolve(location)
        with _typed_errors(location):
            filesystem.create_dir(path, recursive=True)

    def list_folder(self, folder: str) -> list[tuple[str, bool]]:
        """Return the names right in a folder, sorted, and whether each is a folder; none if there is none."""
        filesystem, path = self.resolve(folder)
        with _typed_errors(folder):
            if filesystem.get_file_info(path).type != pafs.FileType.Directory:
                return []
            infos = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted((info.base_name, info.type == pafs.FileType.Directory) for info in infos)

    def list_files(self, folder: str) -> list[StoredFile]:
        """Return the files right in a folder, by name; none if there is no folder. Links are left out."""
        filesystem, path = self.resolve(folder)
        with _typed_errors(folder):
            if filesystem.get_file_info(path).type != pafs.FileType.Directory:
                return []
            infos = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        local = isinstance(filesystem, pafs.LocalFileSystem)
        return sorted(
            (
                _stored(paths.join(folder, info.base_name), info)
                for info in infos
                if info.type == pafs.FileType.File
                and not (local and os.path.islink(os.path.join(path, info.base_name)))
            ),
            key=lambda file: file.location,
        )

    def look_up(self, locations: Iterable[str]) -> dict[str, StoredFile | None]:
        """Return what storage knows of files, None for one that is not there; many are asked at once."""
        wanted = list(dict.fromkeys(locations))
        if all(paths.parse(location).is_local for location in wanted):
            # A thread costs more than the system call that it would make.
            return {location: self._look_up(location) for location in wanted}
        with ThreadPoolExecutor(_LOOK_UP_THREADS) as pool:
            return dict(zip(wanted, pool.map(self._look_up, wanted), strict=True))

    def _look_up(self, location: str) -> StoredFile | None:
        filesystem, path = self.resolve(location)
        try:
            with _typed_errors(location):
                info = filesystem.get_file_info(path)
        except OSError as error:
            # No file can have such a name.
            if error.errno == errno.ENAMETOOLONG:
                return None
            raise
        return _stored(location, info) if info.type == pafs.FileType.File else None

    def find(self, folder: str, name_part: str) -> list[str]:
        """Return the files below a folder whose names contain a text; none if there is no folder.

        Links are not followed: what lies behind one belongs to someone else.
        """
        parsed = paths.parse(folder)
        if parsed.is_local:
            prefix = (
                folder[: len(folder) - len(parsed.path)] if folder.endswith(parsed.path) else ""
            )
            return [
                f"{prefix}{os.path.join(place, name)}"
                for place, _, names in os.walk(parsed.path)
                for name in names
                if name_part in name
            ]
        filesystem, path = self.resolve(folder)
        selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
        with _typed_errors(folder):
            infos = filesystem.get_file_info(selector)
        base = folder.rstrip("/")
        return [
            base + info.path.removeprefix(path.rstrip("/"))
            for info in infos
            if info.type == pafs.FileType.File and name_part in info.base_name
        ]

    def delete(self, locations: Iterable[str]) -> DeleteOutcome:
        """Delete files in parallel; a file that is not there counts as deleted, a failure is kept and told."""
        outcome = DeleteOutcome()
        wanted = list(dict.fromkeys(locations))
        # A thread costs more than one call of the system, and its orders more than a local delete.
        size = -(-len(wanted) // _DELETE_THREADS) or 1
        slices = [wanted[start : start + size] for start in range(0, len(wanted), size)]
        with ThreadPoolExecutor(len(slices) or 1) as pool:
            each = pool.map if slices[1:] else map
            for failures in each(self._delete_all, slices):
                outcome.failed.update(failures)
        outcome.deleted += [location for location in wanted if location not in outcome.failed]
        return outcome

    def _delete_all(self, locations: Sequence[str]) -> dict[str, str]:
        told = {location: self._delete_one(location) for location in locations}
        return {location: failure for location, failure in told.items() if failure is not None}

    def _delete_one(self, location: str) -> str | None:
        try:
            parsed = paths.parse(location)
            if parsed.is_local:
                _delete_local(parsed.path)
            else:
                filesystem, path = self.resolve(location)
                filesystem.delete_file(path)
        except FileNotFoundError:
            return None
        except (OSError, BadInputError, pa.ArrowException) as error:
            return str(error)[:200]
        return None


def _stored(location: str, info: Any) -> StoredFile:
    changed = info.mtime_ns
    return StoredFile(location, int(info.size), None if changed is None else changed // 1_000_000)


def _delete_local(path: str) -> None:
    # A link is removed as a link; a file is never reached through one (V13).
    folder = os.path.dirname(path)
    if os.path.realpath(folder) != os.path.normpath(folder) and _link_below_table(folder):
        raise OSError(errno.ELOOP, "a symbolic link leads out of the table", path)
    if stat.S_ISDIR(os.lstat(path).st_mode):
        raise OSError(errno.EISDIR, "is a folder", path)
    os.unlink(path)
    # Hadoop's local file system keeps a checksum beside each of its files.
    with suppress(OSError):
        os.unlink(os.path.join(folder, f".{os.path.basename(path)}.crc"))


def _link_below_table(folder: str) -> bool:
    """Whether one of the last parts of a folder's path is a link (above it, links are the owner's choice)."""
    # A table's files lie at most this deep under it: data or metadata, then partition folders.
    for _ in range(8):
        if os.path.islink(folder):
            return True
        if os.path.basename(folder) in {"data", "metadata"}:
            return False
        folder = os.path.dirname(folder)
    return False


class _typed_errors:  # noqa: N801 - reads as a statement
    """Turns the errors of file systems into lake's."""

    def __init__(self, location: str) -> None:
        self._location = location

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, FileNotFoundError):
            raise NotFoundError(f"no such file: {self._location}") from error
        known = storage_error(error) if isinstance(error, OSError) else None
        if isinstance(known, NotAuthorisedError):
            raise NotAuthorisedError(f"not allowed to touch {self._location}") from error
        if known is not None:
            raise known from error
        if isinstance(error, IsADirectoryError):
            raise BadInputError(f"{self._location} is a folder, not a file") from error
