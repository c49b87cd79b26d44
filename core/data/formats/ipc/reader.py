"""Read the batches of Arrow IPC files and streams. A message is checked before PyArrow unpacks it.

Each message is read once. A file is read as the stream of its messages in the order of its footer.
Format: https://arrow.apache.org/docs/format/Columnar.html#serialization-and-interprocess-communication-ipc.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from lake.core.base.errors import CorruptFileError
from lake.core.data.formats.ipc.messages import Blocks, blocks_of, sizes_of
from lake.core.data.formats.unpacked_sizes import refuse_large

_MAGIC = b"ARROW1"
# The magic bytes and their padding, and what ends a file: the length of the footer and the magic bytes.
_START_BYTES, _LENGTH_BYTES = 8, 4
# The start of a message's length.
_CONTINUED = b"\xff\xff\xff\xff"
_SCHEMA, _DICTIONARY = "schema", "dictionary"


def open_ipc(source: Any, path: str) -> tuple[pa.Schema, Iterator[pa.RecordBatch]]:
    """Open a file or a stream; return its columns and its batches, which are not validated.

    Raises:
        RefusedError: a batch, with all dictionaries before it, is too large when it is unpacked; see `refuse_large`.
        CorruptFileError: a message is not valid.
        pyarrow.ArrowException, OSError: PyArrow cannot read it.
    """
    messages = _of_file(source, path) if source.read(len(_MAGIC)) == _MAGIC else _of_stream(source)
    reader = pa.ipc.open_stream(pa.PythonFile(_Checked(messages, path), mode="r"))
    return reader.schema, iter(reader)


def _of_file(source: Any, path: str) -> Iterator[pa.Message]:
    source.seek(0)
    # This checks the ends of the file.
    count = pa.ipc.open_file(source).num_record_batches
    places = _blocks(source, path)
    if len(places.batches) != count:
        raise CorruptFileError(
            f"{path} has a footer that names {len(places.batches)} batches, not {count}"
        )
    schema = _message(source, _START_BYTES, path)
    if schema.type != _SCHEMA:
        raise CorruptFileError(f"{path} does not begin with its columns")
    yield schema
    for place in (*places.dictionaries, *places.batches):
        yield _message(source, place, path)


def _blocks(source: Any, path: str) -> Blocks:
    end = _LENGTH_BYTES + len(_MAGIC)
    source.seek(source.size() - end)
    length = int.from_bytes(source.read(_LENGTH_BYTES), "little")
    source.seek(source.size() - end - length)
    try:
        return blocks_of(source.read(length))
    except CorruptFileError as error:
        raise CorruptFileError(
            f"{path} has a footer that cannot be read: {error.message}"
        ) from error


def _message(source: Any, place: int, path: str) -> pa.Message:
    source.seek(place)
    try:
        return pa.ipc.read_message(source)
    except EOFError as error:
        raise CorruptFileError(f"{path} has no message at byte {place}") from error


def _of_stream(source: Any) -> Iterator[pa.Message]:
    source.seek(0)
    yield from pa.ipc.MessageReader.open_stream(source)


class _Checked:
    """The bytes of a stream of messages, each of which was checked."""

    closed = False

    def __init__(self, messages: Iterator[pa.Message], path: str) -> None:
        self._messages = messages
        self._path = path
        self._parts: deque[memoryview] = deque()
        self._batch = 0
        # Of all dictionaries, which PyArrow keeps.
        self._unpacked = self._packed = 0

    def read(self, size: int = -1) -> memoryview | bytes:
        """Return the next bytes, at most `size`; none at the end."""
        while not self._parts:
            message = next(self._messages, None)
            if message is None:
                return b""
            self._check(message)
            self._parts += _bytes_of(message)
        first = self._parts.popleft()
        if 0 <= size < len(first):
            self._parts.appendleft(first[size:])
            first = first[:size]
        return first

    def _check(self, message: pa.Message) -> None:
        is_dictionary = message.type == _DICTIONARY
        if not is_dictionary and message.type != _SCHEMA:
            self._batch += 1
        place = "a dictionary" if is_dictionary else f"batch {self._batch}"
        try:
            sizes = sizes_of(message)
        except CorruptFileError as error:
            raise CorruptFileError(
                f"{self._path} has {place} that cannot be read: {error.message}"
            ) from error
        unpacked, packed = self._unpacked + sizes.unpacked, self._packed + sizes.packed
        refuse_large(f"{self._path} has values in {place}", unpacked, packed)
        if is_dictionary:
            self._unpacked, self._packed = unpacked, packed


def _bytes_of(message: pa.Message) -> list[memoryview]:
    metadata = memoryview(message.metadata)
    head = memoryview(_CONTINUED + len(metadata).to_bytes(4, "little"))
    body = [] if message.body is None else [memoryview(message.body)]
    return [part for part in (head, metadata, *body) if len(part)]
