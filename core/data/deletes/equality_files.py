"""The keys in equality delete files, whose columns are matched by field id."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from lake.core.data.deletes.position_files import delete_slice
from lake.core.data.keys.columns import key_columns, key_schema
from lake.core.data.rows.reader import ReadSettings, read_batches
from lake.core.io.storage.opened_ahead import each_opened
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_type
from lake.core.table.manifests.data_files import DeleteFile


def read_deleted_keys(
    storage: Storage, files: Sequence[DeleteFile], ids: Sequence[int], settings: ReadSettings
) -> Iterator[tuple[pa.RecordBatch, int]]:
    """Yield the keys of delete files, each batch with its file's data sequence number.

    Args:
        storage: the storage that contains the files.
        files: equality delete files that compare the same columns.
        ids: the compared columns; the batches have them in this order, named by id.
        settings: the columns' types and the name mapping.

    Raises:
        CorruptFileError: a file contradicts its format or the table's metadata, or lacks a column.
        RefusedError: its format is not known.
    """
    keys = key_columns(settings.key_types, ids)
    types = key_schema(ids, [settings.key_types] if settings.key_types else [])
    tops = [item.field_id for item in types.fields]
    schema = pa.schema([(str(key.leaf.field_id), arrow_type(key.leaf.field_type)) for key in keys])
    reading = ReadSettings(
        projection=types,
        schema=types,
        specs={},
        name_mapping=settings.name_mapping,
        complete=True,
    )
    for file in each_opened(storage, files):
        for batch in read_batches(storage, delete_slice(file), reading):
            columns = [key.of(batch.column(tops.index(key.top.field_id))) for key in keys]
            yield pa.RecordBatch.from_arrays(columns, schema=schema), file.sequence_number
