"""The input of a change log task as plain data: slices of data files, and delete files before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lake.core.base.plain import PlainData
from lake.core.data.rows.reader import FileSlice, ReadSettings

ADDED, REMOVED, NEWLY_DELETED, CHANGED = "added", "removed", "newly-deleted", "changed"


@dataclass(frozen=True, slots=True)
class Part(PlainData):
    """Slices of data files that are read together; delete files are indices into the unit's settings.

    Args:
        kind: ``added`` and ``removed``: all rows that `deletes` do not delete. ``newly-deleted``: those of them
            that `other` deletes. ``changed``: rows that one of both deletes; those that `deletes` does not
            delete were removed, the others added.
        files: the slices.
        deletes: delete files.
        other: the other delete files, for ``newly-deleted`` and ``changed``.
    """

    kind: str
    files: Sequence[FileSlice]
    deletes: tuple[int, ...]
    other: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """The size of the slices in bytes."""
        return sum(item.length or item.size_bytes - item.start for item in self.files)


@dataclass(frozen=True, slots=True)
class ChangeUnit(PlainData):
    """The input of one task: a whole commit, or a part of a commit that only adds or only removes rows.

    Args:
        settings: how to read files, with all delete files of the parts.
        parts: the parts to read.
        ordinal: the commit's index in the change log.
        snapshot_id: the commit's snapshot.
        key: key columns that identify updates.
        matched: whether rows were both removed and added, so that they must be compared.
    """

    settings: ReadSettings
    parts: Sequence[Part]
    ordinal: int
    snapshot_id: int
    key: tuple[str, ...]
    matched: bool

    @property
    def bytes(self) -> int:
        """The size of the parts in bytes."""
        return sum(part.bytes for part in self.parts)

    def with_deletes(self, indices: Sequence[int]) -> ReadSettings:
        """Return the settings with only the delete files at the given indices."""
        chosen = tuple(self.settings.deletes[index] for index in indices)
        return replace(self.settings, deletes=chosen)
