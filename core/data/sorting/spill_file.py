"""A temporary file for batches of rows. It has no name, so the system frees it however the process ends."""

from __future__ import annotations

import tempfile
import weakref
from typing import IO

import pyarrow as pa

from lake.core.io.temporary_files import written


class BatchSpool:
    """Stores batches on disk, numbered in the order of arrival.

    Args:
        rows: what the rows are, for messages.
        few_bytes: up to this size, all batches stay in memory.
    """

    def __init__(self, rows: str, *, few_bytes: int = 0) -> None:
        self._rows = rows
        self._few_bytes = few_bytes
        self._file: IO[bytes] | None = None
        # The offset and the size of each batch.
        self._extents: list[tuple[int, int]] = []
        self.widest = 0

    def __len__(self) -> int:
        return len(self._extents)

    def write(self, batch: pa.RecordBatch) -> int:
        """Write a batch and return its number.

        Raises:
            StorageError: there is not enough space.
        """
        with written(self._rows):
            if self._file is None:
                self._file = self._opened()
                weakref.finalize(self, self._file.close)
            start = self._file.seek(0, 2)
            with pa.ipc.new_stream(self._file, batch.schema) as writer:
                writer.write_batch(batch)
            length = self._file.tell() - start
        self._extents.append((start, length))
        self.widest = max(self.widest, length)
        return len(self) - 1

    def _opened(self) -> IO[bytes]:
        if not self._few_bytes:
            return tempfile.TemporaryFile(prefix="lake-rows-", buffering=0)
        return tempfile.SpooledTemporaryFile(self._few_bytes, prefix="lake-rows-", buffering=0)

    def read(self, number: int) -> pa.RecordBatch:
        """Read a batch."""
        if self._file is None:
            raise ValueError("nothing was written")
        start, length = self._extents[number]
        self._file.seek(start)
        return pa.ipc.open_stream(pa.py_buffer(self._file.read(length))).read_next_batch()

    def close(self) -> None:
        """Free the disk space."""
        if self._file is not None:
            self._file.close()
