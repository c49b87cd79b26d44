"""What repairs drop and correct, planned or done, as the JSON document has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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
    codes: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DuplicateFilesFacts(RepairFacts):
    """The files of which all entries but one go."""

    repair: str = DUPLICATE_FILES
    codes: Sequence[str] = REPAIRS[DUPLICATE_FILES]
    data_files: int
    entries: int
    rows_at_most: int
    paths: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostPartitionFacts(Facts):
    """What is lost of one partition."""

    partition: str
    files: int
    rows_at_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MissingFilesFacts(RepairFacts):
    """The files that are gone; `rows` is None if it is not known."""

    repair: str = MISSING_FILES
    codes: Sequence[str] = REPAIRS[MISSING_FILES]
    data_files: int
    delete_files: int
    bytes: int
    rows: int | None
    rows_at_most: int
    partitions: Sequence[LostPartitionFacts]
    paths: Sequence[str]
    snapshots: int
    other_refs: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class DanglingDeletesFacts(RepairFacts):
    """The delete files that apply to no data file."""

    repair: str = DANGLING_DELETES
    codes: Sequence[str] = REPAIRS[DANGLING_DELETES]
    delete_files: int
    paths: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalFacts(Facts):
    """A total that is wrong."""

    declared: str
    counted: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalsFacts(RepairFacts):
    """The totals that are wrong, by their names."""

    repair: str = TOTALS
    codes: Sequence[str] = REPAIRS[TOTALS]
    totals: Mapping[str, TotalFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRefFacts(Facts):
    """A branch or tag whose snapshot does not exist."""

    name: str
    type: str
    snapshot_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostRefsFacts(RepairFacts):
    """The branches and tags that go."""

    repair: str = REFS
    codes: Sequence[str] = REPAIRS[REFS]
    refs: Sequence[LostRefFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class StatisticsFileFacts(Facts):
    """A statistics file that no reader can use."""

    path: str
    snapshot_id: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LostStatisticsFacts(RepairFacts):
    """The entries of statistics files that go."""

    repair: str = STATISTICS
    codes: Sequence[str] = REPAIRS[STATISTICS]
    files: Sequence[StatisticsFileFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class RepairsFacts(Facts):
    """The repairs that were asked for, in the order in which they are made."""

    repairs: Sequence[RepairFacts] = ()
