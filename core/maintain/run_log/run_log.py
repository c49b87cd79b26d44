"""The file with the run log: JSON lines on a local disk, to which runs of several processes append."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.errors import BadInputError, InvalidRequestError, StorageError
from lake.core.base.options import Option
from lake.core.io.storage.flock import locked
from lake.core.maintain.run_log.entries import Entry, UnreadableEntryError

# What is read of a log: its end, of some ten thousand entries.
_MOST_BYTES = 32 * 1024 * 1024
# A longer log is renamed, and a new one begins; the renamed one of before is replaced.
_LARGEST = 64 * 1024 * 1024
# Entries contain names of tables, and errors of servers.
_MODE, _FOLDER_MODE = 0o600, 0o700


def default_path() -> str:
    """Return the log in the state folder of the user, as the XDG Base Directory Specification names it.

    Raises:
        InvalidRequestError: neither the environment nor the system names a home folder.
    """
    folder = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(folder):
        # The specification says that relative paths are ignored.
        folder = os.path.join(os.path.expanduser("~"), ".local", "state")
        if not os.path.isabs(folder):
            raise InvalidRequestError(
                "the run log has no folder: the user has no home folder",
                hint=f"set XDG_STATE_HOME, or name the file with {Option.LOG}",
            )
    return os.path.join(folder, "lake", "runs.jsonl")


@dataclass(frozen=True, slots=True)
class LoggedRuns:
    """The entries at the end of a log, the oldest first, and the number of lines that are not entries."""

    entries: Sequence[Entry] = ()
    unreadable: int = 0


@dataclass(frozen=True, slots=True)
class RunLog:
    """A log.

    Args:
        path: the path of its file.
    """

    path: str

    def append(self, entry: Entry) -> None:
        """Add an entry at the end; creates the file and its folder.

        Raises:
            StorageError: it cannot be written.
            BadInputError: it is not a regular file.
        """
        line = f"{entry.line()}\n".encode()
        try:
            os.makedirs(os.path.dirname(self.path), mode=_FOLDER_MODE, exist_ok=True)
            flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(self.path, flags, _MODE), "rb+", buffering=0) as file:
                self._require_regular(file.fileno())
                with locked(file.fileno()):
                    size = file.seek(0, os.SEEK_END)
                    if size:
                        file.seek(size - 1)
                        # A process that was killed may have left a part of a line.
                        line = line if file.read(1) == b"\n" else b"\n" + line
                    file.write(line)
                    if size > _LARGEST:
                        os.replace(self.path, f"{self.path}.1")
        except OSError as error:
            raise StorageError(
                f"the run log {self.path} cannot be written: {error.strerror}"
            ) from error

    def read(self) -> LoggedRuns:
        """Return the last entries; none if there is no log.

        Raises:
            StorageError: it cannot be read.
            BadInputError: it is not a regular file.
        """
        try:
            flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
            with open(os.open(self.path, flags), "rb") as file:
                self._require_regular(file.fileno())
                size = file.seek(0, os.SEEK_END)
                file.seek(max(size - _MOST_BYTES, 0))
                lines = file.read(_MOST_BYTES).split(b"\n")
        except FileNotFoundError:
            return LoggedRuns()
        except OSError as error:
            raise StorageError(
                f"the run log {self.path} cannot be read: {error.strerror}"
            ) from error
        return _parsed(lines if size <= _MOST_BYTES else lines[1:])

    def _require_regular(self, descriptor: int) -> None:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise BadInputError(f"the run log {self.path} is not a regular file")


def _parsed(lines: Sequence[bytes]) -> LoggedRuns:
    entries, unreadable = [], 0
    for line in lines:
        if not line.strip():
            continue
        try:
            entries.append(Entry.of_line(line.decode()))
        except (UnreadableEntryError, UnicodeDecodeError):
            unreadable += 1
    return LoggedRuns(entries, unreadable)
