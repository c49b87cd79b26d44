"""The folder in which a command that continues where it stopped keeps its state, on a local disk.

The folder contains a file `lock`: the kernel's lock on it lets one run at a time work with the state, and ends with
the process. The lock excludes no process if the file was removed, or on a network file system that grants it on each
machine. So a run also writes its name into the file, and an earlier run changes nothing from then on. Files are
replaced whole and survive a power failure.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field

from lake.core.base import locations
from lake.core.base.clock import Clock, Ids
from lake.core.base.errors import CorruptFileError, InvalidRequestError, LockedError, StorageError
from lake.core.base.facts import RunFacts
from lake.core.base.options import Option
from lake.core.base.process_identity import host_name, process_name, still_runs
from lake.core.base.units import format_time
from lake.core.io.storage import atomic_files
from lake.core.io.storage.errors import translate_errors
from lake.core.io.storage.flock import locked

LOCK = "lock"
_LARGEST_OWNER = 4096
_SIGNATURE = ("command", "host", "since", "process", "pid")
_LOOK_SECONDS = 0.5
_SWAP_SECONDS = 60.0


@dataclass(slots=True)
class StateFolder:
    """A folder of state.

    Args:
        path: its absolute path on this machine.
        clock: the clock that waits for another run.
        ids: makes the names of temporary files.
    """

    path: str
    clock: Clock
    ids: Ids
    # What this run wrote into the lock's file.
    _signature: bytes | None = field(default=None, init=False)

    @classmethod
    def at(cls, location: str, *, clock: Clock, ids: Ids) -> StateFolder:
        """Return the folder at a location; nothing is created.

        Raises:
            InvalidRequestError: it is not on a local disk.
        """
        parsed = locations.parse(location)
        if not parsed.is_local:
            raise InvalidRequestError(
                f"{Option.STATE} {location} is not a folder on this machine",
                hint="choose a folder on a local disk: a lock in it excludes a second run",
            )
        return cls(os.path.abspath(parsed.path), clock, ids)

    def file(self, name: str) -> str:
        """Return the path of a file in the folder."""
        return os.path.join(self.path, name)

    @contextmanager
    def held(self, command: str, wait_ms: int | None = None) -> Iterator[bool]:
        """Hold the folder's lock during a block; create the folder if it is missing.

        Args:
            command: the command that works with the state, for other runs.
            wait_ms: how long to wait for another run; None to yield False at once if another run holds the lock.

        Raises:
            LockedError: another run held the lock for the whole time.
            StorageError: the folder cannot be created, or its file system does not support locks.
        """
        with translate_errors(self.path):
            atomic_files.make_folders(self.path)
            # An earlier run may have been killed before it flushed the name.
            atomic_files.flush(os.path.dirname(self.path))
            descriptor = os.open(self.file(LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            with ExitStack() as lock:
                acquired = self._acquire(lock, descriptor, wait_ms or 0)
                if not acquired and wait_ms is not None:
                    raise LockedError(
                        f"another run worked with {self.path} for longer than {Option.WAIT}"
                    )
                if acquired:
                    # An earlier run that still works has made its change, or will not make it.
                    with translate_errors(self.path), self._swapping():
                        self._sign(descriptor, command)
                        atomic_files.sweep(self.path)
                yield acquired
        finally:
            os.close(descriptor)

    def _sign(self, descriptor: int, command: str) -> None:
        """Write into the lock's file who holds it, for other runs."""
        owner = {
            "command": command,
            "host": host_name(),
            "pid": os.getpid(),
            "since": format_time(self.clock.now_ms()),
            "process": process_name(),
            "run": self.ids.uuid(),
        }
        self._signature = json.dumps(owner).encode()
        with translate_errors(self.file(LOCK)):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, self._signature, 0)

    def owner(self) -> RunFacts:
        """Return the run that holds the lock, as far as it is known."""
        try:
            data = self.read(LOCK, limit=_LARGEST_OWNER) or b""
            found = json.loads(data)
        except (CorruptFileError, ValueError, RecursionError):
            return RunFacts()
        if not isinstance(found, dict):
            return RunFacts()
        command, host, since, process, pid = map(found.get, _SIGNATURE)
        is_known = all(isinstance(text, str) for text in (command, host, since, process))
        # Between its start and its signature, a run has the lock with the signature of the last one.
        if not is_known or type(pid) is not int or still_runs(str(process)) is False:
            return RunFacts()
        return RunFacts(command=command, host=host, pid=pid, since=since)

    def _acquire(self, lock: ExitStack, descriptor: int, wait_ms: int) -> bool:
        until = self.clock.monotonic() + wait_ms / 1000
        while True:
            try:
                lock.enter_context(locked(descriptor, wait=False))
            except BlockingIOError:
                remaining = until - self.clock.monotonic()
                if remaining <= 0:
                    return False
                self.clock.sleep(min(remaining, _LOOK_SECONDS))
            except OSError as error:
                raise StorageError(
                    f"{self.path}: the file system does not support locks: {error.strerror}",
                    hint=f"choose another folder with {Option.STATE}",
                ) from error
            else:
                return True

    def read(self, name: str, *, limit: int) -> bytes | None:
        """Return a file's contents; None if there is no such file.

        Raises:
            CorruptFileError: it has more than ``limit`` bytes.
        """
        with translate_errors(self.file(name)):
            try:
                with open(self.file(name), "rb") as file:
                    data = file.read(limit + 1)
            except FileNotFoundError:
                return None
        if len(data) > limit:
            raise CorruptFileError(f"{self.file(name)} has more than {limit} bytes")
        return data

    def replace(
        self, name: str, data: bytes, *, expected: Callable[[], bool] | None = None
    ) -> None:
        """Replace a file's contents durably, or create it.

        Args:
            name: the file's name.
            data: the new contents.
            expected: whether the old contents are as this process knows them, asked while no other process can
                replace the file; None to replace it in any case.

        Raises:
            LockedError: they are not, or another run has begun; nothing was changed.
        """
        with translate_errors(self.file(name)), ExitStack() as stack:
            if expected is not None:
                stack.enter_context(self.alone(expected))
            atomic_files.replace(self.file(name), data, ids=self.ids)

    def draft(self, name: str) -> str:
        """Return the path of a file that `place` renames; the next run removes it if it remains."""
        return atomic_files.draft_of(self.file(name), self.ids)

    def place(self, draft: str, name: str) -> None:
        """Give a draft on the disk its name durably; what had the name is replaced.

        Raises:
            LockedError: another run has begun; nothing was changed.
        """
        with translate_errors(self.file(name)), self.alone(lambda: True):  # check: place-alone
            os.replace(draft, self.file(name))
            atomic_files.flush(self.path)

    @contextmanager
    def alone(self, expected: Callable[[], bool]) -> Iterator[None]:
        """Let no other run change the state during a block, in which `replace` expects nothing.

        Args:
            expected: whether the state is as this process knows it.

        Raises:
            LockedError: it is not, or another run has begun, which may need any file.
        """
        with self._swapping():
            if not (self._is_latest() and expected()):
                raise LockedError(
                    f"another run changed the state in {self.path} while this one worked",
                    hint="let one run at a time work with a state",
                )
            yield

    def _is_latest(self) -> bool:
        """Whether no other run has signed the lock's file since this one did."""
        if self._signature is None:
            return True
        # The file of a lock that was removed is missing, or no run has signed the new one.
        found = self.read(LOCK, limit=_LARGEST_OWNER)
        return not found or found == self._signature  # check: latest-run

    @contextmanager
    def _swapping(self) -> Iterator[None]:
        try:
            with atomic_files.sole_writer(self.path, _SWAP_SECONDS, self.clock):
                yield
        except atomic_files.NotCreatedError as error:
            raise StorageError(str(error)) from error

    def names(self) -> list[str]:
        """Return the names of the files in the folder."""
        with translate_errors(self.path):
            return sorted(os.listdir(self.path))

    def remove(self, name: str) -> None:
        """Remove a file, if it exists."""
        with suppress(OSError):
            os.unlink(self.file(name))
