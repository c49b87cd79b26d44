"""What a scan reads: files, splits and counts, over columns; no data is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.errors import InvalidRequestError
from lake.core.expressions import bind_filter, parse_filter
from lake.core.rows.reader import FileSlice, ReadSettings
from lake.core.rows.schema import project_schema
from lake.core.scan.incremental import Increment, plan_increment
from lake.core.scan.splits import Piece, Pieces, SplitOptions, cut_all, pack, weights
from lake.core.table import lineage
from lake.core.table.catalog import Table
from lake.core.table.files import DATA
from lake.core.table.live import LiveFiles, live_files
from lake.core.table.manifest_schemas import ADDED, MANIFEST_SCHEMA
from lake.core.table.manifests import read_manifest_list, read_manifests
from lake.core.table.pruning import prune_files, prune_manifests

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot

_COLUMNS = (
    "status",
    "snapshot_id",
    "content",
    "file_path",
    "file_format",
    "partition",
    "record_count",
    "file_size_in_bytes",
    "split_offsets",
)
_STATISTICS = (
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """What the user asked for; see the command line's help."""

    snapshot: str | None = None
    start: str | None = None
    inclusive: bool = False
    end: str | None = None
    branch: str = lineage.MAIN
    where: str | None = None
    select: Sequence[str] | None = None
    limit: int | None = None
    case_sensitive: bool = True
    splits: SplitOptions = field(default_factory=SplitOptions)

    def __post_init__(self) -> None:
        if self.snapshot is not None and (self.start is not None or self.end is not None):
            raise InvalidRequestError("--snapshot contradicts --from-snapshot and --to-snapshot")
        if self.snapshot is not None and self.branch != lineage.MAIN:
            raise InvalidRequestError("--snapshot contradicts --branch")
        if self.inclusive and self.start is None:
            raise InvalidRequestError("--inclusive needs --from-snapshot")
        if self.limit is not None and self.limit < 0:
            raise InvalidRequestError(f"--limit must not be negative: {self.limit}")

    @property
    def incremental(self) -> bool:
        """Whether only what was appended is asked for."""
        return self.start is not None or self.end is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPlan:
    """A decided scan.

    Args:
        table: what is read.
        options: what was asked.
        snapshot: the snapshot read, or the end of the increment; None for an empty table.
        found: the files.
        snapshots: how many snapshots' files they are.
        pieces: what the files were cut into; a piece's file is its place among all of `found`.
        splits: numbers of pieces that are read together.
        projection: the columns to return.
        condition: bound row filter.
    """

    table: Table
    options: ScanOptions
    snapshot: Snapshot | None
    found: LiveFiles
    snapshots: int
    pieces: Pieces
    splits: Sequence[Sequence[int]]
    schema: Schema
    projection: Schema
    condition: BooleanExpression | None
    skipped: Sequence[Snapshot] = ()
    truncated: bool = False

    def facts(self) -> dict[str, int]:
        """Return the plan as it is shown."""
        entries = self.found.by_spec.values()
        return {
            "snapshots": self.snapshots,
            "files": self.found.count,
            "delete_files": 0 if self.options.incremental else self.found.delete_count,
            "records": sum(int(pc.sum(item["record_count"]).as_py() or 0) for item in entries),
            "bytes": self.bytes,
            "splits": len(self.splits),
            "skipped_files": self.found.skipped_files,
            "skipped_manifests": self.found.skipped_manifests,
        }

    @property
    def bytes(self) -> int:
        """Bytes of the files."""
        entries = self.found.by_spec.values()
        return sum(int(pc.sum(item["file_size_in_bytes"]).as_py() or 0) for item in entries)

    def reading(self) -> ReadSettings:
        """Return how the files are read."""
        return ReadSettings(
            projection=self.projection,
            schema=self.schema,
            specs=self.table.metadata.specs(),
            row_filter=self.condition,
            name_mapping=self.table.properties.get("schema.name-mapping.default"),
        )

    def slices(self) -> list[list[FileSlice]]:
        """Return the splits as slices of files to read.

        Raises:
            RefusedError: the snapshot has deletes, which cannot be applied yet.
        """
        if not self.options.incremental:
            self.found.refuse_deletes(self.table.identifier)
        files = self.found.files()
        return [
            [_slice(files[piece.file], piece) for piece in self.pieces.at(split)]
            for split in self.splits
        ]


def plan_scan(table: Table, options: ScanOptions) -> ScanPlan:
    """Find the files and cut them.

    Raises:
        NotFoundError: a snapshot, ref or column does not exist.
        BadInputError: the filter or the range of snapshots cannot be.
        CorruptFileError: a manifest is not what its list says.
    """
    if options.incremental:
        increment = plan_increment(
            table.metadata,
            start=options.start,
            inclusive=options.inclusive,
            end=options.end,
            branch=options.branch,
        )
        schema = table.schema
        condition, projection = _bound(schema, options)
        found = _appended(table, increment, condition)
        return _planned(
            table, options, increment.end, found, schema, condition, projection, increment
        )
    snapshot = _snapshot(table, options)
    schema = _schema_at(table, options, snapshot)
    condition, projection = _bound(schema, options)
    found = _nothing(table) if snapshot is None else _live(table, snapshot, condition)
    return _planned(table, options, snapshot, found, schema, condition, projection, None)


def _planned(
    table: Table,
    options: ScanOptions,
    snapshot: Snapshot | None,
    found: LiveFiles,
    schema: Schema,
    condition: BooleanExpression | None,
    projection: Schema,
    increment: Increment | None,
) -> ScanPlan:
    count = len(increment.appends) if increment else int(snapshot is not None)
    pieces = _pieces(found.by_spec, options.splits)
    return ScanPlan(
        table=table,
        options=options,
        snapshot=snapshot,
        found=found,
        snapshots=count,
        pieces=pieces,
        splits=pack(weights(pieces.length, options.splits).tolist(), options.splits),
        schema=schema,
        projection=projection,
        condition=condition,
        skipped=increment.skipped if increment else (),
        truncated=increment.truncated if increment else False,
    )


def _snapshot(table: Table, options: ScanOptions) -> Snapshot | None:
    if options.snapshot is None:
        return lineage.branch_head(table.metadata, options.branch)
    return lineage.resolve(table.metadata, options.snapshot, branch=options.branch)


def _schema_at(table: Table, options: ScanOptions, snapshot: Snapshot | None) -> Schema:
    """Return the schema to read with: a past snapshot's own, else the current one.

    Source: Iceberg's SnapshotUtil.schemaFor: branches are read with the table's schema.
    """
    ref = table.metadata.refs.get(options.snapshot or "")
    is_branch = ref is not None and ref.snapshot_ref_type == "branch"
    if options.snapshot is None or is_branch or snapshot is None or snapshot.schema_id is None:
        return table.schema
    for schema in table.metadata.schemas:
        if schema.schema_id == snapshot.schema_id:
            return schema
    return table.schema


def _bound(schema: Schema, options: ScanOptions) -> tuple[BooleanExpression | None, Schema]:
    condition = None
    if options.where is not None:
        condition = bind_filter(
            parse_filter(options.where), schema, case_sensitive=options.case_sensitive
        )
    if options.select is None:
        return condition, schema
    names = options.select
    return condition, project_schema(schema, names, case_sensitive=options.case_sensitive)


def _live(table: Table, snapshot: Snapshot, condition: BooleanExpression | None) -> LiveFiles:
    # Statistics are most of a manifest's bytes: without a filter nobody looks at them.
    columns = _COLUMNS if condition is None else (*_COLUMNS, *_STATISTICS)
    return live_files(table, snapshot, condition, columns=columns)


def _nothing(table: Table) -> LiveFiles:
    return LiveFiles(table, {}, MANIFEST_SCHEMA.empty_table())


def _appended(table: Table, increment: Increment, condition: BooleanExpression | None) -> LiveFiles:
    """Return the files that the append snapshots added.

    A manifest of such a snapshot may hold entries of others (merging carries them over): both the
    manifest's and the entry's snapshot must be one of the chosen.
    """
    chosen = pa.array([item.snapshot_id for item in increment.appends], pa.int64())
    lists = [read_manifest_list(table.storage, item.manifest_list) for item in increment.appends]
    everything = pa.concat_tables([MANIFEST_SCHEMA.empty_table(), *lists])
    wanted = pc.and_(
        pc.equal(everything["content"], DATA),
        pc.is_in(everything["added_snapshot_id"], value_set=chosen),
    )
    manifests = _once(everything.filter(wanted))
    metadata, schema = table.metadata, table.schema
    kept = (
        manifests
        if condition is None
        else prune_manifests(manifests, metadata, condition, schema=schema)
    )
    columns = _COLUMNS if condition is None else (*_COLUMNS, *_STATISTICS)
    by_spec, skipped = {}, 0
    for spec_id, entries in read_manifests(table.storage, kept, metadata, columns=columns).items():
        mine = entries.filter(
            pc.and_(
                pc.equal(entries["status"], ADDED),
                pc.is_in(entries["snapshot_id"], value_set=chosen),
            )
        )
        if condition is not None:
            mask = prune_files(mine, metadata.specs()[spec_id], schema, condition)
            skipped += mine.num_rows - int(pc.sum(mask).as_py() or 0)
            mine = mine.filter(mask)
        by_spec[spec_id] = mine
    return LiveFiles(
        table, by_spec, MANIFEST_SCHEMA.empty_table(), manifests.num_rows - kept.num_rows, skipped
    )


def _once(manifests: pa.Table) -> pa.Table:
    names = manifests["manifest_path"].to_pylist()
    seen: set[str] = set()
    first = [index for index, name in enumerate(names) if not (name in seen or seen.add(name))]  # type: ignore[func-returns-value]
    return manifests.take(pa.array(first, pa.int64()))


def _pieces(by_spec: Mapping[int, pa.Table], options: SplitOptions) -> Pieces:
    tables = [
        entries.select(["file_size_in_bytes", "split_offsets"]) for entries in by_spec.values()
    ]
    if not tables:
        empty = np.zeros(0, np.int64)
        return Pieces(empty, empty, empty)
    files = pa.concat_tables(tables).combine_chunks()
    sizes = files["file_size_in_bytes"].to_numpy()
    return cut_all(sizes, _whole(files["split_offsets"]), options)


def _whole(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if column.num_chunks != 1 else column.chunk(0)


def _slice(file: Any, piece: Piece) -> FileSlice:
    whole = FileSlice.of(file)
    first = min(file.split_offsets, default=0)
    covers = piece.start <= first and piece.start + piece.length >= file.size_bytes
    if covers:
        return whole
    return FileSlice(
        path=whole.path,
        format=whole.format,
        size_bytes=whole.size_bytes,
        record_count=whole.record_count,
        spec_id=whole.spec_id,
        partition=whole.partition,
        # The first piece begins behind the file's magic number; the first row group must be in it.
        start=0 if piece.start <= first else piece.start,
        length=piece.length + (piece.start if piece.start <= first else 0),
    )
