"""What a task reads of a change log, as plain data: pieces of data files, and delete files before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lake.core.rows.reader import FileSlice, ReadSettings

CAME, WENT, LOST, CHANGED = "came", "went", "lost", "changed"


@dataclass(frozen=True, slots=True)
class Part:
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

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "kind": self.kind,
            "files": [item.to_plain() for item in self.files],
            "deletes": list(self.deletes),
            "other": list(self.other),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Part:
        """Rebuild from `to_plain`'s values."""
        files = [FileSlice.from_plain(item) for item in plain["files"]]
        return cls(plain["kind"], files, tuple(plain["deletes"]), tuple(plain["other"]))


@dataclass(frozen=True, slots=True)
class Unit:
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

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "settings": self.settings.to_plain(),
            "parts": [part.to_plain() for part in self.parts],
            "ordinal": self.ordinal,
            "snapshot_id": str(self.snapshot_id),
            "key": list(self.key),
            "matched": self.matched,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Unit:
        """Rebuild from `to_plain`'s values."""
        return cls(
            ReadSettings.from_plain(plain["settings"]),
            [Part.from_plain(part) for part in plain["parts"]],
            plain["ordinal"],
            int(plain["snapshot_id"]),
            tuple(plain["key"]),
            plain["matched"],
        )
