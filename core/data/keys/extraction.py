"""The key columns of rows: extracted from batches, and validated."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.arrow import Mask
from lake.core.base.errors import CorruptFileError
from lake.core.data.keys.columns import KeyColumn
from lake.core.spec.types.arrow_schema import field_path


def columns_of(schema: Schema, ids: Sequence[int]) -> list[KeyColumn]:
    """Return the paths of columns in rows of a schema.

    Raises:
        CorruptFileError: the schema lacks a column.
    """
    paths = [field_path(schema, column) for column in ids]
    found = [KeyColumn(path) for path in paths if path is not None]
    if len(found) < len(ids):
        raise CorruptFileError("the schema lacks a column of the key")
    return found


def cut(batch: pa.RecordBatch, columns: Sequence[KeyColumn]) -> pa.RecordBatch:
    """Return columns of a batch, named by position."""
    arrays = [column.of(batch.column(column.top.name)) for column in columns]
    return pa.RecordBatch.from_arrays(
        arrays, names=[str(position) for position in range(len(arrays))]
    )


def unusable(column: pa.Array) -> tuple[Mask, str] | None:
    """Return the values that cannot identify a row, and what the first of them is; None if all can."""
    # NaN only exists in floating-point types.
    floating = pa.types.is_floating(column.type)
    mask: Mask = column.is_null(nan_is_null=floating).to_numpy(zero_copy_only=False)
    if not mask.any():
        return None
    return mask, "NaN" if column[int(mask.argmax())].is_valid else "NULL"
