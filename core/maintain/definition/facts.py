"""What the commands for definitions of tables plan and what they did, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lake.core.base.facts import Facts, inlined


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts(Facts):
    """A column; `key` is whether it is an identifier field."""

    name: str
    type: str
    required: bool
    key: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationFacts(Facts):
    """A table that is created, or that exists already."""

    location: str = ""
    format_version: int = 0
    columns: Sequence[ColumnFacts] = ()
    partition_by: Sequence[str] = ()
    sort_by: Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterationFacts(Facts):
    """The changes of a table; what is empty or None stays as it is."""

    added_columns: Sequence[str] = ()
    renamed_columns: Mapping[str, str] = field(default_factory=dict)
    dropped_columns: Sequence[str] = ()
    widened_columns: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] | None = None
    sort_by: Sequence[str] | None = None
    set: Mapping[str, str] = field(default_factory=dict)
    unset: Sequence[str] = ()
    format_version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationFacts(Facts):
    """A table that is registered; `rows` is None if they are not known exactly."""

    metadata_location: str = ""
    location: str = ""
    table_uuid: str = ""
    format_version: int = 0
    columns: Sequence[ColumnFacts] = ()
    snapshots: int = 0
    rows: int | None = None
    rows_at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameFacts(Facts):
    """The names of a table before and after it is renamed."""

    before: str = ""
    after: str = ""
    location: str = ""

    def values(self) -> dict[str, Any]:
        """Return the names by their keys, of which one is a word of Python."""
        return {"from": self.before, "to": self.after, "location": self.location}


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFacts(Facts):
    """A table that is dropped, and the files that are deleted with it."""

    location: str = ""
    metadata_location: str = ""
    snapshots: int = 0
    purge: bool = False
    files: int = 0
    bytes: int = 0
    spared_files: int = 0


@dataclass(slots=True, kw_only=True)
class DropResult(Facts):
    """What was dropped, and how many of its files were deleted."""

    plan: DropFacts | None = inlined()
    deleted_files: int = 0
    failed_deletes: int = 0
