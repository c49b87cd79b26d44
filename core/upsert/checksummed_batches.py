"""Batches that are kept in storage between an upsert's steps, with a checksum each.

A wrong byte in a key would change other rows than the source says. Format: pieces of their length and CRC-32 (both
little-endian, 64 and 32 bits) and an Arrow stream of one batch, then a length of 0 and the number of pieces.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lake.core.engine.shuffle import arrow_stream
from lake.core.errors import CorruptFileError
from lake.core.storage.storage import Storage

_HEAD = struct.Struct("<QI")


class BatchFile:
    """A file of batches that is being written."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.pieces = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        piece = arrow_stream(batch.schema, [batch])
        self._sink.write(_HEAD.pack(piece.size, zlib.crc32(piece)))
        self._sink.write(piece)
        self.pieces += 1


@contextmanager
def batch_file(storage: Storage, path: str) -> Iterator[BatchFile]:
    """Open a new file for batches; it is whole only if the block ends well."""
    with storage.open_output(path) as sink:
        file = BatchFile(sink)
        yield file
        sink.write(_HEAD.pack(0, file.pieces))


def batches_in(storage: Storage, path: str) -> Iterator[pa.RecordBatch]:
    """Yield a file's batches.

    Raises:
        CorruptFileError: it is not what was written.
    """
    pieces = 0
    with storage.open_input(path) as source:
        size = source.size()
        while True:
            head = source.read(_HEAD.size)
            if len(head) != _HEAD.size:
                raise _damaged(path)
            length, told = _HEAD.unpack(head)
            if not length:
                break
            piece = source.read_buffer(min(length, size))
            if piece.size != length or zlib.crc32(piece) != told:
                raise _damaged(path)
            yield pa.ipc.open_stream(piece).read_next_batch()
            pieces += 1
    if pieces != told:
        raise _damaged(path)


def _damaged(path: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is damaged: other bytes came back than were written", hint="run the command again"
    )
