"""The partitions of a list, and what an expiration of partitions removes, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts(Facts):
    """A partition."""

    partition: str
    spec_id: int
    files: int
    """Data files."""
    rows: int | None
    """Rows; null if delete files leave it open."""
    rows_at_most: int
    bytes: int
    """Bytes of the data files."""
    delete_files: int
    """Delete files."""
    last_change: str | None
    """The time of the last change; null if it is not known."""
    idle: bool | None
    """Whether it did not change for the time of `idle=`; null if it is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsResult(Facts):
    """The partitions of a branch."""

    partitions: Sequence[PartitionFacts] = ()
    """The partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpirationFacts(Facts):
    """The partitions that go or went."""

    older_than: str | None = None
    """The time up to which partitions go."""
    partitions: int = 0
    """Partitions that go."""
    data_files: int = 0
    """Data files that go."""
    delete_files: int = 0
    """Delete files that go."""
    rows: int | None = None
    """Rows that go; null if delete files leave it open."""
    rows_at_most: int = 0
    bytes: int = 0
    """Bytes of the data files that go."""
    files_kept: int = 0
    """Data files of other partition specs that may contain old rows beside newer ones, and stay."""
    partitions_left: int = 0
    """Old partitions that `max=` leaves for another run."""
    partitions_without_time: int = 0
    """Partitions whose values do not give a time."""
