"""Map every location of a file to one text, so that no live file is deleted under another of its names.

Writers may name one file with several schemes, with ``.`` or ``..`` in the path, and on local disks through
links. Reads use a location as it is; before a delete, two locations that may refer to one file must be equal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from posixpath import normpath
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from lake.core.io.storage.location_columns import normalize_locations

_MAX_LINKS = 40
# Parts of an object's name that some clients change before they send it.
_CHANGEABLE = r"%[0-9A-Fa-f]{2}|/\.\.?(/|$)"


@dataclass(slots=True)
class FileNames:
    """Compares locations as files. Folders are read once, so an instance is used for one command only.

    Args:
        schemes: schemes by which the same stores are named, each with the one to compare in its place.
        authorities: the same for authorities, such as buckets.
    """

    schemes: Mapping[str, str] = field(default_factory=dict)
    authorities: Mapping[str, str] = field(default_factory=dict)
    _targets: dict[str, str | None] = field(default_factory=dict)
    _links: dict[str, list[str]] = field(default_factory=dict)

    def of(self, locations: Any) -> pa.Array:
        """Return one text per location, equal for all locations of one file, except for links to files."""
        names = normalize_locations(locations)
        local = pc.starts_with(names, "/")
        if pc.all(local, min_count=0).as_py():
            return self._on_disk(names)
        stored = pc.invert(local)
        names = pc.replace_with_mask(names, stored, self._in_stores(names.filter(stored)))
        return pc.replace_with_mask(names, local, self._on_disk(names.filter(local)))

    def _in_stores(self, names: pa.Array) -> pa.Array:
        for scheme, other in self.schemes.items():
            names = pc.replace_substring_regex(names, f"^{re.escape(scheme)}://", f"{other}://")
        for authority, other in self.authorities.items():
            pattern = f"^([a-z][a-z0-9+.-]*://){re.escape(authority)}(/|$)"
            names = pc.replace_substring_regex(names, pattern, rf"\1{other}\2")
        return _resolved_names(names)

    def _on_disk(self, names: pa.Array) -> pa.Array:
        folders = pc.replace_substring_regex(names, r"[^/]*$", "").dictionary_encode()
        spelled = folders.dictionary.to_pylist()
        real = [f"{self._real(folder.rstrip('/')).rstrip('/')}/" for folder in spelled]
        if real == spelled:
            return names
        files = pc.replace_substring_regex(names, r"^.*/", "")
        joined = pa.array(real, pa.string()).take(folders.indices)
        return pc.binary_join_element_wise(joined, files, "")

    def linked(self, names: pa.Array) -> pa.Array:
        """Return the targets of the links in the folders of files whose names come from `of`."""
        return self.linked_in(local_folders(names))

    def linked_in(self, folders: pa.Array) -> pa.Array:
        """Return the targets of the links in `local_folders`."""
        return pa.array(
            [target for folder in folders.to_pylist() for target in self._linked(folder)],
            pa.string(),
        )

    def _real(self, path: str) -> str:
        """Return a path without links, ``.`` and ``..``; parts that do not exist are kept as they are."""
        resolved, links = "/", 0
        names = path.split("/")[::-1]
        while names:
            name = names.pop()
            if name == "..":
                resolved = os.path.dirname(resolved)
            elif name not in {"", "."}:
                below = os.path.join(resolved, name)
                # check: links-to-folders
                target = self._target(below) if links < _MAX_LINKS else None
                if target is None:
                    resolved = below
                    continue
                links += 1
                resolved = "/" if target.startswith("/") else resolved
                names += target.split("/")[::-1]
        return resolved

    def _target(self, path: str) -> str | None:
        """Return the target of a link; None if the path is not a link, or cannot be read."""
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


def local_folders(names: pa.Array) -> pa.Array:
    """Return the folders on disks, each once, of files whose names come from `FileNames.of`."""
    local = names.filter(pc.starts_with(names, "/"))
    return pc.replace_substring_regex(local, r"[^/]*$", "").unique()


def _resolved_names(names: pa.Array) -> pa.Array:
    """Return names of objects with ``%`` codes, ``.`` and ``..`` resolved."""
    changeable = pc.match_substring_regex(names, _CHANGEABLE)
    if not pc.any(changeable, min_count=0).as_py():
        return names
    resolved = [_resolved(name) for name in names.filter(changeable).to_pylist()]
    return pc.replace_with_mask(names, changeable, pa.array(resolved, pa.string()))


def _resolved(name: str) -> str:
    scheme, mark, rest = name.partition("://")
    authority, _, path = unquote(rest).partition("/")
    # As in URLs, ".." does not leave the authority.
    resolved = normpath(f"/{path.lstrip('/')}")
    # The name of a folder must not be the beginning of the name of a folder beside it.
    slash = "/" if path.endswith("/") and resolved != "/" else ""
    return f"{scheme}{mark}{authority}{resolved}{slash}"


def unnamed(candidates: Sequence[str], held: Iterable[str]) -> list[str]:
    """Return the candidates for a delete whose files are not named by any held location."""
    names = FileNames()
    kept = names.of(pa.array(list(held), pa.string()))
    kept = pa.concat_arrays([kept, names.linked(kept)])
    offered = pa.array(list(candidates), pa.string())
    unheld: list[str] = offered.filter(
        pc.invert(pc.is_in(names.of(offered), value_set=kept))
    ).to_pylist()
    return unheld
