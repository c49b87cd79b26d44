"""What the commands for definitions of tables plan and what they did, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import Facts, inlined


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts(Facts):
    """A column."""

    name: str
    """The name of the column."""
    type: str
    """Its type."""
    required: bool
    """Whether it cannot be NULL."""
    key: bool
    """Whether it is an identifier field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreationFacts(Facts):
    """A table that is created, or that exists already."""

    location: str = ""
    format_version: int = 0
    columns: Sequence[ColumnFacts] = ()
    """The columns of the table."""
    partition_by: Sequence[str] = ()
    """Its partitioning."""
    sort_by: Sequence[str] = ()
    """Its sort order."""
    properties: Mapping[str, str] = field(default_factory=dict)
    """Its properties."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AlterationFacts(Facts):
    """The changes of a table; what stays as it is is empty or null."""

    added_columns: Sequence[str] = ()
    """Names of new columns."""
    renamed_columns: Mapping[str, str] = field(default_factory=dict)
    """New names of columns by the old ones."""
    dropped_columns: Sequence[str] = ()
    """Names of columns that are dropped."""
    widened_columns: Mapping[str, str] = field(default_factory=dict)
    """New types of columns by their names."""
    partition_by: Sequence[str] | None = None
    """The new partitioning."""
    sort_by: Sequence[str] | None = None
    """The new sort order."""
    set: Mapping[str, str] = field(default_factory=dict)
    """Properties that are set."""
    unset: Sequence[str] = ()
    """Names of properties that are removed."""
    format_version: int | None = None
    """The new version of Iceberg's table format."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistrationFacts(Facts):
    """A table that is registered."""

    metadata_location: str = ""
    location: str = ""
    table_uuid: str = ""
    format_version: int = 0
    columns: Sequence[ColumnFacts] = ()
    """Its columns."""
    snapshots: int = 0
    """The number of its snapshots."""
    rows: int | None = None
    """Rows by the summary of the current snapshot; null if delete files leave it open."""
    rows_at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RenameFacts(Facts):
    """The names of a table before and after it is renamed."""

    from_: str = ""
    """The name before."""
    to: str = ""
    """The name after."""
    location: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DropFacts(Facts):
    """A table that is dropped, and the files that are deleted with it."""

    location: str = ""
    metadata_location: str = ""
    snapshots: int = 0
    """The number of its snapshots."""
    purge: bool = False
    """Whether its files are deleted."""
    files: int = 0
    """Files that are deleted."""
    bytes: int = 0
    """Their bytes, as far as the metadata contains sizes."""
    spared_files: int = 0
    """Files that are not deleted, because they are not the table's alone."""


@dataclass(slots=True, kw_only=True)
class DropResult(Facts):
    """What was dropped, and how many of its files were deleted."""

    plan: DropFacts | None = inlined()
    deleted_files: int = 0
    """Files that were deleted."""
    failed_deletes: int = 0
    """Files that could not be deleted."""
