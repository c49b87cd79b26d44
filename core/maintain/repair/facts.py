"""What repairs drop and correct, planned or done, as the JSON document has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from lake.core.base.facts import Facts
from lake.core.maintain.repair.names import (
    DANGLING_DELETES,
    DUPLICATE_FILES,
    MISSING_FILES,
    REFS,
    REPAIRS,
    STATISTICS,
    TOTALS,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairFacts(Facts):
    """A repair, and the codes of the damage that it mends."""

    repair: str
    """The name of the repair."""
    codes: Sequence[str]
    """The codes of the damage that it mends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateFilesFacts(RepairFacts):
    """The files of which all entries except one go."""

    repair: str = DUPLICATE_FILES
    codes: Sequence[str] = REPAIRS[DUPLICATE_FILES]
    data_files: int
    """For `duplicate-files`, data files with several entries."""
    entries: int
    """Entries that go."""
    rows_at_most: int
    """For `duplicate-files`, the most rows that go with the entries."""
    paths: Sequence[str]
    """For `duplicate-files`, the paths of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPartitionFacts(Facts):
    """What is lost of one partition."""

    partition: str
    files: int
    """Data files that are gone."""
    rows_at_most: int
    """The most rows that are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFilesFacts(RepairFacts):
    """The files that are gone."""

    repair: str = MISSING_FILES
    codes: Sequence[str] = REPAIRS[MISSING_FILES]
    data_files: int
    """For `missing-files`, data files that are gone."""
    delete_files: int
    """For `missing-files`, delete files that are gone."""
    bytes: int
    """Bytes of these files."""
    rows: int | None
    """Rows that are lost; null if delete files leave it open."""
    rows_at_most: int
    """For `missing-files`, the most rows that are lost."""
    partitions: Sequence[LostPartitionFacts]
    """What is lost by partition."""
    paths: Sequence[str]
    """For `missing-files`, the first 1,000 paths."""
    snapshots: int
    """Snapshots that name the files."""
    other_refs: Sequence[str]
    """Other branches and tags that name the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DanglingDeletesFacts(RepairFacts):
    """The delete files that apply to no data file."""

    repair: str = DANGLING_DELETES
    codes: Sequence[str] = REPAIRS[DANGLING_DELETES]
    delete_files: int
    """For `dangling-deletes`, delete files that apply to no data file."""
    paths: Sequence[str]
    """For `dangling-deletes`, their paths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalFacts(Facts):
    """A total that is wrong."""

    declared: str
    """What the summary declares."""
    counted: str
    """What was counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsFacts(RepairFacts):
    """The totals that are wrong."""

    repair: str = TOTALS
    codes: Sequence[str] = REPAIRS[TOTALS]
    totals: Mapping[str, TotalFacts]
    """For `totals`, the totals that are wrong, by their names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRefFacts(Facts):
    """A branch or tag whose snapshot does not exist."""

    name: str
    """The name of the branch or tag."""
    type: str
    """`branch` or `tag`."""
    snapshot_id: str
    """The snapshot that does not exist."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRefsFacts(RepairFacts):
    """The branches and tags that go."""

    repair: str = REFS
    codes: Sequence[str] = REPAIRS[REFS]
    refs: Sequence[LostRefFacts]
    """For `refs`, the branches and tags that go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsFileFacts(Facts):
    """A statistics file that no reader can use."""

    path: str
    """The path of the file."""
    snapshot_id: str
    reason: str
    """Why no reader can use it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LostStatisticsFacts(RepairFacts):
    """The entries of statistics files that go."""

    repair: str = STATISTICS
    codes: Sequence[str] = REPAIRS[STATISTICS]
    files: Sequence[StatisticsFileFacts]
    """For `statistics`, the statistics files whose entries go."""


Repair: TypeAlias = (
    DuplicateFilesFacts
    | MissingFilesFacts
    | DanglingDeletesFacts
    | TotalsFacts
    | LostRefsFacts
    | LostStatisticsFacts
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairsFacts(Facts):
    """The repairs that were asked for."""

    repairs: Sequence[Repair] = ()
    """The repairs, in the order in which they are made."""
