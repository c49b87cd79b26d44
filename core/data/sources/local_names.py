"""Find the local files that a path, a folder or a glob refers to. What cannot be read is an error, never left out."""

from __future__ import annotations

import errno
import fnmatch
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence

from lake.core.base.errors import BadInputError
from lake.core.io.storage.local_folders import is_text, raise_unless_missing, status_of

WILD = re.compile(r"[*?\[]")


def local_names(path: str, is_data: Callable[[str], bool]) -> list[str]:
    """Return the sorted paths that a local path refers to: files, and links and special files in their place.

    Args:
        path: a file, a folder or a glob; an absolute path.
        is_data: whether an entry below a folder, or one that a wildcard matches, is read, given by its name.

    Raises:
        OSError: a folder cannot be read.
        BadInputError: the name of a file is not text, or a link to a folder leads out of the folder.
    """
    if os.path.isdir(path):
        inside = (
            f"{folder}{name}"
            for folder, names in _below(f"{path.rstrip('/')}/", is_data)
            for name in names
            if is_data(name)
        )
        found = sorted(item for item in inside if not _is_folder(item))
    elif status_of(path):
        found = [path]
    elif WILD.search(path):
        matches = dict.fromkeys(_matches("/", path.lstrip("/").split("/"), is_data))
        found = sorted(item for item in matches if not _is_folder(item))
    else:
        found = []
    for item in found:
        if not is_text(item):
            shown = os.fsencode(item).decode(errors="backslashreplace")
            raise BadInputError(
                f"the name of the file {shown} is not text in UTF-8",
                hint="rename the file: a table cannot refer to it",
            )
    return found


def names_hidden(part: str) -> bool:
    """Whether a part of a glob matches names that begin with ``_`` or ``.``: it begins so itself."""
    return part.startswith((".", "_"))


def _matches(folder: str, parts: Sequence[str], is_data: Callable[[str], bool]) -> Iterator[str]:
    """Yield the paths below a folder that match a glob, given by its parts. A link to a folder matches ``*``."""
    part, *rest = parts
    if part == "**":
        for below, names in _below(folder, is_data):
            yield from (
                _matches(below, rest, is_data)
                if rest
                else (f"{below}{name}" for name in names if is_data(name))
            )
        return
    if not WILD.search(part):
        names = [part] if status_of(f"{folder}{part}") else []
    else:
        names = fnmatch.filter(_listed(folder), part)
        names = names if names_hidden(part) else list(filter(is_data, names))
    for name in names:
        if not rest:
            yield f"{folder}{name}"
        elif _is_folder(f"{folder}{name}"):
            yield from _matches(f"{folder}{name}/", rest, is_data)


def _below(top: str, is_wanted: Callable[[str], bool]) -> Iterator[tuple[str, list[str]]]:
    """Yield a folder and the folders below it, each with its names; their paths end with a slash.

    Links to folders are not followed, because a link may lead back: what they lead to would be found twice, or
    without end. A link that leads out of the folder is an error, because its files would be left out.
    """
    inside = f"{os.path.realpath(top).rstrip('/')}/"
    pending = [top]
    while pending:
        folder = pending.pop()
        names = _listed(folder)
        yield folder, names
        for name in filter(is_wanted, names):
            path = f"{folder}{name}"
            if not _is_folder(path):
                continue
            if not os.path.islink(path):
                pending.append(f"{path}/")
            elif not f"{os.path.realpath(path)}/".startswith(inside):
                raise BadInputError(
                    f"{path} is a link to a folder, which is not followed",
                    hint="name the folder, or use a glob with * in place of the link",
                )


def _listed(folder: str) -> list[str]:
    """Return the sorted names in a folder; an empty list if it is missing."""
    try:
        names = os.listdir(folder)
        # The names can be listed, but what they are cannot be seen, if the folder may not be searched.
        os.stat(f"{folder}.")
    except OSError as error:
        raise_unless_missing(error)
        return []
    return sorted(names)


def _is_folder(path: str) -> bool:
    """Whether a path is a folder or a link to one.

    Raises:
        OSError: it cannot be seen what it is.
    """
    try:
        return stat.S_ISDIR(os.stat(path).st_mode)
    except OSError as error:
        # A link to itself leads nowhere, like one to a missing file.
        if error.errno != errno.ELOOP:
            raise_unless_missing(error)
        return False
