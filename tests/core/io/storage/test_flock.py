"""The kernel's lock on a file keeps a second holder out until the first one ends."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lake.core.io.storage.flock import locked


def test_a_second_holder_is_refused_until_the_block_of_the_first_ends(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.touch()
    # Each open file description has a lock of its own, also in one process.
    first, second = (os.open(path, os.O_RDWR) for _ in range(2))
    try:
        with locked(first), pytest.raises(BlockingIOError), locked(second, wait=False):
            pass
        with locked(second, wait=False):
            pass
    finally:
        os.close(first)
        os.close(second)
