"""Folders compared as places: a folder has one text, whatever its spelling, its host, and the links to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from functools import lru_cache

import pyarrow as pa

from lake.core.base import locations
from lake.core.base.errors import BadInputError
from lake.core.table.metadata.files import is_metadata_name

# Parts of a path that are not the name of what they refer to, and the parts of paths that are resolved one by one.
_NOT_NAMES = frozenset({"", ".", ".."})
_DEEP = 100
# The locations whose spelling is known: those of all tables are compared with the folders of each one.
_MOST_KNOWN = 16_384


def place_of(location: str) -> str:
    """Return one text for all locations of a folder or metadata file; on a local disk also for those through links.

    Storage ignores the host of a local location, so it is left out.
    """
    return Places().of(location)


class Places:
    """The places (`place_of`) of many locations; a folder that contains several of them is looked at once."""

    def __init__(self) -> None:
        self._real: dict[str, str] = {}

    def of(self, location: str) -> str:
        """Return the place of a location."""
        text, folder, name = _spelled(location)
        if folder is None:  # check: links-to-other-folders
            return text
        found = self._real.get(folder) or self._folder(folder)
        return f"file://{found.rstrip('/')}/{name}".rstrip("/")

    def _folder(self, path: str) -> str:
        """Return a folder without links in its path."""
        found = self._real.get(path)
        if found is None:
            above, name = os.path.split(path)
            if path.count("/") > _DEEP or name in _NOT_NAMES:
                return os.path.realpath(path)
            found = os.path.join(self._folder(above), name)
            self._real[path] = found = os.path.realpath(found) if os.path.islink(found) else found
        return found


@lru_cache(maxsize=_MOST_KNOWN)
def _spelled(location: str) -> tuple[str, str | None, str]:
    """Return one text for all spellings of a location; if it is local, also its folder, and its name in that if any.

    A metadata file that is a link is not read, so only its folder may be behind one.
    """
    text = locations.folded(location).rstrip("/")
    try:
        parsed = locations.parse(text)
    except BadInputError:
        return text, None, ""
    if not parsed.is_local:
        return text, None, ""
    folder, name = os.path.split(parsed.path)
    return (text, folder, name) if is_metadata_name(name) else (text, parsed.path, "")


class Folders:
    """A set of folders, by their places."""

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self._of = Places().of
        self.places = frozenset(self._of(folder) for folder in folders)
        self._below = tuple(f"{place}/" for place in self.places)

    def __bool__(self) -> bool:
        return bool(self.places)

    def contain(self, place: str) -> bool:
        """Whether a place (`place_of`) is one of the folders or is below one."""
        return f"{place}/".startswith(self._below)

    def mask(self, files: pa.ChunkedArray) -> pa.ChunkedArray:
        """Return which files (locations) are below the folders."""
        if not self:
            return pa.chunked_array([pa.repeat(pa.scalar(value=False), len(files))])
        known: dict[str, bool] = {}
        found = []
        for path in files.to_pylist():
            folder = path.rpartition("/")[0]
            if folder not in known:
                known[folder] = self.contain(self._of(folder))
            found.append(known[folder])
        return pa.chunked_array([pa.array(found, pa.bool_())])

    def shared_with(self, others: Iterable[str], owned: str) -> Iterator[str]:
        """Yield the folders, in these and at or below them, that belong to the owner of other folders.

        Args:
            others: folders of the other owner.
            owned: a file of the owner of these folders. A folder with this file is theirs, wherever it is.
        """
        place = self._of(owned)
        for other in map(self._of, others):
            if self.contain(other):
                yield other
            for folder in self.places:
                if folder.startswith(f"{other}/") and not place.startswith(f"{folder}/"):
                    yield folder
