"""What the commands that inspect tables found, as their JSON documents have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import ErrorFacts, Facts, inlined


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectFacts(Facts):
    """The metadata table that was read; `rows_found` is None if its rows must be read to count them."""

    metadata_table: str = ""
    rows_found: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeFacts(Facts):
    """The totals that a table's current snapshot declares, and its time; see `declared_totals`."""

    rows: int | None = None
    rows_at_most: int | None = None
    files: int | None = None
    delete_files: int | None = None
    bytes: int | None = None
    last_commit: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TableFacts(Facts):
    """A table of a list; without a name, a namespace or a catalog that cannot be read."""

    catalog: str
    namespace: str
    table: str | None
    table_uuid: str | None = None
    location: str | None = None
    format_version: int | None = None
    sizes: SizeFacts = inlined()
    error: ErrorFacts | None = None


@dataclass(slots=True, kw_only=True)
class TablesResult(Facts):
    """The namespaces, tables and views that were found."""

    namespaces: list[str] = field(default_factory=list)
    tables: list[TableFacts] = field(default_factory=list)
    views: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogFacts(Facts):
    """A configured catalog; `answers` is None if it was not asked, and `type` if it cannot be inferred."""

    name: str
    type: str | None
    default: bool
    uri: str | None
    warehouse: str | None
    sources: Sequence[str]
    answers: bool | None
    namespaces: int | None
    seconds: float | None
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CatalogsResult(Facts):
    """The configured catalogs."""

    catalogs: Sequence[CatalogFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnFacts(Facts):
    """A column or a part of one."""

    id: int
    name: str
    type: str
    required: bool
    doc: str | None
    fields: Sequence[ColumnFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaFacts(Facts):
    """A table's current schema."""

    schema_id: int = 0
    identifier_field_ids: Sequence[int] = ()
    fields: Sequence[ColumnFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFieldFacts(Facts):
    """A field of a partition spec; `source` is None if the column was dropped."""

    source_id: int
    source: str | None
    field_id: int
    name: str
    transform: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecFacts(Facts):
    """A partition spec."""

    spec_id: int
    current: bool
    fields: Sequence[SpecFieldFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFieldFacts(Facts):
    """A field of a sort order; `source` is None if the column was dropped."""

    source_id: int
    source: str | None
    transform: str
    direction: str
    null_order: str


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderFacts(Facts):
    """A table's sort order."""

    order_id: int = 0
    fields: Sequence[OrderFieldFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PropertyFacts(Facts):
    """A property of a table; a secret value is masked."""

    name: str
    value: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefFacts(Facts):
    """A branch or tag, and its own retention."""

    name: str
    type: str
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
    commit: CommitFacts = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamFacts(Facts):
    """The last commit of a stream of loads."""

    stream: str
    epoch: int
    commit: CommitFacts = inlined()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunIdFacts(Facts):
    """A commit of a run that has an id."""

    run_id: str
    commit: CommitFacts = inlined()


@dataclass(slots=True, kw_only=True)
class WriterFacts(Facts):
    """Who committed to a branch, newest first."""

    flink_jobs: Sequence[JobFacts] = ()
    streams: Sequence[StreamFacts] = ()
    runs: Sequence[RunIdFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFacts(Facts):
    """A consumer."""

    name: str
    branch: str | None
    position: str | None
    unread_snapshots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowResult(Facts):
    """A table as its metadata file describes it."""

    table_uuid: str = ""
    location: str = ""
    metadata_location: str = ""
    format_version: int = 0
    last_updated: str | None = None
    schema: SchemaFacts = field(default_factory=SchemaFacts)
    partition_specs: Sequence[SpecFacts] = ()
    sort_order: OrderFacts = field(default_factory=OrderFacts)
    properties: Sequence[PropertyFacts] = ()
    refs: Sequence[RefFacts] = ()
    snapshots: int = 0
    sizes: SizeFacts = field(default_factory=SizeFacts)
    writers: WriterFacts = field(default_factory=WriterFacts)
    consumers: Sequence[ReaderFacts] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteFileFacts(Facts):
    """A live delete file, the data files to which it may apply, and what removes it.

    `columns` is None unless it has keys, `deleted_rows` unless they were counted, and what is said of the oldest data
    file if there is none.
    """

    path: str
    kind: str
    partition: str
    spec_id: int
    columns: Sequence[str] | None
    data_file: str | None
    rows: int
    bytes: int | None
    sequence_number: int
    data_files: int
    data_rows: int
    oldest_data_file: str | None
    oldest_data_partition: str | None
    oldest_data_sequence_number: int | None
    dangling: bool
    released_by: Sequence[str]
    deleted_rows_at_most: int
    deleted_rows: int | None


@dataclass(slots=True, kw_only=True)
class DeleteGroupFacts(Facts):
    """The delete files of one partition, kind, and columns."""

    partition: str
    spec_id: int
    kind: str
    columns: Sequence[str] | None
    files: int = 0
    rows: int = 0
    bytes: int = 0
    data_files: int = 0
    dangling: int = 0
    oldest_sequence_number: int
    deleted_rows_at_most: int = 0
    deleted_rows: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletesResult(Facts):
    """The delete files of a branch."""

    groups: Sequence[DeleteGroupFacts] = ()
    delete_files: Sequence[DeleteFileFacts] = ()
