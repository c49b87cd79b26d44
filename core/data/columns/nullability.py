"""Required columns and nested fields: find NULLs, and fill slots that are masked by NULL structs.

In Arrow, the fields of a NULL struct have slots too. Arrow's Parquet writer refuses a required field with NULL in
any slot, so masked slots are filled.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc


def null_in_required(batch: pa.RecordBatch) -> str | None:
    """Return the name of a required column or nested field that contains NULL, or None."""
    parts = zip(batch.schema, batch.columns, strict=True)
    found = (_null_in_part(item, column, item.name) for item, column in parts)
    return next((name for name in found if name), None)


def fill_masked(table: pa.Table) -> pa.Table:
    """Fill required fields of NULL structs with some value; visible NULLs remain."""
    for index, item in enumerate(table.schema):
        if _has_required_part(item.type):
            chunks = [_filled(chunk) for chunk in table.column(index).chunks]
            table = table.set_column(index, item, pa.chunked_array(chunks, item.type))
    return table


def _has_required_part(kind: pa.DataType) -> bool:
    """Whether a type has a required nested field (not counting keys of maps, which are never NULL)."""
    if pa.types.is_struct(kind):
        return any(not part.nullable or _has_required_part(part.type) for part in kind)
    if pa.types.is_list(kind):
        return not kind.value_field.nullable or _has_required_part(kind.value_type)
    if pa.types.is_map(kind):
        return not kind.item_field.nullable or _has_required_part(kind.item_type)
    return False


def _null_in_part(item: pa.Field, column: pa.Array, name: str) -> str | None:
    if not item.nullable and column.null_count:
        return name
    kind = item.type
    if not _has_required_part(kind):
        return None
    if pa.types.is_struct(kind):
        valid = column.filter(column.is_valid()) if column.null_count else column
        parts = zip(kind, valid.flatten(), strict=True)
        found = (_null_in_part(part, values, f"{name}.{part.name}") for part, values in parts)
        return next((name for name in found if name), None)
    if pa.types.is_list(kind):
        return _null_in_part(kind.value_field, column.flatten(), f"{name}.element")
    entries = pa.StructArray.from_arrays(
        [column.keys, column.items], fields=[kind.key_field, kind.item_field]
    )
    inside = pa.ListArray.from_arrays(column.offsets, entries).flatten()
    return _null_in_part(kind.item_field, inside.field(1), f"{name}.value")


def _filled(column: pa.Array) -> pa.Array:
    kind = column.type
    if not _has_required_part(kind):
        return column
    if column.offset:
        column = pa.concat_arrays([column, column.slice(0, 0)])
    nulls = column.is_null()
    if pa.types.is_struct(kind):
        parts = [
            _filled(part if item.nullable else _with_values(part, nulls))
            for item, part in zip(kind, _parts(column), strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=list(kind), mask=nulls)
    mask = nulls if column.null_count else None
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            column.offsets, _filled(column.values), type=kind, mask=mask
        )
    items = _filled(column.items)
    return pa.MapArray.from_arrays(column.offsets, column.keys, items, type=kind, mask=mask)


def _with_values(column: pa.Array, masked: pa.Array) -> pa.Array:
    """Return a column in which a value replaces masked NULLs."""
    kind = column.type
    visible_nulls = pc.and_(column.is_null(), pc.invert(masked))
    if pa.types.is_struct(kind):
        return pa.StructArray.from_arrays(_parts(column), fields=list(kind), mask=visible_nulls)
    if pa.types.is_list(kind):
        return pa.ListArray.from_arrays(
            column.offsets, column.values, type=kind, mask=visible_nulls
        )
    if pa.types.is_map(kind):
        return pa.MapArray.from_arrays(
            column.offsets, column.keys, column.items, type=kind, mask=visible_nulls
        )
    return pc.if_else(pc.and_(column.is_null(), masked), _some_value(kind), column)


def _parts(column: pa.Array) -> list[pa.Array]:
    return [column.field(index) for index in range(column.type.num_fields)]


def _some_value(kind: pa.DataType) -> Any:
    if pa.types.is_fixed_size_binary(kind):
        return pa.scalar(bytes(kind.byte_width), kind)
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.scalar(b"", pa.binary()).cast(kind)
    if pa.types.is_boolean(kind):
        return pa.scalar(value=False)
    if pa.types.is_decimal(kind):
        return pa.scalar(Decimal(0), kind)
    bits = pa.int32() if kind.bit_width == 32 else pa.int64()  # noqa: PLR2004
    return pa.scalar(0, bits).cast(kind)
