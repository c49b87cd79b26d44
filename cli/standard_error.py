"""Standard error that cannot be written, on a full disk or without a reader, does not change how a command ends.

Without this, a warning would end a command in the middle of its work, and Python would exit with the code 120.
"""

from __future__ import annotations

import io
import select
import sys


class _Lossy(io.FileIO):
    """A file that drops what it cannot write."""

    def write(self, data: bytes, /) -> int:  # type: ignore[override]
        """Write bytes; return the number of bytes that need not be written again."""
        try:
            written = super().write(data)
            if written is not None:
                return written
            # Another process made the stream non-blocking.
            select.select([], [self], [])
        except OSError:
            return len(data)
        return 0


def drop_what_cannot_be_written() -> None:
    """Replace standard error by one that never fails."""
    if not isinstance(sys.stderr, io.TextIOWrapper):
        return
    raw = _Lossy(sys.stderr.fileno(), "w", closefd=False)
    sys.stderr = io.TextIOWrapper(
        io.BufferedWriter(raw),
        encoding=sys.stderr.encoding,
        # The locale of a cron job may lack a character.
        errors="backslashreplace",
        line_buffering=True,
    )
