"""Find the files to load: resolve names, globs and folders to distinct files of known formats."""

from __future__ import annotations

import codecs
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import islice
from typing import Any

import pyarrow as pa

from lake.core.base import locations
from lake.core.base.choices import SOURCE_FORMATS
from lake.core.base.errors import (
    BadInputError,
    CorruptFileError,
    LakeError,
    NotFoundError,
    RefusedError,
    nearest,
)
from lake.core.base.options import Option
from lake.core.base.plain import PlainData
from lake.core.data.columns.reading_errors import reading_error
from lake.core.data.sources.acceptance import NeededColumns
from lake.core.data.sources.local_names import WILD, local_names, names_hidden
from lake.core.data.sources.text_format import AS_SHOWN, UTF_8, TextFormat
from lake.core.io.storage.errors import translate_errors
from lake.core.io.storage.local_folders import status_of
from lake.core.io.storage.storage import Storage, StoredFile

PARQUET, CSV, JSON, ARROW, ORC, AVRO = SOURCE_FORMATS
TEXT_FORMATS = (CSV, JSON)
_SUFFIXES = {
    "parquet": PARQUET,
    "pq": PARQUET,
    "csv": CSV,
    "tsv": CSV,
    "json": JSON,
    "jsonl": JSON,
    "ndjson": JSON,
    "arrow": ARROW,
    "arrows": ARROW,
    "feather": ARROW,
    "ipc": ARROW,
    "orc": ORC,
    "avro": AVRO,
}
_COMPRESSED = {"gz": "gzip", "bz2": "bz2", "zst": "zstd", "lz4": "lz4"}
_CONVERTED_BYTES = 64 * 1024
# A name that no file has is compared with this number of files at most.
_MOST_COMPARED = 10_000
_EXCEL = frozenset({"xlsx", "xlsm", "xlsb", "xls"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(PlainData):
    """A file to load.

    Args:
        path: its location.
        format: one of `SOURCE_FORMATS`.
        size_bytes: its size as stored.
        row_groups: the row groups of a Parquet file to load; None for all.
        version: what differs between versions of a file that is loaded in parts; None for a whole one.
        text: how a text file is written.
        added: a file of this machine with more columns of its rows; see `lake.core.data.sources.added_columns`.
        needed: the columns that each row must have; None if a missing column is filled.
    """

    path: str
    format: str
    size_bytes: int
    row_groups: tuple[int, ...] | None = None
    version: str | None = None
    text: TextFormat = AS_SHOWN
    added: str | None = None
    needed: NeededColumns | None = None

    @property
    def is_text(self) -> bool:
        """Whether the file's values are text without types."""
        return self.format in TEXT_FORMATS


def find_sources(storage: Storage, names: Iterable[str], format_name: str | None) -> list[Source]:
    """Return the distinct files that names, globs and folders refer to, in order.

    Raises:
        NotFoundError: a name does not refer to a file.
        BadInputError: a file is named twice, in any spelling, or its format is not known.
    """
    found: dict[str, Source] = {}
    for name in names:
        for file in _expand(storage, name):
            path = file.location
            key = _identity(path)
            if key in found:
                also = "" if path == found[key].path else f" (also as {found[key].path})"
                raise BadInputError(
                    f"{path} is named twice{also}: its rows would be loaded twice",
                    hint="name each file once",
                )
            kind = _format_of(path, format_name)
            found[key] = Source(path=path, format=kind, size_bytes=file.length)
    return list(found.values())


def list_sources(storage: Storage, name: str) -> list[StoredFile]:
    """Return the files that a folder, prefix or glob refers to now, by name; an empty list if there are none."""
    parsed = locations.parse(name)
    if parsed.is_local:
        with translate_errors(name):
            found = [_stored(path) for path in local_names(parsed.path, _is_data)]
        return [file for file in found if file is not None]
    return _matching(storage, name) if WILD.search(parsed.path) else _data_below(storage, name)


def look_up_sources(storage: Storage, locations_of: Iterable[str]) -> dict[str, StoredFile | None]:
    """Return the sizes and times of files; None for a file that is gone. Links to local files are followed."""
    wanted = list(locations_of)
    if all(locations.parse(location).is_local for location in wanted):
        return {location: _stored(locations.parse(location).path) for location in wanted}
    return storage.look_up(wanted)


def refuse_changed(files: Iterable[Source]) -> None:
    """Refuse local files that have another size than when they were found: a part of their rows may be missing.

    Raises:
        RefusedError: there is such a file. A file that is gone was read to its end.
    """
    for file in files:
        # Parts of a Parquet file have other sizes, and its version was compared when each was opened.
        if file.row_groups is not None or not locations.parse(file.path).is_local:
            continue
        now = _stored(locations.parse(file.path).path)
        if now is not None and now.length != file.size_bytes:
            sizes = f": it had {file.size_bytes:,} bytes, and has {now.length:,} now"
            raise changed_source(file.path, sizes)


def changed_source(path: str, how: str = "") -> RefusedError:
    """Return the error for a file that another program changed during a load."""
    return RefusedError(
        f"{path} was changed while it was read{how}",
        hint="nothing was committed; load the file when it is complete",
    )


def source_folder(name: str) -> str:
    """Return the folder below which all files of a folder, prefix or glob are; a local one as an absolute path."""
    parsed = locations.parse(name)
    whole = parsed.path if parsed.is_local else name.rstrip("/")
    wild = WILD.search(whole)
    return os.path.dirname(whole[: wild.start()]) if wild else whole


def _stored(path: str) -> StoredFile | None:
    """Return a local file's size and time; None if it is gone, or is not a file."""
    status = status_of(path, follow=True)
    if status is None or not stat.S_ISREG(status.st_mode):
        return None
    return StoredFile(path, status.st_size, status.st_mtime_ns // 1_000_000)


def _expand(storage: Storage, name: str) -> list[StoredFile]:
    parsed = locations.parse(name)
    if parsed.is_local:
        with translate_errors(name):
            paths = local_names(parsed.path, _is_data)
        chosen = [StoredFile(path, storage.size(path), None) for path in paths]
    elif file := storage.look_up([name])[name]:
        chosen = [file]
    else:
        chosen = _data_below(storage, name)
        if not chosen and WILD.search(parsed.path):
            chosen = _matching(storage, name)
    if not chosen and (os.path.isdir(parsed.path) if parsed.is_local else storage.is_folder(name)):
        raise NotFoundError(
            f"the folder {name} contains no files to load",
            hint="names that begin with _ or . are not read",
        )
    if not chosen and WILD.search(name):
        raise NotFoundError(
            f"no file matches {name}",
            hint="quote patterns, and start them where lake runs; * and ? match no name that begins with _ or .",
        )
    if not chosen:
        raise NotFoundError(f"no such file: {name}", hint=_hint_for(name, parsed))
    return chosen


def _hint_for(name: str, place: locations.Location) -> str | None:
    """Return the hint for a file that does not exist: a similar name in its folder, or the missing folder."""
    if not place.is_local:
        return None
    folder, own = os.path.split(place.path)
    try:
        with os.scandir(folder or ".") as entries:
            beside = [entry.name for entry in islice(entries, _MOST_COMPARED)]
    except (FileNotFoundError, NotADirectoryError):
        return f"there is no folder {os.path.abspath(folder)}"
    except OSError:
        return None
    similar = nearest(own, beside)
    return f"did you mean {name.removesuffix(own)}{similar}?" if similar else None


def _matching(storage: Storage, name: str) -> list[StoredFile]:
    """Return the files of an object store that a glob refers to, by name."""
    wild = WILD.search(name, name.index("://") + 3)
    folder = name[: name.rindex("/", 0, wild.start() if wild else len(name)) + 1]
    parts = name.removeprefix(folder).split("/")
    files = [
        file
        for file in storage.find_files(folder[:-1])
        if file.location.startswith(folder)
        and _is_match(file.location.removeprefix(folder).split("/"), parts)
    ]
    return sorted(files, key=_by_name)


def _is_match(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the parts of a path match those of a glob, of which ``**`` matches any number of folders."""
    if not names or not parts:
        return not names and not parts
    part, *rest = parts
    if part == "**":
        return _is_match(names, rest or ["*"]) or (
            _is_data(names[0]) and _is_match(names[1:], parts)
        )
    is_named = not WILD.search(part) or names_hidden(part) or _is_data(names[0])
    return is_named and fnmatchcase(names[0], part) and _is_match(names[1:], rest)


def _data_below(storage: Storage, folder: str) -> list[StoredFile]:
    """Return the files to load below a folder of an object store, by name."""
    below = folder.rstrip("/")
    files = [
        file for file in storage.find_files(folder) if _is_data(file.location.removeprefix(below))
    ]
    return sorted(files, key=_by_name)


def _by_name(file: StoredFile) -> str:
    return file.location


def _is_data(relative: str) -> bool:
    """Whether a file in a folder is data; markers and hidden files belong to the tools that wrote the folder."""
    return not any(part.startswith((".", "_")) and "=" not in part for part in relative.split("/"))


def _identity(path: str) -> str:
    parsed = locations.parse(path)
    return os.path.realpath(parsed.path) if parsed.is_local else locations.canonical(path)


def has_known_format(name: str) -> bool:
    """Whether a name ends like that of a file of a known format."""
    return _kind_of(name) is not None


def _kind_of(path: str) -> str | None:
    """Return the format that the ending of a name shows."""
    suffixes = _suffixes(path)
    return _SUFFIXES.get(suffixes[-1]) if suffixes else None


def _suffixes(path: str) -> list[str]:
    """Return the endings of a name without that of a compression."""
    suffixes = os.path.basename(path).lower().split(".")[1:]
    if suffixes and suffixes[-1] in _COMPRESSED:
        suffixes.pop()
    return suffixes


def _format_of(path: str, given: str | None) -> str:
    suffixes = _suffixes(path)
    kind = given or _kind_of(path)
    if kind is None and suffixes and suffixes[-1] in _EXCEL:
        raise excel_file(path)
    if kind is None:
        raise BadInputError(
            f"the format of {path} is not known",
            hint=f"add {Option.FORMAT} {'|'.join(SOURCE_FORMATS)}",
        )
    return kind


def excel_file(path: str) -> RefusedError:
    """Return the error for a file of Excel."""
    return RefusedError(
        f"{path} is an Excel file, which lake does not read",
        hint="save the sheet as CSV in Excel, or run: libreoffice --headless --convert-to csv FILE",
    )


class Position:
    """How far a source is read; the reader of its format keeps it current."""

    def __init__(self) -> None:
        self._read: Callable[[], float] = lambda: 0.0

    def follow(self, read: Callable[[], float]) -> None:
        """Ask `read` for the part of the source that is read, 0 to 1."""
        self._read = read

    @property
    def share(self) -> float:
        """The part of the source that is read, 0 to 1."""
        return min(max(self._read(), 0.0), 1.0)


@contextmanager
def open_stream(
    storage: Storage, source: Source, position: Position | None = None
) -> Iterator[Any]:
    """Open a text file for reading from its beginning, in UTF-8.

    It is decompressed if its name has such a suffix, and converted from its encoding.
    """
    with open_bytes(storage, source.path, position) as stream:
        yield stream if source.text.is_utf_8 else _Converted(stream, source)


@contextmanager
def open_bytes(storage: Storage, path: str, position: Position | None = None) -> Iterator[Any]:
    """Open a text file for reading from its beginning, decompressed if its name has such a suffix."""
    codec = _COMPRESSED.get(path.rsplit(".", 1)[-1].lower())
    with storage.open_source(path) as file:
        if position is not None:
            size = max(file.size(), 1)
            position.follow(lambda: 1.0 if file.closed else file.tell() / size)
        yield pa.CompressedInputStream(file, codec) if codec else file


def other_encoding(path: str, encoding: str, where: str = "") -> CorruptFileError:
    """Return the error for a file that is not in an encoding; ``where`` ends the message."""
    return CorruptFileError(
        f"{path} is not {encoding}{where}",
        hint=f"use {Option.ENCODING} with the file's encoding, e.g. utf-8, latin-1 or cp1252",
    )


class _Converted(io.RawIOBase):
    """A stream of text in UTF-8, converted from another encoding."""

    def __init__(self, stream: Any, source: Source) -> None:
        super().__init__()
        self._stream = stream
        self._encoding = source.text.encoding or UTF_8
        self._path = source.path
        self._decoder = codecs.getincrementaldecoder(self._encoding)()
        self._read = 0
        self._ready = b""

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Read bytes into a buffer; return their number, 0 at the end of the file.

        Raises:
            CorruptFileError: the file is not in its encoding.
        """
        while not self._ready:
            data = self._stream.read(_CONVERTED_BYTES)
            self._ready = self._decoded(data, final=not data)
            if not data:
                break
        part = self._ready[: len(buffer)]
        buffer[: len(part)] = part
        self._ready = self._ready[len(part) :]
        return len(part)

    def _decoded(self, data: bytes, *, final: bool) -> bytes:
        try:
            text = self._decoder.decode(data, final)
        except UnicodeError as error:
            where = f" between bytes {self._read:,} and {self._read + len(data):,}" if data else ""
            raise other_encoding(self._path, self._encoding, where) from error
        self._read += len(data)
        return text.encode()


@contextmanager
def readable(path: str) -> Iterator[None]:
    """Convert PyArrow's errors about unreadable files to errors that name the file.

    Raises:
        CorruptFileError: for errors of PyArrow and the file system.
        RefusedError: for errors about features that PyArrow does not support.
    """
    try:
        yield
    except LakeError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise reading_error(error, path) from error
