"""Tables that lie inside another table's folder: what is theirs is not the outer one's to delete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from lake.core import locations
from lake.core.storage.storage import Storage

# What every table has in its own folder.
FOLDERS = ("data", "metadata")


@dataclass(slots=True)
class NestedTables:
    """Finds tables below some folders, by the layout that they all have.

    Args:
        storage: where the folders lie.
        roots: the outer table's own.
    """

    storage: Storage
    roots: Sequence[str]
    _known: dict[str, bool] = field(default_factory=dict)
    _own: Sequence[str] = field(init=False)

    def __post_init__(self) -> None:
        self._own = [f"{root.rstrip('/')}/{name}/" for root in self.roots for name in FOLDERS]

    def owns(self, location: str) -> bool:
        """Whether a file below the roots lies in the folders of a table in them; most names tell at once."""
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
    """Return how many folders of a location may be a table's own."""
    return sum(location.count(f"/{name}/") for name in FOLDERS)
