"""Iceberg's metadata tables, with the columns that Spark shows.

Source of the columns and their ids: Iceberg's SnapshotsTable, RefsTable, HistoryTable and MetadataLogEntriesTable.
The tables that manifests contain are in `file_tables`.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    IntegerType,
    LongType,
    MapType,
    NestedField,
    StringType,
    TimestamptzType,
)

from lake.core.base.errors import CorruptFileError, InvalidRequestError, unknown_column
from lake.core.base.options import Option
from lake.core.read.inspection.file_tables import FileTables
from lake.core.read.inspection.show import shown_properties
from lake.core.spec.expressions.filters import bind_filter, filter_columns, row_mask
from lake.core.spec.expressions.parser import parse_filter
from lake.core.spec.types.arrow_schema import arrow_schema, field_path
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table

_Rows = list[dict[str, Any]]


_SUMMARY = MapType(7, StringType(), 8, StringType(), value_required=False)
SCHEMAS: Mapping[str, Schema] = {
    "snapshots": Schema(
        NestedField(1, "committed_at", TimestamptzType(), required=True),
        NestedField(2, "snapshot_id", LongType(), required=True),
        NestedField(3, "parent_id", LongType()),
        NestedField(4, "operation", StringType()),
        NestedField(5, "manifest_list", StringType()),
        NestedField(6, "summary", _SUMMARY),
    ),
    "refs": Schema(
        NestedField(1, "name", StringType(), required=True),
        NestedField(2, "type", StringType(), required=True),
        NestedField(3, "snapshot_id", LongType(), required=True),
        NestedField(4, "max_reference_age_in_ms", LongType()),
        NestedField(5, "min_snapshots_to_keep", IntegerType()),
        NestedField(6, "max_snapshot_age_in_ms", LongType()),
    ),
    "history": Schema(
        NestedField(1, "made_current_at", TimestamptzType(), required=True),
        NestedField(2, "snapshot_id", LongType(), required=True),
        NestedField(3, "parent_id", LongType()),
        NestedField(4, "is_current_ancestor", BooleanType(), required=True),
    ),
    "metadata-log": Schema(
        NestedField(1, "timestamp", TimestamptzType(), required=True),
        NestedField(2, "file", StringType(), required=True),
        NestedField(3, "latest_snapshot_id", LongType()),
        NestedField(4, "latest_schema_id", IntegerType()),
        NestedField(5, "latest_sequence_number", LongType()),
    ),
    "properties": Schema(
        NestedField(1, "name", StringType(), required=True),
        NestedField(2, "value", StringType()),
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class InspectOptions:
    """What to show of a metadata table.

    Args:
        kind: its name in `SCHEMAS` or `file_tables.KINDS`.
        branch: the branch to read; None for ``main``.
        snapshot: the snapshot to read, as `ancestry.resolve` takes it; None for the branch's head.
        where: row filter; None for all rows.
        select: columns; None for all of them.
        limit: the most rows; None for all of them.
    """

    kind: str
    branch: str | None = None
    snapshot: str | None = None
    where: str | None = None
    select: Sequence[str] | None = None
    limit: int | None = None

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 0:
            raise InvalidRequestError(f"{Option.LIMIT} must not be negative")
        if self.kind in SCHEMAS and not (self.branch is None and self.snapshot is None):
            raise InvalidRequestError(f"{self.kind} does not depend on a branch or snapshot")


@dataclass(frozen=True)
class MetadataRows:
    """Rows of a metadata table, as a source of an export. They are always read in this process.

    Args:
        table: the table that is inspected.
        projection: the selected columns.
        read: yields all rows.
        select: returns the rows that the filter selects, with these columns.
        found: how many rows the metadata table has; None if they must be read to know it.
        limit: the most rows to show.
    """

    table: Table
    projection: Schema
    read: Callable[[], Iterator[pa.RecordBatch]]
    select: Callable[[pa.RecordBatch], pa.RecordBatch]
    found: int | None
    limit: int

    @property
    def plan(self) -> MetadataRows:
        """The source is its own plan."""
        return self

    @property
    def options(self) -> MetadataRows:
        """The source contains its own options."""
        return self

    @property
    def shared(self) -> bytes:
        """No task receives data."""
        return b""

    @property
    def bytes(self) -> int:
        """No data files are read."""
        return 0

    @property
    def records(self) -> int:
        """No data files are read."""
        return 0

    @property
    def task(self) -> Any:
        """Rows with a limit are not divided into tasks."""
        raise NotImplementedError

    def stream(self, noted: Counter[str], wanted: int | None = None) -> Iterator[pa.RecordBatch]:  # noqa: ARG002
        """Yield all rows."""
        for batch in self.read():
            yield self.select(batch)

    def tasks(self, part: Callable[[int], Any]) -> Iterator[Any]:  # noqa: ARG002
        """Yield no tasks."""
        yield from ()

    def check(self, rows: int, noted: Counter[str]) -> None:
        """The reader checks what it reads."""


def metadata_rows(table: Table, options: InspectOptions) -> MetadataRows:
    """Return rows of a metadata table.

    Raises:
        NotFoundError: a column or the snapshot does not exist.
        BadInputError: the filter is not valid.
        CorruptFileError: the metadata contains a value that its column cannot hold.
    """
    tables = None
    if options.kind in SCHEMAS:
        schema = SCHEMAS[options.kind]
    else:
        tables = FileTables(table, _snapshot(table, options))
        schema = tables.schema(options.kind)
    projection = _projected(schema, options.select)
    names = [field.name for field in projection.fields]
    condition = None
    needed = set(names)
    if options.where is not None:
        condition = bind_filter(parse_filter(options.where), schema)
        paths = (field_path(schema, number) for number in filter_columns(condition))
        needed.update(path[0].name for path in paths if path)
    if tables is None:
        batch = _in_metadata(table, options.kind)
        found: int | None = batch.num_rows
        read: Callable[[], Iterator[pa.RecordBatch]] = partial(iter, (batch,))
    else:
        found = tables.count(options.kind)
        read = partial(tables.batches, options.kind, needed)

    def select(batch: pa.RecordBatch) -> pa.RecordBatch:
        if condition is not None:
            batch = batch.filter(row_mask(condition, batch, schema))
        return batch.select(names)

    limit = sys.maxsize if options.limit is None else options.limit
    return MetadataRows(table, projection, read, select, found, limit)


def _snapshot(table: Table, options: InspectOptions) -> Snapshot | None:
    branch = options.branch or ancestry.MAIN
    if options.snapshot is None:
        return ancestry.branch_head(table.metadata, branch)
    return ancestry.resolve(table.metadata, options.snapshot, branch=branch)


def _in_metadata(table: Table, kind: str) -> pa.RecordBatch:
    """Return a metadata table that the metadata file contains."""
    try:
        return pa.RecordBatch.from_pylist(_READERS[kind](table), schema=arrow_schema(SCHEMAS[kind]))
    except (pa.ArrowException, OverflowError, ValueError) as error:
        raise CorruptFileError(
            f"{table.metadata_location} contains a value that column types of {kind} cannot hold: {error}"
        ) from error


def _projected(schema: Schema, names: Sequence[str] | None) -> Schema:
    if names is None:
        return schema
    columns = {field.name: field for field in schema.fields}
    for name in names:
        if name not in columns:
            raise unknown_column(name, list(columns))
    return Schema(*(columns[name] for name in dict.fromkeys(names)))


def _snapshots(table: Table) -> _Rows:
    return [
        {
            "committed_at": _micros(snapshot.timestamp_ms),
            "snapshot_id": snapshot.snapshot_id,
            "parent_id": snapshot.parent_snapshot_id,
            "operation": snapshot.summary.operation.value if snapshot.summary else None,
            "manifest_list": snapshot.manifest_list,
            "summary": list(properties_of(snapshot).items()) if snapshot.summary else None,
        }
        for snapshot in table.metadata.snapshots
    ]


def _refs(table: Table) -> _Rows:
    return [
        {
            "name": name,
            "type": ref.snapshot_ref_type.value.upper(),
            "snapshot_id": ref.snapshot_id,
            "max_reference_age_in_ms": ref.max_ref_age_ms,
            "min_snapshots_to_keep": ref.min_snapshots_to_keep,
            "max_snapshot_age_in_ms": ref.max_snapshot_age_ms,
        }
        for name, ref in table.metadata.refs.items()
    ]


def _history(table: Table) -> _Rows:
    metadata = table.metadata
    known = ancestry.snapshots_by_id(metadata)
    current = {
        item.snapshot_id for item in ancestry.ancestors(metadata, metadata.current_snapshot_id)
    }
    return [
        {
            "made_current_at": _micros(entry.timestamp_ms),
            "snapshot_id": entry.snapshot_id,
            "parent_id": known[entry.snapshot_id].parent_snapshot_id
            if entry.snapshot_id in known
            else None,
            "is_current_ancestor": entry.snapshot_id in current,
        }
        for entry in metadata.snapshot_log
    ]


def _metadata_log(table: Table) -> _Rows:
    metadata = table.metadata
    known = ancestry.snapshots_by_id(metadata)
    files = [(entry.timestamp_ms, entry.metadata_file) for entry in metadata.metadata_log]
    rows = []
    for timestamp_ms, file in [*files, (metadata.last_updated_ms, table.metadata_location)]:
        earlier = [
            entry.snapshot_id
            for entry in metadata.snapshot_log
            if entry.timestamp_ms <= timestamp_ms
        ]
        latest = known.get(earlier[-1]) if earlier else None
        rows.append(
            {
                "timestamp": _micros(timestamp_ms),
                "file": file,
                "latest_snapshot_id": latest.snapshot_id if latest else None,
                "latest_schema_id": latest.schema_id if latest else None,
                "latest_sequence_number": latest.sequence_number if latest else None,
            }
        )
    return rows


def _properties(table: Table) -> _Rows:
    return [item.document() for item in shown_properties(table.properties)]


def _micros(time_ms: int) -> int:
    return time_ms * 1000


_READERS: Mapping[str, Callable[[Table], _Rows]] = {
    "snapshots": _snapshots,
    "refs": _refs,
    "history": _history,
    "metadata-log": _metadata_log,
    "properties": _properties,
}
