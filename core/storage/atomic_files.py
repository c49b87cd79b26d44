"""Files on a local disk that appear whole or not at all, and never over another; one writer at a time."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from lake.core.clock import Backoff, Clock, Ids, SystemClock, SystemIds
from lake.core.errors import RefusedError
from lake.core.storage.flock import locked

_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EXDEV}
_LOOK_SECONDS = 0.02
# As the user's umask restricts it.
_MODE = 0o666
_TEMPORARY = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}-.+\.unfinished", re.DOTALL)


class NotCreatedError(Exception):
    """A file was certainly not created."""


def create(path: str, data: bytes, ids: Ids | None = None) -> None:
    """Create a file with all its contents, in one step that fails where the name is taken.

    An `OSError` leaves it open whether the file is there, or whether it outlives a power cut.

    Raises:
        NotCreatedError: the name is taken, or the contents could not be written.
        RefusedError: the disk knows no hard links, so no such step.
    """
    temporary = _temporary(path, ids or SystemIds())
    try:
        try:
            _write(temporary, data, _MODE)
        except OSError as error:
            raise NotCreatedError(f"cannot write {path}: {error.strerror}") from error
        _link(temporary, path)
    finally:
        with suppress(OSError):
            os.unlink(temporary)
    flush(os.path.dirname(path))


def _link(temporary: str, path: str) -> None:
    try:
        os.link(temporary, path)
    except OSError as error:
        # A network file system whose answer was lost tries again and then meets its own work.
        if _names_of(temporary) > 1:
            return
        if error.errno in _NO_LINKS:
            raise RefusedError(
                f"{os.path.dirname(path)} lies on a disk without hard links",
                hint="a commit there could overwrite another writer's",
            ) from error
        raise NotCreatedError(f"cannot create {path}: {error.strerror}") from error


def _names_of(path: str) -> int:
    try:
        return os.stat(path).st_nlink
    except FileNotFoundError:
        return 0


def replace(path: str, data: bytes, *, mode: int = _MODE, ids: Ids | None = None) -> None:
    """Give a file new contents, and permissions, in one step."""
    temporary = _temporary(path, ids or SystemIds())
    try:
        _write(temporary, data, mode)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    flush(os.path.dirname(path))


def _temporary(path: str, ids: Ids) -> str:
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{ids.uuid()}-{name}.unfinished")


def sweep(folder: str) -> None:
    """Remove what killed processes left of unfinished files; only for a sole writer."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if _TEMPORARY.fullmatch(name):
                os.unlink(os.path.join(folder, name))


def _write(path: str, data: bytes, mode: int) -> None:
    with open(path, "xb", opener=partial(os.open, mode=mode)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush(path: str) -> None:
    """Make a file's contents, or the names in a folder, survive a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def sole_writer(folder: str, wait_seconds: float, clock: Clock | None = None) -> Iterator[bool]:
    """Keep other processes that ask the same out of a folder; its readers and other writers know nothing.

    The lock goes with the process. Yields False on a disk without locks, where only `create` decides.

    Raises:
        NotCreatedError: another process was in it all that time, or it cannot be opened.
        FileNotFoundError: there is no such folder.
    """
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NotCreatedError(f"cannot open {folder}: {error.strerror}") from error
    try:
        with ExitStack() as held:
            yield _lock(held, descriptor, folder, wait_seconds, clock or SystemClock())
    finally:
        os.close(descriptor)


def _lock(held: ExitStack, descriptor: int, folder: str, wait_seconds: float, clock: Clock) -> bool:
    backoff = Backoff(_LOOK_SECONDS, _LOOK_SECONDS, clock=clock)
    until = clock.monotonic() + wait_seconds
    while True:
        try:
            held.enter_context(locked(descriptor, wait=False))
        except BlockingIOError as error:
            if clock.monotonic() > until:
                raise NotCreatedError(f"another process is writing in {folder}") from error
        except OSError:
            return False
        else:
            return True
        backoff.wait(1)
