"""Deleted positions from position delete files and deletion vectors.

Format: https://iceberg.apache.org/spec/#position-delete-files; columns are matched by their reserved ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from threading import Lock
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.expressions import BooleanExpression, In
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from lake.core.base.errors import CorruptFileError
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.rows.reader import FileSlice, ReadSettings, read_batches
from lake.core.io.storage.storage import Storage
from lake.core.spec.expressions.filters import bind_filter
from lake.core.table.manifests.data_files import DeleteFile
from lake.core.table.snapshots.delete_scopes import DELETED_PATH

DELETED_POSITION = 2147483545
# Type checkers use the model's fields, not its constructor's arguments.
_in: Any = In
POSITION_SCHEMA = Schema(
    NestedField(DELETED_PATH, "file_path", StringType(), required=True),
    NestedField(DELETED_POSITION, "pos", LongType(), required=True),
)
# For files whose columns do not have ids.
POSITION_NAMES = json.dumps(
    [{"field-id": item.field_id, "names": [item.name]} for item in POSITION_SCHEMA.fields]
)
_MOST_NAMED = 200
# A vector's length is a 32-bit number.
_MOST_BLOB_BYTES = 2**31 - 1


class PositionFile:
    """A position delete file, which is read once for all wanted data files; threads may share it."""

    def __init__(self, storage: Storage, file: DeleteFile, wanted: AbstractSet[str] | None) -> None:
        """Create a reader; nothing is read yet.

        Args:
            storage: the storage that contains it.
            file: the delete file.
            wanted: the data files whose positions are collected; None for all.
        """
        self._storage = storage
        self._file = file
        self._wanted = wanted
        self._found: dict[str, RowPositions] | None = None
        self._lock = Lock()

    @property
    def sequence_number(self) -> int:
        """Its data sequence number."""
        return self._file.sequence_number

    def of(self, path: str) -> RowPositions:
        """Return the deleted positions of a data file.

        Raises:
            CorruptFileError: the delete file contradicts its format or the table's metadata.
            RefusedError: its format is not known.
        """
        with self._lock:
            if self._found is None:
                self._found = self._read()
        return self._found.get(path, RowPositions())

    def _read(self) -> dict[str, RowPositions]:
        condition = None
        # Row groups without positions of these files are skipped if there are few files.
        if self._wanted is not None and len(self._wanted) <= _MOST_NAMED:
            condition = bind_filter(_in("file_path", self._wanted), POSITION_SCHEMA)
        found: dict[str, RowPositions] = {}
        for batch in read_positions(self._storage, self._file, row_filter=condition):
            self._add(batch, found)
        return found

    def _add(self, batch: pa.RecordBatch, found: dict[str, RowPositions]) -> None:
        positions = batch.column(1).to_numpy()
        encoded = pc.dictionary_encode(batch.column(0))
        codes = encoded.indices.to_numpy()
        order = np.argsort(codes, kind="stable")
        ends = np.cumsum(np.bincount(codes, minlength=len(encoded.dictionary)))[:-1]
        for path, rows in zip(encoded.dictionary.to_pylist(), np.split(order, ends), strict=True):
            if self._wanted is None or path in self._wanted:
                found.setdefault(path, RowPositions()).add(positions[rows])


def read_positions(
    storage: Storage,
    file: DeleteFile,
    *,
    schema: Schema = POSITION_SCHEMA,
    row_filter: BooleanExpression | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a position delete file.

    Args:
        storage: the storage that contains it.
        file: the delete file.
        schema: the columns: those of `POSITION_SCHEMA`, and others after them.
        row_filter: a bound filter; None for all rows.

    Raises:
        CorruptFileError: the delete file contradicts its format or the table's metadata.
        RefusedError: its format is not known.
    """
    settings = ReadSettings(
        projection=schema,
        schema=schema,
        specs={},
        row_filter=row_filter,
        name_mapping=POSITION_NAMES,
        # Only the other columns may be missing.
        complete=schema is POSITION_SCHEMA,
    )
    for batch in read_batches(storage, delete_slice(file), settings):
        if batch.column(0).null_count or batch.column(1).null_count:
            raise CorruptFileError(
                f"{file.path} lacks the location of a file or the position of a row"
            )
        positions = batch.column(1).to_numpy()
        if len(positions) and positions.min() < 0:
            raise CorruptFileError(f"{file.path} deletes the row {positions.min()}")
        yield batch


def delete_slice(file: DeleteFile) -> FileSlice:
    """Return a delete file in the form in which files are read."""
    return FileSlice(
        path=file.path,
        format=file.format,
        size_bytes=file.size_bytes,
        record_count=file.record_count,
        spec_id=file.spec_id,
    )


def read_blob(storage: Storage, file: DeleteFile) -> bytes:
    """Return the blob that a delete file's entry locates.

    Early versions of DuckDB write a deletion vector without the Puffin file around it. As in Iceberg Java, the
    entry's offset and length suffice to read it; the blob has its own length and checksum.

    Raises:
        CorruptFileError: the entry has no offset or length, or the file does not have that part.
    """
    offset, size = file.content_offset, file.content_size_bytes
    if offset is None or size is None:
        raise CorruptFileError(
            f"the table's metadata lacks the offset or the length of the deletion vector in {file.path}"
        )
    if not (0 < size <= _MOST_BLOB_BYTES and 0 <= offset <= file.size_bytes - size):
        raise CorruptFileError(
            f"the table's metadata locates a deletion vector at bytes {offset} to {offset + size} of {file.path}, "
            f"which has {file.size_bytes} bytes"
        )
    data = storage.read_part(file.path, offset, size)
    if len(data) != size:
        raise CorruptFileError(f"{file.path} ends before the {size} bytes at {offset}")
    return data


def read_vector(storage: Storage, file: DeleteFile) -> RowPositions:
    """Return the positions of a deletion vector.

    Raises:
        CorruptFileError: it contradicts its format or the table's metadata.
    """
    found = RowPositions.from_blob(read_blob(storage, file), file.path)
    if len(found) != file.record_count:  # check: vector-of-this-file
        raise CorruptFileError(
            f"the deletion vector in {file.path} has {len(found)} positions, "
            f"but the table's metadata declares {file.record_count}"
        )
    return found
