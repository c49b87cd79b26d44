"""Create and replace files on a local disk atomically, without overwriting another; one writer at a time."""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial

from lake.core.base.clock import UUID_FORM, Backoff, Clock, Ids
from lake.core.base.errors import InvalidRequestError, NotFoundError, RefusedError
from lake.core.io.storage.errors import translate_errors
from lake.core.io.storage.flock import locked

_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EXDEV}
_LOOK_SECONDS = 0.02
# As the user's umask restricts it.
_MODE = 0o666
_HEAD_BYTES = 1024
_DRAFT = re.compile(rf"{UUID_FORM}-.+\.unfinished", re.DOTALL)


class NotCreatedError(Exception):
    """A file was certainly not created."""


def create(path: str, data: bytes, *, ids: Ids) -> None:
    """Create a file with its contents atomically; fails if the name exists.

    After an `OSError` it is unknown whether the file exists, and whether it would survive a power failure.

    Raises:
        NotCreatedError: the name exists, or the contents could not be written.
        RefusedError: the file system does not support hard links, which atomic creation needs.
    """
    temporary = draft_of(path, ids)
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
        os.link(temporary, path)  # check: exclusive-version
    except OSError as error:
        # A network file system that lost the response retries, and then finds its own link.
        if _names_of(temporary) > 1:
            return
        if error.errno in _NO_LINKS:
            raise RefusedError(
                f"the file system of {os.path.dirname(path)} does not support hard links",
                hint="a commit there could overwrite another writer's; move the table to another file system",
            ) from error
        raise NotCreatedError(f"cannot create {path}: {error.strerror}") from error


def _names_of(path: str) -> int:
    try:
        return os.stat(path).st_nlink
    except FileNotFoundError:
        return 0


def replace(path: str, data: bytes, *, ids: Ids, mode: int = _MODE) -> None:
    """Replace a file's contents and permissions atomically."""
    temporary = draft_of(path, ids)
    try:
        _write(temporary, data, mode)
        os.replace(temporary, path)
    except OSError:
        with suppress(OSError):
            os.unlink(temporary)
        raise
    flush(os.path.dirname(path))


def replace_text(path: str, text: str, *, ids: Ids) -> None:
    """Replace a file that people or programs read.

    Raises:
        LakeError: it cannot be written.
    """
    with translate_errors(path):
        replace(os.path.abspath(path), text.encode(), ids=ids)


def require_own(
    path: str, kind: str, is_own: Callable[[bytes], bool], largest: int | None = None
) -> None:
    """Refuse to replace a file of another kind; a file without contents may be replaced.

    Args:
        path: the file, which may not exist. For a folder, the replacement fails.
        kind: what is written, such as ``a status file``.
        is_own: whether the contents of a file are of this kind; without ``largest``, its first KiB.
        largest: the most bytes that such a file has; None if its beginning shows the kind.

    Raises:
        InvalidRequestError: the file is of another kind.
        NotFoundError: its folder does not exist.
        LakeError: it cannot be read.
    """
    folder = os.path.dirname(os.path.abspath(path))
    if not os.path.isdir(folder):
        raise NotFoundError(
            f"{path} cannot be written: there is no folder {folder}", hint="create the folder"
        )
    with translate_errors(path):
        if not os.path.lexists(path) or os.path.isdir(path):
            return
        if os.path.isfile(path):
            with open(path, "rb") as file:
                data = file.read(_HEAD_BYTES if largest is None else largest + 1)
            is_long = largest is not None and len(data) > largest
            if not data or (not is_long and is_own(data)):
                return
    raise InvalidRequestError(f"{path} is not {kind}", hint="name another file")


def has_keys(keys: frozenset[str], data: bytes) -> bool:
    """Whether a file contains a JSON object with some keys."""
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return False
    return isinstance(found, dict) and found.keys() >= keys


def draft_of(path: str, ids: Ids) -> str:
    """Return a name for the unfinished contents of a file, which `sweep` finds."""
    folder, name = os.path.split(path)
    return os.path.join(folder, f"{ids.uuid()}-{name}.unfinished")


def is_draft(name: str) -> bool:
    """Whether a name is one that `draft_of` returns: of a file that is being written, or was when a process ended."""
    return _DRAFT.fullmatch(name) is not None


def sweep(folder: str) -> None:
    """Remove the unfinished files of killed processes; only a sole writer may call this."""
    with suppress(OSError):
        for name in os.listdir(folder):
            if is_draft(name):
                os.unlink(os.path.join(folder, name))


def _write(path: str, data: bytes, mode: int) -> None:
    with open(path, "xb", opener=partial(os.open, mode=mode)) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush(path: str) -> None:
    """Flush a file's contents, or a folder's names, to the disk, so that they survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(path: str) -> None:
    """Create a folder, and those above it that are missing, so that they survive a power failure."""
    above = os.path.dirname(path)
    if os.path.isdir(path):
        return
    if above != path:
        make_folders(above)
    with suppress(FileExistsError):
        os.mkdir(path)
    flush(above)


@contextmanager
def sole_writer(folder: str, wait_seconds: float, clock: Clock) -> Iterator[bool]:
    """Hold an advisory lock on a folder, which excludes other callers of this function, but not other programs.

    The lock ends with the process. Yields False on a file system without locks, where only `create` is atomic.

    Raises:
        NotCreatedError: another process held the lock for ``wait_seconds``, or the folder cannot be opened.
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
            yield _lock(held, descriptor, folder, wait_seconds, clock)
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
