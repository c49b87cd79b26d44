"""The splits of a discovery, in a file that outlives the manifests that they were planned from.

The file is compressed text in lines of JSON: a header, then one work item a line. It is written once, before any row
is read. The header contains the SHA-256 of the lines after it, so a damaged or exchanged file is refused.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import pyarrow as pa
from pydantic import Field, ValidationError

from lake.core.base.errors import CorruptFileError, LakeError
from lake.core.base.interrupts import uninterrupted
from lake.core.io.storage.errors import translate_errors
from lake.core.io.storage.state_folder import StateFolder
from lake.core.read.continuous.handover.keys_file import SavedKeys
from lake.core.read.continuous.handover.state import (
    Kind,
    Pending,
    Saved,
    SavedPosition,
    splits_name,
)
from lake.core.read.continuous.handover.work import WorkHeader, WorkItem

_MAX_HEADER = 64 * 1024 * 1024
# An item lists its delete files, of which there may be many.
_MAX_LINE = 256 * 1024 * 1024
_CODEC = "zstd"
# What the conversion of other values than `to_plain`'s raises.
_NOT_PLAIN = (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError)


class SplitsHeader(Saved):
    """What all splits of a discovery share.

    Args:
        format: of the file.
        state_id: of the state to which the file belongs.
        discovery: the discovery's number.
        kind: what is read: the ``table``, appended rows, or changes.
        start: the position before the discovery.
        end: the position after it.
        generation: the generation of the rows.
        replaces: whether the rows replace all earlier ones.
        snapshots: the snapshots that are read.
        skipped: snapshots that are not appends, and their operations.
        gap: the gap in the history after which the discovery begins.
        records: the rows of the files by metadata; None if they cannot be compared with the rows that are read.
        schema_id: the schema of the rows.
        reading: how to read the splits.
        keys: the keys that their rows must have; None for all rows.
        sha256: of the lines after the header.
        count: the number of these lines.
    """

    format: Literal[1] = 1
    state_id: str
    discovery: int
    kind: Kind
    start: SavedPosition | None
    end: SavedPosition
    generation: int
    replaces: bool
    snapshots: tuple[str, ...]
    skipped: tuple[tuple[str, str], ...]
    gap: Mapping[str, Any] | None
    records: int | None
    schema_id: int
    reading: Mapping[str, Any]
    keys: SavedKeys | None = None
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")] = "0" * 64
    count: int = 0


def write_splits(
    folder: StateFolder, header: SplitsHeader, items: Iterable[WorkItem]
) -> Pending | None:
    """Write a discovery's splits durably; return the discovery as pending, or None if there are no splits.

    Raises:
        LockedError: another run has begun, and may have written the file.
    """
    name = splits_name(header.discovery)
    path = folder.file(name)
    draft, body = folder.draft(name), folder.draft(name)
    with translate_errors(path):
        try:
            totals = _Totals()
            digest = _write_lines(body, items, totals)
            if not totals.count:
                return None
            whole = header.model_copy(update={"sha256": digest, "count": totals.count})
            with open(draft, "wb") as file, open(body, "rb") as lines:
                # Decompression continues with the next frame.
                file.write(pa.compress(_line(whole.model_dump_json()), _CODEC, asbytes=True))
                shutil.copyfileobj(lines, file, 1 << 20)
                file.flush()
                os.fsync(file.fileno())
            with uninterrupted():
                folder.place(draft, name)
        finally:
            for left in (draft, body):
                with suppress(FileNotFoundError):
                    os.unlink(left)
    return Pending(
        discovery=header.discovery,
        kind=header.kind,
        start=header.start,
        end=header.end,
        file=name,
        sha256=digest,
        count=totals.count,
        rows=totals.rows,
        bytes=totals.bytes,
        least_ms=totals.least_ms,
        greatest_ms=totals.greatest_ms,
        keys=() if header.keys is None else header.keys.names,
    )


@dataclass(slots=True)
class _Totals:
    """Sums and bounds of items."""

    count: int = 0
    rows: int = 0
    bytes: int = 0
    least_ms: int | None = None
    greatest_ms: int | None = None

    def add(self, item: WorkItem) -> None:
        self.count += 1
        self.rows += item.records
        self.bytes += item.bytes
        self.least_ms = least(self.least_ms, item.least)
        self.greatest_ms = greatest(self.greatest_ms, item.greatest)


def least(*values: int | None) -> int | None:
    """Return the least of some values without None; None if there are no others."""
    return min((value for value in values if value is not None), default=None)


def greatest(*values: int | None) -> int | None:
    """Return the greatest of some values without None; None if there are no others."""
    return max((value for value in values if value is not None), default=None)


def _write_lines(path: str, items: Iterable[WorkItem], totals: _Totals) -> str:
    """Write items and add them to totals; return the digest of the lines."""
    digest = hashlib.sha256()
    with pa.CompressedOutputStream(pa.OSFile(path, "wb"), _CODEC) as sink:
        for item in items:
            line = _line(json.dumps(item.to_plain(), separators=(",", ":")))
            digest.update(line)
            sink.write(line)
            totals.add(item)
    return digest.hexdigest()


def _line(text: str) -> bytes:
    return text.encode() + b"\n"


class SplitsFile:
    """The splits of a pending discovery, read in order. Close it at the end.

    Args:
        path: the file.
        state_id: of the state.
        pending: the discovery as the state describes it.

    Raises:
        CorruptFileError: the file is missing, damaged, or belongs to another state.
    """

    def __init__(self, path: str, state_id: str, pending: Pending) -> None:
        self._path = path
        self.discovery = pending.discovery
        self.header = self._verified(state_id, pending)
        self.work = self._work_header()
        self._stream: io.BufferedReader | None = None
        # The index of the next line, or of the item that was read ahead.
        self._index = 0
        self._ahead: WorkItem | None = None
        self._least: list[int | None] | None = None

    def close(self) -> None:
        """Close the file."""
        if self._stream is not None:
            self._stream.close()
        self._stream, self._ahead, self._index = None, None, 0

    def next_epoch(self, start: int, most_bytes: int) -> list[WorkItem]:
        """Return the splits from an index on that one epoch hands over.

        These are at least one and at most `most_bytes` of input, except that the changes of a commit are not divided.
        """
        chosen: list[WorkItem] = []
        size = 0
        while (item := self._peek(start + len(chosen))) is not None:
            same_commit = bool(chosen) and item.snapshot_id is not None
            same_commit = same_commit and chosen[-1].snapshot_id == item.snapshot_id
            if chosen and size + item.bytes > most_bytes and not same_commit:
                break
            chosen.append(item)
            size += item.bytes
        return chosen

    def least_from(self, start: int) -> int | None:
        """Return the least value of the watermark column in the splits from an index on."""
        if self._least is None:
            # From each index on, computed from the end.
            found: list[int | None] = [None]
            with self._opened() as stream:
                self._read_line(stream, _MAX_HEADER)
                values = [item.least for item in self._items(stream)]
            for value in reversed(values):
                found.append(least(found[-1], value))
            self._least = found[::-1]
        return self._least[start]

    def _items(self, stream: io.BufferedReader) -> Iterator[WorkItem]:
        while line := self._read_line(stream, _MAX_LINE):
            yield self._item(line)

    def _peek(self, index: int) -> WorkItem | None:
        """Return the split with an index, without going past it; None behind the last one."""
        if self._ahead is not None and self._index == index:
            return self._ahead
        if self._stream is None or self._index > index:
            self.close()
            self._stream = self._opened()
            self._read_line(self._stream, _MAX_HEADER)
        elif self._ahead is not None:
            self._index += 1
        self._ahead = None
        while self._index < index:
            self._read_line(self._stream, _MAX_LINE)
            self._index += 1
        line = self._read_line(self._stream, _MAX_LINE)
        self._ahead = self._item(line) if line else None
        return self._ahead

    def _work_header(self) -> WorkHeader:
        try:
            return WorkHeader.from_plain(self.header.reading)
        except (*_NOT_PLAIN, LakeError) as error:
            raise self._corrupt("its header is not valid") from error

    def _item(self, line: bytes) -> WorkItem:
        try:
            return WorkItem.from_plain(json.loads(line))
        except _NOT_PLAIN as error:
            raise self._corrupt("a split is not valid") from error

    def _verified(self, state_id: str, pending: Pending) -> SplitsHeader:
        """Read the complete file once, and return its header."""
        digest = hashlib.sha256()
        count = 0
        with self._opened() as stream:
            try:
                header = SplitsHeader.model_validate_json(self._read_line(stream, _MAX_HEADER))
            except (ValidationError, ValueError, RecursionError) as error:
                raise self._corrupt("its header is not valid") from error
            while line := self._read_line(stream, _MAX_LINE):
                digest.update(line)
                count += 1
        keys = () if header.keys is None else header.keys.names
        found = (header.state_id, header.discovery, header.sha256, header.count, keys)
        expected = (
            *(state_id, pending.discovery, pending.sha256, pending.count),
            pending.keys,
        )
        # check: digest-of-splits
        if found != expected or (digest.hexdigest(), count) != (pending.sha256, pending.count):
            raise self._corrupt("it is not the file that the state describes")
        return header

    def _opened(self) -> io.BufferedReader:
        try:
            return io.BufferedReader(pa.CompressedInputStream(pa.OSFile(self._path), _CODEC))
        except FileNotFoundError as error:
            raise self._corrupt("it is missing") from error

    def _read_line(self, stream: io.BufferedReader, most: int) -> bytes:
        try:
            with translate_errors(self._path):
                line = stream.readline(most + 1)
        except OSError as error:
            # Arrow reports damaged compression without the system's error number.
            raise self._corrupt(str(error)) from error
        if len(line) > most or (line and not line.endswith(b"\n")):
            raise self._corrupt("a line is too long or not complete")
        return line

    def _corrupt(self, reason: str) -> CorruptFileError:
        return CorruptFileError(
            f"{self._path} is not the file of splits of discovery {self.discovery}: {reason}",
            hint="restore the state folder from a backup, or start with a new one and decide what to read again",
        )
