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
    """Data files that go whole."""
    rewritten_files: int
    """Data files of which some rows go."""
    removed_rows_at_most: int
    """The most rows that can go."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovedRows(Facts):
    """The number of rows that overwrites remove, and its bounds."""

    removed_rows: int | None = None
    """The rows that are removed; null if metadata does not show the number."""
    removed_rows_at_least: int | None = None
    """The fewest that can be."""
    removed_rows_at_most: int | None = None
    """The most that can be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemovalFacts(RemovedRows):
    """What one overwrite removes; all is None if much of the source must be read to know it."""

    removed_partitions: Sequence[RemovedPartitionFacts] | None = None
    """What goes, by partition; null if much of the source must be read to know it."""

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
    """The name of the column."""
    type: str
    """Its type."""
    required: bool
    """Whether it cannot be NULL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeNoteFacts(Facts):
    """The value of a text file because of which a column is text."""

    column: str
    """The name of the column."""
    file: str
    """The text file."""
    row: int
    """The number of the row."""
    value: str
    """The value because of which the column is text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteDefaultFacts(Facts):
    """The value that a column gets because a source lacks it."""

    name: str
    """The name of the column."""
    value: Any
    """The value that it gets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExaminedFacts(Facts):
    """The files that a load by key compares with its keys, and the rows that it may change."""

    examined_files: int
    """Data files whose keys a dry run of a load by key would compare."""
    examined_partitions: Sequence[str]
    """The partitions of these files."""
    updated_rows_at_most: int
    """The most rows that can be updated; keys are not compared in a dry run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpsertFacts(Facts):
    """How rows are updated by key."""

    key: Sequence[str]
    """The key columns."""
    order_by: Sequence[str]
    """The columns whose order decides which of several source rows is kept."""
    deletes: str
    """How old rows are deleted: `position`, `equality` or `copy-on-write`."""
    merge: str | None = omitted()
    """With `merge=`, its mode."""
    null_overwrites: Sequence[str] | None = omitted()
    """With `null_overwrites=`, its columns."""
    sequence: str | None = omitted()
    """With `sequence=`, its column."""
    match_where: str | None = omitted()
    """With `match_where=`, its filter."""
    changes_column: str | None = omitted()
    """The column with the kind of each change."""
    changes_mode: str | None = omitted()
    """The mode of the change log: `upsert` or `retract`."""
    ignore_deletes: bool | None = omitted()
    """Whether rows of kind `-D` are left out."""
    table_bytes: int
    """Bytes of the table's data files."""
    examined: ExaminedFacts | None = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangelogFacts(Facts):
    """How a change log is applied without reading the table's rows."""

    changes_column: str
    """The column with the kind of each change."""
    changes_mode: str
    """The mode of the change log: `upsert` or `retract`."""
    ignore_deletes: bool
    """Whether rows of kind `-D` are left out."""
    local_merge_bytes: int | None = omitted()
    """With `local_merge=`, its size."""
    key: Sequence[str]
    """The key columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestFacts(Facts):
    """The plan of a load."""

    mode: str = "append"
    """`append`, `overwrite`, `overwrite-where`, `replace-partitions` or `upsert`."""
    creates_table: bool = False
    """Whether the table is created."""
    sources: Sequence[str | None] = ()
    """The files to load, without secrets; null for standard input."""
    files: int = 0
    """The number of files to load."""
    bytes: int = 0
    """Their bytes."""
    format: str | None = None
    """Their format."""
    delimiters: Sequence[str] = ()
    """The delimiters of text files."""
    encodings: Sequence[str] = ()
    """The encodings of text files."""
    schema: Sequence[ColumnFacts] = ()
    """The columns of the rows that are written."""
    new_columns: Sequence[str] = ()
    """Columns that are added to the table."""
    type_notes: Sequence[TypeNoteFacts] = ()
    """Values of text files because of which a column is text."""
    filled_columns: Sequence[str] = ()
    """Columns of the table that a source lacks."""
    write_defaults: Sequence[WriteDefaultFacts] = ()
    """Those of them that get a write default."""
    partition_spec: Sequence[str] = ()
    """The partitioning of the table."""
    distribution: str = "none"
    """How rows are distributed among the writers: `none`, `hash` or `range`."""
    sorted_by: Sequence[str] | None = omitted()
    """The sort order of the files, if they are sorted."""
    engine: str = "inline"
    """What loads the rows: `inline` or `spark`."""
    removed_files: int = 0
    """Data files that are replaced whole."""
    rewritten_files: int = 0
    """Data files that are rewritten because some of their rows are replaced."""
    loaded_run: EarlierRunFacts | None = omitted()
    """The run of the same id, if it was loaded before."""
    removed: RemovalFacts | None = inlined()
    by_key: UpsertFacts | ChangelogFacts | None = inlined()
    sample_rows: Sequence[Mapping[str, Any]] | None = omitted()
    """In a dry run, the first five rows of text files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRunFacts(Facts):
    """The ids by which a replay refers to a staged run."""

    run_id: str
    """The run id of a staged load."""
    job_id: str
    """The job id by which `lake replay` refers to it."""
    checkpoint_id: str
    """Its checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestResult(Facts):
    """What a load read and wrote."""

    rows_read: int = 0
    """Rows that were read."""
    rows_written: int = 0
    """Rows of the source that were written to data files."""
    rows_inserted: int | None = 0
    """Rows whose keys the table did not contain; null if the table is not read."""
    rows_updated: int | None = 0
    """Rows whose keys the table contained; null if the table is not read."""
    rows_rejected: int = 0
    """Rows that could not be loaded and were set aside."""
    rows_deleted: int | None = omitted()
    """Rows that a change log which reads the table deleted."""
    rows_stale: int | None = omitted()
    """With `sequence=`, rows that were older than the table's."""
    rows_skipped: int | None = omitted()
    """With `merge=first-row`, rows whose keys the table contains."""
    deletes_ignored: int | None = omitted()
    """With `ignore_deletes=`, rows of kind `-D` that were left out."""
    changes_merged: int | None = omitted()
    """With `local_merge=`, changes that a later change of their key replaced."""
    data_files: int = 0
    """Data files that were written."""
    delete_files: int = 0
    """Delete files that were written."""
    bytes_written: int = 0
    """Bytes of these files."""
    removed_files: int | None = omitted()
    """Data files that were replaced whole."""
    rewritten_files: int | None = omitted()
    """Data files that were rewritten."""
    removed: RemovedRows | RemovalFacts | None = inlined()
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
    """Data files of the run."""
    delete_files: int = 0
    """Its delete files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardResult(Facts):
    """A staged run, and how many of its files were deleted."""

    run: StagedRunFacts | None = inlined()
    removed_files: int = 0
    """Files that were deleted."""


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
