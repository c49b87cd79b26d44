"""Stores whose clock is that of the commands, for tests that let time pass in the commands only."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from lake.core.transaction import store_clock


@contextmanager
def store_time_of_commands() -> Iterator[None]:
    """Let stores have the time that commands have."""
    with patch.object(store_clock, "_ahead_ms", lambda *_: 0):
        yield
