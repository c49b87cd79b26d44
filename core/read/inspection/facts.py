"""What the commands that inspect tables found, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import ErrorFacts, Facts, inlined


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectFacts(Facts):
    """The metadata table that was read."""

    metadata_table: str = ""
    """The metadata table."""
    rows_found: int | None = None
    """Rows before the filter; null if they must be read to count them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFacts(Facts):
    """The totals that a table's current snapshot declares, and its time; see `declared_totals`."""

    rows: int | None = None
    """Rows, by the summary of the current snapshot; null if delete files leave it open."""
    rows_at_most: int | None = None
    files: int | None = None
    """Data files."""
    delete_files: int | None = None
    """Delete files."""
    bytes: int | None = None
    """Bytes of all files."""
    last_commit: str | None = None
    """The time of the current snapshot."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts(Facts):
    """A table of a list, or what could not be read."""

    catalog: str
    namespace: str
    table: str | None
    """The table; null for a namespace or a catalog that cannot be read."""
    table_uuid: str | None = None
    location: str | None = None
    format_version: int | None = None
    sizes: SizeFacts = inlined()
    error: ErrorFacts | None = None


@dataclass(slots=True, kw_only=True)
class TablesResult(Facts):
    """The namespaces, tables and views that were found."""

    namespaces: list[str] = field(default_factory=list)
    """Names of the namespaces."""
    tables: list[TableFacts] = field(default_factory=list)
    """The tables."""
    views: list[str] = field(default_factory=list)
    """Names of the views."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogFacts(Facts):
    """A configured catalog."""

    name: str
    """The name of the catalog."""
    type: str | None
    """Its type; null if it cannot be inferred."""
    default: bool
    """Whether commands use it without `catalog=`."""
    uri: str | None
    """Its address; null without one."""
    warehouse: str | None
    """Its warehouse; null without one."""
    sources: Sequence[str]
    """The file and the variables that configure it."""
    answers: bool | None
    """Whether it answers; null if it was not asked, or does not exist yet."""
    namespaces: int | None
    """The number of its namespaces, without those in others; null if it did not answer."""
    seconds: float | None
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogsResult(Facts):
    """The configured catalogs."""

    catalogs: Sequence[CatalogFacts] = ()
    """The catalogs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts(Facts):
    """A column or a part of one."""

    id: int
    """The field id."""
    name: str
    """The name."""
    type: str
    """The type."""
    required: bool
    """Whether it cannot be NULL."""
    doc: str | None
    """What the schema says about it; null without a text."""
    fields: Sequence[ColumnFacts]
    """The fields of a struct, a list or a map, with the same keys."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFacts(Facts):
    """A table's current schema."""

    schema_id: int = 0
    """The id of the schema."""
    identifier_field_ids: Sequence[int] = ()
    """The ids of the fields that identify a row."""
    fields: Sequence[ColumnFacts] = ()
    """The columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFieldFacts(Facts):
    """A field of a partition spec."""

    source_id: int
    """The field id of the column."""
    source: str | None
    """The column; null if it was dropped."""
    field_id: int
    """The id of the partition field."""
    name: str
    """Its name."""
    transform: str
    """Its transform."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFacts(Facts):
    """A partition spec."""

    spec_id: int
    current: bool
    """Whether it is the current one."""
    fields: Sequence[SpecFieldFacts]
    """Its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFieldFacts(Facts):
    """A field of a sort order."""

    source_id: int
    """The field id of the column."""
    source: str | None
    """The column; null if it was dropped."""
    transform: str
    """The transform."""
    direction: str
    """`asc` or `desc`."""
    null_order: str
    """`nulls-first` or `nulls-last`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFacts(Facts):
    """A table's sort order."""

    order_id: int = 0
    """The id of the sort order; 0 without one."""
    fields: Sequence[OrderFieldFacts] = ()
    """Its fields."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyFacts(Facts):
    """A property of a table; a secret value is masked."""

    name: str
    """The name of the property."""
    value: str
    """Its value; a secret is masked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefFacts(Facts):
    """A branch or tag, and its own retention."""

    name: str
    """The name of the branch or tag."""
    type: str
    """`branch` or `tag`."""
    snapshot_id: str
    max_ref_age_ms: int | None
    max_snapshot_age_ms: int | None
    min_snapshots_to_keep: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitFacts(Facts):
    """A snapshot and its time."""

    snapshot_id: str
    committed_at: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts(Facts):
    """The last commit of a Flink job."""

    job_id: str
    checkpoint_id: int | None
    """Its last checkpoint; null if it is not known."""
    commit: CommitFacts = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts(Facts):
    """The last commit of a stream of loads."""

    stream: str
    """The name of the stream."""
    epoch: int
    """Its last epoch."""
    commit: CommitFacts = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdFacts(Facts):
    """A commit of a run that has an id."""

    run_id: str
    """The run id."""
    commit: CommitFacts = inlined()


@dataclass(slots=True, kw_only=True)
class WriterFacts(Facts):
    """What committed to a branch, newest first."""

    flink_jobs: Sequence[JobFacts] = ()
    """Flink jobs, and their last commits."""
    streams: Sequence[StreamFacts] = ()
    """Streams of loads, and their last commits."""
    runs: Sequence[RunIdFacts] = ()
    """Runs that have an id."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFacts(Facts):
    """A consumer."""

    name: str
    """The name of the consumer."""
    branch: str | None
    """The branch that it reads; null if it is not known."""
    position: str | None
    """The last snapshot that it read; null before the first one."""
    unread_snapshots: int
    """Snapshots that it has not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowResult(Facts):
    """A table as its metadata file describes it."""

    table_uuid: str = ""
    location: str = ""
    metadata_location: str = ""
    format_version: int = 0
    last_updated: str | None = None
    """The time of the last change."""
    schema: SchemaFacts = field(default_factory=SchemaFacts)
    """The current schema."""
    partition_specs: Sequence[SpecFacts] = ()
    """The partition specs."""
    sort_order: OrderFacts = field(default_factory=OrderFacts)
    """The sort order."""
    properties: Sequence[PropertyFacts] = ()
    """The properties."""
    refs: Sequence[RefFacts] = ()
    """The branches and tags."""
    snapshots: int = 0
    """The number of snapshots."""
    sizes: SizeFacts = field(default_factory=SizeFacts)
    """The totals that the current snapshot declares."""
    writers: WriterFacts = field(default_factory=WriterFacts)
    """What committed to the branch, newest first."""
    consumers: Sequence[ReaderFacts] = ()
    """The consumers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFileFacts(Facts):
    """A live delete file, the data files to which it may apply, and what removes it."""

    path: str
    """The path of the delete file."""
    kind: str
    """`position`, `vector` or `equality`."""
    partition: str
    spec_id: int
    columns: Sequence[str] | None
    """The columns that an equality delete compares; null for others."""
    data_file: str | None
    """The data file, if it applies to that file only; else null."""
    rows: int
    """Its records."""
    bytes: int | None
    """Its bytes, of a vector without the rest of its Puffin file; null if they are not known."""
    sequence_number: int
    """Its sequence number."""
    data_files: int
    """Data files to which it may apply."""
    data_rows: int
    """Rows of these."""
    oldest_data_file: str | None
    """The one of these with the lowest sequence number; null, as the next two, if there is none."""
    oldest_data_partition: str | None
    """The partition of this data file."""
    oldest_data_sequence_number: int | None
    """The sequence number of this data file."""
    dangling: bool
    """Whether it applies to no data file."""
    released_by: Sequence[str]
    """What removes it: `convert` and `rewrite` of `lake deletes`, and `compact`."""
    deleted_rows_at_most: int
    """The most rows that it can delete."""
    deleted_rows: int | None
    """With `exact=`, the rows that it deletes; else null."""


@dataclass(slots=True, kw_only=True)
class DeleteGroupFacts(Facts):
    """The delete files of one partition, kind, and columns."""

    partition: str
    spec_id: int
    kind: str
    """`position`, `vector` or `equality`."""
    columns: Sequence[str] | None
    """The columns that equality deletes compare; null for others."""
    files: int = 0
    """Delete files."""
    rows: int = 0
    """Their records."""
    bytes: int = 0
    """Their bytes."""
    data_files: int = 0
    """Data files to which they may apply."""
    dangling: int = 0
    """Delete files that apply to no data file."""
    oldest_sequence_number: int
    """The lowest sequence number of the delete files."""
    deleted_rows_at_most: int = 0
    """The most rows that they can delete."""
    deleted_rows: int | None
    """With `exact=`, the rows that they delete; else null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletesResult(Facts):
    """The delete files of a branch."""

    groups: Sequence[DeleteGroupFacts] = ()
    """The delete files by partition, kind and columns."""
    delete_files: Sequence[DeleteFileFacts] = ()
    """The delete files."""
