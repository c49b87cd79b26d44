"""One text for each file, whatever location names it: what decides that a file which still lives is not deleted.

Writers may name one file by several schemes, by a path with ``.`` or ``..``, and on local disks through links.
Reading takes a location as it is; before a delete, two locations that may mean one file must compare as equal.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.storage.location_columns import normalize_locations

_MAX_LINKS = 40
# Parts of an object's name that some clients change before they send it.
_CHANGEABLE = r"%[0-9A-Fa-f]{2}|/\.\.?(/|$)"


@dataclass(slots=True)
class FileNames:
    """Compares locations as files. Folders are looked at once: it lives no longer than one command."""

    _targets: dict[str, str | None] = field(default_factory=dict)
    _links: dict[str, list[str]] = field(default_factory=dict)

    def of(self, locations: Any) -> pa.Array:
        """Return one text for each location, equal for all locations of one file, but for links to files."""
        names = normalize_locations(locations)
        local = pc.starts_with(names, "/")
        if pc.all(local, min_count=0).as_py():
            return self._on_disk(names)
        stored = pc.invert(local)
        names = pc.replace_with_mask(names, stored, _in_stores(names.filter(stored)))
        return pc.replace_with_mask(names, local, self._on_disk(names.filter(local)))

    def _on_disk(self, names: pa.Array) -> pa.Array:
        folders = pc.replace_substring_regex(names, r"[^/]*$", "").dictionary_encode()
        given = folders.dictionary.to_pylist()
        own = [f"{self._real(folder.rstrip('/')).rstrip('/')}/" for folder in given]
        if own == given:
            return names
        files = pc.replace_substring_regex(names, r"^.*/", "")
        joined = pa.array(own, pa.string()).take(folders.indices)
        return pc.binary_join_element_wise(joined, files, "")

    def linked(self, names: pa.Array) -> pa.Array:
        """Return the files to which links beside files lead, whose names `of` has returned."""
        folders = pc.replace_substring_regex(names, r"[^/]*$", "").unique().to_pylist()
        found = [one for folder in folders if folder[:1] == "/" for one in self._linked(folder)]
        return pa.array(found, pa.string())

    def _real(self, path: str) -> str:
        """Return a path without links, ``.`` and ``..``; what is not there is taken as it is."""
        place, links = "/", 0
        names = path.split("/")[::-1]
        while names:
            name = names.pop()
            if name == "..":
                place = os.path.dirname(place)
            elif name not in {"", "."}:
                found = os.path.join(place, name)
                target = self._target(found) if links < _MAX_LINKS else None
                if target is None:
                    place = found
                    continue
                links += 1
                place = "/" if target.startswith("/") else place
                names += target.split("/")[::-1]
        return place

    def _target(self, path: str) -> str | None:
        """Return where a link leads; None for what is not a link, or cannot be looked at."""
        if path not in self._targets:
            try:
                self._targets[path] = os.readlink(path)
            except (OSError, ValueError):
                self._targets[path] = None
        return self._targets[path]

    def _linked(self, folder: str) -> list[str]:
        if folder not in self._links:
            try:
                with os.scandir(folder) as entries:
                    links = [entry.path for entry in entries if entry.is_symlink()]
            except OSError:
                links = []
            self._links[folder] = [self._real(link) for link in links]
        return self._links[folder]


def _in_stores(names: pa.Array) -> pa.Array:
    """Return names of objects with ``%`` codes, ``.`` and ``..`` resolved."""
    odd = pc.match_substring_regex(names, _CHANGEABLE)
    if not pc.any(odd, min_count=0).as_py():
        return names
    plain = [_resolved(name) for name in names.filter(odd).to_pylist()]
    return pc.replace_with_mask(names, odd, pa.array(plain, pa.string()))


def _resolved(name: str) -> str:
    scheme, mark, rest = name.partition("://")
    return f"{scheme}{mark}{normpath(unquote(rest))}"


def unnamed(candidates: Sequence[str], held: Iterable[str]) -> list[str]:
    """Return the candidates for a delete whose files no held location names."""
    names = FileNames()
    kept = names.of(pa.array(list(held), pa.string()))
    kept = pa.concat_arrays([kept, names.linked(kept)])
    wanted = pa.array(list(candidates), pa.string())
    left: list[str] = wanted.filter(
        pc.invert(pc.is_in(names.of(wanted), value_set=kept))
    ).to_pylist()
    return left
