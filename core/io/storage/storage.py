"""Read, write and delete files by location; one object per set of storage properties.

PyIceberg's PyArrow FileIO builds the file systems, so its storage properties apply. Locations are parsed by
`lake.core.base.locations`, because that FileIO truncates a name at ``#`` or ``?``.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial, wraps
from hashlib import md5
from itertools import islice
from threading import Lock
from typing import Any, Generic, TypeVar, cast

import pyarrow as pa
import pyarrow.fs as pafs

from lake.core.base import locations as paths
from lake.core.base.clock import Backoff
from lake.core.base.errors import (
    BadInputError,
    CorruptFileError,
    LakeError,
    NotFoundError,
    StorageError,
)
from lake.core.io.objects.cloud import SCHEMES, Cloud
from lake.core.io.objects.cloud_files import CloudFiles
from lake.core.io.objects.large_file import LargeFile
from lake.core.io.objects.new_object import NewObject
from lake.core.io.objects.requests import (
    BACKOFF,
    UNTRIED,
    ShouldContinue,
    StoreError,
    UnsupportedError,
    always,
    timed_out,
)
from lake.core.io.objects.s3 import (
    S3,
    is_plain,
)
from lake.core.io.objects.upload import PUT_BYTES, PartsOfS3, Upload
from lake.core.io.objects.waits import Check, awaited, unchecked
from lake.core.io.objects.whole_objects import Found, Part
from lake.core.io.storage import opening
from lake.core.io.storage.atomic_files import flush
from lake.core.io.storage.credentials import CredentialProvider, Credentials
from lake.core.io.storage.deletion import Deletion
from lake.core.io.storage.errors import (
    is_muffled,
    is_refusal,
    is_silence,
    translate_errors,
)
from lake.core.io.storage.local_folders import (
    delete_local_file,
    file_status,
    local_entries,
    local_files,
    make_folders,
    open_folder,
    require_file,
)
from lake.core.io.storage.store_listing import LISTING, StoreListing
from lake.core.io.work_ahead import ReadingThreads

MAX_METADATA_BYTES = 512 * 1024 * 1024
_BATCH_FILES = 65_536
_LOOK_UP_THREADS = 32
# Smaller objects are read whole when they are opened.
_WHOLE_BYTES = 1024 * 1024
# The least bytes of a larger one that are read then, and how many times as long it is; most footers are shorter.
_LEAST_END_BYTES = 64 * 1024
_FILES_TO_END = 64
# The most bytes of small sources that a storage keeps.
_KEPT_BYTES = 16 * 1024 * 1024
# The most bytes of manifests that the storages of a table keep.
_UNCHANGING_BYTES = 32 * 1024 * 1024
# The most bytes of what they keep that was built from manifests, and from one of them: what is done with larger ones
# takes much longer than to build it again.
_BUILT_BYTES = 16 * 1024 * 1024
_BUILT_FROM_ONE = 256 * 1024
# The properties of stores begin with these.
_OF_STORES = ("s3.", "client.", "gcs.", "adls.")
_Call = TypeVar("_Call", bound=Callable[..., Any])
_T = TypeVar("_T")
_K = TypeVar("_K")


def read_up_to(source: Any, size: int) -> bytes:
    """Read bytes of an open file into zeroed memory; an empty result is the end of the file.

    When a request fails, Arrow's S3 client (26.0, AWS SDK 1.11) parses the read buffer as the XML of the error,
    including its uninitialised rest, and crashes on XML without an element.
    """
    data = bytearray(size)
    return bytes(memoryview(data)[: source.readinto(data)])


def _retry_with_fresh_credentials(call: _Call) -> _Call:
    """Retry a storage call that was refused once, with credentials that the catalog vends then, or other keys.

    A read that fails for an unknown reason is retried if the store was only busy; see `is_muffled`.
    """

    def asked(self: Storage, *arguments: Any, **named: Any) -> Any:
        for _ in range(opening.ARROW_TRIES):
            try:
                return call(self, *arguments, **named)
            except (LakeError, OSError) as error:
                if not (is_muffled(error) and self.is_readable(arguments[0])):
                    raise
        return call(self, *arguments, **named)

    @wraps(call)
    def again(self: Storage, *arguments: Any, **named: Any) -> Any:
        number, _ = self.renewed.current()
        try:
            return asked(self, *arguments, **named)
        except (LakeError, OSError) as error:
            is_vended = is_refusal(error) and self.renewed.renew(number)
            if not (is_vended or self._may_succeed(arguments[0], error)):
                raise
        return asked(self, *arguments, **named)

    return again  # type: ignore[return-value]


@dataclass(slots=True)
class DeleteOutcome:
    """The result of deleting files; a file that did not exist counts as deleted."""

    deleted: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)
    untried: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class StoredFile:
    """A stored file: its length in bytes, and its last change in ms since 1970 (None if unknown)."""

    location: str
    length: int
    modified_ms: int | None


class _Kept(Generic[_K, _T]):
    """Values by their keys, up to some bytes. Threads may share it."""

    def __init__(self) -> None:
        self.values: dict[_K, _T] = {}
        self._bytes = 0
        self._lock = Lock()

    def keep(self, key: _K, value: _T, size: int, most: int) -> None:
        """Keep a value of some bytes, unless there are too many."""
        with self._lock:
            if self._bytes + size <= most and key not in self.values:
                self.values[key] = value
                self._bytes += size


class _Unchanging:
    """Files that do not change.

    Args:
        contents: the contents and ETags of those in stores, by location.
        built: by location and kind, what was built from a file, with its contents, and with its state if it is local.
    """

    def __init__(self) -> None:
        self.contents = _Kept[str, tuple[bytes, str]]()
        self.built = _Kept[tuple[str, str], tuple[tuple[int, ...] | None, bytes, Any]]()


class Storage:
    """Reads, writes and deletes files by location.

    Args:
        properties: storage properties of PyIceberg's FileIO. They may contain secrets: they are never printed,
            and are sent to executors in a binary column only.
        renewed: instead of properties, credentials that are renewed during a run.
        roots: folders below which nothing is deleted through a symbolic link.
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
        # One object per bucket: bulk deletes group locations by it.
        self._bucket = lru_cache(maxsize=16)(partial(opening.bucket_with, backoff))
        self._filesystem = lru_cache(maxsize=64)(opening.open_filesystem)
        self._kept: dict[str, pa.Buffer] = {}
        self._held: dict[str, Any] = {}
        self._unchanging = _Unchanging()

    def __repr__(self) -> str:
        return "Storage(…)"

    @property
    def credentials(self) -> Credentials:
        """The current credentials."""
        return self.renewed.current()[1]

    def resolve(self, location: str) -> tuple[Any, str]:
        """Return the PyArrow file system of a location, and the path in it."""
        parsed = paths.parse(location)
        properties = {} if parsed.is_local else self.credentials.at(location)
        client = self._client(location)
        if isinstance(client, Cloud):
            files = CloudFiles(client, parsed.authority)
            return pafs.PyFileSystem(files), f"{parsed.authority}{parsed.path}"
        if client:
            with translate_errors(location), suppress(UnsupportedError):
                properties = client.for_arrow()
        key = tuple(sorted(properties.items()))
        filesystem = self._filesystem(parsed.scheme, parsed.authority, key)
        if parsed.scheme in {"file", "hdfs", "viewfs"}:
            return filesystem, parsed.path
        return filesystem, f"{parsed.authority}{parsed.path}"

    def s3(self, location: str) -> tuple[S3 | Cloud, str] | None:
        """Return the bucket and the key of an object; None if only Arrow's client supports it."""
        key = paths.parse(location).path[1:]
        client = self._client(location)
        return (client, key) if client and is_plain(key) else None

    def _client(self, location: str) -> S3 | Cloud | None:
        parsed = paths.parse(location)
        if parsed.scheme != "s3" and parsed.scheme not in SCHEMES:
            return None
        given = self.credentials.at(location).items()
        # Those of the catalog differ between storages that share a client.
        properties = tuple(sorted(item for item in given if item[0].startswith(_OF_STORES)))
        return self._bucket(parsed.scheme, parsed.authority, properties)

    def host(self, location: str) -> str:
        """Return the host of a location's store, and its port."""
        client = self._client(location)
        return client.host if client else paths.parse(location).authority

    def _may_succeed(self, location: str, error: BaseException) -> bool:
        """Whether a request of Arrow's that failed may succeed with other keys, or in another region."""
        client = self._client(location)
        return isinstance(client, S3) and client.may_succeed(error)

    def is_readable(self, location: str) -> bool:
        """Whether an object can be read, after a wait for a busy store; False if it is not known."""
        try:
            reached = self.s3(location)
            return reached is not None and reached[0].get(reached[1], 1) is not None
        except (OSError, UnsupportedError):
            return False

    @_retry_with_fresh_credentials
    def ask_s3(self, location: str, ask: Callable[[S3 | Cloud, str], _T]) -> _T:
        """Call ``ask`` with an object's bucket and key, and return its result.

        Raises:
            UnsupportedError: only Arrow's client supports the object, or the store does not support the request.
            StoreError: the store refused the request or did not answer.
        """
        reached = self.s3(location)
        if reached is None:
            raise UnsupportedError(location)
        return ask(*reached)

    def open_input(self, location: str, *, size: int | None = None) -> Any:
        """Open a file for random access (a `pyarrow.NativeFile`).

        A link is refused: in place of a table's file, one could contain other rows.

        Args:
            location: the file.
            size: its length in bytes by the table's metadata, which saves a request for a long one.

        Raises:
            BadInputError: it is a link, a folder, a pipe or a device; opening one could block forever.
            NotFoundError: there is no such file.
        """
        # A file is used by one reader: the next one opens it again.
        held = self._held.pop(location, None)
        if held is not None:
            return held
        return self._open(location, follow_link=False, size=size)

    @contextmanager
    def holding(self, location: str, source: Any) -> Iterator[None]:
        """Let the next `open_input` of a location return a file that is open, unless the context ends before."""
        self._held[location] = source
        try:
            yield
        finally:
            if self._held.get(location) is source:
                self._held.pop(location, None)

    def open_source(self, location: str) -> Any:
        """Open a file that a user names; links are followed.

        A small object of a store is requested once, although its format, its columns and its rows are read one after
        the other: all are of one version of it.

        Raises:
            BadInputError: it is a folder, a pipe or a device.
            NotFoundError: there is no such file.
        """
        kept = self._kept.get(location)
        if kept is None:
            opened = self._open(location, follow_link=True)
            if not isinstance(opened, pa.BufferReader):
                return opened
            kept = opened.read_buffer()
            if sum(map(len, self._kept.values())) + len(kept) <= _KEPT_BYTES:
                self._kept[location] = kept
        return pa.BufferReader(kept)

    @_retry_with_fresh_credentials
    def _open(self, location: str, *, follow_link: bool, size: int | None = None) -> Any:
        with translate_errors(location):
            opened = self._open_object(location, size)
            if opened is not None:
                return opened
            filesystem, path = self.resolve(location)
            if isinstance(filesystem, pafs.LocalFileSystem):
                # check: no-link-in-place-of-file
                require_file(location, os.stat(path, follow_symlinks=follow_link))
                return filesystem.open_input_file(path)
            source = filesystem.open_input_file(path)
            length = source.size()
            if length > _WHOLE_BYTES:
                return source
            # One request instead of several, which is repeated if the store is busy.
            with source:
                data = read_up_to(source, length)
            return (
                pa.BufferReader(data) if len(data) == length else filesystem.open_input_file(path)
            )

    def _open_object(self, location: str, size: int | None) -> Any:
        """Open an object by one request for its end; None if only a file system supports its store or its name.

        Raises:
            NotFoundError: there is no such object.
        """
        reached = self.s3(location)
        if reached is None:
            return None
        wanted = _WHOLE_BYTES
        if size is not None and size > _WHOLE_BYTES:
            wanted = max(_LEAST_END_BYTES, min(size // _FILES_TO_END, _WHOLE_BYTES))
        try:
            end = reached[0].read_end(reached[1], wanted)
        except UnsupportedError:
            return None
        if end is None:
            raise NotFoundError(f"no such file: {location}")
        if end.start == 0:
            return pa.BufferReader(end.data)
        return LargeFile.of(partial(self._part, location), end)

    def _part(self, location: str, start: int, size: int) -> Part:
        """Return a part of an object; raises errors of the store, as Arrow's files do."""
        try:
            part = self.ask_s3(location, lambda bucket, key: bucket.read_part(key, start, size))
        except UnsupportedError as error:
            raise StoreError(f"AWS Error UNKNOWN: {error}") from error
        if part is None:
            raise StoreError("AWS Error NO_SUCH_KEY: the object was deleted while it was read")
        return part

    def _whole(self, location: str, most: int) -> Found | None:
        """Return an object, by one request; None if only a file system supports its store or its name.

        Raises:
            NotFoundError: there is no such object.
        """
        reached = self.s3(location)
        try:
            found = reached[0].read(reached[1], most) if reached else None
        except UnsupportedError:
            return None
        if reached and not found:
            raise NotFoundError(f"no such file: {location}")
        return found

    def open_output(self, location: str) -> Any:
        """Open a new file for writing (a binary file); local folders are created.

        A small object of a store is written by one request when it is closed.
        """
        if self.s3(location) is None:
            return self._open_stream(location)
        return NewObject(
            partial(self.write, location), partial(self._open_stream, location), PUT_BYTES
        )

    @_retry_with_fresh_credentials
    def _open_stream(self, location: str) -> Any:
        reached = self.s3(location)
        if reached and isinstance(reached[0], Cloud):
            newest = cast("Callable[[], Cloud]", partial(self._client, location))
            return reached[0].writer(reached[1], newest if self.renewed.can_refresh else None)
        if reached:
            with suppress(UnsupportedError):
                return Upload(PartsOfS3(partial(self._ask_for_upload, location)))
        filesystem, path = self.resolve(location)
        with translate_errors(location):
            if isinstance(filesystem, pafs.LocalFileSystem):
                make_folders(os.path.dirname(path))
            return filesystem.open_output_stream(path)

    def _ask_for_upload(self, location: str, call: str, **arguments: Any) -> Any:
        def ask(bucket: S3 | Cloud, key: str) -> Any:
            if isinstance(bucket, Cloud):
                raise UnsupportedError(call)
            return bucket.ask_for_upload(call, key, **arguments)

        return self.ask_s3(location, ask)

    def size(self, location: str) -> int:
        """Return a file's length in bytes.

        Raises:
            NotFoundError: there is no such file.
        """
        if not paths.parse(location).is_local:
            found = self._ask(location)
            if found is None:
                raise NotFoundError(f"no such file: {location}")
            return found.length
        filesystem, path = self.resolve(location)
        with translate_errors(location):
            info = filesystem.get_file_info(path)
        if info.type == pafs.FileType.Unknown:
            raise NotFoundError(f"{location} is not a regular file")
        if info.type != pafs.FileType.File:
            raise NotFoundError(f"no such file: {location}")
        return int(info.size)

    def exists(self, location: str) -> bool:
        """Whether a file exists."""
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
        return self._read(location, limit)[0]

    @_retry_with_fresh_credentials
    def _read(self, location: str, limit: int) -> tuple[bytes, str]:
        """Return a whole file and, if one request is enough for it, its ETag."""
        with translate_errors(location):
            whole = self._whole(location, limit)
            if whole and whole.data is not None:
                return bytes(whole.data), whole.tag
            if whole:
                raise _too_long(location, whole.size, limit)
            with self._open(location, follow_link=False) as source:
                length = source.size()
                if length > limit:
                    raise _too_long(location, length, limit)
                data = read_up_to(source, length)
        if len(data) != length:
            raise StorageError(f"{location}: the storage returned {len(data)} of {length} bytes")
        return data, ""

    def read_unchanging(self, location: str, *, certain: bool = False) -> bytes:
        """Return a whole file of metadata that is written once; one of a store is read once, within a limit.

        Args:
            location: the file.
            certain: compare the bytes with the MD5 that most stores return as ETag, else with those of another read.

        Raises:
            CorruptFileError: two reads returned different bytes.
        """
        data, tag = self._unchanging.contents.values.get(location, (None, ""))
        if data is None and self.s3(location) is None:
            data = self.read(location)
        elif data is None:
            data, tag = self._read(location, MAX_METADATA_BYTES)
            self._unchanging.contents.keep(location, (data, tag), len(data), _UNCHANGING_BYTES)
        is_known = certain and tag.strip('"') == md5(data, usedforsecurity=False).hexdigest()
        if certain and not is_known and self.read(location) != data:  # check: list-read-twice
            raise CorruptFileError(f"{location} returned different bytes on two reads")
        return data

    def built_from(
        self,
        location: str,
        kind: str,
        build: Callable[[bytes, str], tuple[_T, int]],
        *,
        certain: bool = False,
    ) -> _T:
        """Return what a function builds from a metadata file that is written once; from a small one only once.

        A local file is read again unless it is the same one as then, with the same size and time.

        Args:
            location: the file.
            kind: what is built; for one file, it is another thing for each kind.
            build: returns what it builds from the contents and the location, which nothing may change, and its bytes.
            certain: read the file in any case; see `read_unchanging`.
        """
        key = location, kind
        kept = self._unchanging
        known, before, value = kept.built.values.get(key, (None, None, None))
        # The state before the file is read: if it changes meanwhile, it is read again the next time.
        state = _state(location)
        if certain or state is None or state != known:  # check: same-file
            data = self.read_unchanging(location, certain=certain)
            if data != before:
                value, size = build(data, location)
                is_kept = state is not None or location in kept.contents.values
                if is_kept and len(data) + size <= _BUILT_FROM_ONE:
                    kept.built.keep(key, (state, data, value), len(data) + size, _BUILT_BYTES)
        return value  # type: ignore[return-value]

    def share(self, earlier: Storage) -> None:
        """Use the files that another storage of the same table has read by `read_unchanging` and `built_from`."""
        self._unchanging = earlier._unchanging

    @_retry_with_fresh_credentials
    def read_part(self, location: str, start: int, size: int) -> bytes:
        """Return bytes of a file, fewer than requested at the end of the file.

        Raises:
            NotFoundError: there is no such file.
        """
        with translate_errors(location):
            reached = self.s3(location)
            if reached:
                with suppress(UnsupportedError):
                    part = reached[0].read_part(reached[1], start, size)
                    if part is None:
                        raise NotFoundError(f"no such file: {location}")
                    return bytes(part.data)
            with self.open_input(location) as source:
                source.seek(start)
                return read_up_to(source, size)

    @_retry_with_fresh_credentials
    def write(
        self, location: str, data: bytes | bytearray | pa.Buffer, *, durable: bool = True
    ) -> None:
        """Write a whole file and, on a local disk, flush it so that it survives a power failure."""
        with translate_errors(location):
            if self._put(location, data):
                return
            with self._open_stream(location) as sink:
                sink.write(data)
        if durable:
            self.persist(location)

    @_retry_with_fresh_credentials
    def create(self, location: str, data: bytes) -> bool:
        """Write a whole object that does not exist, by one request; return False if the store cannot do so.

        Raises:
            FileExistsError: there is another object of this name.
        """
        reached = self.s3(location) if len(data) <= PUT_BYTES else None
        if reached is None:
            return False
        with translate_errors(location):
            try:
                is_new = reached[0].write_new(reached[1], data)
            except UnsupportedError:
                return False
        if not is_new:
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), location)
        return True

    def _put(self, location: str, data: bytes | bytearray | pa.Buffer) -> bool:
        """Write a small object with one request instead of three, if possible."""
        reached = self.s3(location) if len(data) <= PUT_BYTES else None
        if reached is None:
            return False
        bucket, key = reached
        try:
            bucket.put(key, data)
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
        """Whether a location is a folder; in an object store, one that is not empty."""
        with translate_errors(location):
            if reached := self.s3(f"{location.rstrip('/')}/"):
                with suppress(UnsupportedError):
                    return reached[0].has_any(reached[1])
            filesystem, path = self.resolve(location)
            return bool(filesystem.get_file_info(path).type == pafs.FileType.Directory)

    @_retry_with_fresh_credentials
    def make_folder(self, location: str) -> None:
        """Create a folder and its missing parents."""
        filesystem, path = self.resolve(location)
        with translate_errors(location):
            if isinstance(filesystem, pafs.LocalFileSystem):
                make_folders(path)
            else:
                filesystem.create_dir(path, recursive=True)

    def open_local_folder(self, location: str) -> int:
        """Open a local folder without following links below the roots; the caller closes the descriptor.

        Raises:
            OSError: the folder does not exist, or a part of its path below a root is a link.
        """
        return open_folder(_local_path(location), self._roots)

    def make_local_folder(self, location: str) -> None:
        """Create a local folder and its missing parents, none of them through a link below the roots.

        Raises:
            OSError: a part of its path is a link or a file.
        """
        path = _local_path(location)
        above = path
        while not os.path.lexists(above):
            above = os.path.dirname(above)
        os.close(open_folder(above, self._roots))
        make_folders(path)

    def remove_empty_folders(self, location: str) -> None:
        """Remove a local folder and the folders below it, those that are empty; in an object store there are none."""
        if not paths.parse(location).is_local:
            return
        for folder, _, _ in os.walk(_local_path(location), topdown=False):
            with suppress(OSError):
                os.rmdir(folder)

    def list_folder(self, folder: str) -> list[tuple[str, bool]]:
        """Return the sorted names in a folder, each with whether it is a folder; empty if the folder is missing."""
        parsed = paths.parse(folder)
        if parsed.is_local:
            with translate_errors(folder):
                return local_entries(parsed.path)
        infos = self._listed(folder, recursive=False)
        return sorted((info.base_name, info.type == pafs.FileType.Directory) for info in infos)

    def list_files(self, folder: str) -> list[StoredFile]:
        """Return the files in a folder, by name, without links; empty if the folder is missing."""
        parsed = paths.parse(folder)
        if parsed.is_local:
            files = self._local_files(folder, local_files(parsed.path, below=False))
        else:
            infos = self._listed(folder, recursive=False)
            files = (
                _stored(paths.join(folder, info.base_name), info)
                for info in infos
                if info.type == pafs.FileType.File
            )
        return sorted(files, key=lambda file: file.location)

    def look_up(self, locations: Iterable[str]) -> dict[str, StoredFile | None]:
        """Return the size and time of files, with concurrent requests.

        Returns:
            None for a file that does not exist, or that is a symbolic link.
        """
        wanted = list(dict.fromkeys(locations))
        if all(paths.parse(location).is_local for location in wanted):
            # A thread costs more than the system call that it would make.
            return {location: self._look_up(location) for location in wanted}
        with ReadingThreads(_LOOK_UP_THREADS) as pool:
            return dict(zip(wanted, pool.map(self._look_up, wanted), strict=True))

    def _look_up(self, location: str) -> StoredFile | None:
        parsed = paths.parse(location)
        return _local_file(location, parsed.path) if parsed.is_local else self._ask(location)

    @_retry_with_fresh_credentials
    def _ask(self, location: str) -> StoredFile | None:
        with translate_errors(location):
            if reached := self.s3(location):
                with suppress(UnsupportedError):
                    found = reached[0].head(reached[1])
                    return None if found is None else StoredFile(location, *found)
            filesystem, path = self.resolve(location)
            info = filesystem.get_file_info(path)
        return _stored(location, info) if info.type == pafs.FileType.File else None

    def find(self, folder: str, name_part: str) -> list[str]:
        """Return the files below a folder whose names contain a text; empty if the folder is missing.

        Links are not followed: their targets do not belong to the table.
        """
        return [
            location
            for batch in self.each_batch(folder)
            for location in batch["path"].to_pylist()
            if name_part in location.rpartition("/")[2]
        ]

    def find_files(self, folder: str) -> list[StoredFile]:
        """Return all files below a folder; none if it is missing. Links are neither returned nor followed."""
        parsed = paths.parse(folder)
        if parsed.is_local:
            return list(self._local_files(folder, local_files(parsed.path)))
        return [
            StoredFile(*row)
            for batch in self.each_batch(folder)
            for row in zip(*(column.to_pylist() for column in batch.columns), strict=True)
        ]

    def each_batch(
        self, folder: str, *, files: int = 0, check: Check = unchecked
    ) -> Iterator[pa.Table]:
        """Yield all files below a folder as columns (`LISTING`); none if it is missing.

        Links are neither yielded nor followed. Sizes and times of local files are NULL, as each would take a system
        call; `look_up` returns them. On local disks, few files are in memory at once.

        Args:
            folder: the folder.
            files: how many files are expected; many are listed in a store by several requests at a time.
            check: called again and again while a store is listed; raises what ends the listing.
        """
        parsed = paths.parse(folder)
        if parsed.is_local:
            start = _start(folder)
            with translate_errors(folder):
                for names in _batches(local_files(parsed.path)):
                    located = [f"{start}{path}" for path in names] if start else names
                    unknown = pa.nulls(len(names), pa.int64())
                    yield pa.table([pa.array(located, pa.string()), unknown, unknown], LISTING)
            return
        listing = StoreListing(
            partial(self._listed, check=check), lambda parent: self.resolve(parent)[1], files
        )
        yield from _rebatched(listing.below(folder))

    def _local_files(self, folder: str, found: Iterable[str]) -> Iterator[StoredFile]:
        """Yield local files with the beginning of their folder's location, those that still exist."""
        start = _start(folder)
        with translate_errors(folder):
            for path in found:
                file = _local_file(f"{start}{path}", path)
                if file is not None:
                    yield file

    @_retry_with_fresh_credentials
    def _listed(self, folder: str, *, recursive: bool, check: Check = unchecked) -> list[Any]:
        """Return what is in a folder of a store."""
        filesystem, path = self.resolve(folder)
        selector = pafs.FileSelector(path, recursive=recursive, allow_not_found=True)
        host = self.host(folder)
        with translate_errors(folder):
            try:
                return awaited(host, lambda: list(filesystem.get_file_info(selector)), check)
            except OSError as error:
                if is_silence(error):
                    raise timed_out(host) from error
                raise

    def end_uploads(self, folder: str, name_part: str) -> None:
        """Abort the unfinished uploads of files below a folder whose names contain a text.

        Only S3 has such uploads; errors of the store are ignored.
        """
        reached = self.s3(f"{folder.rstrip('/')}/")
        if reached is None:
            return
        bucket, prefix = reached
        with suppress(OSError, UnsupportedError, LakeError):
            bucket.abort_uploads(prefix, name_part)

    def delete(
        self,
        locations: Iterable[str],
        *,
        should_continue: ShouldContinue = always,
        most_single: int | None = None,
    ) -> DeleteOutcome:
        """Delete files in parallel; a file that does not exist counts as deleted, a failure is reported.

        Args:
            locations: the files to delete.
            should_continue: called before each request; once it returns False, the remaining files are not tried.
            most_single: how many of the files that take a request each are tried; None for no limit.
        """
        wanted = list(dict.fromkeys(locations))
        number, _ = self.renewed.current()
        deletion = Deletion(self.s3, self._delete_one, should_continue)
        failed = deletion.delete(wanted, most_single)
        refused = [location for location, why in failed.items() if is_refusal(OSError(why))]
        if refused and self.renewed.renew(number):
            again = deletion.delete(refused, most_single)
            failed = {k: why for k, why in failed.items() if k not in refused} | again
        untried = [location for location, why in failed.items() if why == UNTRIED]
        deleted = [location for location in wanted if location not in failed]
        return DeleteOutcome(deleted, {k: v for k, v in failed.items() if v != UNTRIED}, untried)

    def _delete_one(self, location: str, should_continue: ShouldContinue = always) -> str | None:
        try:
            if paths.parse(location).is_local:
                is_tried = delete_local_file(_local_path(location), self._roots, should_continue)
                return None if is_tried else UNTRIED
            filesystem, path = self.resolve(location)
            if not should_continue():
                return UNTRIED
            awaited(self.host(location), lambda: filesystem.delete_file(path))
        except FileNotFoundError:
            return None
        except (OSError, BadInputError, pa.ArrowException) as error:
            return str(error)[: opening.MESSAGE_LENGTH]
        return None


def _too_long(location: str, length: int, limit: int) -> CorruptFileError:
    return CorruptFileError(f"{location} has {length} bytes, more than the limit of {limit}")


def _stored(location: str, info: Any) -> StoredFile:
    changed = info.mtime_ns
    return StoredFile(location, int(info.size), None if changed is None else changed // 1_000_000)


def _batches(items: Iterable[_T]) -> Iterator[list[_T]]:
    remaining = iter(items)
    while batch := list(islice(remaining, _BATCH_FILES)):
        yield batch


def _rebatched(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of tables in tables of `_BATCH_FILES` rows; the last one may have fewer."""
    waiting, count = list[pa.Table](), 0
    for table in tables:
        waiting.append(table)
        count += table.num_rows
        if count >= _BATCH_FILES:
            joined = pa.concat_tables(waiting)
            whole = count - count % _BATCH_FILES
            for start in range(0, whole, _BATCH_FILES):
                yield joined.slice(start, _BATCH_FILES).combine_chunks()
            waiting, count = [joined.slice(whole)], count - whole
    if count:
        yield pa.concat_tables(waiting).combine_chunks()


def _local_file(location: str, path: str) -> StoredFile | None:
    """Return a local file's size and time; None if there is none, or it is a link."""
    with translate_errors(location):
        status = file_status(path)
    if status is None:
        return None
    return StoredFile(location, status.st_size, status.st_mtime_ns // 1_000_000)


def _state(location: str) -> tuple[int, ...] | None:
    """Return what changes if a local file is another one; None for a file that is not local, or that is missing."""
    parsed = paths.parse(location)
    with translate_errors(location):
        status = file_status(parsed.path) if parsed.is_local else None
    return status and (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)


def _start(folder: str) -> str:
    """Return what precedes the path in the location of a local folder, such as ``file://``."""
    path = paths.parse(folder).path
    return folder[: len(folder) - len(path)] if folder.endswith(path) else ""


def _local_path(location: str) -> str:
    return paths.parse(paths.canonical(location)).path
