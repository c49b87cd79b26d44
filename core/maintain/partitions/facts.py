"""The partitions of a list, and what an expiration of partitions removes, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFacts(Facts):
    """A partition; `rows`, `last_change` and `idle` are None if they are not known."""

    partition: str
    spec_id: int
    files: int
    rows: int | None
    rows_at_most: int
    bytes: int
    delete_files: int
    last_change: str | None
    idle: bool | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsResult(Facts):
    """The partitions of a branch."""

    partitions: Sequence[PartitionFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionExpirationFacts(Facts):
    """The partitions that go or went; `rows` is None if it is not known."""

    older_than: str | None = None
    partitions: int = 0
    data_files: int = 0
    delete_files: int = 0
    rows: int | None = None
    rows_at_most: int = 0
    bytes: int = 0
    files_kept: int = 0
    partitions_left: int = 0
    partitions_without_time: int = 0
