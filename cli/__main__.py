"""``lake``, and ``python -m lake.cli``: the process's first moments."""

from __future__ import annotations

import os
import signal
from types import FrameType


def run() -> int:
    """Run one command and return its exit code; a stop that comes while Python still imports ends the process."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    from lake.cli.main import main  # noqa: PLC0415 - takes a while

    return main()


def _end(number: int, _frame: FrameType | None) -> None:
    # Nothing was begun, so nothing is to be cleaned up; raised into an import, an exception might get lost.
    os.write(2, b"error: stopped before the end; nothing half-done is visible\n")
    os._exit(128 + number)


if __name__ == "__main__":
    raise SystemExit(run())
