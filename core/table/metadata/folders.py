"""Folders compared as places: a folder has one text, whatever its spelling, its host, and the links to it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator

import pyarrow as pa

from lake.core.base import locations
from lake.core.base.errors import BadInputError
from lake.core.table.metadata.files import is_metadata_name


def place_of(location: str) -> str:
    """Return one text for all locations of a folder or metadata file; on a local disk also for those through links.

    Storage ignores the host of a local location, so it is left out.
    """
    text = locations.folded(location).rstrip("/")
    try:
        parsed = locations.parse(text)
    except BadInputError:
        return text
    if not parsed.is_local:  # check: links-to-other-folders
        return text
    folder, name = os.path.split(parsed.path)
    # A metadata file that is a link is not read.
    path = os.path.join(os.path.realpath(folder), name)
    return f"file://{path if is_metadata_name(name) else os.path.realpath(path)}".rstrip("/")


class Folders:
    """A set of folders, by their places."""

    def __init__(self, folders: Iterable[str] = ()) -> None:
        self.places = frozenset(place_of(folder) for folder in folders)
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
                known[folder] = self.contain(place_of(folder))
            found.append(known[folder])
        return pa.chunked_array([pa.array(found, pa.bool_())])

    def shared_with(self, others: Iterable[str], owned: str) -> Iterator[str]:
        """Yield the folders, in these and at or below them, that belong to the owner of other folders.

        Args:
            others: folders of the other owner.
            owned: a file of the owner of these folders. A folder with this file is theirs, wherever it is.
        """
        place = place_of(owned)
        for other in map(place_of, others):
            if self.contain(other):
                yield other
            for folder in self.places:
                if folder.startswith(f"{other}/") and not place.startswith(f"{folder}/"):
                    yield folder
