"""A lock file on a local disk: created atomically, refreshed by its owner, taken over after the owner's death.

A process that removes the file holds the kernel's lock on its inode, so only one process takes it over, and a late
owner does not remove another's lock. Correctness does not depend on this lock: without write access there is none.
"""

from __future__ import annotations

import json
import os
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from lake.core.base.clock import Clock, SystemClock
from lake.core.base.process_identity import host_name, process_name, still_runs
from lake.core.io.storage.flock import locked

HEARTBEAT_SECONDS = 15
TTL_SECONDS = 120
_LONGEST = 4096
# The end of the year 9999, the latest time that Python supports.
_LATEST_MS = 253_402_300_799_999
_TRIES = 10
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MAKE_NAMELESS = os.O_RDWR | getattr(os, "O_TMPFILE", 0) | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a lock; all fields are empty if the file does not contain them.

    Args:
        host: the machine's name, for users.
        pid: the process id, for users.
        process: its unique identity (`process_name`).
        command: the command that it runs.
        operation_id: the run's operation id.
        since_ms: when it began, in ms since 1970.
        heartbeat_ms: its last heartbeat; decisions use the file's own time instead.
        ttl_seconds: the time after the last heartbeat when it counts as dead.
    """

    host: str = ""
    pid: int = 0
    process: str = ""
    command: str = ""
    operation_id: str = ""
    since_ms: int = 0
    heartbeat_ms: int = 0
    ttl_seconds: int = TTL_SECONDS


class Heartbeat:
    """Refreshes a lock from now on, in a separate thread.

    Args:
        beat: refreshes the lock; returns False if there is nothing left to refresh.
    """

    def __init__(self, beat: Callable[[], bool]) -> None:
        self._beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="lake-lock", daemon=True)
        self._thread.start()

    def _work(self) -> None:
        while not self._over.wait(HEARTBEAT_SECONDS):
            if not self._beat():
                return

    def stop(self) -> None:
        """Stop it; no refresh happens afterwards."""
        self._over.set()
        self._thread.join()


class HeldLock:
    """A lock file that this process owns until `release`."""

    def __init__(self, path: str, descriptor: int, owner: Owner, clock: Clock) -> None:
        self._clock = clock
        self._path = path
        self._descriptor = descriptor
        self._owner = owner
        self._heartbeat = Heartbeat(self._beat)

    def _beat(self) -> bool:
        # The refresh uses the open file, even if another run has replaced the name.
        _write_owner(self._descriptor, self._owner, self._clock)
        return True

    def release(self) -> None:
        """Remove the file, unless another run has replaced it."""
        self._heartbeat.stop()
        try:
            with suppress(OSError), locked(self._descriptor):
                if _refers_to(self._path, self._descriptor):  # check: own-lock-only
                    os.unlink(self._path)
        finally:
            os.close(self._descriptor)


def this_process(command: str, operation_id: str, clock: Clock | None = None) -> Owner:
    """Return this process as an owner."""
    now_ms = (clock or SystemClock()).now_ms()
    return Owner(host_name(), os.getpid(), process_name(), command, operation_id, now_ms)


def take(path: str, me: Owner, clock: Clock | None = None) -> HeldLock | Owner | None:
    """Acquire a lock: return the lock, its owner if it is held, or None if there cannot be one.

    Args:
        path: the location of the file; its folder exists.
        me: the owner to write.
        clock: the time with which the ages of lock files are compared.
    """
    clock = clock or SystemClock()
    for _ in range(_TRIES):
        try:
            return HeldLock(path, _make(path, me, clock), me, clock)
        except FileExistsError:
            pass
        except OSError:
            return None
        try:
            owner = _owner_unless_dead(path, clock)
        except FileNotFoundError:
            continue
        except OSError:
            return None
        if owner is not None:
            return owner
    # After this many changes of owners, another process is certainly working.
    return Owner()


def _make(path: str, me: Owner, clock: Clock) -> int:
    """Create a lock's file, if there is none; on disks that support it, the owner is visible from the start.

    Raises:
        FileExistsError: the file exists.
        OSError: it cannot be created.
    """
    try:
        return _new(os.path.dirname(path), _MAKE_NAMELESS, me, clock, name=path)
    except FileExistsError:
        raise
    except OSError:
        # The file system does not support files without names.
        return _new(path, _MAKE, me, clock)


def _new(path: str, flags: int, me: Owner, clock: Clock, *, name: str | None = None) -> int:
    descriptor = os.open(path, flags, 0o600)
    try:
        _write_owner(descriptor, me, clock)
        if name is not None:
            # Without a folder's descriptor, Python would link the symbolic link itself.
            os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _write_owner(descriptor: int, owner: Owner, clock: Clock) -> None:
    contents = json.dumps(asdict(replace(owner, heartbeat_ms=clock.now_ms())))
    with suppress(OSError):
        os.pwrite(descriptor, contents.encode(), 0)


def _owner_unless_dead(path: str, clock: Clock) -> Owner | None:
    """Return a lock's owner; if it is dead, remove the file and return None.

    Raises:
        OSError: it is not a regular file, cannot be opened, or its file system does not support locks.
    """
    descriptor = os.open(path, _LOOK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is not a file")
        owner = owner_in(os.pread(descriptor, _LONGEST, 0))
        if not _is_stale(owner, status.st_mtime, clock):
            return owner
        try:
            with locked(descriptor, wait=False):
                # Checked again: until now it may have been another owner's, or have been refreshed.
                unchanged = _refers_to(path, descriptor)
                if unchanged and _is_stale(owner, os.fstat(descriptor).st_mtime, clock):
                    os.unlink(path)
        except BlockingIOError:
            return owner
        return None
    finally:
        os.close(descriptor)


def _is_stale(owner: Owner, heartbeat: float, clock: Clock) -> bool:
    if owner.process and still_runs(owner.process) is False:
        return True
    # A time far in the future comes from a wrong clock: waiting for its end would take too long.
    return abs(clock.now_ms() / 1000 - heartbeat) > TTL_SECONDS


def owner_in(data: bytes) -> Owner:
    """Return the owner in a lock's contents."""
    try:
        contents: Any = json.loads(data)
        since_ms = int(contents["since_ms"])
        if not 0 <= since_ms <= _LATEST_MS:
            return Owner()
        return Owner(
            host=str(contents["host"]),
            pid=int(contents["pid"]),
            process=str(contents["process"]),
            command=str(contents["command"]),
            operation_id=str(contents["operation_id"]),
            since_ms=since_ms,
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return Owner()


def _refers_to(path: str, descriptor: int) -> bool:
    """Whether a path still refers to an open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
