"""Convert between `DataFile` values, as tasks return them, and tables of manifest entries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema

from lake.core.base.errors import BadInputError
from lake.core.spec.types.single_values import (
    from_single_values,
    partition_struct,
    partition_type,
    single_values,
    stored_partition_type,
    struct_array,
)
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.manifests.schemas import ENTRY_COLUMNS

# The columns that a DataFile has, and the names of its attributes.
_ATTRIBUTES = {
    "content": "content",
    "file_path": "path",
    "file_format": "format",
    "record_count": "record_count",
    "file_size_in_bytes": "size_bytes",
    "sort_order_id": "sort_order_id",
    "first_row_id": "first_row_id",
    "referenced_data_file": "referenced_data_file",
    "content_offset": "content_offset",
    "content_size_in_bytes": "content_size_bytes",
}
_METRICS = (
    "column_sizes",
    "value_counts",
    "null_value_counts",
    "nan_value_counts",
    "lower_bounds",
    "upper_bounds",
)


def entries_of(
    files: Sequence[DataFile],
    *,
    spec: PartitionSpec,
    schema: Schema,
    status: int,
    snapshot_id: int | None,
    older: Sequence[Schema] = (),
) -> pa.Table:
    """Return `ENTRY_COLUMNS` of files that share a partition spec; the entries inherit their sequence numbers.

    Args:
        files: the files.
        spec: the partition spec of all files.
        schema: a schema with the spec's source columns.
        status: 0 existing, 1 added, 2 deleted.
        snapshot_id: the snapshot of the entries; None to inherit it.
        older: schemas with source columns that were dropped.

    Raises:
        BadInputError: a file has another spec, or its partition does not match the spec.
    """
    shared = {
        "status": status,
        "snapshot_id": snapshot_id,
        "sequence_number": None,
        "file_sequence_number": None,
    }
    columns: dict[str, pa.Array] = {}
    for name, arrow_type in ENTRY_COLUMNS.items():
        if name in shared:
            columns[name] = pa.repeat(pa.scalar(shared[name], arrow_type), len(files))
        elif name == "partition":
            columns[name] = _partition(files, spec, [schema, *older])
        else:
            columns[name] = pa.array([_value(file, name) for file in files], arrow_type)
    return pa.table(columns)


def files_of(entries: pa.Table, *, spec: PartitionSpec, schema: Schema) -> list[DataFile]:
    """Return the files in a table of entries that share a partition spec.

    Args:
        entries: `ENTRY_COLUMNS`; missing columns become a `DataFile`'s defaults.
        spec: the partition spec.
        schema: the schema with the spec's source columns; for one that it lacks, the type is the Arrow column's.
    """
    partition = entries["partition"].combine_chunks()
    fields = stored_partition_type(spec, schema, partition.type).fields
    children = dict(zip([f.name for f in partition.type], partition.flatten(), strict=True))
    values = [single_values(children[str(f.field_id)], f.field_type) for f in fields]
    partitions = list(zip(*values, strict=True)) if values else [()] * entries.num_rows
    rows = entries.drop_columns(["partition"]).to_pylist()
    return [
        _file(row, spec.spec_id, partition) for row, partition in zip(rows, partitions, strict=True)
    ]


def _partition(
    files: Sequence[DataFile], spec: PartitionSpec, schemas: Sequence[Schema]
) -> pa.Array:
    struct_type = partition_type(spec, schemas)
    for file in files:
        if file.spec_id != spec.spec_id or len(file.partition) != len(struct_type.fields):
            raise BadInputError(
                f"{file.path} has {len(file.partition)} partition values of spec {file.spec_id}; "
                f"spec {spec.spec_id} requires {len(struct_type.fields)}"
            )
    children = [
        from_single_values([file.partition[index] for file in files], field.field_type)
        for index, field in enumerate(struct_type.fields)
    ]
    return struct_array(children, partition_struct(struct_type), len(files))


def _value(file: DataFile, column: str) -> Any:
    if column in _ATTRIBUTES:
        return getattr(file, _ATTRIBUTES[column])
    if column in _METRICS:
        metrics: Mapping[int, Any] = getattr(file, column)
        return [{"key": key, "value": metrics[key]} for key in sorted(metrics)] or None
    if column == "split_offsets":
        return list(file.split_offsets) or None
    if column == "equality_ids":
        return None if file.equality_ids is None else list(file.equality_ids)
    # A DataFile does not have key metadata: lake does not read or write encrypted files.
    return None


def _file(row: Mapping[str, Any], spec_id: int, partition: tuple[bytes | None, ...]) -> DataFile:
    values = {attribute: row[column] for column, attribute in _ATTRIBUTES.items() if column in row}
    for column in _METRICS:
        values[column] = {pair["key"]: pair["value"] for pair in row.get(column) or ()}
    ids = row.get("equality_ids")
    return DataFile(
        **values,
        spec_id=spec_id,
        partition=partition,
        split_offsets=tuple(row.get("split_offsets") or ()),
        equality_ids=None if ids is None else tuple(ids),
    )
