"""What `lake health` found, as its JSON document has it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lake.core.base.facts import ErrorFacts, Facts, inlined, omitted


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanFacts(Facts):
    """What a scan costs by the assumed costs: with the present layout, and with the ideal one."""

    seconds: float
    ideal_seconds: float
    requests: int
    ideal_requests: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastFacts(Facts):
    """What a command would do.

    `before` and `after` count data files, delete files, snapshots or manifests. `bytes` are rewritten, or for
    `expire` removed from the metadata file. `partition_seconds` are saved by a scan of one partition; None without
    partitions. `work_seconds` are what the command itself takes, and `work_runs` the past runs that show it: 0 for
    rough costs of the work.
    """

    command: str
    pays: bool
    before: int
    after: int
    bytes: int
    seconds: float
    partition_seconds: float | None
    work_seconds: float | None = None
    work_runs: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CostFacts(Facts):
    """What a reader is assumed to pay: to open a file and a manifest, and for data; `runs` past runs corrected it."""

    storage: str
    runs: int
    file_seconds: float
    manifest_seconds: float
    bytes_per_second: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingFacts(Facts):
    """What the manifests of the main branch show.

    `deleted_rows` is None if the delete files do not determine it, and `partitions` counts those with files.
    """

    rows: int | None = None
    files: int | None = None
    bytes: int | None = None
    small_files: int | None = None
    partitions: int | None = None
    deleted_rows: int | None = None
    deleted_rows_at_most: int | None = None
    delete_files: int | None = None
    position_delete_files: int | None = None
    equality_delete_files: int | None = None
    deletion_vectors: int | None = None
    manifests: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFacts(Facts):
    """A table; without a grade if it could not be read, and without a name if its namespace could not be listed.

    `rows` include those that deletes hide. `unknown` says what was not looked at in this table. `last_rewrite` is the
    time of the newest retained snapshot that only rewrites files: the last maintenance, by any program.
    """

    namespace: str
    table: str | None
    grade: str | None = None
    needs: Sequence[str] = ()
    reading: ReadingFacts = inlined()
    snapshots: int | None = None
    oldest_snapshot: str | None = None
    metadata_bytes: int | None = None
    last_commit: str | None = None
    last_rewrite: str | None = None
    growth_bytes: int | None = None
    scan: ScanFacts | None = None
    partition_scan: ScanFacts | None = None
    forecasts: Sequence[ForecastFacts] = ()
    costs: CostFacts | None = None
    unknown: Sequence[str] = ()
    error: ErrorFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class BucketFacts(Facts):
    """The data files of a range of sizes: from the bound of the range before on; the last range has no bound."""

    below_bytes: int | None
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionHealthFacts(Facts):
    """The data files of a partition, and the fewest that could contain its bytes."""

    partition: str
    files: int
    ideal_files: int
    small_files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteKindFacts(Facts):
    """The live delete files of one kind: position, vector or equality."""

    kind: str
    files: int
    rows: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DayFacts(Facts):
    """The retained commits of a day in UTC; what their summaries do not count is 0."""

    day: str | None
    commits: int
    added_files: int
    removed_files: int
    added_rows: int
    added_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WriterFacts(Facts):
    """The retained commits of a program."""

    writer: str
    commits: int
    last_commit: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOverlapFacts(Facts):
    """How many files of a partition contain the place in the sort order where a file begins, with the file itself."""

    partition: str
    files: int
    average_depth: float
    worst_depth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapFacts(Facts):
    """How files overlap in the sort order: over all partitions, and in the partitions with the greatest depth.

    `files` have bounds that show their place in the order, and `unknown_files` have not.
    """

    files: int
    unknown_files: int
    average_depth: float
    worst_depth: int
    partitions: Sequence[PartitionOverlapFacts]


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutFacts(Facts):
    """How the files are arranged, and the seconds that a scan needs to find them.

    `manifests_per_partition` is how many manifests a scan of one partition reads; None without partitions.
    """

    old_spec_files: int
    old_order_files: int
    manifest_bytes: int
    manifests_per_partition: float | None
    planning_seconds: float
    storage: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewFacts(Facts):
    """What is shown of a table that is named alone."""

    file_sizes: Sequence[BucketFacts]
    partitions: Sequence[PartitionHealthFacts]
    deletes: Sequence[DeleteKindFacts]
    days: Sequence[DayFacts]
    writers: Sequence[WriterFacts]
    layout: LayoutFacts
    overlap: OverlapFacts | None = None


@dataclass(slots=True, kw_only=True)
class HealthResult(Facts):
    """The tables, those with the greatest need first, and what was not looked at in any of them."""

    tables: list[HealthFacts] = field(default_factory=list)
    not_looked_at: Sequence[str] = ()
    view: ViewFacts | None = omitted()
