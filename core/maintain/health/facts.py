"""What `lake health` found, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import ErrorFacts, Facts, inlined, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFacts(Facts):
    """What a scan costs by the assumed costs: with the present layout, and with the ideal one."""

    seconds: float
    """The seconds that a scan takes."""
    ideal_seconds: float
    """Those with the ideal layout."""
    requests: int
    """The requests of a scan."""
    ideal_requests: int
    """Those with the ideal layout."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastFacts(Facts):
    """What a command would do."""

    command: str
    """The command."""
    pays: bool
    """Whether it is worth it."""
    before: int
    """Data files, delete files, snapshots or manifests before."""
    after: int
    """The same after."""
    bytes: int
    """Bytes to rewrite; for `expire`, to remove from the metadata file."""
    seconds: float
    """Seconds that each scan saves."""
    partition_seconds: float | None
    """Seconds that a scan of one partition saves; null without partitions."""
    work_seconds: float | None = None
    """Seconds that the command takes."""
    work_runs: int = 0
    """Past runs that show that; 0 for rough costs of the work."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFacts(Facts):
    """What a reader is assumed to pay."""

    storage: str
    """The store of the files."""
    runs: int
    """Past runs that corrected the costs; 0 for the stated ones."""
    file_seconds: float
    """Seconds to open a file."""
    manifest_seconds: float
    """Seconds to read a manifest."""
    bytes_per_second: float
    """Bytes of data in a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingFacts(Facts):
    """What the manifests of the main branch show."""

    rows: int | None = None
    """Rows of the data files, deleted or not."""
    files: int | None = None
    """Data files."""
    bytes: int | None = None
    """Bytes of the data files."""
    small_files: int | None = None
    """Data files that are too small."""
    partitions: int | None = None
    """Partitions with files."""
    deleted_rows: int | None = None
    """Rows that are deleted; null if the delete files do not determine it."""
    deleted_rows_at_most: int | None = None
    """The most that can be deleted."""
    delete_files: int | None = None
    """Delete files."""
    position_delete_files: int | None = None
    """Position delete files."""
    equality_delete_files: int | None = None
    """Equality delete files."""
    deletion_vectors: int | None = None
    """Deletion vectors."""
    manifests: int | None = None
    """Manifests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts(Facts):
    """A table."""

    namespace: str
    table: str | None
    """The table; null if its namespace could not be listed."""
    grade: str | None = None
    """`bad`, `due` or `good`; null if the table could not be read."""
    needs: Sequence[str] = ()
    """The commands that it needs."""
    reading: ReadingFacts = inlined()
    snapshots: int | None = None
    """Snapshots that are retained."""
    oldest_snapshot: str | None = None
    """The time of the oldest of these."""
    metadata_bytes: int | None = None
    """Bytes of the metadata file."""
    last_commit: str | None = None
    """The time of the last commit."""
    last_rewrite: str | None = None
    """The newest retained snapshot that only rewrites files: the last maintenance by any program."""
    growth_bytes: int | None = None
    """Bytes that the last day added; null if it is not known."""
    scan: ScanFacts | None = None
    """What a full scan costs."""
    partition_scan: ScanFacts | None = None
    """What a scan of one partition costs; null if there is only one."""
    forecasts: Sequence[ForecastFacts] = ()
    """What commands would do."""
    costs: CostFacts | None = None
    """The assumed costs of a reader."""
    unknown: Sequence[str] = ()
    """What is not known of this table."""
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFacts(Facts):
    """The data files of a range of sizes: from the bound of the range before on."""

    below_bytes: int | None
    """The bound of the range; null for the last one."""
    files: int
    """Data files."""
    bytes: int
    """Their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealthFacts(Facts):
    """The data files of a partition."""

    partition: str
    files: int
    """Data files."""
    ideal_files: int
    """The fewest that could contain its bytes."""
    small_files: int
    """Data files that are too small."""
    bytes: int
    """Their bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKindFacts(Facts):
    """The live delete files of one kind."""

    kind: str
    """`position`, `vector` or `equality`."""
    files: int
    """Delete files."""
    rows: int
    """Their records."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFacts(Facts):
    """The retained commits of a day; what their summaries do not count is 0."""

    day: str | None
    """The day in UTC; null if the times are not known."""
    commits: int
    """Commits."""
    added_files: int
    """Data files that they added."""
    removed_files: int
    """Data files that they removed."""
    added_rows: int
    """Rows that they added."""
    added_bytes: int
    """Bytes that they added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFacts(Facts):
    """The retained commits of a program."""

    writer: str
    """The program."""
    commits: int
    """Its commits."""
    last_commit: str | None
    """The time of the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOverlapFacts(Facts):
    """How many files of a partition contain the place in the sort order where a file begins, with the file itself."""

    partition: str
    files: int
    """Data files of the partition."""
    average_depth: float
    """The average depth of these."""
    worst_depth: int
    """The greatest depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapFacts(Facts):
    """How files overlap in the sort order: over all partitions, and in those with the greatest depth."""

    files: int
    """Data files whose bounds show their place in the order."""
    unknown_files: int
    """Data files without such bounds."""
    average_depth: float
    """The average depth of the files."""
    worst_depth: int
    """The greatest depth."""
    partitions: Sequence[PartitionOverlapFacts]
    """The ten partitions with the greatest depth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFacts(Facts):
    """How the files are arranged."""

    old_spec_files: int
    """Data files of older partition specs."""
    old_order_files: int
    """Data files that are not in the table's sort order."""
    manifest_bytes: int
    """Bytes of the manifests."""
    manifests_per_partition: float | None
    """Manifests that a scan of one partition reads; null without partitions."""
    planning_seconds: float
    """Seconds that a scan needs to find the files."""
    storage: str
    """The store of the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFacts(Facts):
    """What is shown of a table that is named alone."""

    file_sizes: Sequence[BucketFacts]
    """The data files by their sizes."""
    partitions: Sequence[PartitionHealthFacts]
    """The partitions that need most."""
    deletes: Sequence[DeleteKindFacts]
    """The delete files by their kind."""
    days: Sequence[DayFacts]
    """The commits by day."""
    writers: Sequence[WriterFacts]
    """The commits by program."""
    layout: LayoutFacts
    """How the files are arranged."""
    overlap: OverlapFacts | None = None
    """How many files contain the place in the sort order where a file begins; null without such an order."""


@dataclass(slots=True, kw_only=True)
class HealthResult(Facts):
    """The tables."""

    tables: list[HealthFacts] = field(default_factory=list)
    """The tables, those with the greatest need first."""
    not_looked_at: Sequence[str] = ()
    """What is not known of any table."""
    view: ViewFacts | None = omitted()
    """For a table that is named, its files in detail."""
