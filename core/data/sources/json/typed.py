"""Read blocks of lines with Arrow, which is fast, and refuses what it would not read exactly."""

from __future__ import annotations

import io
from collections.abc import Collection, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import json as arrow_json
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
)

from lake.core.base.arrow import one_array
from lake.core.data.columns.defaults import defaulted_fields, write_column
from lake.core.data.sources.acceptance import NeededColumns
from lake.core.data.sources.discovery import Source
from lake.core.data.sources.json.blocks import Block
from lake.core.data.sources.json.exact import INTEGERS
from lake.core.data.sources.json.parsing import parsed_line
from lake.core.data.sources.text_values import ValueContext, from_text
from lake.core.spec.types.arrow_schema import arrow_schema, arrow_type, parts_of

_DIRECT = (BooleanType, *INTEGERS, DoubleType, DecimalType)


def typed_rows(
    block: Block, forms: pa.Schema, schema: Schema, source: Source
) -> pa.RecordBatch | None:
    """Return the rows; None if Arrow cannot distinguish NULL from a missing field with a default."""
    found = read_block(block.data, forms, "error")
    needed = () if source.needed is None else source.needed.names
    lacks: int = False
    columns = []
    for item in schema.fields:
        if item.name in found.schema.names:
            column = one_array(found[item.name])
            if _null_with_default(item, column) or _has_infinity(column):
                return None
            lacks = lacks or (item.name in needed and column.null_count)
            context = ValueContext(item.name, source.path, forms=source.text.forms)
            columns.append(from_text(column, item.field_type, context))
        else:
            columns.append(write_column(item, found.num_rows))
            lacks = lacks or item.name in needed
    if lacks and source.needed is not None:
        # Arrow does not show whether a value is NULL or missing.
        _check_needed(block, source, source.needed, found)
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def forms_of(schema: Schema, left_out: Collection[int] = ()) -> pa.Schema | None:
    """Return the Arrow types for reading the columns; None if Arrow cannot (maps, and structs without fields).

    Args:
        schema: the columns.
        left_out: ids of fields, at any level, that do not occur in the lines.
    """
    parts = _form_parts(schema.fields, left_out)
    return None if parts is None else pa.schema(parts)


def _form_parts(
    fields: Sequence[NestedField], left_out: Collection[int]
) -> list[tuple[str, pa.DataType]] | None:
    parts = []
    for item in fields:
        if item.field_id not in left_out:
            form = _form(item.field_type, left_out)
            if form is None:
                return None
            parts.append((item.name, form))
    return parts or None


def _form(kind: IcebergType, left_out: Collection[int]) -> pa.DataType | None:
    if isinstance(kind, MapType):
        return None
    if isinstance(kind, StructType):
        parts = _form_parts(kind.fields, left_out)
        return None if parts is None else pa.struct(parts)
    if isinstance(kind, ListType):
        inner = _form(kind.element_type, left_out)
        return None if inner is None else pa.list_(inner)
    if isinstance(kind, FloatType):
        return pa.float64()
    return arrow_type(kind) if isinstance(kind, _DIRECT) else pa.string()


def not_named(fields: Sequence[NestedField], data: bytes) -> frozenset[int]:
    """Return the ids of the fields whose quoted names do not occur in the lines.

    A name with an escaped character is unexpected to Arrow, so those lines are read by Python's parser.
    """
    return frozenset(item.field_id for item in fields if f'"{item.name}"'.encode() not in data)


def read_block(data: bytes, schema: pa.Schema | None, unexpected: str) -> pa.Table:
    """Read whole lines, which `refuse_fatal` has accepted.

    Args:
        data: the lines.
        schema: the columns; None to infer them.
        unexpected: what is done with other columns: ``error``, ``ignore`` or ``infer``.

    Raises:
        ArrowException: Arrow cannot read the lines.
        UnicodeDecodeError: they are not UTF-8.
    """
    if not data.strip():
        return pa.table({})
    data.decode()  # Arrow does not check that text is UTF-8
    return arrow_json.read_json(
        io.BytesIO(data),
        read_options=arrow_json.ReadOptions(block_size=len(data) + 1, use_threads=False),
        parse_options=arrow_json.ParseOptions(
            explicit_schema=schema, unexpected_field_behavior=unexpected
        ),
    )


def _has_infinity(column: pa.Array) -> bool:
    """Whether a number was too large for a double: Arrow reads a long integer as infinity."""
    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.any(pc.is_inf(column)).as_py())
    if pa.types.is_struct(kind):
        return any(map(_has_infinity, column.flatten()))
    return bool(pa.types.is_list(kind)) and _has_infinity(column.flatten())


def _check_needed(block: Block, source: Source, needed: NeededColumns, found: pa.Table) -> None:
    """Refuse a line without a column that it needs.

    Raises:
        BadInputError: there is one.
    """
    present = [found[name] for name in needed.names if name in found.schema.names]
    all_there = len(present) == len(needed.names)
    valid = [column.is_valid().to_numpy() for column in present if column.null_count]
    for index, (number, line) in enumerate(block.numbered()):
        if all_there and all(column[index] for column in valid):
            continue
        needed.check_row(parsed_line(line, number, source.path), f"{source.path}, line {number},")


def _null_with_default(item: NestedField, column: pa.Array) -> bool:
    """Whether a field with a write default, at any level, is NULL in a struct that is not NULL."""
    if item.write_default is not None and column.null_count:
        return True
    kind = item.field_type
    if not any(defaulted_fields(parts_of(kind))):
        return False
    if isinstance(kind, ListType):
        return _null_with_default(kind.element_field, column.flatten())
    if not isinstance(kind, StructType):
        return False
    present = column.drop_null()
    parts = dict(zip([part.name for part in present.type], present.flatten(), strict=True))
    return any(
        _null_with_default(part, parts[part.name]) for part in kind.fields if part.name in parts
    )
