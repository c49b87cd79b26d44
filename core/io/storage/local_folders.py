"""Folders on local disks: list and create them, and delete files in them without following links.

Entries whose names are not text in UTF-8 are left out: no location of a table refers to them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress

from lake.core.base.errors import BadInputError
from lake.core.io.storage.atomic_files import flush

# Opens a folder to access its entries, for which the folder need not be readable.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC


def is_text(name: str) -> bool:
    """Whether a name from the system is text in UTF-8; Python keeps other bytes as surrogates."""
    if name.isascii():
        return True
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def local_entries(path: str) -> list[tuple[str, bool]]:
    """Return the sorted names in a folder, each with whether it is a folder or a link to one.

    Returns:
        An empty list if the folder is missing.

    Raises:
        OSError: the folder cannot be read.
    """
    with _opened(path) as entries:
        return sorted((entry.name, _is_folder(entry)) for entry in entries if is_text(entry.name))


def local_files(path: str, *, below: bool = True) -> Iterator[str]:
    """Yield the paths of the regular files in a folder; links are neither yielded nor followed.

    Args:
        path: the folder; a missing one has no files.
        below: also those in the folders below it.

    Raises:
        OSError: a folder cannot be read.
    """
    pending = [path.rstrip("/")]
    while pending:
        parent = pending.pop()
        with _opened(f"{parent}/") as entries:
            for entry in entries:
                name = entry.name
                if entry.is_dir(follow_symlinks=False):
                    if below and is_text(name):
                        pending.append(f"{parent}/{name}")
                elif entry.is_file(follow_symlinks=False) and is_text(name):
                    yield f"{parent}/{name}"


def file_status(path: str) -> os.stat_result | None:
    """Return the status of a regular file; None if there is none, or it is a link.

    Raises:
        OSError: a folder of its path cannot be searched.
    """
    status = status_of(path)
    return status if status is not None and stat.S_ISREG(status.st_mode) else None


def status_of(path: str, *, follow: bool = False) -> os.stat_result | None:
    """Return the status of a path; None if there is nothing.

    Args:
        path: the path.
        follow: return the status of what a link leads to; None if it leads nowhere.

    Raises:
        OSError: a folder of the path cannot be searched.
    """
    try:
        return os.stat(path, follow_symlinks=follow)
    # The last one is a path with a zero byte or with half a character.
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    except OSError as error:
        # A file with such a name cannot exist, and a link to itself leads nowhere.
        if error.errno in {errno.ENAMETOOLONG, errno.ELOOP}:
            return None
        raise


def raise_unless_missing(error: OSError) -> None:
    """Raise an error that hides files of a folder; a missing folder hides none."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise error


def require_file(location: str, status: os.stat_result) -> None:
    """Check that a local location is a regular file, not a link.

    Raises:
        BadInputError: it is a link, a folder, a pipe or a device.
    """
    if stat.S_ISLNK(status.st_mode):
        raise BadInputError(
            f"{location} is a symbolic link, not a file",
            hint="replace the link by the file; links to folders are followed, links to a table's files are not",
        )
    if not stat.S_ISREG(status.st_mode):
        raise BadInputError(f"{location} is not a file")


def make_folders(path: str) -> None:
    """Create a local folder and its missing parents, flushed so that they survive a power failure."""
    missing = []
    while path and not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for folder in reversed(missing):
        with suppress(FileExistsError):
            os.mkdir(folder)
        flush(os.path.dirname(folder))


def delete_local_file(path: str, roots: Sequence[str], should_continue: Callable[[], bool]) -> bool:
    """Delete a file, or a link itself; return False if ``should_continue`` returned False before.

    Args:
        path: the file.
        roots: folders below which no link is followed.
        should_continue: called at the last moment.

    Raises:
        OSError: the file does not exist or cannot be deleted, or a part of its path is a link.
    """
    folder, name = os.path.split(path)
    descriptor = open_folder(folder, roots)
    try:
        # A link itself is removed, not its target.
        if stat.S_ISDIR(os.lstat(name, dir_fd=descriptor).st_mode):
            raise OSError(errno.EISDIR, "is a folder", path)
        # Checked at the last moment: the thread may have been suspended together with the process.
        if not should_continue():
            return False
        os.unlink(name, dir_fd=descriptor)
        # Hadoop's local file system stores a checksum file next to each file.
        with suppress(OSError):
            os.unlink(f".{name}.crc", dir_fd=descriptor)
        return True
    finally:
        os.close(descriptor)


def open_folder(folder: str, roots: Sequence[str]) -> int:
    """Open a folder without following links below its root; links above the root are the owner's choice (V13).

    A link that replaces the folder afterwards does not affect the open descriptor.
    """
    root = min((root for root in roots if _is_below(folder, root)), key=len, default=None)
    if root is None:
        # check: no-link-to-folder
        if os.path.realpath(folder) != os.path.normpath(folder) and _link_below_table(folder):
            raise OSError(errno.ELOOP, "a symbolic link leads out of the table", folder)
        return os.open(folder, _FOLDER)
    descriptor = os.open(root or "/", _FOLDER)
    for part in filter(None, folder.removeprefix(root).split("/")):
        try:
            below = os.open(part, _FOLDER | os.O_NOFOLLOW, dir_fd=descriptor)  # check: no-late-link
        except NotADirectoryError as error:
            raise OSError(
                errno.ELOOP, "a part of the path is a link or a file, not a folder", folder
            ) from error
        finally:
            os.close(descriptor)
        descriptor = below
    return descriptor


def _is_below(folder: str, root: str) -> bool:
    return f"{folder}/".startswith(f"{root}/")


def _link_below_table(folder: str) -> bool:
    """Whether one of the last parts of a folder's path is a link (above it, links are the owner's choice)."""
    # A table's files are at most this deep below it: data or metadata, then partition folders.
    for _ in range(8):
        if os.path.islink(folder):
            return True
        if os.path.basename(folder) in {"data", "metadata"}:
            return False
        folder = os.path.dirname(folder)
    return False


def _is_folder(entry: os.DirEntry[str]) -> bool:
    # A link that leads nowhere.
    with suppress(OSError):
        return entry.is_dir()
    return False


def _opened(path: str) -> AbstractContextManager[Iterable[os.DirEntry[str]]]:
    try:
        return os.scandir(path)
    except OSError as error:
        raise_unless_missing(error)
        return nullcontext(())
