"""Iceberg's metadata tables that manifests contain: files, entries, manifests, partitions and deletes.

Rows are read manifest by manifest and converted as columns. Source of the columns and their ids: Iceberg's DataFile,
ManifestEntry, ManifestsTable and PartitionsTable. The column ``readable_metrics`` is not built: the bounds of columns
are in ``lower_bounds`` and ``upper_bounds``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StringType,
    StructType,
    TimestamptzType,
)

from lake.core.base.arrow import one_array
from lake.core.read.inspection.deletes_table import deletes_rows, deletes_schema
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.spec.types.partition_codes import partition_codes
from lake.core.spec.types.partition_paths import human_value
from lake.core.spec.types.single_values import partition_type, searched_schemas
from lake.core.table.manifests.api import ENTRY_COLUMNS, read_manifests
from lake.core.table.manifests.data_files import DATA, EQUALITY_DELETES, POSITION_DELETES
from lake.core.table.manifests.read import live_manifests, stream_manifests
from lake.core.table.manifests.schemas import MANIFEST_SCHEMA
from lake.core.table.manifests.unified_partitions import unified_partition_type, unified_partitions
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import read_list, verify_manifest_list

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table


def _map(number: int, value: Any) -> MapType:
    return MapType(number, IntegerType(), number + 1, value, value_required=True)


def _file_fields(partition: StructType) -> list[NestedField]:
    fields = [
        NestedField(134, "content", IntegerType()),
        NestedField(100, "file_path", StringType(), required=True),
        NestedField(101, "file_format", StringType(), required=True),
        NestedField(141, "spec_id", IntegerType()),
        NestedField(102, "partition", partition, required=True),
        NestedField(103, "record_count", LongType(), required=True),
        NestedField(104, "file_size_in_bytes", LongType(), required=True),
        NestedField(108, "column_sizes", _map(117, LongType())),
        NestedField(109, "value_counts", _map(119, LongType())),
        NestedField(110, "null_value_counts", _map(121, LongType())),
        NestedField(137, "nan_value_counts", _map(138, LongType())),
        NestedField(125, "lower_bounds", _map(126, BinaryType())),
        NestedField(128, "upper_bounds", _map(129, BinaryType())),
        NestedField(131, "key_metadata", BinaryType()),
        NestedField(132, "split_offsets", ListType(133, LongType(), element_required=True)),
        NestedField(135, "equality_ids", ListType(136, IntegerType(), element_required=True)),
        NestedField(140, "sort_order_id", IntegerType()),
        NestedField(142, "first_row_id", LongType()),
        NestedField(143, "referenced_data_file", StringType()),
        NestedField(144, "content_offset", LongType()),
        NestedField(145, "content_size_in_bytes", LongType()),
    ]
    return [field for field in fields if partition.fields or field.name != "partition"]


_SUMMARY = StructType(
    NestedField(10, "contains_null", BooleanType(), required=True),
    NestedField(11, "contains_nan", BooleanType()),
    NestedField(12, "lower_bound", StringType()),
    NestedField(13, "upper_bound", StringType()),
)
_MANIFEST_FIELDS = (
    NestedField(14, "content", IntegerType(), required=True),
    NestedField(1, "path", StringType(), required=True),
    NestedField(2, "length", LongType(), required=True),
    NestedField(3, "partition_spec_id", IntegerType()),
    NestedField(4, "added_snapshot_id", LongType()),
    NestedField(5, "added_data_files_count", IntegerType()),
    NestedField(6, "existing_data_files_count", IntegerType()),
    NestedField(7, "deleted_data_files_count", IntegerType()),
    NestedField(15, "added_delete_files_count", IntegerType(), required=True),
    NestedField(16, "existing_delete_files_count", IntegerType(), required=True),
    NestedField(17, "deleted_delete_files_count", IntegerType(), required=True),
    NestedField(8, "partition_summaries", ListType(9, _SUMMARY, element_required=True)),
)


def _partition_fields(partition: StructType) -> list[NestedField]:
    fields = [
        NestedField(1, "partition", partition, required=True),
        NestedField(4, "spec_id", IntegerType(), required=True),
        NestedField(2, "record_count", LongType(), required=True),
        NestedField(3, "file_count", IntegerType(), required=True),
        NestedField(11, "total_data_file_size_in_bytes", LongType(), required=True),
        NestedField(5, "position_delete_record_count", LongType(), required=True),
        NestedField(6, "position_delete_file_count", IntegerType(), required=True),
        NestedField(7, "equality_delete_record_count", LongType(), required=True),
        NestedField(8, "equality_delete_file_count", IntegerType(), required=True),
        NestedField(9, "last_updated_at", TimestamptzType()),
        NestedField(10, "last_updated_snapshot_id", LongType()),
    ]
    return fields if partition.fields else fields[2:]


class FileTables:
    """Reads the metadata tables of one snapshot.

    Args:
        table: the table.
        snapshot: the snapshot; None for an empty branch.
    """

    def __init__(self, table: Table, snapshot: Snapshot | None) -> None:
        self._table = table
        self._metadata: TableMetadata = table.metadata
        self._snapshot = snapshot
        self._partition = unified_partition_type(table.metadata)

    def schema(self, kind: str) -> Schema:
        """Return the columns of a metadata table.

        Raises:
            RefusedError: a partition field has a type that lake does not know.
        """
        if kind == "manifests":
            return Schema(*_MANIFEST_FIELDS)
        if kind == "partitions":
            return Schema(*_partition_fields(self._partition))
        if kind == "deletes":
            return deletes_schema(self._metadata, self._partition)
        files = _file_fields(self._partition)
        if kind != "entries":
            return Schema(*files)
        return Schema(
            NestedField(0, "status", IntegerType(), required=True),
            NestedField(1, "snapshot_id", LongType()),
            NestedField(3, "sequence_number", LongType()),
            NestedField(4, "file_sequence_number", LongType()),
            NestedField(2, "data_file", StructType(*files), required=True),
        )

    def count(self, kind: str) -> int | None:
        """Return the number of rows of a metadata table; None if the manifest list does not contain it.

        Raises:
            CorruptFileError: the manifest list cannot be read, or names fewer files than it must.
            NotFoundError: it is missing.
        """
        manifests = self._chosen(kind)
        if kind == "manifests":
            return int(manifests.num_rows)
        if kind in {"partitions", "deletes"}:
            return None
        names = [f"{name}_files_count" for name in ("added", "existing", "deleted")]
        counts = [manifests[name] for name in (names if kind == "entries" else names[:2])]
        if any(column.null_count for column in counts):
            return None
        return sum(int(pc.sum(column, min_count=0).as_py()) for column in counts)

    @cached_property
    def _list(self) -> pa.Table:
        if self._snapshot is None:
            return MANIFEST_SCHEMA.empty_table()
        storage = self._table.storage
        manifests = read_list(storage, self._metadata, self._snapshot)
        verify_manifest_list(storage, self._metadata, self._snapshot, manifests)
        return manifests

    def _chosen(self, kind: str) -> pa.Table:
        """Return the manifests of a metadata table."""
        if kind in _OF_CONTENT:
            return self._list.filter(_OF_CONTENT[kind](self._list["content"]))
        return self._list

    def batches(
        self, kind: str, columns: Collection[str] | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a metadata table.

        Args:
            kind: the metadata table.
            columns: columns of `schema` that are needed, others may be left out; None for all.

        Raises:
            CorruptFileError: a manifest or the manifest list cannot be read, or names fewer files than it must.
            NotFoundError: one is missing.
        """
        manifests = self._list
        schema = arrow_schema(self.schema(kind))
        if columns is not None and kind in _OF_ENTRIES:
            schema = pa.schema([item for item in schema if item.name in columns])
        if kind == "manifests":
            yield self._manifests(manifests, schema)
        elif kind == "partitions":
            yield self._partitions(manifests, schema)
        elif kind == "deletes":
            for entries in self._entries(kind):
                partitions = None
                if self._partition.fields:
                    partitions = self._unified(entries["partition"], schema.field("partition").type)
                yield from deletes_rows(
                    self._table.storage, self._metadata, entries, partitions, schema
                )
        else:
            names = {item.name for item in _files_of(schema)}.union(schema.names)
            for entries in self._entries(kind, names.intersection(ENTRY_COLUMNS)):
                yield self._converted(entries, schema)

    def _entries(self, kind: str, columns: Collection[str] | None = None) -> Iterator[pa.Table]:
        """Return entries of some manifests of one spec at a time, in the order of the manifest list."""
        manifests = self._chosen(kind)
        if kind != "entries":
            manifests = live_manifests(manifests)
        found = stream_manifests(
            self._table.storage,
            manifests,
            self._metadata,
            columns=columns,
            live_only=kind != "entries",
        )
        return (entries for _, entries in found)

    def _converted(self, entries: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
        arrays = []
        for item in schema:
            if item.name == "data_file":
                children = [self._column(entries, child) for child in item.type]
                column = pa.StructArray.from_arrays(children, fields=list(item.type))
            else:
                column = self._column(entries, item)
            arrays.append(column)
        if not arrays:
            return pa.RecordBatch.from_struct_array(
                pa.StructArray.from_buffers(pa.struct([]), entries.num_rows, [None])
            )
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _column(self, entries: pa.Table, item: pa.Field) -> pa.Array:
        if item.name == "partition":
            return self._unified(entries["partition"], item.type)
        return _as(one_array(entries[item.name]), item.type)

    def _unified(self, partitions: pa.ChunkedArray, kind: pa.StructType) -> pa.Array:
        """Return the partitions of one spec as the struct of all specs' fields."""
        children = unified_partitions(partitions, self._partition).flatten()
        return pa.StructArray.from_arrays(children, fields=list(kind))

    def _manifests(self, manifests: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
        rows = []
        for row in manifests.to_pylist():
            counts = {}
            for name in ("added", "existing", "deleted"):
                of_data = row["content"] == DATA
                count = row[f"{name}_files_count"]
                counts[f"{name}_data_files_count"] = count if of_data else 0
                counts[f"{name}_delete_files_count"] = 0 if of_data else count
            summaries = self._summaries(row["partition_spec_id"], row["partitions"])
            rows.append(
                {
                    **{name: row[name] for name in _SAME},
                    "path": row["manifest_path"],
                    "length": row["manifest_length"],
                    **counts,
                    "partition_summaries": summaries,
                }
            )
        return pa.RecordBatch.from_pylist(rows, schema=schema)

    def _summaries(self, spec_id: int, found: list[dict[str, Any]] | None) -> Any:
        spec = self._metadata.specs().get(spec_id)
        if found is None or spec is None or len(found) != len(spec.fields):
            return None
        schemas = searched_schemas(self._metadata)
        kinds = partition_type(spec, schemas).fields
        return [
            {
                "contains_null": item["contains_null"],
                "contains_nan": item["contains_nan"],
                **{
                    name: None
                    if item[name] is None
                    else human_value(field, schemas, kind.field_type, item[name])
                    for name in ("lower_bound", "upper_bound")
                },
            }
            for field, kind, item in zip(spec.fields, kinds, found, strict=True)
        ]

    def _partitions(self, manifests: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
        """Count files and rows by partition, in the order of the first file of each."""
        is_partitioned = bool(self._partition.fields)
        columns = _COUNTED if is_partitioned else tuple(x for x in _COUNTED if x != "partition")
        found = read_manifests(
            self._table.storage,
            live_manifests(manifests),
            self._metadata,
            columns=(*columns, "status"),
            live_only=True,
        )
        parts = list(found.values())
        if not parts:
            return pa.RecordBatch.from_pylist([], schema=schema)
        kind = schema.field("partition").type if is_partitioned else pa.struct([])
        keys = [
            self._unified(part["partition"], kind)
            if is_partitioned
            else pa.StructArray.from_buffers(kind, part.num_rows, [None])
            for part in parts
        ]
        codes = np.concatenate(partition_codes([pa.chunked_array([key]) for key in keys]))
        # As in Java's PartitionComparator, NULL differs from a field that the spec does not have, by their numbers.
        fields = np.concatenate(
            [np.full(part.num_rows, self._fields_of(spec_id)) for spec_id, part in found.items()]
        )
        codes = codes * (len(self._partition.fields) + 1) + fields
        _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        count = len(first)
        joined = {
            name: np.concatenate([part[name].to_numpy() for part in parts])
            for name in ("content", "record_count", "file_size_in_bytes", "spec_id")
        }

        def total(contents: int, name: str | None) -> Any:
            mask = joined["content"] == contents
            sums = np.zeros(count, np.int64)
            np.add.at(sums, codes[mask], 1 if name is None else joined[name][mask])
            return sums

        snapshots = np.concatenate([part["snapshot_id"].fill_null(-1).to_numpy() for part in parts])
        pairs = np.unique(np.stack([codes, snapshots, joined["spec_id"]]), axis=1)
        times, newest, specs = self._last_updates(pairs.T.tolist(), count)
        values = {
            "partition": pa.concat_arrays(keys).take(pa.array(first)),
            "spec_id": specs,
            "record_count": total(DATA, "record_count"),
            "file_count": total(DATA, None),
            "total_data_file_size_in_bytes": total(DATA, "file_size_in_bytes"),
            "position_delete_record_count": total(POSITION_DELETES, "record_count"),
            "position_delete_file_count": total(POSITION_DELETES, None),
            "equality_delete_record_count": total(EQUALITY_DELETES, "record_count"),
            "equality_delete_file_count": total(EQUALITY_DELETES, None),
            "last_updated_at": times,
            "last_updated_snapshot_id": newest,
        }
        arrays = [
            values[field.name]
            if field.name == "partition"
            else pa.array(values[field.name]).cast(field.type)
            for field in schema
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=schema)

    def _fields_of(self, spec_id: int) -> int:
        """Return how many of the fields of all specs a spec has."""
        own = {field.field_id for field in self._metadata.specs()[spec_id].fields}
        return sum(field.field_id in own for field in self._partition.fields)

    def _last_updates(
        self, found: Iterable[tuple[int, int, int]], count: int
    ) -> tuple[list[int | None], list[int | None], list[int]]:
        """Return the time (microseconds) and id of the newest known snapshot of each partition, and its spec.

        Args:
            found: the distinct (partition, snapshot id, spec id) of the files.
            count: the number of partitions.
        """
        known = ancestry.snapshots_by_id(self._metadata)
        times: list[int | None] = [None] * count
        newest: list[int | None] = [None] * count
        specs = [0] * count
        for code, snapshot_id, spec_id in found:
            snapshot = known.get(snapshot_id)
            earlier = times[code]
            if snapshot is None:
                if earlier is None:
                    specs[code] = max(specs[code], spec_id)
                continue
            time = snapshot.timestamp_ms * 1000
            if earlier is None or earlier < time:
                times[code], newest[code], specs[code] = time, snapshot_id, spec_id
        # A time that Iceberg's type does not contain is shown as unknown.
        shown = [None if time is None or abs(time) >= _TIMES else time for time in times]
        return shown, newest, specs


_TIMES = 2**63
_SAME = ("content", "partition_spec_id", "added_snapshot_id")
_COUNTED = ("content", "partition", "record_count", "file_size_in_bytes", "snapshot_id")
_OF_CONTENT: Mapping[str, Callable[[Any], Any]] = {
    "data-files": lambda content: pc.equal(content, DATA),
    "delete-files": lambda content: pc.not_equal(content, DATA),
    "deletes": lambda content: pc.not_equal(content, DATA),
}
_OF_ENTRIES = ("files", "data-files", "delete-files", "entries")
KINDS = ("files", "data-files", "delete-files", "entries", "manifests", "partitions", "deletes")


def _files_of(schema: pa.Schema) -> list[pa.Field]:
    """Return the fields of the files of the table of entries; none if they are not wanted."""
    place = schema.get_field_index("data_file")
    return [] if place < 0 else list(schema.field(place).type)


def _as(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Return a column as another type that holds the same values."""
    if column.type == kind:
        return column
    if pa.types.is_map(kind):
        pairs = column.values
        return pa.MapArray.from_arrays(
            column.offsets,
            pairs.field(0).cast(kind.key_type),
            pairs.field(1).cast(kind.item_type),
            kind,
            mask=column.is_null() if column.null_count else None,
        )
    if isinstance(kind, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(kind, column.cast(kind.storage_type))
    return column.cast(kind)
