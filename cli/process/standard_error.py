"""Standard error that cannot be written, on a full disk or without a reader, does not change how a command ends.

Without this, a warning would end a command in the middle of its work, and Python would exit with the code 120.
"""

from __future__ import annotations

import io
import select
import sys
from typing import BinaryIO, cast


class _Lossy(io.FileIO):
    """A file that drops what it cannot write."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Write all bytes that can be written, and return their number with that of the others."""
        rest = memoryview(data)
        try:
            while rest:
                written = super().write(rest)
                if written is None:
                    # Another process made the stream non-blocking.
                    select.select([], [self], [])
                else:
                    rest = rest[written:]
        except OSError:
            pass
        return len(data)


def drop_what_cannot_be_written() -> None:
    """Replace standard error by one that never fails."""
    if not isinstance(sys.stderr, io.TextIOWrapper):
        return
    # Without a buffer in between: if a signal stopped `write`, the buffer would write its lines again later.
    sys.stderr = io.TextIOWrapper(
        cast("BinaryIO", _Lossy(sys.stderr.fileno(), "w", closefd=False)),
        encoding=sys.stderr.encoding,
        # The locale of a cron job may lack a character.
        errors="backslashreplace",
        line_buffering=True,
    )
