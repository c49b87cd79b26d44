"""Normalise nested columns for PyArrow's ORC writer: propagate NULLs to nested fields and drop slice offsets.

PyArrow's ORC writer writes wrong rows if a nested column is a slice of a longer one, or if a field of a NULL struct
is not NULL itself.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa


def propagate_nulls(column: pa.Array) -> pa.Array:
    """Return a copy of a column in which the fields of a NULL struct are NULL, and NULL lists and maps are empty.

    All nested fields of the result except the keys of maps are nullable.
    """
    kind = column.type
    if column.offset:
        column = pa.concat_arrays([column, column.slice(0, 0)])
    if not pa.types.is_nested(kind):
        return column
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        parts = [propagate_nulls(part) for part in column.flatten()]
        fields = [
            item.with_type(part.type).with_nullable(nullable=True)
            for item, part in zip(kind, parts, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if pa.types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        pairs = pa.StructArray.from_arrays([column.keys, column.items], fields=fields)
        lists = pa.ListArray.from_arrays(column.offsets, pairs, mask=mask)
        keys, items = (propagate_nulls(part) for part in lists.flatten().flatten())
        item = kind.item_field.with_type(items.type).with_nullable(nullable=True)
        kind = pa.map_(kind.key_field, item)
        return pa.MapArray.from_arrays(_offsets(column), keys, items, type=kind, mask=mask)
    values = propagate_nulls(column.flatten())
    item = kind.value_field.with_type(values.type).with_nullable(nullable=True)
    return pa.ListArray.from_arrays(_offsets(column), values, type=pa.list_(item), mask=mask)


def _offsets(column: pa.Array) -> pa.Array:
    """Return the offsets of lists in which NULL lists are empty."""
    lengths = np.diff(column.offsets.to_numpy())
    lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())
