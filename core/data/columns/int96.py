"""Read timestamps that Spark, Hive and Impala store as INT96 in Parquet files.

An INT96 value is a day and the nanoseconds within it. The type does not distinguish instants from local times.
Iceberg Java reads it as the timestamp type of the table, with microseconds, and ignores the footer's notes about
calendars. PyArrow's default, nanoseconds, is limited to the years 1678 to 2262.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

INT96_UNIT = "us"
_LOCAL = pa.timestamp(INT96_UNIT)


class Int96Type(pa.ExtensionType):  # type: ignore[misc]
    """The type of an INT96 column in a file's schema; its values are read as `_LOCAL`.

    A new column of this type is a timestamptz, as in Spark.
    """

    def __init__(self) -> None:
        super().__init__(pa.timestamp(INT96_UNIT, "UTC"), "lake.int96")

    def __arrow_ext_serialize__(self) -> bytes:
        return b""

    @classmethod
    def __arrow_ext_deserialize__(cls, _storage: pa.DataType, _data: bytes) -> Int96Type:
        return cls()

    def __str__(self) -> str:
        return "INT96"


def schema_of_file(parquet: Any) -> pa.Schema:
    """Return a file's schema with the type `Int96Type` for INT96 columns, including nested ones."""
    schema: pa.Schema = parquet.schema_arrow
    columns = parquet.schema
    stored = (columns.column(index).physical_type for index in range(len(columns)))
    if "INT96" not in set(stored):
        return schema

    def marked(index: int, kind: pa.DataType) -> pa.DataType:
        is_int96 = columns.column(index).physical_type == "INT96"
        return Int96Type() if is_int96 and kind == _LOCAL else kind

    return with_leaf_types(schema, len(columns), marked)


def with_leaf_types(
    schema: pa.Schema, count: int, change: Callable[[int, pa.DataType], pa.DataType]
) -> pa.Schema:
    """Return a file's schema with changed leaf types, or unchanged if the number of leaves differs.

    Args:
        schema: the schema as PyArrow reads it.
        count: the number of Parquet columns.
        change: returns the new type of a leaf from its index and its type in the schema.
    """
    leaves = iter(range(count))

    def changed(kind: pa.DataType) -> pa.DataType:
        index = next(leaves, None)
        return kind if index is None else change(index, kind)

    found = with_changed_leaves(schema, changed)
    return found if next(leaves, None) is None else schema


def with_changed_leaves(
    schema: pa.Schema, change: Callable[[pa.DataType], pa.DataType]
) -> pa.Schema:
    """Return a schema with changed leaf types; ``change`` returns the new type, and is called in their order."""

    def changed(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(kind):
            return pa.struct([item.with_type(changed(item.type)) for item in kind])
        if pa.types.is_map(kind):
            key, value = (
                item.with_type(changed(item.type)) for item in (kind.key_field, kind.item_field)
            )
            return pa.map_(key, value)
        if pa.types.is_list(kind):
            return pa.list_(kind.value_field.with_type(changed(kind.value_type)))
        if pa.types.is_large_list(kind):
            return pa.large_list(kind.value_field.with_type(changed(kind.value_type)))
        if pa.types.is_fixed_size_list(kind):
            item = kind.value_field.with_type(changed(kind.value_type))
            return pa.list_(item, kind.list_size)
        return change(kind)

    fields = [item.with_type(changed(item.type)) for item in schema]
    return pa.schema(fields, schema.metadata)
