"""List folders on local disks.

Entries whose names are not text in UTF-8 are left out: no location of a table refers to them.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext, suppress


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
