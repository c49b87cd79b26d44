"""What a deletion plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import EarlierRunFacts, Facts, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeletionFacts(Facts):
    """What goes of one partition."""

    partition: str
    data_files_removed: int
    """Data files that go whole."""
    data_files_examined: int
    """Data files of which some rows may go."""
    rows_at_most: int
    """The most rows that go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionFacts(Facts):
    """The plan of a deletion."""

    deletes: str = ""
    """How rows are deleted: `position` or `copy-on-write`."""
    rows: int | None = None
    """Rows that go; null if metadata leaves it open."""
    rows_at_least: int = 0
    """The fewest that can go."""
    rows_at_most: int = 0
    """The most that can go."""
    data_files_removed: int = 0
    """Data files that go whole."""
    data_files_examined: int = 0
    """Data files that are read, because some of their rows may go."""
    bytes_examined: int = 0
    """Their bytes."""
    partitions: Sequence[PartitionDeletionFacts] = ()
    """What goes by partition."""
    engine: str = ""
    """What reads the data files: `inline` or `spark`."""
    earlier_run: EarlierRunFacts | None = omitted()
    """The run of the same id, if there was one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionResult(Facts):
    """What a deletion committed."""

    rows: int = 0
    """Rows that were deleted."""
    data_files_removed: int = 0
    """Data files that went whole."""
    data_files_rewritten: int = 0
    """Data files that were rewritten."""
    delete_files: int = 0
    """Delete files that were added."""
