"""What statistics files are planned and were written, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsFacts(Facts):
    """The columns to describe, and what is read for them."""

    columns: Sequence[str] = ()
    """Names of the columns."""
    data_files: int = 0
    """Data files that are read."""
    rows: int | None = None
    """Their rows; null if delete files leave it open."""
    rows_at_most: int = 0
    bytes: int = 0
    """Their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts(Facts):
    """The distinct values of a column."""

    name: str
    """The name of the column."""
    id: int
    """Its field id."""
    ndv: int
    """The number of distinct values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsResult(Facts):
    """The statistics file that was written."""

    statistics_file: str
    """The path of the statistics file."""
    bytes_written: int
    """Its bytes."""
    columns: Sequence[ColumnFacts]
    """The columns that it describes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatisticsFacts(Facts):
    """The partitions to describe."""

    partitions: int
    """The number of partitions, which are rows of the file."""
    data_files: int
    """Data files."""
    delete_files: int
    """Delete files, with deletion vectors."""
    records: int
    """Rows of the data files, with deleted ones."""
    bytes: int
    """Bytes of the data files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatisticsResult(Facts):
    """The file that was written, or that the snapshot has already."""

    partition_statistics_file: str
    """The path of the file."""
    bytes_written: int | None = omitted()
    """Its bytes, if it was written."""
