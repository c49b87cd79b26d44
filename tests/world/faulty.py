"""Storage that fails at chosen calls, with the errors of real disks and object stores.

Faults are injected below lake's `Storage`: in the file system object that it opens, and in its own calls of the
operating system. Each text contains what must never be shown: secrets, a presigned URL, control codes.
"""

from __future__ import annotations

import errno
import io
import os
import types
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import patch

import pyarrow as pa
import pyarrow.fs as pafs

from lake.core.io.storage import atomic_files, local_folders, opening, storage

CANARY = "canary-5e2f91"
# Text that servers and proxies include in their errors.
SPILL = (
    f"https://user:{CANARY}@host/x?X-Amz-Credential={CANARY}&X-Amz-Signature={CANARY}\n"
    f"Authorization: Bearer {CANARY}\n\x1b[31m\x1b]0;title\x07red\r\n{{'token': '{CANARY}'}}"
)
READ, LOOK, LIST, WRITE, SYNC, DELETE = "read", "look", "list", "write", "sync", "delete"
Act = Callable[[], Any]


@dataclass(frozen=True)
class Call:
    """A call of storage or catalog: its number among those of its kind, and the file's name."""

    kind: str
    number: int
    name: str


@dataclass(frozen=True)
class Fault:
    """A failure of a call.

    Args:
        name: its name in messages.
        kind: the kind of calls that it affects.
        work: executes the call, wrongly.
        codes: exit codes of a command that fails because of it.
    """

    name: str
    kind: str
    work: Callable[[Call, Act], Any]
    codes: frozenset[int]


class Layer:
    """Counts calls, and makes the chosen ones fail.

    Args:
        warehouse: the folder of the tables. A command's output is elsewhere, on a disk without a store's faults.
    """

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = f"{warehouse.resolve()}/"
        self.calls: list[Call] = []
        self.happened: list[tuple[Call, str]] = []
        # The first result of each load, by name.
        self.first: dict[str, Any] = {}
        self._counts: Counter[str] = Counter()
        self._plan: Mapping[tuple[str, int], Fault] = {}

    def is_in_warehouse(self, path: str) -> bool:
        """Whether a path is that of a table's file or folder."""
        return f"{path}/".startswith(self._warehouse)

    def begin(self, plan: Mapping[tuple[str, int], Fault]) -> None:
        """Restart the counts; ``plan`` has faults by kind and number of a call."""
        self.calls, self.happened, self.first = [], [], {}
        self._counts.clear()
        self._plan = plan

    def at(self, kind: str, location: str, real: Act) -> Any:
        """Execute a call, as planned."""
        call = Call(kind, self._counts[kind], os.path.basename(location))
        self._counts[kind] += 1
        self.calls.append(call)
        fault = self._plan.get((kind, call.number))
        if fault is None:
            return real()
        self.happened.append((call, fault.name))
        return fault.work(call, real)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Install the layer below storage."""
        disk = _Disk(self)
        system = _System(self)
        with ExitStack() as stack:
            for owner, name, value in (
                (opening, "open_filesystem", lambda *_: disk),
                (storage, "os", system),
                (local_folders, "os", _Folders(self)),
                (atomic_files, "os", system),
                (atomic_files, "_write", self._around(atomic_files._write)),
            ):
                stack.enter_context(patch.object(owner, name, value))
            yield

    def _around(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: str, data: bytes, mode: int) -> Any:
            return self.at(WRITE, path, lambda: real(path, data, mode))

        return call


class _Disk(pafs.LocalFileSystem):
    """The local file system, with a layer's faults."""

    def __new__(cls, layer: Layer) -> Self:
        made: Self = super().__new__(cls)
        return made

    def __init__(self, layer: Layer) -> None:
        super().__init__()
        self._layer = layer

    def open_input_file(self, path: str) -> Any:
        return self._layer.at(READ, path, lambda: super(_Disk, self).open_input_file(path))

    def open_output_stream(self, path: str) -> Any:
        return self._layer.at(WRITE, path, lambda: super(_Disk, self).open_output_stream(path))

    def create_dir(self, path: str, *, recursive: bool = True) -> None:
        self._layer.at(
            WRITE, path, lambda: super(_Disk, self).create_dir(path, recursive=recursive)
        )

    def delete_file(self, path: str) -> None:
        self._layer.at(DELETE, path, lambda: super(_Disk, self).delete_file(path))

    def get_file_info(self, path: str) -> Any:
        return self._layer.at(LOOK, path, lambda: super(_Disk, self).get_file_info(path))


class _System(types.ModuleType):
    """The operating system's calls, with a layer's faults; everything else is unchanged."""

    def __init__(self, layer: Layer) -> None:
        super().__init__("os")
        self._layer = layer

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def unlink(self, path: str, **options: Any) -> None:
        if path.endswith((".crc", ".unfinished")):
            return os.unlink(path, **options)
        return self._layer.at(DELETE, path, lambda: os.unlink(path, **options))

    def fsync(self, descriptor: int) -> None:
        path = os.readlink(f"/proc/self/fd/{descriptor}")
        if self._layer.is_in_warehouse(path):
            self._layer.at(SYNC, path, lambda: os.fsync(descriptor))
        else:
            os.fsync(descriptor)

    def replace(self, before: str, after: str) -> None:
        self._layer.at(WRITE, after, lambda: os.replace(before, after))

    def mkdir(self, path: str) -> None:
        self._layer.at(WRITE, path, lambda: os.mkdir(path))


class _Folders(_System):
    """The calls that list folders and look up their files."""

    def scandir(self, folder: str) -> Any:
        def entries() -> list[os.DirEntry[str]]:
            with os.scandir(folder) as found:
                return list(found)

        return nullcontext(self._layer.at(LIST, folder.rstrip("/"), entries))

    def stat(self, path: str, **options: Any) -> Any:
        return self._layer.at(LOOK, path, lambda: os.stat(path, **options))


# Errors with the texts of PyArrow and the operating system


def _system(number: int, what: str) -> OSError:
    """Return an error of the operating system with the text of Arrow's file systems."""
    return OSError(number, f"{what}. Detail: [errno {number}] {os.strerror(number)}: {SPILL}")


def _store(code: str, status: int) -> OSError:
    return OSError(
        f"When reading information for key 'k' in bucket 'b': AWS Error {code} during GetObject "
        f"operation (HTTP status {status}): {SPILL}"
    )


Make = Callable[[], Exception]
_ERRORS: dict[str, tuple[Make, int]] = {
    "timeout": (lambda: _system(errno.ETIMEDOUT, "Failed to open"), 10),
    "403": (lambda: _store("ACCESS_DENIED", 403), 9),
    "permission": (lambda: _system(errno.EACCES, "Failed to open"), 9),
    "500": (lambda: _store("INTERNAL_FAILURE", 500), 10),
    "503": (lambda: _store("SLOW_DOWN", 503), 10),
    "429": (lambda: _store("UNKNOWN", 429), 10),
    "reset": (lambda: _system(errno.ECONNRESET, "Connection broke"), 10),
    "curl": (
        lambda: OSError(
            "When getting information for key 'k' in bucket 'b': AWS Error NETWORK_CONNECTION during "
            f"HeadObject operation: curlCode: 28, Timeout was reached {SPILL}"
        ),
        10,
    ),
    "input/output": (lambda: _system(errno.EIO, "Error reading bytes from file"), 7),
    "stale handle": (lambda: _system(errno.ESTALE, "Error reading bytes from file"), 7),
    "too many files": (lambda: _system(errno.EMFILE, "Failed to open"), 7),
}
_FULL: dict[str, tuple[Make, int]] = {
    "full": (lambda: _system(errno.ENOSPC, "Error writing bytes to file"), 7),
    "quota": (lambda: _system(errno.EDQUOT, "Error writing bytes to file"), 7),
    "too large": (lambda: _system(errno.EFBIG, "Error writing bytes to file"), 7),
    "read-only": (lambda: _system(errno.EROFS, "Failed to open"), 9),
}
_GONE = ("404", lambda: _system(errno.ENOENT, "Failed to open local file"))


def _raise(make: Make) -> Callable[[Call, Act], Any]:
    def work(_call: Call, _real: Act) -> Any:
        raise make()

    return work


def _then_raise(make: Make) -> Callable[[Call, Act], Any]:
    def work(_call: Call, real: Act) -> Any:
        real()
        raise make()

    return work


# Files that break while they are read or written


class _Bytes(io.RawIOBase):
    """A file of changed bytes; with an error, the first read after its first half fails.

    Args:
        data: the bytes.
        error: returns the error.
        length: the length that it reports.
    """

    def __init__(self, data: bytes, error: Make | None = None, length: int | None = None) -> None:
        super().__init__()
        self._data = data
        self._error = error
        self._length = len(data) if length is None else length
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + {0: 0, 1: self._at, 2: self._length}[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def read(self, size: int = -1) -> bytes:
        end = self._length if size < 0 else self._at + size
        if self._error is not None and end > len(self._data) // 2:
            raise self._error()
        found = self._data[self._at : end]
        self._at += len(found)
        return found


def _while_reading(make: Make) -> Callable[[Call, Act], Any]:
    def work(_call: Call, real: Act) -> Any:
        with real() as file:
            return pa.PythonFile(_Bytes(file.read(), make), mode="r")

    return work


def _short(_call: Call, real: Act) -> Any:
    """Return fewer bytes than the file's length."""
    with real() as file:
        data = file.read()
    return pa.PythonFile(_Bytes(data[: len(data) * 2 // 3], length=len(data)), mode="r")


def _cut(_call: Call, real: Act) -> Any:
    """Return a file that is shorter than it was."""
    with real() as file:
        data = file.read()
    return pa.PythonFile(_Bytes(data[: len(data) * 2 // 3]), mode="r")


def _flip(place: float) -> Callable[[Call, Act], Any]:
    def work(_call: Call, real: Act) -> Any:
        with real() as file:
            data = bytearray(file.read())
        if data:
            data[min(int(len(data) * place), len(data) - 1)] ^= 0x10
        return pa.PythonFile(_Bytes(bytes(data)), mode="r")

    return work


class _Sink(io.RawIOBase):
    """A file that breaks while it is written.

    Args:
        file: the real one.
        error: returns the error.
        when: at the first ``write``, half of which is written; at the ``close``; or ``after`` that.
    """

    def __init__(self, file: Any, error: Make, when: str) -> None:
        super().__init__()
        self._file = file
        self._error = error
        self._when = when

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return int(self._file.tell())

    def write(self, data: Any) -> int:
        if self._when == "write":
            self._file.write(bytes(data)[: len(data) // 2])
            raise self._error()
        self._file.write(data)
        return len(data)

    def flush(self) -> None:
        if not self._file.closed:
            self._file.flush()

    def close(self) -> None:
        if self.closed:
            return
        if self._when != "close":
            self._file.close()
        super().close()
        if self._when in {"close", "after"}:
            raise self._error()


def _while_writing(make: Make, when: str) -> Callable[[Call, Act], Any]:
    def work(call: Call, real: Act) -> Any:
        file = real()
        if isinstance(file, pa.NativeFile):
            return pa.PythonFile(_Sink(file, make, when), mode="w")
        # A file that is written by one call.
        raise make()

    return work


# Listings: lists of `os.DirEntry`


@dataclass(frozen=True, slots=True)
class _Gone:
    """The entry of a file that does not exist any more."""

    name: str

    def is_dir(self, *, follow_symlinks: bool = True) -> bool:
        return False

    def is_file(self, *, follow_symlinks: bool = True) -> bool:
        return True


def _missing(_call: Call, real: Act) -> Any:
    """Omit every second file."""
    found = real()
    files = [entry for entry in found if not entry.is_dir()]
    return [entry for entry in found if entry not in files[1::2]]


def _doubled(_call: Call, real: Act) -> Any:
    return real() * 2


def _half(make: Make) -> Callable[[Call, Act], Any]:
    """Break after the first entry."""

    def entries(found: list[Any]) -> Iterator[Any]:
        yield from found[:1]
        raise make()

    return lambda _call, real: entries(real())


def _stale(_call: Call, real: Act) -> Any:
    """Name files that no longer exist, too."""
    found = real()
    return [*found, *(_Gone(f"old-{entry.name}") for entry in found if not entry.is_dir())]


def _timed(shift_seconds: int) -> Callable[[Call, Act], Any]:
    """Return the status of files with another time."""

    def work(_call: Call, real: Act) -> Any:
        found = real()
        if not isinstance(found, os.stat_result):
            return found
        values = {name: getattr(found, name) for name in dir(found) if name.startswith("st_")}
        values["st_mtime_ns"] += shift_seconds * 10**9
        return SimpleNamespace(**values)

    return work


def _fault(name: str, kind: str, work: Callable[[Call, Act], Any], *codes: int) -> Fault:
    return Fault(name, kind, work, frozenset(codes))


def _storage_faults() -> Iterator[Fault]:
    for name, (make, code) in _ERRORS.items():
        yield _fault(f"open: {name}", READ, _raise(make), code)
        yield _fault(f"read: {name}", READ, _while_reading(make), code)
        yield _fault(f"look: {name}", LOOK, _raise(make), code)
        yield _fault(f"list: {name}", LIST, _raise(make), code)
        yield _fault(f"partial list: {name}", LIST, _half(make), code)
        yield _fault(f"delete: {name}", DELETE, _raise(make), code)
        yield _fault(f"deleted: {name}", DELETE, _then_raise(make), code)
        yield _fault(f"sync: {name}", SYNC, _raise(make), code)
    for name, (make, code) in (_ERRORS | _FULL).items():
        yield _fault(f"create: {name}", WRITE, _raise(make), code)
        yield _fault(f"created: {name}", WRITE, _then_raise(make), code)
        for when in ("write", "close", "after"):
            yield _fault(f"{when}: {name}", WRITE, _while_writing(make, when), code)
    for name, (make, code) in _FULL.items():
        yield _fault(f"sync: {name}", SYNC, _raise(make), code)
    name, gone = _GONE
    yield _fault(f"open: {name}", READ, _raise(gone), 7)
    yield _fault(f"delete: {name}", DELETE, _raise(gone))
    yield _fault(f"deleted: {name}", DELETE, _then_raise(gone))
    yield _fault("short read", READ, _short, 7)
    yield _fault("cut file", READ, _cut, 7)
    for place in (0.0, 0.03, 0.2, 0.4, 0.6, 0.8, 0.97, 1.0):
        yield _fault(f"flipped at {place}", READ, _flip(place), 7)
    yield _fault("list: entries missing", LIST, _missing)
    yield _fault("list: entries twice", LIST, _doubled)
    yield _fault("list: stale", LIST, _stale, 7)
    for seconds in (-(10**9), 3600, 10**9):
        yield _fault(f"look: times moved by {seconds} s", LOOK, _timed(seconds))


STORAGE_FAULTS = {one.name: one for one in _storage_faults()}
