"""The file with the run log: JSON lines on a local disk, to which runs of several processes append."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from io import FileIO

from lake.core.base.errors import BadInputError, InvalidRequestError, StorageError
from lake.core.base.options import Option
from lake.core.io.storage.flock import locked
from lake.core.maintain.run_log.entries import Entry, UnreadableEntryError

# A longer log is renamed, and a new one begins. The one that was renamed before is replaced. Both are read.
_LARGEST = 16 * 1024 * 1024
# What is read of the end of a file that another program made longer.
_MOST_READ = 2 * _LARGEST
# Entries contain names of tables, and errors of servers.
_MODE, _FOLDER_MODE = 0o600, 0o700
# A pipe would block.
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_NEW_LINE = b"\n"
# What shows whether a file is a log, and how an entry begins.
_HEAD, _BEGINNING = 64 * 1024, b'{"at": "'
# How often the log may be renamed by other processes before this one has the lock.
_ATTEMPTS = 10
_ANOTHER_FILE = f"choose another file with {Option.LOG}"


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


def without_log(run: str) -> str:
    """Return what a run does if earlier entries are missing, for a warning."""
    return f"{run} repeats `clean` and actions with `every`, and does not wait after failures"


@dataclass(frozen=True, slots=True)
class LoggedRuns:
    """The entries at the end of a log, the oldest first.

    Args:
        entries: the entries.
        unreadable: the number of lines that are not entries.
        is_found: whether there is a log.
    """

    entries: Sequence[Entry] = ()
    unreadable: int = 0
    is_found: bool = True


@dataclass(frozen=True, slots=True)
class RunLog:
    """A log.

    Args:
        path: the path of its file. A link is followed.
    """

    path: str

    def require_own(self) -> None:
        """Refuse a file to which no entry may be appended.

        Raises:
            StorageError: it cannot be read.
            BadInputError: it is not a run log, nor a regular file.
        """
        with self._translated("read"), ExitStack() as opened:
            file = self._to_read(opened, self._real_path)
            if file is not None:
                self._require_log(file)

    def append(self, entry: Entry) -> None:
        """Add an entry, which contains no secrets, at the end; creates the file and its folder.

        Raises:
            StorageError: it cannot be written.
            BadInputError: it is not a run log, nor a regular file.
        """
        line = f"{entry.line()}\n".encode()
        with self._translated("written"):
            os.makedirs(os.path.dirname(self._real_path), mode=_FOLDER_MODE, exist_ok=True)
            if not any(self._appended(line) for _ in range(_ATTEMPTS)):
                raise StorageError(
                    f"the run log {self.path} cannot be written: other processes rename it",
                    hint=_ANOTHER_FILE,
                )

    def read(self, most: int | None = None) -> LoggedRuns:
        """Return the last entries; an empty list if the log does not exist.

        Args:
            most: the most bytes that are read of each of its files; None for all that a log may have.

        Raises:
            StorageError: it cannot be read.
            BadInputError: it is not a regular file.
        """
        with self._translated("read"), ExitStack() as opened:
            # In this order: a log that is renamed meanwhile is found twice, and not missed.
            found = (self._to_read(opened, path) for path in (self._real_path, self._renamed))
            files = {_identity(file): file for file in found if file is not None}
            lines = [
                line
                for file in reversed(files.values())
                for line in _last_lines(file, most or _MOST_READ)
            ]
        return replace(_parsed(lines), is_found=bool(files))

    @property
    def _real_path(self) -> str:
        return os.path.realpath(self.path)

    @property
    def _renamed(self) -> str:
        return f"{self._real_path}.1"

    def _appended(self, line: bytes) -> bool:
        """Write a line, and return True; False if the log was renamed meanwhile, so that nothing was written."""
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND
        with self._opened(self._real_path, flags) as file, locked(file.fileno()):
            if not self._is_current(file):
                return False
            self._require_log(file)
            size = file.seek(0, os.SEEK_END)
            if size:
                file.seek(size - 1)
                # A process that was killed may have left a part of a line.
                line = line if file.read(1) == _NEW_LINE else _NEW_LINE + line
            _write(file, line, size)
            if size + len(line) > _LARGEST and self._may_rename():
                os.replace(self._real_path, self._renamed)
            return True

    def _require_log(self, file: FileIO) -> None:
        if not _is_log(os.pread(file.fileno(), _HEAD, 0)):
            raise BadInputError(f"{self.path} is not a run log", hint=_ANOTHER_FILE)

    def _may_rename(self) -> bool:
        """Whether the file with the name of the renamed log is a log, or does not exist."""
        with ExitStack() as opened:
            try:
                file = self._to_read(opened, self._renamed)
            except (OSError, BadInputError):
                return False
            return file is None or _is_log(os.pread(file.fileno(), _HEAD, 0))

    def _is_current(self, file: FileIO) -> bool:
        """Whether the log still is a file; another process may have renamed the file before this one had the lock."""
        try:
            return os.path.samestat(os.stat(self._real_path), os.fstat(file.fileno()))
        except FileNotFoundError:
            return False

    def _to_read(self, opened: ExitStack, path: str) -> FileIO | None:
        try:
            return opened.enter_context(self._opened(path, os.O_RDONLY))
        except FileNotFoundError:
            return None

    @contextmanager
    def _opened(self, path: str, flags: int) -> Iterator[FileIO]:
        descriptor = os.open(path, flags | _FLAGS, _MODE)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BadInputError(f"the run log {path} is not a regular file", hint=_ANOTHER_FILE)
            yield FileIO(descriptor, "r" if flags == os.O_RDONLY else "r+", closefd=False)
        finally:
            os.close(descriptor)

    @contextmanager
    def _translated(self, done: str) -> Iterator[None]:
        try:
            yield
        except IsADirectoryError as error:
            raise BadInputError(
                f"the run log {self.path} is a folder", hint=_ANOTHER_FILE
            ) from error
        except OSError as error:
            raise StorageError(
                f"the run log {self.path} cannot be {done}: {error.strerror}", hint=_ANOTHER_FILE
            ) from error


def _is_log(head: bytes) -> bool:
    """Whether the beginning of a file is that of a log: a line is an entry, or a part that a killed run left."""
    if not head.strip():
        return True
    for line in head.split(_NEW_LINE):
        try:
            Entry.of_line(line.decode())
        except (UnreadableEntryError, UnicodeDecodeError):
            if line.startswith(_BEGINNING) and not _is_json(line):
                return True
        else:
            return True
    return False


def _is_json(line: bytes) -> bool:
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return False
    return True


def _write(file: FileIO, line: bytes, size: int) -> None:
    """Write a line at the end of a file of `size` bytes; after an error the file is as before."""
    rest = memoryview(line)
    try:
        while rest:
            # A disk that becomes full takes a part, and reports the error for the next part.
            rest = rest[file.write(rest) :]
    except OSError:
        with suppress(OSError):
            file.truncate(size)
        raise


def _identity(file: FileIO) -> tuple[int, int]:
    found = os.fstat(file.fileno())
    return found.st_dev, found.st_ino


def _last_lines(file: FileIO, most: int) -> Sequence[bytes]:
    size = file.seek(0, os.SEEK_END)
    file.seek(max(size - most, 0))
    lines = _read(file, most).split(_NEW_LINE)
    # The first one is a part of a line.
    return lines if size <= most else lines[1:]


def _read(file: FileIO, most: int) -> bytes:
    parts, missing = [], most
    while missing > 0 and (part := file.read(missing)):
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


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
