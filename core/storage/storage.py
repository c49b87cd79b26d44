"""Bytes in and out of wherever a table lies: one object per set of storage properties.

PyIceberg's PyArrow FileIO builds the file systems, so users configure storage as they know it; names are
parsed by `lake.core.locations`, because that FileIO drops the tail of a name behind ``#`` or ``?``.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache, partial, wraps
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.fs as pafs

from lake.core import locations as paths
from lake.core.clock import Backoff
from lake.core.errors import (
    BadInputError,
    CorruptFileError,
    LakeError,
    NotFoundError,
    StorageError,
)
from lake.core.storage.atomic_files import flush
from lake.core.storage.credentials import CredentialProvider, Credentials
from lake.core.storage.errors import is_refusal, translate_errors
from lake.core.storage.s3 import (
    BACKOFF,
    S3,
    UNTRIED,
    ShouldContinue,
    UnsupportedError,
    always,
    completed,
    is_plain,
)

MAX_METADATA_BYTES = 512 * 1024 * 1024
_DELETE_THREADS = 16
_LOOK_UP_THREADS = 32
_TOLD_LENGTH = 400
# Google's client would try for a quarter of an hour.
_RETRY_SECONDS = 60
# What Arrow puts into one part.
_PUT_BYTES = 5 * 1024 * 1024
# To reach what is in it, for which a folder need not be readable.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC
_Call = TypeVar("_Call", bound=Callable[..., Any])
_T = TypeVar("_T")


def read_up_to(source: Any, size: int) -> bytes:
    """Read bytes of an open file into memory that was cleared; an empty text means that it ended.

    Arrow's S3 client (26.0, AWS SDK 1.11) takes what a failing store says, with whatever the memory behind that
    held before, for XML: where that is XML without an element it crashes.
    """
    data = bytearray(size)
    return bytes(memoryview(data)[: source.readinto(data)])


def _retry_with_fresh_credentials(call: _Call) -> _Call:
    """Let a call of a storage that was refused try once more, with the credentials that its catalog then vends."""

    @wraps(call)
    def again(self: Storage, *arguments: Any, **named: Any) -> Any:
        number, _ = self.renewed.current()
        try:
            return call(self, *arguments, **named)
        except (LakeError, OSError) as error:
            if not (is_refusal(error) and self.renewed.renew(number)):
                raise
        return call(self, *arguments, **named)

    return again  # type: ignore[return-value]


@dataclass(slots=True)
class DeleteOutcome:
    """What became of files that were to be deleted; a file that was not there counts as deleted."""

    deleted: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)


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
            never printed, and go to executors in a binary column only.
        renewed: instead of them, credentials that are vended anew while a run goes on.
        roots: folders below which nothing is deleted by a way through a link.
        backoff: the waits between requests that a busy store refuses.
    """

    def __init__(
        self,
        properties: Mapping[str, str] | None = None,
        *,
        renewed: CredentialProvider | None = None,
        roots: Sequence[str] = (),
        backoff: Backoff = BACKOFF,
    ) -> None:
        self._roots = [
            _local_path(root).rstrip("/") for root in roots if paths.parse(root).is_local
        ]
        self.renewed = renewed or CredentialProvider(Credentials(dict(properties or {})))
        # One object a bucket: bulk deletes group locations by it.
        self._bucket = lru_cache(maxsize=16)(partial(_bucket_with, backoff))
        self._filesystem = lru_cache(maxsize=64)(_open_filesystem)

    def __repr__(self) -> str:
        return "Storage(…)"

    @property
    def credentials(self) -> Credentials:
        """What opens the store now."""
        return self.renewed.current()[1]

    def resolve(self, location: str) -> tuple[Any, str]:
        """Return the PyArrow file system and the path in it that a location names."""
        parsed = paths.parse(location)
        properties = {} if parsed.is_local else self.credentials.at(location)
        key = tuple(sorted(properties.items()))
        filesystem = self._filesystem(parsed.scheme, parsed.authority, key)
        if parsed.scheme in {"file", "hdfs", "viewfs"}:
            return filesystem, parsed.path
        return filesystem, f"{parsed.authority}{parsed.path}"

    def s3(self, location: str) -> tuple[S3, str] | None:
        """Return the bucket of an object and its key there; None where only Arrow reaches it."""
        parsed = paths.parse(location)
        key = parsed.path[1:]
        if parsed.scheme != "s3" or not is_plain(key):
            return None
        properties = tuple(sorted(self.credentials.at(location).items()))
        bucket = self._bucket(parsed.authority, properties)
        return (bucket, key) if bucket else None

    @_retry_with_fresh_credentials
    def ask_s3(self, location: str, ask: Callable[[S3, str], _T]) -> _T:
        """Return what asking an object's bucket gives, with the object's key there.

        Raises:
            UnsupportedError: only Arrow reaches it, or the store does not know such requests.
            StoreError: the store refused or did not answer.
        """
        reached = self.s3(location)
        if reached is None:
            raise UnsupportedError(location)
        return ask(*reached)

    @_retry_with_fresh_credentials
    def open_input(self, location: str, *, follow_link: bool = False) -> Any:
        """Open a file for random access (a `pyarrow.NativeFile`).

        Args:
            location: the file's.
            follow_link: also open a file through a symbolic link in its place. Users name sources so; in place
                of a table's file a link shows other rows.

        Raises:
            BadInputError: it is a link, a folder, a pipe or a device: opening one could wait for ever.
            NotFoundError: there is no such file.
        """
        filesystem, path = self.resolve(location)
        with translate_errors(location):
            if isinstance(filesystem, pafs.LocalFileSystem):
                require_file(location, os.stat(path, follow_symlinks=follow_link))
            return filesystem.open_input_file(path)

    @_retry_with_fresh_credentials
    def open_output(self, location: str) -> Any:
        """Open a new file for writing (a `pyarrow.NativeFile`); local folders are made."""
        filesystem, path = self.resolve(location)
        with translate_errors(location):
            if isinstance(filesystem, pafs.LocalFileSystem):
                _make_folders(os.path.dirname(path))
            return filesystem.open_output_stream(path)

    @_retry_with_fresh_credentials
    def size(self, location: str) -> int:
        """Return a file's length in bytes.

        Raises:
            NotFoundError: there is no such file.
        """
        filesystem, path = self.resolve(location)
        with translate_errors(location):
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

    @_retry_with_fresh_credentials
    def read(self, location: str, *, limit: int = MAX_METADATA_BYTES) -> bytes:
        """Return a whole file of metadata.

        Raises:
            CorruptFileError: it is longer than ``limit`` bytes.
            NotFoundError: there is no such file.
        """
        with translate_errors(location), self.open_input(location) as source:
            length = source.size()
            if length > limit:
                raise CorruptFileError(
                    f"{location} has {length} bytes, more than the {limit} allowed"
                )
            data = read_up_to(source, length)
        if len(data) != length:
            raise StorageError(f"{location}: the storage gave {len(data)} of its {length} bytes")
        return data

    @_retry_with_fresh_credentials
    def read_part(self, location: str, start: int, size: int) -> bytes:
        """Return bytes of a file, fewer than asked for where it ends before.

        Raises:
            NotFoundError: there is no such file.
        """
        with translate_errors(location), self.open_input(location) as source:
            source.seek(start)
            return read_up_to(source, size)

    @_retry_with_fresh_credentials
    def write(self, location: str, data: bytes | pa.Buffer, *, durable: bool = True) -> None:
        """Write a whole file and, on a local disk, make it survive a power cut."""
        with translate_errors(location):
            if self._put(location, data):
                return
            with self.open_output(location) as sink:
                sink.write(data)
        if durable:
            self.persist(location)

    def _put(self, location: str, data: bytes | pa.Buffer) -> bool:
        """Write a small object by one request instead of three, if that can be."""
        reached = self.s3(location) if len(data) <= _PUT_BYTES else None
        if reached is None:
            return False
        bucket, key = reached
        try:
            bucket.put(key, bytes(data))
        except UnsupportedError:
            return False
        return True

    def persist(self, location: str) -> None:
        """Flush a written local file and its folder to the disk; other stores do so on close."""
        parsed = paths.parse(location)
        if not parsed.is_local:
            return
        with translate_errors(location):
            flush(parsed.path)
            flush(os.path.dirname(parsed.path))

    @_retry_with_fresh_credentials
    def is_folder(self, location: str) -> bool:
        """Whether a location is a folder with something in it."""
        filesystem, path = self.resolve(location)
        with translate_errors(location):
            return bool(filesystem.get_file_info(path).type == pafs.FileType.Directory)

    @_retry_with_fresh_credentials
    def make_folder(self, location: str) -> None:
        """Make a folder and those above it where they are missing."""
        filesystem, path = self.resolve(location)
        with translate_errors(location):
            if isinstance(filesystem, pafs.LocalFileSystem):
                _make_folders(path)
            else:
                filesystem.create_dir(path, recursive=True)

    @_retry_with_fresh_credentials
    def list_folder(self, folder: str) -> list[tuple[str, bool]]:
        """Return the names right in a folder, sorted, and whether each is a folder; none if there is none."""
        filesystem, path = self.resolve(folder)
        with translate_errors(folder):
            if filesystem.get_file_info(path).type != pafs.FileType.Directory:
                return []
            infos = filesystem.get_file_info(pafs.FileSelector(path, allow_not_found=True))
        return sorted((info.base_name, info.type == pafs.FileType.Directory) for info in infos)

    @_retry_with_fresh_credentials
    def list_files(self, folder: str) -> list[StoredFile]:
        """Return the files right in a folder, by name; none if there is no folder. Links are left out."""
        filesystem, path = self.resolve(folder)
        with translate_errors(folder):
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
        """Return what storage knows of files; many are asked at once.

        Returns:
            None for a file that is not there, or in whose place there is a symbolic link.
        """
        wanted = list(dict.fromkeys(locations))
        if all(paths.parse(location).is_local for location in wanted):
            # A thread costs more than the system call that it would make.
            return {location: self._look_up(location) for location in wanted}
        with ThreadPoolExecutor(_LOOK_UP_THREADS) as pool:
            return dict(zip(wanted, pool.map(self._look_up, wanted), strict=True))

    @_retry_with_fresh_credentials
    def _look_up(self, location: str) -> StoredFile | None:
        filesystem, path = self.resolve(location)
        with translate_errors(location):
            if isinstance(filesystem, pafs.LocalFileSystem) and os.path.islink(path):
                return None
            try:
                info = filesystem.get_file_info(path)
            except OSError as error:
                # No file can have such a name.
                if error.errno == errno.ENAMETOOLONG:
                    return None
                raise
        return _stored(location, info) if info.type == pafs.FileType.File else None

    @_retry_with_fresh_credentials
    def find(self, folder: str, name_part: str) -> list[str]:
        """Return the files below a folder whose names contain a text; none if there is no folder.

        Links are not followed: what lies behind one belongs to someone else.
        """
        parsed = paths.parse(folder)
        if parsed.is_local:
            prefix = (
                folder[: len(folder) - len(parsed.path)] if folder.endswith(parsed.path) else ""
            )
            with translate_errors(folder):
                return [
                    f"{prefix}{os.path.join(place, name)}"
                    for place, _, names in os.walk(parsed.path, onerror=_unless_gone)
                    for name in names
                    if name_part in name
                ]
        filesystem, path = self.resolve(folder)
        selector = pafs.FileSelector(path, recursive=True, allow_not_found=True)
        with translate_errors(folder):
            infos = filesystem.get_file_info(selector)
        base = folder.rstrip("/")
        return [
            base + info.path.removeprefix(path.rstrip("/"))
            for info in infos
            if info.type == pafs.FileType.File and name_part in info.base_name
        ]

    def end_uploads(self, folder: str, name_part: str) -> None:
        """End uploads of files below a folder whose names contain a text, which failed writers left open.

        Only S3 has any; a store that tells nothing of them is left alone.
        """
        reached = self.s3(f"{folder.rstrip('/')}/")
        if reached is None:
            return
        bucket, prefix = reached
        with suppress(OSError, UnsupportedError):
            bucket.abort_uploads(prefix, name_part)

    def delete(
        self, locations: Iterable[str], *, should_continue: ShouldContinue = always
    ) -> DeleteOutcome:
        """Delete files in parallel; a file that is not there counts as deleted, a failure is kept and told.

        Args:
            locations: the files'.
            should_continue: asked before each call of the store; once it says no, what is left is not tried.
        """
        wanted = list(dict.fromkeys(locations))
        number, _ = self.renewed.current()
        failed = self._delete_each(wanted, should_continue)
        refused = [place for place, why in failed.items() if is_refusal(OSError(why))]
        if refused and self.renewed.renew(number):
            again = self._delete_each(refused, should_continue)
            failed = {k: why for k, why in failed.items() if k not in refused} | again
        untried = [one for one, why in failed.items() if why == UNTRIED]
        deleted = [one for one in wanted if one not in failed]
        return DeleteOutcome(deleted, {k: v for k, v in failed.items() if v != UNTRIED}, untried)

    def _delete_each(
        self, wanted: Sequence[str], should_continue: ShouldContinue
    ) -> dict[str, str]:
        """Delete files and return why some could not be."""
        failed, left = self._delete_together(wanted, should_continue)
        # A thread costs more than one call of the system, and its orders more than a local delete.
        size = -(-len(left) // _DELETE_THREADS) or 1
        slices = [left[start : start + size] for start in range(0, len(left), size)]
        with ThreadPoolExecutor(len(slices) or 1) as pool:
            each = pool.map if slices[1:] else map
            for failures in each(
                partial(self._delete_all, should_continue=should_continue), slices
            ):
                failed.update(failures)
        return failed

    def _delete_together(
        self, wanted: Sequence[str], should_continue: ShouldContinue
    ) -> tuple[dict[str, str], list[str]]:
        """Delete objects by the thousand; return what failed and what has to go one by one."""
        buckets: dict[S3, dict[str, str]] = {}
        left = []
        for location in wanted:
            reached = None if location.startswith(("/", "file:")) else self._reached(location)
            if reached is None:
                left.append(location)
            else:
                buckets.setdefault(reached[0], {})[reached[1]] = location
        failed: dict[str, str] = {}
        for bucket, keys in buckets.items():
            try:
                told = bucket.delete_all(list(keys), should_continue)
            except UnsupportedError:
                left += keys.values()
            else:
                failed |= {keys[key]: why for key, why in told.items()}
        return failed, left

    def _reached(self, location: str) -> tuple[S3, str] | None:
        try:
            return self.s3(location)
        except BadInputError:
            return None

    def _delete_all(
        self, locations: Sequence[str], should_continue: ShouldContinue
    ) -> dict[str, str]:
        told = {location: self._delete_one(location, should_continue) for location in locations}
        return {location: failure for location, failure in told.items() if failure is not None}

    def _delete_one(self, location: str, should_continue: ShouldContinue = always) -> str | None:
        try:
            if paths.parse(location).is_local:
                return _delete_local(_local_path(location), self._roots, should_continue)
            filesystem, path = self.resolve(location)
            if not should_continue():
                return UNTRIED
            filesystem.delete_file(path)
        except FileNotFoundError:
            return None
        except (OSError, BadInputError, pa.ArrowException) as error:
            return str(error)[:_TOLD_LENGTH]
        return None


def require_file(location: str, status: os.stat_result) -> None:
    """Check that a local location is a file itself.

    Raises:
        BadInputError: it is a link, a folder, a pipe or a device.
    """
    if stat.S_ISLNK(status.st_mode):
        raise BadInputError(
            f"{location} is a symbolic link, not a file",
            hint="links to folders are followed, links in place of a table's files are not",
        )
    if not stat.S_ISREG(status.st_mode):
        raise BadInputError(f"{location} is not a file")


def _make_folders(path: str) -> None:
    """Make a local folder and those above it where they are missing, so that they outlive a power cut."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder)
        flush(os.path.dirname(folder))


def _unless_gone(error: OSError) -> None:
    """Raise what hides files of a folder; one that is not there, or not any more, hides none."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


@lru_cache(maxsize=16)
def _open_bucket(name: str, properties: Iterable[tuple[str, str]]) -> S3 | None:
    return S3.of(completed(dict(properties)), name)


def _bucket_with(backoff: Backoff, name: str, properties: tuple[tuple[str, str], ...]) -> S3 | None:
    bucket = _open_bucket(name, properties)
    return bucket.waiting(backoff) if bucket else None


def _open_filesystem(scheme: str, authority: str, properties: Iterable[tuple[str, str]]) -> Any:
    if scheme == "file":
        return pafs.LocalFileSystem()
    from pyiceberg.io.pyarrow import PyArrowFileIO  # noqa: PLC0415 - costs 0.2 s, remote stores only

    settings = completed(dict(properties))
    try:
        found = PyArrowFileIO(settings).fs_by_scheme(scheme, authority or None)
    except ValueError as error:
        raise BadInputError(f"no file system for {scheme}:// locations") from error
    except (TypeError, ImportError, OSError, pa.ArrowException) as error:
        why = (str(error).strip().splitlines() or [""])[0][:_TOLD_LENGTH]
        raise BadInputError(
            f"cannot open {scheme}://{authority}: {why}",
            hint="what opens that store is missing in the catalog's configuration, or on this machine",
        ) from error
    return found if "s3.retry-strategy-impl" in settings else _with_limits(found)


def _with_limits(filesystem: Any) -> Any:
    """Return a file system with settings that PyIceberg does not know; Arrow pickles it as its settings."""
    if isinstance(filesystem, pafs.LocalFileSystem):
        return filesystem
    wanted = {
        "retry_time_limit": timedelta(seconds=_RETRY_SECONDS),
        "tls_ca_file_path": os.environ.get("AWS_CA_BUNDLE"),
    }
    make, given = filesystem.__reduce__()
    settings = given[0] if given and isinstance(given[0], dict) else {}
    more = {key: value for key, value in wanted.items() if value and key in settings}
    return make({**settings, **more}) if more else filesystem


def _stored(location: str, info: Any) -> StoredFile:
    changed = info.mtime_ns
    return StoredFile(location, int(info.size), None if changed is None else changed // 1_000_000)


def _local_path(location: str) -> str:
    return paths.parse(paths.canonical(location)).path


def _delete_local(path: str, roots: Sequence[str], should_continue: ShouldContinue) -> str | None:
    folder, name = os.path.split(path)
    descriptor = _open_folder(folder, roots)
    try:
        # A link is removed as a link.
        if stat.S_ISDIR(os.lstat(name, dir_fd=descriptor).st_mode):
            raise OSError(errno.EISDIR, "is a folder", path)
        # Asked at the last moment: a thread that waits for its turn may wait for as long as the process is stopped.
        if not should_continue():
            return UNTRIED
        os.unlink(name, dir_fd=descriptor)
        # Hadoop's local file system keeps a checksum beside each of its files.
        with suppress(OSError):
            os.unlink(f".{name}.crc", dir_fd=descriptor)
        return None
    finally:
        os.close(descriptor)


def _open_folder(folder: str, roots: Sequence[str]) -> int:
    """Open a folder, to which no link leads from the root that it lies in: above, links are the owner's choice (V13).

    Whoever puts a link in its place afterwards changes nothing about what was opened.
    """
    root = min((root for root in roots if _lies_in(folder, root)), key=len, default=None)
    if root is None:
        if os.path.realpath(folder) != os.path.normpath(folder) and _link_below_table(folder):
            raise OSError(errno.ELOOP, "a symbolic link leads out of the table", folder)
        return os.open(folder, _FOLDER)
    descriptor = os.open(root or "/", _FOLDER)
    for part in filter(None, folder.removeprefix(root).split("/")):
        try:
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)
        except NotADirectoryError as error:
            raise OSError(
                errno.ELOOP, "a link, or a file, is in the place of a folder", folder
            ) from error
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _lies_in(folder: str, root: str) -> bool:
    return f"{folder}/".startswith(f"{root}/")


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
