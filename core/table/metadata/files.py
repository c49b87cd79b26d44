"""Reading of table metadata files, with limits: they may be compressed, and a small file may inflate to any size."""

from __future__ import annotations

import errno
import os
import re
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from io import BytesIO
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError
from pyiceberg import exceptions as theirs
from pyiceberg.table.metadata import TableMetadata

from lake.core.base import locations
from lake.core.base.clock import UUID_FORM
from lake.core.base.errors import CorruptFileError, NotFoundError, OutOfRangeError, RefusedError
from lake.core.io.storage.local_folders import require_file
from lake.core.io.storage.storage import Storage, read_up_to
from lake.core.table.metadata.parser import parsed
from lake.core.table.metadata.ranges import out_of_range
from lake.core.table.metadata.roots import roots_of
from lake.core.table.metadata.stored_snapshots import StoredSummary

if TYPE_CHECKING:
    from pyiceberg.io import InputFile, OutputFile

MAX_TEXT_BYTES = 256 * 1024 * 1024
_PACKED = (".gz.metadata.json", ".metadata.json.gz")
# The file in a Hadoop catalog's metadata folder that contains the version of the newest metadata.
VERSION_HINT = "version-hint.text"
# A name that begins with a UUID, as those of files that a commit is about to rename, contains no version.
_VERSION = re.compile(rf"(?!(?i:{UUID_FORM}))v?([0-9]{{1,18}})(?![0-9])")
_PIECE = 1024 * 1024
# The attribute of PyIceberg's files with their storage.
STORAGE = "storage_of_lake"
# The name of a metadata file that no other one will have.
_UNIQUE = re.compile(rf"-{UUID_FORM}(?:\.gz)?\.metadata\.json$")
# The last metadata that was read from a store, or written to it as bytes, by the store's endpoint and the location.
_kept: dict[tuple[str | None, str], TableMetadata | bytes] = {}
# The metadata that was checked last.
_checked: list[TableMetadata] = []
_LENGTH = 200
# Damaged metadata files are rarely more than one.
_MOST_TRIED = 20


def from_input(file: InputFile, encoding: str = "utf-8") -> TableMetadata:
    """Return the metadata in a PyIceberg input file."""
    del encoding
    parsed_location = locations.parse(file.location)
    if parsed_location.is_local:
        status = os.lstat(parsed_location.path)
        require_file(file.location, status)
        return _local(file.location, status.st_ino, status.st_size, status.st_mtime_ns)
    storage = storage_of(file)
    if storage is not None and storage.s3(file.location) is not None:
        return _stored(file.location, storage)
    with file.open() as stream:
        return parse(_read(stream, file.location), file.location)


def storage_of(file: InputFile | OutputFile) -> Storage | None:
    """Return the storage that a file of PyIceberg's was given; None for files of other stores."""
    storage = vars(file).get(STORAGE)
    return storage if isinstance(storage, Storage) else None


def _stored(location: str, storage: Storage) -> TableMetadata:
    """Return an object's metadata; the last one is kept, as an object whose name has a UUID does not change."""
    known = _kept.get(_name(storage, location))
    if known is not None and not isinstance(known, bytes):
        return known
    try:
        data = known or storage.read(location, limit=MAX_TEXT_BYTES)
    except NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), location) from error
    metadata = parse(data, location)
    keep(storage, location, metadata)
    return metadata


def keep(storage: Storage, location: str, found: TableMetadata | bytes) -> None:
    """Keep an object's metadata, or the bytes that were written, so that the next read of them takes no request."""
    if _UNIQUE.search(location):
        _kept.clear()
        _kept[_name(storage, location)] = found


def _name(storage: Storage, location: str) -> tuple[str | None, str]:
    # Another store may have a copy of the table.
    return storage.credentials.at(location).get("s3.endpoint"), location


@lru_cache(maxsize=1)
def _local(location: str, _inode: int, size: int, _changed_ns: int) -> TableMetadata:
    """Return a local file's metadata; cached, so that an unchanged file is parsed once."""
    with open(locations.parse(location).path, "rb") as stream:
        # One read of the whole file is faster than pieces, of which each enlarges the memory of those before it.
        whole = size <= MAX_TEXT_BYTES
        return parse(stream.read() if whole else _read(stream, location), location)


def _read(stream: Any, location: str) -> bytes:
    data = BytesIO()
    for piece in _pieces(stream):
        data.write(piece)
        if data.tell() > MAX_TEXT_BYTES:
            raise CorruptFileError(f"{location} has more than {MAX_TEXT_BYTES} bytes")
    return data.getvalue()


def _pieces(stream: Any) -> Iterator[bytes]:
    while piece := read_up_to(stream, _PIECE):
        yield piece


def parse(data: bytes, location: str) -> TableMetadata:
    """Return the metadata in a file, decompressed if the file's name ends in gzip's suffix.

    Raises:
        CorruptFileError: it is not table metadata, or exceeds the size limit.
        RefusedError: the table uses something that lake does not support.
    """
    try:
        return parsed(_text_bytes(data, location))
    except (ValidationError, UnicodeDecodeError):
        raise
    except (ValueError, TypeError, KeyError, AttributeError, ArithmeticError) as error:
        text = " ".join(str(error).split())[:_LENGTH]
        raise CorruptFileError(f"{location} is not table metadata: {text}") from error
    except RecursionError as error:
        raise CorruptFileError(f"{location} is nested too deeply") from error


def text_of(data: bytes, location: str) -> str:
    """Return the text of a metadata file, decompressed if the file's name ends in gzip's suffix.

    Raises:
        CorruptFileError: it is not gzip, or exceeds the size limit.
        UnicodeDecodeError: it is not text in UTF-8.
    """
    return _text_bytes(data, location).decode()


def _text_bytes(data: bytes, location: str) -> bytes:
    return _unpacked(data, location) if location.endswith(_PACKED) else data


def read_metadata(storage: Storage, location: str) -> TableMetadata:
    """Read a metadata file, compressed if its name says so.

    Raises:
        CorruptFileError: it does not exist any more, is longer than any metadata, or is not metadata.
        RefusedError: the table uses something that lake does not support.
    """
    try:
        data = storage.read(location, limit=MAX_TEXT_BYTES)
    except NotFoundError as error:
        raise CorruptFileError(
            f"{location} was removed before it could be read", hint="run the command again"
        ) from error
    try:
        return parse(data, location)
    except (ValidationError, theirs.ValidationError, UnicodeDecodeError) as error:
        text = " ".join(str(error).split())[:_LENGTH]
        raise CorruptFileError(f"{location} is not table metadata: {text}") from error


def find_metadata(storage: Storage, location: str) -> TableMetadata | None:
    """Read a metadata file that another process may remove; return None if it does not exist.

    Raises:
        CorruptFileError: it is longer than any metadata, or is not metadata.
        RefusedError: the table uses something that lake does not support.
    """
    try:
        return read_metadata(storage, location)
    except CorruptFileError:
        if storage.exists(location):
            raise
    return None


def earlier_metadata(
    storage: Storage, location: str, is_version: Callable[[str], bool]
) -> tuple[str, TableMetadata, int] | None:
    """Return the newest metadata file before another one that can be read; None if there is none.

    Args:
        storage: the storage of the files.
        location: a metadata file, which may be missing or damaged.
        is_version: whether a name is that of a metadata file of the table.

    Returns:
        its location, its metadata, and the number of older metadata files in the folder.
    """
    folder, _, name = location.rpartition("/")
    version = version_of(name)
    listed = {
        item: found
        for item, is_folder in storage.list_folder(folder)
        if not is_folder
        and item != name
        and is_version(item)
        and (found := version_of(item)) is not None
        and (version is None or found < version)
    }
    newest_first = sorted(listed, key=lambda item: (listed[item], item), reverse=True)
    for number, item in enumerate(newest_first[:_MOST_TRIED], 1):
        try:
            metadata = read_metadata(storage, f"{folder}/{item}")
            check(metadata, item)
        except (CorruptFileError, RefusedError):
            continue
        return f"{folder}/{item}", metadata, len(newest_first) - number
    return None


def is_metadata_name(location: str) -> bool:
    """Whether a file has the name of a metadata file or version hint; manifests never name such a file."""
    name = location.rpartition("/")[2].lower()
    return ".metadata.json" in name or name == VERSION_HINT


def version_of(location: str) -> int | None:
    """Return the version in a metadata file's name, such as ``00012-….metadata.json`` or ``v12.metadata.json``."""
    found = _VERSION.match(location.rpartition("/")[2])
    return int(found[1]) if found else None


def check(metadata: TableMetadata, name: str) -> None:
    """Check what PyIceberg does not validate, and convert all summary values to text.

    Raises:
        OutOfRangeError: a number does not fit its type.
        CorruptFileError: two snapshots have one id, the schema or the partition spec is missing, or the
            table's location is not a valid one.
    """
    if _checked and _checked[0] is metadata:
        return
    if beyond := list(out_of_range(metadata)):
        place, text = beyond[0]
        raise OutOfRangeError(
            f"the metadata of {name} has a number that no reader can use: {place}: {text}", beyond
        )
    for root in roots_of(metadata):
        if not locations.ownable(root):
            raise CorruptFileError(
                f"the metadata of {name} has the location {root!r}, which no table can have"
            )
    ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    if len(ids) != len(metadata.snapshots):
        raise CorruptFileError(f"the metadata of {name} has two snapshots with one id")
    if metadata.default_spec_id not in {spec.spec_id for spec in metadata.partition_specs}:
        raise CorruptFileError(f"the metadata of {name} lacks the current partition spec")
    if metadata.current_schema_id not in {schema.schema_id for schema in metadata.schemas}:
        raise CorruptFileError(f"the metadata of {name} lacks the current schema")
    for snapshot in metadata.snapshots:
        # The truth value of a summary is slow: PyIceberg computes its length.
        if snapshot.summary is None or isinstance(snapshot.summary, StoredSummary):
            continue
        summary: dict[str, Any] = snapshot.summary.additional_properties
        for key, value in summary.items():
            if not isinstance(value, str):
                summary[key] = str(value)
    _checked[:] = [metadata]


def _unpacked(data: bytes, location: str) -> bytes:
    # 16 more than the largest window size: expect gzip's header and trailer.
    unpacker = zlib.decompressobj(zlib.MAX_WBITS + 16)
    try:
        unpacked = unpacker.decompress(data, MAX_TEXT_BYTES)
    except zlib.error as error:
        raise CorruptFileError(f"{location} is not gzip: {error}") from error
    if not unpacker.eof:
        raise CorruptFileError(
            f"{location} is cut short or has more than {MAX_TEXT_BYTES} bytes of text"
        )
    return unpacked
