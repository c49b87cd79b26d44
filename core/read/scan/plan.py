"""Plan a scan: its files, splits and counts, from columns of metadata; no data is read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema

from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.base.options import Option
from lake.core.data.rows.live_slices import SLICE_COLUMNS
from lake.core.data.rows.reader import FileSlice, ReadSettings, slices_of
from lake.core.read.scan.added_manifests import read_added_manifests
from lake.core.read.scan.facts import RowBounds, ScanFacts
from lake.core.read.scan.incremental import Increment, plan_increment
from lake.core.read.scan.splits import Pieces, SplitOptions, SplitPiece, cut_all, pack, weights
from lake.core.spec.expressions.filters import bind_filter, filter_columns
from lake.core.spec.expressions.parser import parse_filter
from lake.core.spec.types.arrow_schema import project_schema
from lake.core.table.catalogs.catalog import Table
from lake.core.table.manifests.batches import EngineOf, in_this_process
from lake.core.table.manifests.data_files import DeleteFile
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import has_only_own_manifests, read_list
from lake.core.table.snapshots.live_files import (
    FileSelection,
    LiveFiles,
    live_files,
    no_files,
    select_files,
)
from lake.core.table.snapshots.pruning import FILTER_COLUMNS, prune_manifests

if TYPE_CHECKING:
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.data.keys.key_pruning import KeyPruner
    from lake.core.read.scan.scan_keys import PruningFacts, ScanKeys

# The columns that the reader needs.
_READ_COLUMNS = (*SLICE_COLUMNS, "split_offsets")
_COLUMNS = ("status", "snapshot_id", *_READ_COLUMNS)
_MOST_SPLITS = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanOptions:
    """The options of a scan, or of the changes between two snapshots.

    Args:
        snapshot: the snapshot to read: its id, a tag, a branch, or ``@`` and a time; None for the head of `branch`.
        from_snapshot: read only what was added after this snapshot; None to read a whole snapshot.
        inclusive: read what `from_snapshot` itself added, too.
        to_snapshot: the last snapshot to read; None for the head of `branch`.
        branch: the branch to read.
        where: row filter; None for all rows.
        select: columns to read; None for all columns.
        limit: maximum number of rows; None for all rows.
        ignore_case: whether names of columns match in any case.
        split_size: size of a split in bytes; None for the table's property.
        split_lookback: number of splits that are open while files are packed; None for the table's property.
        split_open_cost: bytes that a file counts at least; None for the table's property.

    Raises:
        InvalidRequestError: a value is out of range or contradicts another.
    """

    snapshot: str | None = None
    from_snapshot: str | None = None
    inclusive: bool = False
    to_snapshot: str | None = None
    branch: str = ancestry.MAIN
    where: str | None = None
    select: Sequence[str] | None = None
    limit: int | None = None
    ignore_case: bool = False
    split_size: int | None = None
    split_lookback: int | None = None
    split_open_cost: int | None = None

    def __post_init__(self) -> None:
        if self.snapshot is not None and (
            self.from_snapshot is not None or self.to_snapshot is not None
        ):
            raise InvalidRequestError(
                f"{Option.SNAPSHOT} contradicts {Option.FROM_SNAPSHOT} and {Option.TO_SNAPSHOT}"
            )
        if self.snapshot is not None and self.branch != ancestry.MAIN and self.snapshot[:1] != "@":
            raise InvalidRequestError(f"{Option.SNAPSHOT} contradicts {Option.BRANCH}")
        if self.inclusive and self.from_snapshot is None:
            raise InvalidRequestError(f"{Option.INCLUSIVE} needs {Option.FROM_SNAPSHOT}")
        if self.limit is not None and self.limit < 0:
            raise InvalidRequestError(f"{Option.LIMIT} must not be negative: {self.limit}")
        self.splits({})

    def splits(self, properties: Mapping[str, str]) -> SplitOptions:
        """Return the split options for a table with these properties."""
        return SplitOptions.of(
            properties,
            size=self.split_size,
            lookback=self.split_lookback,
            open_cost=self.split_open_cost,
        )

    @property
    def incremental(self) -> bool:
        """Whether the scan reads only appended rows."""
        return self.from_snapshot is not None or self.to_snapshot is not None


@dataclass(frozen=True, kw_only=True)
class ScanPlan:
    """The plan of a scan.

    Args:
        table: the table to read.
        options: the options of the scan.
        snapshot: the snapshot read, or the end of the increment; None for an empty table.
        found: the files.
        snapshots: the number of snapshots whose files are read.
        pieces: the byte ranges of the files; a piece's file is its index among all of `found`.
        packing: how the pieces are packed into splits.
        projection: the columns to return.
        condition: bound row filter.
        skipped: snapshots of an incremental scan that are not appends.
        truncated: whether older snapshots of an incremental scan have expired.
        keys: the keys that rows must have; None for all rows.
        pruning: what the keys exclude.
        ordered: the splits in another order; None for that in which they are packed.
    """

    table: Table
    options: ScanOptions
    snapshot: Snapshot | None
    found: LiveFiles
    snapshots: int
    pieces: Pieces
    packing: SplitOptions
    projection: Schema
    condition: BooleanExpression | None
    skipped: Sequence[Snapshot] = ()
    truncated: bool = False
    keys: ScanKeys | None = None
    pruning: PruningFacts | None = None
    ordered: Sequence[Sequence[int]] | None = None

    @cached_property
    def splits(self) -> Sequence[Sequence[int]]:
        """The indices of the pieces that are read together."""
        if self.ordered is not None:
            return self.ordered
        return pack(weights(self.pieces.length, self.packing), self.packing)

    def facts(self) -> ScanFacts:
        """Return the plan's counts for the output."""
        least, most = self.row_bounds()
        return ScanFacts(
            snapshots=self.snapshots,
            files=self.found.count,
            delete_files=0 if self.options.incremental else self.found.delete_count,
            records=self.records,
            bounds=RowBounds(rows=least if least == most else None, rows_at_most=most),
            bytes=self.bytes,
            splits=len(self.splits),
            skipped_files=self.found.skipped_files,
            skipped_manifests=self.found.skipped_manifests,
            pruning=self.pruning,
        )

    def spread(self) -> ScanPlan:
        """Return the plan with smaller splits if it has few, unless the options name their size."""
        if self.options.split_size is not None:
            return self
        weight = int(weights(self.pieces.length, self.packing).sum())
        return replace(self, packing=self.packing.spread(self.bytes, weight))

    @property
    def schema(self) -> Schema:
        """The schema of the filter and the projection."""
        return self.found.schema

    @property
    def records(self) -> int:
        """The number of rows in the files by their metadata, including deleted ones."""
        return self._total("record_count")

    def row_bounds(self) -> tuple[int | None, int | None]:
        """Return the least and the most rows that all files give; None if there is a filter."""
        if self.chooses_rows:
            return None, None
        if self.options.incremental:
            return self.records, self.records
        bounds = [self.found.row_bounds(spec_id) for spec_id in self.found.by_spec]
        least, most = (sum(int(item[end].sum()) for item in bounds) for end in (0, 1))
        return least, most

    @property
    def chooses_rows(self) -> bool:
        """Whether some rows of the files may not be read, or not be returned."""
        return self.condition is not None or self.keys is not None

    @property
    def bytes(self) -> int:
        """The size of the files in bytes."""
        return self._total("file_size_in_bytes")

    def _total(self, column: str) -> int:
        entries = self.found.by_spec.values()
        return sum(int(pc.sum(item[column]).as_py() or 0) for item in entries)

    def reading(self, deletes: Sequence[DeleteFile]) -> ReadSettings:
        """Return the settings to read files to which some deletes may apply."""
        return ReadSettings.of(
            self.table,
            schema=self.schema,
            projection=self.projection,
            row_filter=self.condition,
            deletes=deletes,
        )

    def reads(self) -> Iterator[Split]:
        """Yield the splits with their file slices and deletes."""
        start, count = 0, 1
        # A preview reads the first splits only, and describing all files would take most of its time.
        while start < len(self.splits):
            chosen = [self.pieces.at(split) for split in self.splits[start : start + count]]
            files = self._described({piece.file for pieces in chosen for piece in pieces})
            for pieces in chosen:
                slices = [_slice(*files[piece.file], piece) for piece in pieces]
                numbers = np.unique([piece.file for piece in pieces])
                yield Split(slices, self.found.deletes_of(numbers), numbers)
            start, count = start + count, min(2 * count, _MOST_SPLITS)

    def _described(self, numbers: Iterable[int]) -> dict[int, tuple[FileSlice, int]]:
        """Return the files with the given indices among all of `found`, each with its first split offset."""
        wanted = np.sort(np.fromiter(numbers, np.int64))
        files: dict[int, tuple[FileSlice, int]] = {}
        for spec_id, own, places in self.found.places(wanted):
            rows = self.found.by_spec[spec_id].select(_READ_COLUMNS).take(pa.array(places))
            spec = self.table.metadata.specs()[spec_id]
            slices = slices_of(rows, spec=spec, schema=self.schema)
            first = [min(starts or (), default=0) for starts in rows["split_offsets"].to_pylist()]
            files.update(zip(wanted[own].tolist(), zip(slices, first, strict=True), strict=True))
        return files


@dataclass(frozen=True, slots=True)
class Split:
    """File slices that one task reads.

    Args:
        slices: parts of data files.
        deletes: the delete files that may apply to them.
        numbers: indices of the data files among all that were found, ascending.
    """

    slices: Sequence[FileSlice]
    deletes: Sequence[DeleteFile]
    numbers: npt.NDArray[np.int64]


def plan_scan(
    table: Table,
    options: ScanOptions,
    keys: ScanKeys | None = None,
    *,
    engine_of: EngineOf = in_this_process,
) -> ScanPlan:
    """Find the files and split them.

    Args:
        table: the table.
        options: the options.
        keys: the keys of the rows that are wanted; None for all rows.
        engine_of: returns the engine that reads manifests of some bytes; None for this process.

    Raises:
        NotFoundError: a snapshot, ref or column does not exist.
        BadInputError: the filter or the range of snapshots is not valid.
        CorruptFileError: a manifest does not match its manifest list.
    """
    if options.incremental:
        increment = _with_root_checked(table, options, increment_of(table, options))
        return plan_appends(table, options, increment, keys=keys, engine_of=engine_of)
    snapshot, schema = scan_snapshot(table, options), scan_schema(table, options)
    return plan_snapshot(table, options, snapshot, schema=schema, keys=keys, engine_of=engine_of)


def increment_of(table: Table, options: ScanOptions) -> Increment:
    """Return the appends between the snapshots that options choose.

    Raises:
        NotFoundError: a snapshot does not exist.
        BadInputError: the range is not valid.
    """
    return plan_increment(
        table.metadata,
        start=options.from_snapshot,
        inclusive=options.inclusive,
        end=options.to_snapshot,
        branch=options.branch,
    )


def plan_appends(
    table: Table,
    options: ScanOptions,
    increment: Increment,
    *,
    schema: Schema | None = None,
    with_bounds: bool = False,
    keys: ScanKeys | None = None,
    engine_of: EngineOf = in_this_process,
) -> ScanPlan:
    """Find the files that some append snapshots added, and split them.

    Args:
        table: the table.
        options: the options; those that choose snapshots are ignored.
        increment: the snapshots.
        schema: the schema to read with; None for the table's current one.
        with_bounds: read the statistics of the files even if there is no filter.
        keys: the keys of the rows that are wanted; None for all rows.
        engine_of: returns the engine that reads manifests of some bytes; None for this process.

    Raises:
        NotFoundError: a column does not exist.
        BadInputError: the filter is not valid.
        CorruptFileError: a manifest does not match its manifest list.
    """
    schema = table.schema if schema is None else schema
    condition, projection = bound(schema, options)
    pruner = None if keys is None else keys.pruner(schema)
    selection = FileSelection(
        schema=schema,
        columns=file_columns(None, with_bounds=with_bounds),
        condition=condition,
        added_by=tuple(item.snapshot_id for item in increment.appends),
        fields=None if with_bounds else tuple(_compared(condition, keys)),
    )
    found = _appended(table, increment, selection, pruner, engine_of)
    plan = planned(table, options, increment, found, condition, projection)
    return _with_keys(plan, keys, pruner)


def plan_snapshot(
    table: Table,
    options: ScanOptions,
    snapshot: Snapshot | None,
    *,
    schema: Schema,
    with_bounds: bool = False,
    keys: ScanKeys | None = None,
    engine_of: EngineOf = in_this_process,
) -> ScanPlan:
    """Find the live files of a snapshot and split them; see `plan_appends`."""
    condition, projection = bound(schema, options)
    pruner = None if keys is None else keys.pruner(schema)
    found = no_files(table, schema)
    if snapshot is not None:
        found = live_files(
            table,
            snapshot,
            condition,
            columns=file_columns(None, with_bounds=with_bounds),
            schema=schema,
            strict=False,
            keys=pruner,
            fields=None if with_bounds else _compared(condition, keys),
            engine_of=engine_of,
        )
    whole = Increment(snapshot, () if snapshot is None else (snapshot,), ())
    plan = planned(table, options, whole, found, condition, projection)
    return _with_keys(plan, keys, pruner)


def _with_keys(plan: ScanPlan, keys: ScanKeys | None, pruner: KeyPruner | None) -> ScanPlan:
    if keys is None or pruner is None:
        return plan
    return replace(plan, keys=keys, pruning=keys.facts(pruner))


def _with_root_checked(table: Table, options: ScanOptions, increment: Increment) -> Increment:
    """Mark an increment without a start as truncated if its oldest snapshot is not the table's first."""
    if options.from_snapshot is not None or increment.end is None or increment.truncated:
        return increment
    *_, oldest = ancestry.ancestors(table.metadata, increment.end.snapshot_id)
    manifests = read_list(table.storage, table.metadata, oldest)
    return replace(increment, truncated=not has_only_own_manifests(oldest, manifests))


def planned(
    table: Table,
    options: ScanOptions,
    chosen: Increment,
    found: LiveFiles,
    condition: BooleanExpression | None,
    projection: Schema,
) -> ScanPlan:
    """Return the plan to read the given files."""
    splits = options.splits(table.properties)
    return ScanPlan(
        table=table,
        options=options,
        snapshot=chosen.end,
        found=found,
        snapshots=len(chosen.appends),
        pieces=cut_all(found.by_spec.values(), splits),
        packing=splits,
        projection=projection,
        condition=condition,
        skipped=chosen.skipped,
        truncated=chosen.truncated,
    )


def scan_snapshot(table: Table, options: ScanOptions) -> Snapshot | None:
    """Return the snapshot that a scan reads; None if the table is empty.

    Raises:
        NotFoundError: it does not exist.
    """
    if options.snapshot is None:
        return ancestry.branch_head(table.metadata, options.branch)
    return ancestry.resolve(table.metadata, options.snapshot, branch=options.branch)


def scan_schema(table: Table, options: ScanOptions) -> Schema:
    """Return the schema that a scan reads with.

    Raises:
        NotFoundError: the snapshot does not exist.
        BadInputError: its schema is not in the table's metadata.
    """
    if options.snapshot is None:
        return table.schema
    return _schema_at(table, options, scan_snapshot(table, options))


def _schema_at(table: Table, options: ScanOptions, snapshot: Snapshot | None) -> Schema:
    """Return the schema to read with: that of a past snapshot, else the current one.

    Source: Iceberg's SnapshotUtil.schemaFor. Branches are read with the table's schema.

    Raises:
        BadInputError: the snapshot's schema is not in the table's metadata.
    """
    ref = table.metadata.refs.get(options.snapshot or "")
    is_branch = ref is not None and ref.snapshot_ref_type == "branch"
    if options.snapshot is None or is_branch or snapshot is None or snapshot.schema_id is None:
        return table.schema
    for schema in table.metadata.schemas:
        if schema.schema_id == snapshot.schema_id:
            return schema
    raise BadInputError(
        f"snapshot {snapshot.snapshot_id} has schema {snapshot.schema_id}, which is not in the table's metadata"
    )


def bound(schema: Schema, options: ScanOptions) -> tuple[BooleanExpression | None, Schema]:
    """Bind the filter and the selected columns to a schema.

    Raises:
        NotFoundError: a column does not exist.
        BadInputError: the filter is not valid.
    """
    condition = None
    if options.where is not None:
        condition = bind_filter(
            parse_filter(options.where), schema, case_sensitive=not options.ignore_case
        )
    if options.select is None:
        return condition, schema
    return condition, _selected(schema, options.select, case_sensitive=not options.ignore_case)


def _selected(schema: Schema, names: Sequence[str], *, case_sensitive: bool) -> Schema:
    """Return the named columns in the order of the names, or of the first names of their parts."""
    projection = project_schema(schema, names, case_sensitive=case_sensitive)
    order = [
        project_schema(schema, [name], case_sensitive=case_sensitive).fields[0].field_id
        for name in names
    ]
    return Schema(*sorted(projection.fields, key=lambda field: order.index(field.field_id)))


def file_columns(
    condition: BooleanExpression | None, *, with_bounds: bool = False
) -> tuple[str, ...]:
    """Return the manifest columns that planning needs."""
    # Statistics are most of a manifest's bytes, and most plans do not need them.
    return (*_COLUMNS, *FILTER_COLUMNS) if with_bounds or condition is not None else _COLUMNS


def _compared(condition: BooleanExpression | None, keys: ScanKeys | None) -> set[int]:
    """Return the ids of the columns that files are compared by."""
    found = set() if condition is None else filter_columns(condition)
    return found if keys is None else found | set(keys.types)


def _appended(
    table: Table,
    increment: Increment,
    selection: FileSelection,
    pruner: KeyPruner | None,
    engine_of: EngineOf,
) -> LiveFiles:
    """Return the files that the append snapshots added.

    A manifest of such a snapshot may contain entries of other snapshots, because merging carries them over. So
    both the manifest's and the entry's snapshot must be one of the selected.
    """
    metadata, condition, schema = table.metadata, selection.condition, selection.schema
    manifests, doubts = read_added_manifests(table.storage, metadata, increment.appends)
    kept = (
        manifests
        if condition is None
        else prune_manifests(manifests, metadata, condition, schema=schema)
    )
    if pruner is not None:
        kept = pruner.prune_manifests(kept, metadata)
    found = select_files(engine_of, table.storage, kept, metadata, selection, pruner)
    return LiveFiles(
        table=table,
        by_spec=found.by_spec,
        delete_manifests=MANIFEST_SCHEMA.empty_table(),
        schema=schema,
        manifests=manifests.num_rows,
        skipped_manifests=manifests.num_rows - kept.num_rows,
        skipped_files=found.skipped,
        doubts=doubts,
    )


def _slice(file: FileSlice, first: int, piece: SplitPiece) -> FileSlice:
    """Return a piece as a file slice. The first and the last piece extend to the ends of the file."""
    is_first, is_last = piece.start <= first, piece.start + piece.length >= file.size_bytes
    start = 0 if is_first else piece.start
    length = None if is_last else piece.start + piece.length - start
    return replace(file, start=start, length=length)
