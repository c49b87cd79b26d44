"""What statistics files are planned and were written, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import Facts, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsFacts(Facts):
    """The columns to describe, and what is read for them; `rows` is None if it is not known."""

    columns: Sequence[str] = ()
    data_files: int = 0
    rows: int | None = None
    rows_at_most: int = 0
    bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts(Facts):
    """The number of distinct values of a column."""

    name: str
    id: int
    ndv: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsResult(Facts):
    """The statistics file that was written."""

    statistics_file: str
    bytes_written: int
    columns: Sequence[ColumnFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatisticsFacts(Facts):
    """The partitions to describe."""

    partitions: int
    data_files: int
    delete_files: int
    records: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionStatisticsResult(Facts):
    """The file that was written, or that the snapshot has already."""

    partition_statistics_file: str
    bytes_written: int | None = omitted()
