"""Convert Arrow columns of a file to the types of a table; nested fields are matched by id or by name.

Only lossless conversions are allowed: Iceberg's promotions, and other representations of one type.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
from pyiceberg.types import (
    BooleanType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    TimestampType,
    TimestamptzType,
    UnknownType,
    UUIDType,
)

from lake.core.base.arrow import is_list
from lake.core.base.errors import BadInputError, CorruptFileError
from lake.core.data.columns.defaults import initial_column, write_column
from lake.core.data.columns.int96 import Int96Type
from lake.core.spec.types.arrow_schema import arrow_type, field_id
from lake.core.spec.types.type_text import in_iceberg_words, type_text
from lake.core.spec.types.unsupported_columns import UNSUPPORTED, unsupported


def convert(
    column: pa.Array,
    item: NestedField,
    where: str,
    *,
    by_name: bool = False,
    labels: pa.DataType | None = None,
) -> pa.Array:
    """Convert a column to the type of a table's field.

    Args:
        column: the column as read from the file.
        item: the table's field.
        where: the file's name, for errors.
        by_name: match nested fields by name even if the file has ids (which are another table's).
        labels: the column's type with the ids of its nested fields, if `column` does not have them.

    Raises:
        CorruptFileError: the column's type cannot be promoted to the field's type.
        RefusedError: lake cannot read values of the field's type.
        BadInputError: a value is out of range.
    """
    if _is_same(column.type, item.field_type, labels):
        return column
    kind, labels = item.field_type, _storage(column.type if labels is None else labels)
    if column.type == pa.bool8() and isinstance(kind, BooleanType):
        column, labels = column.storage.cast(pa.bool_()), pa.bool_()
    column = _plain(column)
    if not promotable(labels, kind, by_name=by_name):
        raise CorruptFileError(
            f"column {item.name} of {where} has type {type_text(labels)}, but {type_text(kind)} in the table"
        )
    if isinstance(kind, UNSUPPORTED) and not pa.types.is_null(column.type):
        raise unsupported(item.name, kind)
    if isinstance(kind, UnknownType) and column.null_count < len(column):
        raise CorruptFileError(
            f"column {item.name} of {where} has values, but type unknown in the table"
        )
    if pa.types.is_null(column.type) or isinstance(kind, UnknownType):
        return pa.nulls(len(column), arrow_type(kind))
    nested = _Nested(where, by_name, labels)
    if isinstance(kind, StructType):
        return _convert_struct(column, kind, nested)
    if isinstance(kind, ListType):
        return _convert_list(column, kind, nested)
    if isinstance(kind, MapType):
        return _convert_map(column, kind, nested)
    try:
        return column.cast(arrow_type(kind))
    except pa.ArrowInvalid as error:
        raise BadInputError(
            f"column {item.name} of {where} has a value that {type_text(kind)} cannot represent: "
            f"{in_iceberg_words(error)}"
        ) from error


def _plain(column: pa.Array) -> pa.Array:
    """Return a column without an extension type or a dictionary."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.dictionary_decode() if pa.types.is_dictionary(column.type) else column


def _is_same(found: pa.DataType, kind: IcebergType, labels: pa.DataType | None) -> bool:
    """Whether a file has exactly the type of a table's field, and the field is not nested."""
    if not kind.is_primitive or found != arrow_type(kind):
        return False
    return labels is None or bool(labels == found)


@dataclass(frozen=True, slots=True)
class _Nested:
    """How the fields of a nested column are converted."""

    where: str
    by_name: bool
    labels: pa.DataType

    def part(self, column: pa.Array, item: NestedField, labels: pa.DataType) -> pa.Array:
        return convert(column, item, self.where, by_name=self.by_name, labels=labels)


def promotable(source: pa.DataType, kind: IcebergType, *, by_name: bool = False) -> bool:
    """Whether a file's type can be promoted to a table's type; `convert` checks the values."""
    if source == pa.bool8() and isinstance(kind, BooleanType):
        return True
    source = _storage(source)
    if pa.types.is_dictionary(source):
        source = source.value_type
    if pa.types.is_null(source):
        return True
    if isinstance(kind, (UnknownType, *UNSUPPORTED)):
        # A file of the table may contain the column all the same; `convert` checks its values.
        return not by_name
    if isinstance(source, Int96Type):
        return isinstance(kind, TimestampType | TimestamptzType)
    if isinstance(kind, StructType):
        return pa.types.is_struct(source) and _struct_promotable(source, kind, by_name=by_name)
    if isinstance(kind, ListType):
        return is_list(source) and promotable(source.value_type, kind.element_type, by_name=by_name)
    if isinstance(kind, MapType):
        return (
            pa.types.is_map(source)
            and promotable(source.key_type, kind.key_type, by_name=by_name)
            and promotable(source.item_type, kind.value_type, by_name=by_name)
        )
    if isinstance(kind, UUIDType):
        return bool(source == pa.binary(16))
    return _primitive_promotable(source, arrow_type(kind))


def _struct_promotable(source: pa.DataType, kind: StructType, *, by_name: bool) -> bool:
    for index in range(source.num_fields):
        child = source.field(index)
        number = None if by_name else field_id(child)
        for item in kind.fields:
            same = item.name == child.name if number is None else item.field_id == number
            if same and not promotable(child.type, item.field_type, by_name=by_name):
                return False
    return True


def _primitive_promotable(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    if source == target:
        return True
    if types.is_integer(source) and types.is_integer(target):
        # Iceberg has no wider integer than 64 bits, so the cast checks each value.
        widest = source == pa.uint64() and target == pa.int64()
        return bool(
            source.bit_width < target.bit_width
            or widest
            or (source.bit_width == target.bit_width and types.is_signed_integer(source))
        )
    if types.is_float32(source) or types.is_float16(source):
        return bool(types.is_float64(target) or types.is_float32(target))
    if types.is_decimal(source) and types.is_decimal(target):
        return bool(source.scale == target.scale and source.precision <= target.precision)
    if types.is_timestamp(source) and types.is_timestamp(target):
        return bool((source.tz is None) == (target.tz is None))
    if types.is_date(source):
        return bool(types.is_date32(target) or (types.is_timestamp(target) and target.tz is None))
    if types.is_time(source):
        return bool(types.is_time(target))
    return _same_bytes(source, target)


def _same_bytes(source: pa.DataType, target: pa.DataType) -> bool:
    types = pa.types
    text = (types.is_string, types.is_large_string, types.is_string_view)
    raw = (types.is_binary, types.is_large_binary, types.is_binary_view)
    if any(test(source) for test in text):
        return bool(types.is_string(target) or types.is_binary(target))
    if any(test(source) for test in raw):
        # Old writers do not annotate text columns as text.
        return bool(types.is_binary(target) or types.is_string(target))
    return False


def _children(kind: pa.DataType, *, by_name: bool) -> dict[int | str, int]:
    """Return the positions of a struct's fields by id, or by name if they have no id or with ``by_name``."""
    found: dict[int | str, int] = {}
    for index, item in enumerate(kind):
        number = None if by_name else field_id(item)
        found[item.name if number is None else number] = index
    return found


def _convert_struct(column: pa.Array, kind: StructType, nested: _Nested) -> pa.Array:
    children = _children(nested.labels, by_name=nested.by_name)
    parts = []
    for item in kind.fields:
        index = children.get(item.field_id, children.get(item.name))
        if index is not None:
            part = nested.part(column.field(index), item, nested.labels.field(index).type)
        else:
            # Sources are matched by name, files of the table by id.
            missing = write_column if nested.by_name else initial_column
            part = missing(item, len(column))
        parts.append(part)
    mask = column.is_null() if column.null_count else None
    return pa.StructArray.from_arrays(parts, fields=list(arrow_type(kind)), mask=mask)


def _convert_list(column: pa.Array, kind: ListType, nested: _Nested) -> pa.Array:
    if pa.types.is_fixed_size_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    column = _from_start(column)
    values = nested.part(column.values, kind.element_field, nested.labels.value_type)
    mask = column.is_null() if column.null_count else None
    offsets = column.offsets.cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, values, type=arrow_type(kind), mask=mask)


def _convert_map(column: pa.Array, kind: MapType, nested: _Nested) -> pa.Array:
    column = _from_start(column)
    keys = nested.part(column.keys, kind.key_field, nested.labels.key_type)
    items = nested.part(column.items, kind.value_field, nested.labels.item_type)
    mask = column.is_null() if column.null_count else None
    return pa.MapArray.from_arrays(column.offsets, keys, items, type=arrow_type(kind), mask=mask)


def _from_start(column: pa.Array) -> pa.Array:
    """Return a list column without an offset, which Arrow requires if it contains NULLs."""
    return pa.concat_arrays([column, column.slice(0, 0)]) if column.offset else column


def _storage(kind: pa.DataType) -> pa.DataType:
    if isinstance(kind, Int96Type):
        return kind
    return kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind
