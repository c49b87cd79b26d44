"""Temporary files of batches between the steps of a load, with a checksum per batch.

A wrong byte in a key would change the wrong rows. Format: per batch its length (64 bits) and CRC-32 (32 bits), both
little-endian, and an Arrow stream of the batch; then a length of 0 and the number of batches.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from lake.core.base.errors import CorruptFileError
from lake.core.engine.shuffle import arrow_stream
from lake.core.io.storage.storage import Storage

_HEADER = struct.Struct("<QI")


class BatchFile:
    """A file of batches that is being written."""

    def __init__(self, sink: Any) -> None:
        self._sink = sink
        self.pieces = 0

    def write_batch(self, batch: pa.RecordBatch) -> None:
        """Write a batch."""
        piece = arrow_stream(batch.schema, [batch])
        self._sink.write(_HEADER.pack(piece.size, zlib.crc32(piece)))
        self._sink.write(piece)
        self.pieces += 1


@contextmanager
def batch_file(storage: Storage, path: str) -> Iterator[BatchFile]:
    """Open a new file for batches; it is complete only if the block does not raise."""
    with storage.open_output(path) as sink:
        file = BatchFile(sink)
        yield file
        sink.write(_HEADER.pack(0, file.pieces))


def batches_in(storage: Storage, path: str) -> Iterator[pa.RecordBatch]:
    """Yield a file's batches.

    Raises:
        CorruptFileError: the content differs from what was written.
    """
    pieces = 0
    with storage.open_input(path) as source:
        size = source.size()
        while True:
            header = source.read(_HEADER.size)
            if len(header) != _HEADER.size:
                raise _damaged(path)
            # In the last header, the number of pieces takes the place of the checksum.
            length, checksum = _HEADER.unpack(header)
            if not length:
                break
            piece = source.read_buffer(min(length, size))
            if piece.size != length or zlib.crc32(piece) != checksum:
                raise _damaged(path)
            yield pa.ipc.open_stream(piece).read_next_batch()
            pieces += 1
    if pieces != checksum:
        raise _damaged(path)


def _damaged(path: str) -> CorruptFileError:
    return CorruptFileError(
        f"{path} is damaged: its content differs from what was written",
        hint="run the command again",
    )
