"""Temporary files for what does not fit in memory: all of it is written, and read back whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from lake.core.base.errors import StorageError


@contextmanager
def written(rows: str) -> Iterator[None]:
    """Say where there was not enough space for some rows.

    Raises:
        StorageError: there was not enough space.
    """
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{rows} cannot be written to {tempfile.gettempdir()}: {error}",
            hint="set TMPDIR to a folder with more room",
        ) from error


def write_at(descriptor: int, data: bytes | memoryview, start: int) -> None:
    """Write bytes at an offset in bytes.

    Raises:
        OSError: there was not enough space.
    """
    rest = memoryview(data)
    # One call writes at most 2 GiB, and less on a disk that becomes full.
    while rest:
        count = os.pwrite(descriptor, rest, start)
        rest, start = rest[count:], start + count


def read_at(descriptor: int, length: int, start: int) -> bytes:
    """Return a number of bytes from an offset in bytes on.

    Raises:
        StorageError: the file ends before, or cannot be read.
    """
    parts = []
    while length:
        try:
            part = os.pread(descriptor, length, start)
        except OSError as error:
            message = f"a temporary file in {tempfile.gettempdir()} cannot be read: {error}"
            raise StorageError(message) from error
        if not part:
            raise StorageError(f"a temporary file in {tempfile.gettempdir()} was cut short")
        parts.append(part)
        length, start = length - len(part), start + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
