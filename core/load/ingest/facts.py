"""What a load plans and what it did, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from lake.core.base.facts import EarlierRunFacts, Facts, inlined, omitted

if TYPE_CHECKING:
    from lake.core.transaction.removals import Removals


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedPartitionFacts(Facts):
    """What an overwrite removes of one partition."""

    partition: str
    removed_files: int
    rewritten_files: int
    removed_rows_at_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedRows(Facts):
    """The number of rows that overwrites remove, if it is known exactly, and its bounds."""

    removed_rows: int | None = None
    removed_rows_at_least: int | None = None
    removed_rows_at_most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalFacts(RemovedRows):
    """What one overwrite removes; all is None if much of the source must be read to know it."""

    removed_partitions: Sequence[RemovedPartitionFacts] | None = None

    @classmethod
    def from_removals(cls, removals: Removals) -> Self:
        """Return what is removed, without the numbers of files."""
        return cls(
            removed_rows=removals.rows,
            removed_rows_at_least=removals.rows_at_least,
            removed_rows_at_most=removals.rows_at_most,
            removed_partitions=[
                RemovedPartitionFacts(
                    partition=item.partition,
                    removed_files=item.files,
                    rewritten_files=item.rewritten_files,
                    removed_rows_at_most=item.rows + item.rewritten_rows,
                )
                for item in removals.partitions
            ],
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts(Facts):
    """A column of the rows that are written."""

    name: str
    type: str
    required: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeNoteFacts(Facts):
    """The value of a text file because of which a column is text."""

    column: str
    file: str
    row: int
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDefaultFacts(Facts):
    """The value that a column gets because a source lacks it."""

    name: str
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedFacts(Facts):
    """The files that a load by key compares with its keys, and the rows that it may change."""

    examined_files: int
    examined_partitions: Sequence[str]
    updated_rows_at_most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertFacts(Facts):
    """How rows are updated by key; `changes_column` and the next two are of a change log."""

    key: Sequence[str]
    order_by: Sequence[str]
    deletes: str
    merge: str | None = omitted()
    null_overwrites: Sequence[str] | None = omitted()
    sequence: str | None = omitted()
    match_where: str | None = omitted()
    changes_column: str | None = omitted()
    changes_mode: str | None = omitted()
    ignore_deletes: bool | None = omitted()
    table_bytes: int
    examined: ExaminedFacts | None = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogFacts(Facts):
    """How a change log is applied without reading the table's rows."""

    changes_column: str
    changes_mode: str
    ignore_deletes: bool
    local_merge_bytes: int | None = omitted()
    key: Sequence[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestFacts(Facts):
    """The plan of a load; `sample_rows` are in a dry run only."""

    mode: str = "append"
    creates_table: bool = False
    sources: Sequence[str | None] = ()
    files: int = 0
    bytes: int = 0
    format: str | None = None
    delimiters: Sequence[str] = ()
    encodings: Sequence[str] = ()
    schema: Sequence[ColumnFacts] = ()
    new_columns: Sequence[str] = ()
    type_notes: Sequence[TypeNoteFacts] = ()
    filled_columns: Sequence[str] = ()
    write_defaults: Sequence[WriteDefaultFacts] = ()
    partition_spec: Sequence[str] = ()
    distribution: str = "none"
    sorted_by: Sequence[str] | None = omitted()
    engine: str = "inline"
    removed_files: int = 0
    rewritten_files: int = 0
    loaded_run: EarlierRunFacts | None = omitted()
    removed: RemovalFacts | None = inlined()
    by_key: UpsertFacts | ChangelogFacts | None = inlined()
    sample_rows: Sequence[Mapping[str, Any]] | None = omitted()


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRunFacts(Facts):
    """The ids by which a replay refers to a staged run."""

    run_id: str
    job_id: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult(Facts):
    """What a load read and wrote; counts of rows are None if the load does not know them.

    Args:
        rows_written: rows of the source that were written to data files.
        rows_inserted: rows with keys that the table did not contain.
        rows_updated: rows with keys that the table contained.
        rows_rejected: rows that were set aside.
        rows_deleted: rows with keys that a change log deletes.
        rows_stale: rows that are older than the table's.
        rows_skipped: rows with keys that the table contained and keeps.
        deletes_ignored: rows of kind -D that were left out.
        changes_merged: changes that a later change of their key replaced.
    """

    rows_read: int = 0
    rows_written: int = 0
    rows_inserted: int | None = 0
    rows_updated: int | None = 0
    rows_rejected: int = 0
    rows_deleted: int | None = omitted()
    rows_stale: int | None = omitted()
    rows_skipped: int | None = omitted()
    deletes_ignored: int | None = omitted()
    changes_merged: int | None = omitted()
    data_files: int = 0
    delete_files: int = 0
    bytes_written: int = 0
    removed_files: int | None = omitted()
    rewritten_files: int | None = omitted()
    removed: RemovedRows | None = inlined()
    staged: StagedRunFacts | None = inlined()

    def plus(self, other: IngestResult) -> IngestResult:
        """Return the counts of both loads together."""
        removed = [item for item in (self.removed, other.removed) if item is not None]
        return IngestResult(
            rows_read=self.rows_read + other.rows_read,
            rows_written=self.rows_written + other.rows_written,
            rows_inserted=_if_known(self.rows_inserted, other.rows_inserted),
            rows_updated=_if_known(self.rows_updated, other.rows_updated),
            rows_rejected=self.rows_rejected + other.rows_rejected,
            rows_deleted=_if_any(self.rows_deleted, other.rows_deleted),
            rows_stale=_if_any(self.rows_stale, other.rows_stale),
            rows_skipped=_if_any(self.rows_skipped, other.rows_skipped),
            deletes_ignored=_if_any(self.deletes_ignored, other.deletes_ignored),
            changes_merged=_if_any(self.changes_merged, other.changes_merged),
            data_files=self.data_files + other.data_files,
            delete_files=self.delete_files + other.delete_files,
            bytes_written=self.bytes_written + other.bytes_written,
            removed_files=_if_any(self.removed_files, other.removed_files),
            rewritten_files=_if_any(self.rewritten_files, other.rewritten_files),
            removed=_total(removed),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardFacts(Facts):
    """A staged run whose files a discard deletes."""

    run: StagedRunFacts | None = inlined()
    data_files: int = 0
    delete_files: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardResult(Facts):
    """A staged run, and how many of its files were deleted."""

    run: StagedRunFacts | None = inlined()
    removed_files: int = 0


def _total(removed: Sequence[RemovedRows]) -> RemovedRows | None:
    if not removed:
        return None
    return RemovedRows(
        removed_rows=_if_known(*(item.removed_rows for item in removed)),
        removed_rows_at_least=_if_known(*(item.removed_rows_at_least for item in removed)),
        removed_rows_at_most=_if_known(*(item.removed_rows_at_most for item in removed)),
    )


def _if_any(*counts: int | None) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if known else None


def _if_known(*counts: int | None) -> int | None:
    return None if None in counts else _if_any(*counts)
