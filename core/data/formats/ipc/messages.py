"""Find in the metadata of Arrow IPC messages what PyArrow does not show: blocks of files, and sizes of buffers.

Formats: https://github.com/apache/arrow/blob/main/format/Message.fbs and File.fbs, and
https://flatbuffers.dev/internals/. A position is a number of bytes from the start of the metadata.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lake.core.base.errors import CorruptFileError

# Numbers of fields: of Message, DictionaryBatch, RecordBatch, Footer.
_HEADER, _DATA, _BUFFERS, _COMPRESSION, _DICTIONARIES, _BATCHES = 2, 1, 2, 3, 2, 3
# An entry of a table's list of fields: the table's offset of the field, after two sizes.
_FIELD, _FIELDS_AT = struct.Struct("<H"), 4
_OFFSET, _STEP_BACK = struct.Struct("<I"), struct.Struct("<i")
_BUFFER = np.dtype([("offset", "<i8"), ("length", "<i8")])
_BLOCK = np.dtype([("offset", "<i8"), ("metadata", "<i4"), ("padding", "V4"), ("body", "<i8")])
# The unpacked length before a compressed buffer, and the length of one that is stored as it is.
_LENGTH, _STORED = struct.Struct("<q"), -1
# How Arrow 0.17 declared compression.
_OLD_COMPRESSION = b"ARROW:experimental_compression"
_BATCH, _DICTIONARY = "record batch", "dictionary"


class Blocks(NamedTuple):
    """The positions of the messages with dictionaries, and of those with batches, in bytes from a file's start."""

    dictionaries: list[int]
    batches: list[int]


class Sizes(NamedTuple):
    """The bytes of a message's buffers when they are unpacked, and in the file."""

    unpacked: int
    packed: int


def blocks_of(footer: bytes) -> Blocks:
    """Return the positions of the messages that a file's footer names.

    Raises:
        CorruptFileError: the footer is not valid; the message does not name the file.
    """
    table = _root(memoryview(footer))
    lists = (table.structs(number, _BLOCK) for number in (_DICTIONARIES, _BATCHES))
    return Blocks(*(found["offset"].tolist() for found in lists))


def sizes_of(message: pa.Message) -> Sizes:
    """Return the sizes of the buffers of a message with a batch or a dictionary; zeros if none is compressed.

    Raises:
        CorruptFileError: the metadata is not valid, or a buffer declares a negative length; the message does not name
            the file.
    """
    if message.type not in (_BATCH, _DICTIONARY):
        return Sizes(0, 0)
    metadata = bytes(message.metadata)
    batch = _root(memoryview(metadata)).table(_HEADER)
    if batch is not None and message.type == _DICTIONARY:
        batch = batch.table(_DATA)
    if batch is None:
        raise CorruptFileError("it has no batch")
    if batch.table(_COMPRESSION) is None and _OLD_COMPRESSION not in metadata:
        return Sizes(0, 0)
    body = memoryview(message.body)
    unpacked = packed = 0
    for offset, length in batch.structs(_BUFFERS, _BUFFER).tolist():
        if length:
            unpacked += _unpacked(body, offset, length)
            packed += length
    return Sizes(unpacked, packed)


def _unpacked(body: memoryview, offset: int, length: int) -> int:
    if offset < 0 or length < _LENGTH.size or offset + length > len(body):
        raise CorruptFileError(f"a buffer of {length} bytes is not in the batch")
    declared: int = _LENGTH.unpack_from(body, offset)[0]
    if declared < _STORED:
        raise CorruptFileError(f"a buffer declares a length of {declared} bytes")
    return length - _LENGTH.size if declared == _STORED else declared


class _Table:
    """A table of a flatbuffer."""

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self._at = at
        self._fields = at - _at(_STEP_BACK, data, at)

    def table(self, number: int) -> _Table | None:
        """Return a field that is a table; None if it is not set."""
        at = self._target(number)
        return None if at is None else _Table(self._data, at)

    def structs(self, number: int, kind: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return a field that is a list of structs; an empty one if it is not set."""
        at = self._target(number)
        if at is None:
            return np.empty(0, kind)
        count = _at(_OFFSET, self._data, at)
        start = at + _OFFSET.size
        if start + count * kind.itemsize > len(self._data):
            raise CorruptFileError(f"a list of {count} entries is longer than its metadata")
        return np.frombuffer(self._data, kind, count, start)

    def _target(self, number: int) -> int | None:
        """Return the position of what a field refers to; None if it is not set."""
        entry = _FIELDS_AT + number * _FIELD.size
        if entry >= _at(_FIELD, self._data, self._fields):
            return None
        field = _at(_FIELD, self._data, self._fields + entry)
        if field == 0:
            return None
        return self._at + field + _at(_OFFSET, self._data, self._at + field)


def _root(data: memoryview) -> _Table:
    return _Table(data, _at(_OFFSET, data, 0))


def _at(kind: struct.Struct, data: memoryview, at: int) -> int:
    if not 0 <= at <= len(data) - kind.size:
        raise CorruptFileError("its metadata has a reference to outside of it")
    return int(kind.unpack_from(data, at)[0])
