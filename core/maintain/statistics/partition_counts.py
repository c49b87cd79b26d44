"""Count the rows and the files of each partition of a snapshot, from its manifests.

The rows are those of Iceberg Java's PartitionStatsHandler without an earlier file: one for each partition and spec
that an entry of the snapshot's manifests has. Entries of removed files count for the last update only, so a partition
that the snapshot itself emptied has a row without files.

Source: https://iceberg.apache.org/spec/#partition-statistics-file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.partitioning import PartitionField
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform, UnknownTransform, VoidTransform
from pyiceberg.types import IntegerType, LongType, NestedField, StructType

from lake.core.base.arrow import Int64s, one_array
from lake.core.base.errors import RefusedError
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.spec.types.format_versions import DELETION_VECTORS_SINCE
from lake.core.spec.types.partition_codes import partition_codes
from lake.core.spec.types.single_values import partition_struct
from lake.core.table.manifests.api import read_manifests
from lake.core.table.manifests.data_files import DATA, EQUALITY_DELETES, POSITION_DELETES
from lake.core.table.manifests.schemas import DELETED
from lake.core.table.manifests.unified_partitions import unified_partition_type, unified_partitions
from lake.core.table.snapshots.completeness import read_list, verify_manifest_list
from lake.core.table.snapshots.delete_scopes import PUFFIN

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table

_ENTRY_COLUMNS = (
    *("status", "snapshot_id", "content", "file_format", "partition"),
    *("record_count", "file_size_in_bytes"),
)
_SUMS = (
    *("data_record_count", "data_file_count", "total_data_file_size_in_bytes"),
    *("position_delete_record_count", "position_delete_file_count", "dv_count"),
    *("equality_delete_record_count", "equality_delete_file_count"),
)
# The rank of the newest snapshot that changed a partition; `_UNKNOWN` if all of them have expired.
_RANK = "rank"
_UNKNOWN = -1


@dataclass(frozen=True, slots=True)
class PartitionCounts:
    """The statistics of a snapshot's partitions.

    Args:
        schema: the columns of a partition statistics file.
        rows: a row for each partition and spec, in the order of the partitions, NULL first.
    """

    schema: Schema
    rows: pa.Table


def count_partitions(table: Table, snapshot: Snapshot, unified: StructType) -> PartitionCounts:
    """Return the statistics of a snapshot's partitions.

    Args:
        table: the table.
        snapshot: the snapshot.
        unified: the type of the partitions, from `counted_type`.

    Raises:
        CorruptFileError: a manifest or the manifest list cannot be read, or names fewer files than it must.
        NotFoundError: one is missing.
    """
    metadata, storage = table.metadata, table.storage
    updates = _Updates(metadata)

    def counted(_: int, entries: pa.Table) -> pa.Table:
        # Counted while manifests are decoded, so that the memory depends on the partitions and not on the files.
        return _summed(unified_partitions(entries["partition"], unified), _values(entries, updates))

    manifests = read_list(storage, metadata, snapshot)
    verify_manifest_list(storage, metadata, snapshot, manifests)
    by_spec = read_manifests(storage, manifests, metadata, columns=_ENTRY_COLUMNS, choose=counted)
    schema = _schema(unified, metadata.format_version)
    if not by_spec:
        return PartitionCounts(schema, arrow_schema(schema).empty_table())
    parts = []
    for spec_id, found in sorted(by_spec.items()):
        values = {name: found[name].to_numpy() for name in (*_SUMS, _RANK)}
        merged = _summed(one_array(found["partition"]), values)
        ids = pa.array(np.full(merged.num_rows, spec_id, np.int64))
        parts.append(merged.append_column("spec_id", ids))
    rows = pa.concat_tables(parts).combine_chunks()
    ordered = rows.take(_order(rows, unified))
    return PartitionCounts(schema, _as_stored(ordered, updates, arrow_schema(schema)))


def _schema(unified: StructType, format_version: int) -> Schema:
    with_vectors = format_version >= DELETION_VECTORS_SINCE
    deletes = [
        NestedField(number, name, kind, required=with_vectors)
        for number, name, kind in (
            (6, "position_delete_record_count", LongType()),
            (7, "position_delete_file_count", IntegerType()),
            (8, "equality_delete_record_count", LongType()),
            (9, "equality_delete_file_count", IntegerType()),
        )
    ]
    vectors = NestedField(
        13, "dv_count", IntegerType(), required=True, initial_default=0, write_default=0
    )
    return Schema(
        NestedField(1, "partition", unified, required=True),
        NestedField(2, "spec_id", IntegerType(), required=True),
        NestedField(3, "data_record_count", LongType(), required=True),
        NestedField(4, "data_file_count", IntegerType(), required=True),
        NestedField(5, "total_data_file_size_in_bytes", LongType(), required=True),
        *deletes,
        NestedField(10, "total_record_count", LongType(), required=False),
        NestedField(11, "last_updated_at", LongType(), required=False),
        NestedField(12, "last_updated_snapshot_id", LongType(), required=False),
        *([vectors] if with_vectors else []),
    )


def counted_type(metadata: TableMetadata) -> StructType:
    """Return the type of the partitions of all specs, with the checks of Iceberg's Partitioning.partitionType.

    Raises:
        RefusedError: the table is not partitioned, or the type is not defined.
    """
    every = [field for spec in metadata.specs().values() for field in spec.fields]
    if any(isinstance(field.transform, UnknownTransform) for field in every):
        raise RefusedError(
            "the table is partitioned by a transform that lake does not know: its partitions are not counted"
        )
    unified = unified_partition_type(metadata)
    if not unified.fields or all(isinstance(field.transform, VoidTransform) for field in every):
        raise RefusedError("the table is not partitioned")
    known: dict[int, PartitionField] = {}
    for field in every:
        if isinstance(field.transform, VoidTransform):
            continue
        other = known.setdefault(field.field_id, field)
        if (other.source_id, other.transform) != (field.source_id, field.transform):
            raise RefusedError(f"partition fields {other.name} and {field.name} have the same id")
    names = [field.name for field in unified.fields]
    for name in names:
        if names.count(name) > 1:
            raise RefusedError(
                f"two partition fields are named {name}: a statistics file needs different names"
            )
    return unified


class _Updates:
    """The retained snapshots in the order of their times, as numbers from 0."""

    def __init__(self, metadata: TableMetadata) -> None:
        ordered = sorted(
            (item.timestamp_ms, item.sequence_number or 0, item.snapshot_id)
            for item in metadata.snapshots
        )
        ids = np.array([item[2] for item in ordered], np.int64)
        self.times = pa.array([item[0] for item in ordered], pa.int64())
        self.ids = pa.array(ids)
        self._by_id = np.argsort(ids, kind="stable")
        self._sorted = ids[self._by_id]

    def ranks(self, snapshot_ids: Int64s) -> Int64s:
        """Return the number of each snapshot; `_UNKNOWN` if it is not retained."""
        if not len(self._sorted):
            return np.full(len(snapshot_ids), _UNKNOWN, np.int64)
        places = np.minimum(np.searchsorted(self._sorted, snapshot_ids), len(self._sorted) - 1)
        is_known = self._sorted[places] == snapshot_ids
        return np.where(is_known, self._by_id[places], _UNKNOWN)


def _values(entries: pa.Table, updates: _Updates) -> dict[str, Int64s]:
    """Return what each entry adds to its partition."""
    content = entries["content"].to_numpy()
    live = entries["status"].to_numpy() != DELETED
    formats = pc.utf8_upper(entries["file_format"].cast(pa.string()))
    is_vector = pc.equal(formats, PUFFIN).to_numpy()
    records = entries["record_count"].to_numpy()
    sizes = entries["file_size_in_bytes"].to_numpy()
    data = (live & (content == DATA)).astype(np.int64)
    positions = (live & (content == POSITION_DELETES)).astype(np.int64)
    equality = (live & (content == EQUALITY_DELETES)).astype(np.int64)
    ids = entries["snapshot_id"].fill_null(_UNKNOWN).to_numpy()
    return {
        "data_record_count": data * records,
        "data_file_count": data,
        "total_data_file_size_in_bytes": data * sizes,
        "position_delete_record_count": positions * records,
        "position_delete_file_count": positions * ~is_vector,
        "dv_count": positions * is_vector,
        "equality_delete_record_count": equality * records,
        "equality_delete_file_count": equality,
        _RANK: updates.ranks(ids),
    }


def _summed(partitions: pa.StructArray, values: dict[str, Int64s]) -> pa.Table:
    """Return a row for each partition, with the sums of the values and the highest rank."""
    codes = partition_codes([pa.chunked_array([partitions])])[0]
    _, first, codes = np.unique(codes, return_index=True, return_inverse=True)
    columns: dict[str, pa.Array] = {"partition": partitions.take(pa.array(first))}
    for name in _SUMS:
        sums = np.zeros(len(first), np.int64)
        np.add.at(sums, codes, values[name])
        columns[name] = pa.array(sums)
    ranks = np.full(len(first), _UNKNOWN, np.int64)
    np.maximum.at(ranks, codes, values[_RANK])
    columns[_RANK] = pa.array(ranks)
    return pa.table(columns)


def _order(rows: pa.Table, unified: StructType) -> pa.Array:
    """Return the order of the partitions; equal ones of several specs are ordered by spec."""
    columns = one_array(rows["partition"]).flatten()
    batch = pa.RecordBatch.from_arrays(columns, partition_struct(unified).names)
    # Names by id, as the columns have them.
    fields = [
        NestedField(field.field_id, str(field.field_id), field.field_type, required=False)
        for field in unified.fields
    ]
    order = RowOrder(
        fields=tuple(
            SortField(
                source_id=field.field_id,
                transform=IdentityTransform(),
                direction=SortDirection.ASC,
                null_order=NullOrder.NULLS_FIRST,
            )
            for field in fields
        )
    )
    keys = pa.table({"key": order.keys(batch, Schema(*fields)), "spec_id": rows["spec_id"]})
    return pc.sort_indices(keys, [("key", "ascending"), ("spec_id", "ascending")])


def _as_stored(rows: pa.Table, updates: _Updates, stored: pa.Schema) -> pa.Table:
    """Return rows with the columns of a statistics file."""
    ranks = one_array(rows[_RANK])
    known = pc.if_else(pc.equal(ranks, _UNKNOWN), pa.scalar(None, pa.int64()), ranks)
    children = one_array(rows["partition"]).flatten()
    kind = stored.field("partition").type
    columns = {
        "partition": pa.StructArray.from_arrays(children, fields=list(kind)),
        # Iceberg Java adds the numbers of later snapshots to those of this file and leaves this one out.
        "total_record_count": pa.nulls(rows.num_rows, pa.int64()),
        "last_updated_at": updates.times.take(known),
        "last_updated_snapshot_id": updates.ids.take(known),
    }
    arrays = [
        columns[item.name] if item.name in columns else rows[item.name].cast(item.type)
        for item in stored
    ]
    return pa.Table.from_arrays(arrays, schema=stored)
