"""The kernel's lock on an open file; it ends when the process that holds it ends."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def locked(descriptor: int, *, wait: bool = True) -> Iterator[None]:
    """Hold the exclusive lock on a file for a block.

    Args:
        descriptor: of the open file.
        wait: whether to wait until no other process holds it.

    Raises:
        BlockingIOError: another process holds it, and `wait` is False.
        OSError: the file system does not support locks.
    """
    fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)
