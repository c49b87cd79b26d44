"""A lock file on a local disk: made in one step, kept young by its owner, taken over from the dead by one.

Whoever removes the file holds the kernel's lock on its inode meanwhile, so that no two take it over and no late
owner removes another's. Nothing needs this lock for safety: where it cannot be written, there is none.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any

from lake.core.clock import Clock, SystemClock
from lake.core.process_identity import process_name, still_runs
from lake.core.storage.flock import locked

HEARTBEAT_SECONDS = 15
TTL_SECONDS = 120
_LONGEST = 4096
# The end of the year 9999, behind which no date is.
_LATEST_MS = 253_402_300_799_999
_TRIES = 10
_LOOK = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_MAKE_NAMELESS = os.O_RDWR | getattr(os, "O_TMPFILE", 0) | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lock; all empty where its file does not tell.

    Args:
        host: the machine's name, for people.
        pid: the process's number, for people.
        process: its name that no other process has (`process_name`).
        command: what it runs.
        operation_id: the run's.
        since_ms: when it began, in ms since 1970.
        heartbeat_ms: when it last said that it lives; the file's own time is what counts.
        ttl_seconds: how long after that it is taken for dead.
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
    """Keeps a lock young from now on, on a thread of its own.

    Args:
        beat: tells that the owner lives; False where there is nothing left to keep.
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
        """End it; no beat comes afterwards."""
        self._over.set()
        self._thread.join()


class HeldLock:
    """A lock file of one's own, from when it was made to `release`."""

    def __init__(self, path: str, descriptor: int, owner: Owner, clock: Clock) -> None:
        self._clock = clock
        self._path = path
        self._descriptor = descriptor
        self._owner = owner
        self._heartbeat = Heartbeat(self._beat)

    def _beat(self) -> bool:
        # Its own inode, whoever may have taken the name over.
        _tell(self._descriptor, self._owner, self._clock)
        return True

    def release(self) -> None:
        """Remove the file, unless another run has taken its name over."""
        self._heartbeat.stop()
        try:
            with suppress(OSError), locked(self._descriptor):
                if _names(self._path, self._descriptor):
                    os.unlink(self._path)
        finally:
            os.close(self._descriptor)


def this_process(command: str, operation_id: str, clock: Clock | None = None) -> Owner:
    """Return this process as an owner.

    Args:
        command: what the lock is for.
        operation_id: the run's.
        clock: tells when the run began.
    """
    now_ms = (clock or SystemClock()).now_ms()
    return Owner(socket.gethostname(), os.getpid(), process_name(), command, operation_id, now_ms)


def take(path: str, me: Owner, clock: Clock | None = None) -> HeldLock | Owner | None:
    """Take a lock: the lock, or else its owner, or None where there can be none.

    Args:
        path: the file's, in a folder that is there.
        me: who asks.
        clock: the time that the ages of lock files are compared with.
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
    # So many others come and go that one of them is at work.
    return Owner()


def _make(path: str, me: Owner, clock: Clock) -> int:
    """Make a lock's file, where there is none; it tells its owner from its first moment, where the disk can do that.

    Raises:
        FileExistsError: there is one.
        OSError: it cannot be made.
    """
    try:
        return _new(os.path.dirname(path), _MAKE_NAMELESS, me, clock, name=path)
    except FileExistsError:
        raise
    except OSError:
        # The disk knows no files without names.
        return _new(path, _MAKE, me, clock)


def _new(path: str, flags: int, me: Owner, clock: Clock, *, name: str | None = None) -> int:
    descriptor = os.open(path, flags, 0o600)
    try:
        _tell(descriptor, me, clock)
        if name is not None:
            # Without a folder's descriptor Python would link the link.
            os.link(f"/proc/self/fd/{descriptor}", name, src_dir_fd=descriptor)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _tell(descriptor: int, owner: Owner, clock: Clock) -> None:
    told = json.dumps(asdict(replace(owner, heartbeat_ms=clock.now_ms())))
    with suppress(OSError):
        os.pwrite(descriptor, told.encode(), 0)


def _owner_unless_dead(path: str, clock: Clock) -> Owner | None:
    """Return a lock's owner; remove a dead one's file and return None.

    Raises:
        OSError: it is no regular file, cannot be opened, or lies on a disk without locks.
    """
    descriptor = os.open(path, _LOOK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise OSError(f"{path} is no file")
        owner = owner_in(os.pread(descriptor, _LONGEST, 0))
        if not _is_dead(owner, status.st_mtime, clock):
            return owner
        try:
            with locked(descriptor, wait=False):
                # Looked at again: it may have been another's, or have come to life, until just now.
                mine = _names(path, descriptor)
                if mine and _is_dead(owner, os.fstat(descriptor).st_mtime, clock):
                    os.unlink(path)
        except BlockingIOError:
            return owner
        return None
    finally:
        os.close(descriptor)


def _is_dead(owner: Owner, heartbeat: float, clock: Clock) -> bool:
    if owner.process and still_runs(owner.process) is False:
        return True
    # A time far ahead is a clock's mistake: nobody could ever wait for its end.
    return abs(clock.now_ms() / 1000 - heartbeat) > TTL_SECONDS


def owner_in(data: bytes) -> Owner:
    """Return the owner that a lock's contents name."""
    try:
        told: Any = json.loads(data)
        since_ms = int(told["since_ms"])
        if not 0 <= since_ms <= _LATEST_MS:
            return Owner()
        return Owner(
            host=str(told["host"]),
            pid=int(told["pid"]),
            process=str(told["process"]),
            command=str(told["command"]),
            operation_id=str(told["operation_id"]),
            since_ms=since_ms,
        )
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        return Owner()


def _names(path: str, descriptor: int) -> bool:
    """Whether a path is still that of an open file."""
    try:
        return os.path.samestat(os.lstat(path), os.fstat(descriptor))
    except FileNotFoundError:
        return False
