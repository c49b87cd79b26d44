"""The folders that the user trusts, and files that are found in folders.

Trust is a decision about a folder, by its path and its owner, as git's ``safe.directory``. It is stored in the home
folder, in ``~/.config/lake/trusted.json`` (below ``XDG_CONFIG_HOME`` if that is set): an object whose member
``folders`` is a list of objects with ``path`` and ``owner`` (a user id).
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lake.core.base.errors import BadInputError, RefusedError
from lake.core.base.options import Option

_LARGEST = 1 << 20


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that was found in a folder.

    Args:
        path: its path.
        data: its content, or the beginning of it.
        owners: the ids of the users whose file it is: of a link, also the owner of the link.
        is_open_to_all: whether every user can change it.
        is_regular: whether it is a file, and not a pipe or a device, whose content may not be complete.
        is_too_large: whether the content is not complete.
    """

    path: str
    data: bytes
    owners: frozenset[int]
    is_open_to_all: bool
    is_regular: bool
    is_too_large: bool

    @property
    def folder(self) -> str:
        """The folder in which it was found."""
        return os.path.dirname(self.path)


def read_file(path: str, largest: int = _LARGEST) -> FoundFile:
    """Read a file once, with its owners.

    Raises:
        OSError: it cannot be read.
    """
    # A pipe would block.
    with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        data = file.read(largest + 1)
    owners = frozenset({found.st_uid, os.lstat(path).st_uid})
    is_regular = stat.S_ISREG(found.st_mode)
    return FoundFile(path, data, owners, _is_open(found), is_regular, len(data) > largest)


def read_named(path: str, largest: int = _LARGEST, *, made_by: str) -> bytes:
    """Return the contents of a file that the user named, of which all must be known: a policy, or a plan.

    Args:
        path: its path.
        largest: the most bytes that it may have.
        made_by: the hint if there is no such file.

    Raises:
        BadInputError: it cannot be read, is not a regular file, or is larger than `largest` bytes.
        RefusedError: every user can change it.
    """
    try:
        file = read_file(path, largest)
    except OSError as error:
        hint = made_by if isinstance(error, FileNotFoundError) else None
        raise BadInputError(f"{path} cannot be read: {error.strerror}", hint=hint) from error
    if not file.is_regular:
        raise BadInputError(f"{path} is not a regular file")
    require_closed(file)
    if file.is_too_large:
        raise BadInputError(f"{path} is larger than {largest >> 20} MB")
    return file.data


@dataclass(frozen=True, slots=True)
class TrustedFolders:
    """The folders that the user trusts: their owners by their paths."""

    owners: Mapping[str, int]

    def covers(self, folder: str) -> bool:
        """Whether a folder is trusted: it has the same owner as then, and not every user can write to it."""
        real = os.path.realpath(folder)
        try:
            found = os.stat(real)
        except OSError:
            return False
        return self.owners.get(real) == found.st_uid and not _is_open(found)

    def require_own(self, file: FoundFile) -> None:
        """Refuse a file of another user, unless its folder is trusted and belongs to that user.

        Raises:
            RefusedError: it is such a file, or every user can change it.
        """
        require_closed(file)
        own = {0, os.geteuid()}
        if self.covers(file.folder):
            own.add(self.owners[os.path.realpath(file.folder)])
        if not file.owners <= own:
            raise RefusedError(
                f"{file.path} belongs to another user",
                hint=f"check the file, then copy it; if you trust {file.folder} and its owner, "
                f"use {Option.TRUST} there",
            )

    def listed(self) -> list[str]:
        """Return the paths of the folders, in order."""
        return sorted(self.owners)


def require_closed(file: FoundFile) -> None:
    """Refuse a file that every user can change.

    Raises:
        RefusedError: it is such a file.
    """
    if file.is_open_to_all:
        raise RefusedError(
            f"{file.path} can be changed by every user",
            hint=f"check the file, then take away the permission to write: chmod o-w {file.path}",
        )


def store_path() -> str:
    """Return the path of the file that contains the trusted folders."""
    shared = os.environ.get("XDG_CONFIG_HOME", "")
    if not os.path.isabs(shared):
        # The specification of these variables says that relative paths are ignored.
        shared = os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(shared, "lake", "trusted.json")


def trusted_folders() -> TrustedFolders:
    """Read the folders that the user trusts; there are none without the file.

    Raises:
        RefusedError: other users can change the file.
        BadInputError: it cannot be read.
    """
    path = store_path()
    try:
        file = read_file(path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return TrustedFolders({})
    except (OSError, ValueError) as error:
        raise BadInputError(f"{path} cannot be read: {error}") from error
    if file.is_open_to_all or not file.owners <= {0, os.geteuid()}:
        raise RefusedError(
            f"{path} belongs to another user or can be changed by every user",
            hint="check the file, then take away the permission to write, or remove it",
        )
    return TrustedFolders(_parsed(path, file.data))


def require_trustworthy(folder: str) -> None:
    """Refuse a folder that cannot be trusted.

    Raises:
        RefusedError: every user can write there.
    """
    if _is_open(os.stat(folder)):
        raise RefusedError(
            f"{folder} cannot be trusted: every user can write there",
            hint="take away that permission, or work in a folder of your own",
        )


def trust(folder: str) -> str:
    """Trust a folder from now on; return its real path.

    Raises:
        RefusedError: every user can write to the folder.
        BadInputError: the list of trusted folders cannot be read or written.
    """
    real = os.path.realpath(folder)
    require_trustworthy(real)
    _write({**trusted_folders().owners, real: os.stat(real).st_uid})
    return real


def withdraw(folder: str) -> bool:
    """Trust a folder no longer; return whether it was trusted.

    Raises:
        BadInputError: the list of trusted folders cannot be read or written.
    """
    real, owners = os.path.realpath(folder), dict(trusted_folders().owners)
    if real not in owners:
        return False
    del owners[real]
    _write(owners)
    return True


def _is_open(found: os.stat_result) -> bool:
    return bool(stat.S_IMODE(found.st_mode) & stat.S_IWOTH)


def _parsed(path: str, data: bytes) -> dict[str, int]:
    try:
        entries: Any = json.loads(data)["folders"]
        return {str(entry["path"]): int(entry["owner"]) for entry in entries}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise BadInputError(
            f"{path} is not a list of trusted folders", hint="remove the file, or repair it"
        ) from error


def _write(owners: Mapping[str, int]) -> None:
    path = store_path()
    folders = [{"path": folder, "owner": owner} for folder, owner in sorted(owners.items())]
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        # Only the user can read a temporary file, and what it is renamed to.
        descriptor, made = tempfile.mkstemp(prefix="trusted-", dir=os.path.dirname(path))
        with open(descriptor, "w") as file:
            json.dump({"folders": folders}, file, indent=2)
        os.replace(made, path)
    except OSError as error:
        raise BadInputError(f"{path} cannot be written: {error.strerror}") from error
