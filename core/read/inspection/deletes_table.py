"""The rows of position deletes and deletion vectors, as Spark's metadata table ``position_deletes`` shows them.

Source of the columns and their ids: Iceberg's PositionDeletesTable and MetadataColumns.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType, StructType

from lake.core.base.errors import CorruptFileError
from lake.core.data.deletes.position_files import POSITION_SCHEMA, read_positions, read_vector
from lake.core.table.manifests.api import files_of
from lake.core.table.manifests.data_files import POSITION_DELETES, DeleteFile
from lake.core.table.snapshots.delete_scopes import PUFFIN

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.io.storage.storage import Storage

_ROW = 2147483544
_PARTITION, _SPEC_ID, _DELETE_PATH = 2147483642, 2147483643, 2147483646
_OFFSET, _SIZE = 2147483641, 2147483640
_VECTORS_SINCE = 3
_PIECE = 65_536
_DESCRIBED = (
    *("content", "file_path", "file_format", "partition", "record_count", "file_size_in_bytes"),
    *("referenced_data_file", "content_offset", "content_size_in_bytes"),
)


def deletes_schema(metadata: TableMetadata, partition: StructType) -> Schema:
    """Return the columns.

    Args:
        metadata: the table's metadata.
        partition: the fields of all partition specs; a table without any has no column ``partition``.
    """
    fields = [
        *_columns_of_files(metadata).fields,
        NestedField(_PARTITION, "partition", partition, required=True),
        NestedField(_SPEC_ID, "spec_id", IntegerType(), required=True),
        NestedField(_DELETE_PATH, "delete_file_path", StringType(), required=True),
    ]
    if metadata.format_version >= _VECTORS_SINCE:
        fields += [
            NestedField(_OFFSET, "content_offset", LongType(), required=False),
            NestedField(_SIZE, "content_size_in_bytes", LongType(), required=False),
        ]
    return Schema(*(field for field in fields if partition.fields or field.name != "partition"))


def deletes_rows(
    storage: Storage,
    metadata: TableMetadata,
    entries: pa.Table,
    partitions: pa.Array | None,
    schema: pa.Schema,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of the position deletes among entries of one spec.

    Args:
        storage: the storage that contains the files.
        metadata: the table's metadata.
        entries: live entries of delete files.
        partitions: their values of the column ``partition``; None if there is no such column.
        schema: the columns of `deletes_schema`.

    Raises:
        CorruptFileError: a delete file contradicts its format or the table's metadata.
        NotFoundError: one is missing.
    """
    chosen = np.flatnonzero(pc.equal(entries["content"], POSITION_DELETES).to_numpy())
    if not len(chosen):
        return
    spec_id = entries["spec_id"][0].as_py()
    rows = entries.select(_DESCRIBED).take(pa.array(chosen))
    spec = metadata.specs()[spec_id]
    files = files_of(rows, spec=spec, schema=metadata.schema())
    for number, file in zip(chosen.tolist(), files, strict=True):
        deletes = DeleteFile(
            path=file.path,
            format=file.format.upper(),
            content=file.content,
            spec_id=spec_id,
            record_count=file.record_count,
            size_bytes=file.size_bytes,
            sequence_number=0,
            referenced_data_file=file.referenced_data_file,
            content_offset=file.content_offset,
            content_size_bytes=file.content_size_bytes,
        )
        constants = {
            "spec_id": spec_id,
            "delete_file_path": file.path,
            "content_offset": file.content_offset,
            "content_size_in_bytes": file.content_size_bytes,
        }
        for found in _rows_of(storage, metadata, deletes, schema):
            count = found.num_rows
            columns: list[Any] = []
            for field in schema:
                if field.name == "partition" and partitions is not None:
                    columns.append(partitions.take(pa.array(np.full(count, number))))
                elif field.name in constants:
                    columns.append(pa.repeat(pa.scalar(constants[field.name], field.type), count))
                else:
                    columns.append(found.column(field.name))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _columns_of_files(metadata: TableMetadata) -> Schema:
    row = NestedField(_ROW, "row", metadata.schema().as_struct(), required=False)
    return Schema(*POSITION_SCHEMA.fields, row)


def _rows_of(
    storage: Storage, metadata: TableMetadata, deletes: DeleteFile, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield ``file_path``, ``pos`` and ``row``; a vector contains no rows."""
    columns = pa.schema([schema.field(name) for name in ("file_path", "pos", "row")])
    if deletes.format != PUFFIN:
        for batch in read_positions(storage, deletes, schema=_columns_of_files(metadata)):
            yield batch.cast(columns)
        return
    path = deletes.referenced_data_file
    if path is None:
        raise CorruptFileError(
            f"the table's metadata does not name the data file of the deletion vector in {deletes.path}"
        )
    for positions in read_vector(storage, deletes).pieces(_PIECE):
        count = len(positions)
        arrays = [pa.repeat(path, count), pa.array(positions), pa.nulls(count, columns[2].type)]
        yield pa.RecordBatch.from_arrays(arrays, schema=columns)
