"""A new object that is written piece by piece: with one request if it is small, else as a stream."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from lake.core.io.objects.upload import Sink


def abandon(file: Any) -> None:
    """Stop writing a file that a storage opened; one on a disk may exist afterwards."""
    if isinstance(file, NewObject):
        file.abandon()
        return
    with suppress(OSError, pa.ArrowException):
        file.close()


class NewObject(Sink):
    """A file of Python's that Arrow writes to; it is not readable, and exists only after `close`.

    Args:
        put: writes the whole contents.
        stream: opens a stream, for contents that are longer than one request may be.
        most: the most bytes of one request.
    """

    def __init__(
        self, put: Callable[[bytearray], None], stream: Callable[[], Any], most: int
    ) -> None:
        self._put = put
        self._open = stream
        self._most = most
        self._begin = bytearray()
        self._stream: Any = None
        self._size = 0
        self.closed = False

    def writable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return False."""
        return False

    def seekable(self) -> bool:
        """Return False."""
        return False

    def write(self, data: Any) -> int:
        """Write bytes, or an object with them; return their number."""
        if self.closed:
            raise ValueError("the file is closed")
        piece = memoryview(data).cast("B")
        if self._stream is None and self._size + len(piece) > self._most:
            self._stream = self._open()
            self._stream.write(memoryview(self._begin))
            self._begin = bytearray()
        if self._stream is None:
            self._begin += piece
        else:
            self._stream.write(piece)
        self._size += len(piece)
        return len(piece)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._size

    def flush(self) -> None:
        """Do nothing: what is written is visible after `close`."""

    def close(self) -> None:
        """Write what is left; the object exists afterwards."""
        if self.closed:
            return
        self.closed = True
        if self._stream is None:
            self._put(self._begin)
        else:
            self._stream.close()

    def abandon(self) -> None:
        """Stop writing; the object never exists, except a large one that only Arrow's client can write."""
        if isinstance(self._stream, Sink):
            self._stream.abandon()
        elif self._stream is not None and not self.closed:
            with suppress(OSError, pa.ArrowException):
                self._stream.close()
        self.closed = True
