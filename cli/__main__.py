"""``lake``, and ``python -m lake.cli``: the process's first moments."""

from __future__ import annotations

import signal


def run() -> int:
    """Run one command and return its exit code; a stop that comes while Python still imports waits for that."""
    # Raised into an import, an exception might get lost.
    early: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda given, _: early.append(given))
    from lake.cli.main import main  # noqa: PLC0415 - takes a while

    return main(early=early)


if __name__ == "__main__":
    raise SystemExit(run())
