"""What a deletion plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.facts import EarlierRunFacts, Facts, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDeletionFacts(Facts):
    """What goes of one partition; its name is empty if the files are not partitioned."""

    partition: str
    data_files_removed: int
    data_files_examined: int
    rows_at_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionFacts(Facts):
    """The plan of a deletion; `rows` is None if metadata does not show it."""

    deletes: str = ""
    rows: int | None = None
    rows_at_least: int = 0
    rows_at_most: int = 0
    data_files_removed: int = 0
    data_files_examined: int = 0
    bytes_examined: int = 0
    partitions: Sequence[PartitionDeletionFacts] = ()
    engine: str = ""
    earlier_run: EarlierRunFacts | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionResult(Facts):
    """What a deletion committed."""

    rows: int = 0
    data_files_removed: int = 0
    data_files_rewritten: int = 0
    delete_files: int = 0
