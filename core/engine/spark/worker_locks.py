"""Track and end the worker processes of this machine that work on a batch of tasks.

A working process holds a lock on a file named by its process id. The system releases the lock when the process
ends, however it ends. So a free lock proves that the process no longer writes, and a held lock that the id is still
that of the worker.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from lake.core.base.clock import Clock, SystemClock
from lake.core.base.errors import EngineError
from lake.core.io.storage.flock import locked

_STOP = "stop"
_POLL_SECONDS = 0.01
_PATIENCE_SECONDS = 5.0


@contextmanager
def working(folder: str) -> Iterator[bool]:
    """Hold this process's lock in the block; yield False if the batch has already ended.

    Without a folder (on a cluster, where the driver cannot see the executors' files) no lock is held.
    """
    if not folder:
        yield True
        return
    path = os.path.join(folder, str(os.getpid()))
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        with locked(descriptor):
            try:
                # Check with the lock held: either this worker sees the mark, or `end_workers` sees its lock.
                yield not os.path.exists(os.path.join(folder, _STOP))
            finally:
                with suppress(FileNotFoundError):
                    os.unlink(path)
    finally:
        os.close(descriptor)


def end_workers(folder: str, clock: Clock | None = None) -> None:
    """Kill the workers that hold a lock in the folder, and keep others from starting.

    Raises:
        EngineError: a worker did not end.
    """
    clock = clock or SystemClock()
    with suppress(FileExistsError):
        os.close(os.open(os.path.join(folder, _STOP), os.O_CREAT | os.O_EXCL, 0o600))
    deadline = clock.monotonic() + _PATIENCE_SECONDS
    while held := [name for name in os.listdir(folder) if name.isdigit() and _held(folder, name)]:
        for name in held:
            with suppress(ProcessLookupError):
                os.kill(int(name), signal.SIGKILL)
        if clock.monotonic() > deadline:
            raise EngineError(f"worker processes {', '.join(held)} did not end")
        clock.sleep(_POLL_SECONDS)


def _held(folder: str, name: str) -> bool:
    try:
        descriptor = os.open(os.path.join(folder, name), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        with locked(descriptor, wait=False):
            return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
