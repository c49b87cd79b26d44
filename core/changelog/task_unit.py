"""What a task reads of a change log, as plain data: pieces of data files, and delete files before and after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from lake.core.plain import PlainData
from lake.core.rows.reader import FileSlice, ReadSettings

CAME, WENT, LOST, CHANGED = "came", "went", "lost", "changed"


@dataclass(frozen=True, slots=True)
class Part(PlainData):
    """Pieces of data files that are read together; delete files are named by their places in the unit's settings.

    Args:
        kind: ``came`` and ``went`` are all rows that the deletes leave; ``lost`` are those of them that the other
            deletes hit; ``changed`` are the rows that one of both hits and not the other: those that the deletes
            leave went, the others came.
        files: the pieces.
        deletes: delete files.
        other: others, for ``lost`` and ``changed``.
    """

    kind: str
    files: Sequence[FileSlice]
    deletes: tuple[int, ...]
    other: tuple[int, ...] = ()

    @property
    def bytes(self) -> int:
        """Bytes of the pieces."""
        return sum(item.length or item.size_bytes - item.start for item in self.files)


@dataclass(frozen=True, slots=True)
class Unit(PlainData):
    """What is told together: a whole commit, or a part of one that only put rows in or only took some away.

    Args:
        settings: how files are read, with all delete files that any part needs.
        parts: what to read.
        ordinal: the commit's place among those told.
        snapshot_id: the commit.
        key: columns by which updates are told.
        matched: whether rows both went and came, so that they must be compared.
    """

    settings: ReadSettings
    parts: Sequence[Part]
    ordinal: int
    snapshot_id: int
    key: tuple[str, ...]
    matched: bool

    @property
    def bytes(self) -> int:
        """Bytes of what is read."""
        return sum(part.bytes for part in self.parts)

    def with_deletes(self, places: Sequence[int]) -> ReadSettings:
        """Return the settings with some of their delete files only."""
        chosen = tuple(self.settings.deletes[place] for place in places)
        return replace(self.settings, deletes=chosen)
