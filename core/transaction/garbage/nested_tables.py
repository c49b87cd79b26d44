"""Detect tables inside another table's folder, whose files the outer table must not delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lake.core.base import locations
from lake.core.io.storage.storage import Storage

# The folders that every table has.
FOLDERS = ("data", "metadata")


@dataclass(slots=True)
class NestedTables:
    """Finds tables below some folders by their common layout."""

    storage: Storage
    roots: Sequence[str]
    _known: dict[str, bool] = field(default_factory=dict)
    _own: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        self._own = [f"{root.rstrip('/')}/{name}/" for root in self.roots for name in FOLDERS]

    def owns(self, location: str) -> bool:
        """Whether a file below the roots belongs to a nested table. Most names decide that at once."""
        for own in self._own:
            if location.startswith(own) and _folders(location) == _folders(own):
                return False
        return any(self._is_table(folder) for folder in self._candidates(location))

    def _candidates(self, location: str) -> Iterator[str]:
        name = locations.canonical(location)
        for root in self.roots:
            base = locations.canonical(root).rstrip("/")
            if not name.startswith(base + "/"):
                continue
            parts = name.removeprefix(base + "/").split("/")[:-1]
            for index, part in enumerate(parts):
                if index and part in FOLDERS:
                    yield "/".join([base, *parts[:index]])

    def _is_table(self, folder: str) -> bool:
        if folder not in self._known:
            listed = self.storage.list_folder(locations.join(folder, "metadata"))
            self._known[folder] = any(".metadata.json" in name for name, _ in listed)
        return self._known[folder]


def _folders(location: str) -> int:
    """Count the folders of a location that have the name of a table's folder."""
    return sum(location.count(f"/{name}/") for name in FOLDERS)
