"""Convert JSON values to the types of a table, slowly but exactly; an error names line, field and value."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BooleanType,
    DecimalType,
    DoubleType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StructType,
)

from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.data.columns.defaults import json_defaults
from lake.core.data.sources.acceptance import BadRow, RawRows
from lake.core.data.sources.discovery import Source
from lake.core.data.sources.json.blocks import Block
from lake.core.data.sources.json.parsing import loads, parsed_line, refuse_deep
from lake.core.data.sources.text_values import ValueContext, from_text
from lake.core.spec.types.arrow_schema import arrow_schema, arrow_type, parts_of

INTEGERS = (IntegerType, LongType)
_FLOATING = (FloatType, DoubleType)
_SPECIAL_DOUBLES = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}


def exact_rows(block: Block, schema: Schema, source: Source, *, rejects: bool = False) -> RawRows:
    """Return the rows of a block; with ``rejects`` also the lines that are not valid objects.

    Raises:
        BadInputError: a line is not a valid object, without ``rejects``; the rows raise it for a value that does not
            match its column.
    """
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    indexes: list[int] = []
    bad: list[BadRow] = []
    for index, (number, line) in enumerate(block.numbered()):
        try:
            if rejects:
                refuse_deep(line, number, source.path)
            row = parsed_line(line, number, source.path)
        except BadInputError as error:
            if not rejects:
                raise
            bad.append(BadRow(index, error.message))
            continue
        rows.append(row)
        lines.append(number)
        indexes.append(index)

    def convert(start: int, count: int) -> pa.RecordBatch:
        part = slice(start, start + count)
        return _columns_of(rows[part], lines[part], schema, source)

    return RawRows(len(rows), convert, indexes, block.located, bad)


def from_json_texts(column: pa.Array, kind: IcebergType, context: ValueContext) -> pa.Array:
    """Convert a column of JSON texts, such as nested values in CSV cells, to a type.

    Raises:
        BadInputError: a text is not JSON or not of the type; the message contains the first one.
    """
    values, defaults = [], json_defaults(parts_of(kind))
    for index, text in enumerate(column.to_pylist()):
        try:
            value = None if not text else loads(text)
        except (ValueError, RecursionError) as error:
            raise context.problem(index, text, kind) from error
        values.append(_shaped(value, kind, context, index, defaults))
    return from_text(pa.array(values, _form(kind)), kind, context)


def _columns_of(
    rows: Sequence[Mapping[str, Any]], lines: Sequence[int], schema: Schema, source: Source
) -> pa.RecordBatch:
    where = source.path
    known = {item.name for item in schema.fields}
    for row, number in zip(rows, lines, strict=True):
        if unknown := row.keys() - known:
            raise BadInputError(
                f"line {number} of {where} has {min(unknown)!r}, which is not a column of the table",
                hint=f"add {Option.EVOLVE} to add new columns",
            )
        if source.needed is not None:
            source.needed.check_row(row, f"{where}, line {number},")  # check: columns-of-objects
    defaults = json_defaults(schema.fields)
    columns = []
    for item in schema.fields:
        context = ValueContext(item.name, where, lines, "line", source.text.forms)
        kind = item.field_type
        lacking = defaults.get(item.field_id)
        values = [
            _shaped(row.get(item.name, lacking), kind, context, index, defaults)
            for index, row in enumerate(rows)
        ]
        columns.append(from_text(pa.array(values, _form(kind)), kind, context))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _form(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, MapType):
        return pa.map_(_form(kind.key_type), _form(kind.value_type))
    if isinstance(kind, StructType):
        return pa.struct([(item.name, _form(item.field_type)) for item in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(_form(kind.element_type))
    if isinstance(kind, _FLOATING):
        return pa.float64()
    return arrow_type(kind) if isinstance(kind, (BooleanType, *INTEGERS)) else pa.string()


def _shaped(
    value: Any, kind: IcebergType, context: ValueContext, index: int, defaults: Mapping[int, Any]
) -> Any:
    """Convert a JSON value for `_form`; `defaults` are those of `json_defaults`."""
    if value is None:
        return None
    if isinstance(kind, StructType) and isinstance(value, Mapping):
        return _shaped_struct(value, kind, context, index, defaults)
    if isinstance(kind, ListType) and isinstance(value, list):
        inner = context.inside("element", counted=True)
        return [_shaped(one, kind.element_type, inner, index, defaults) for one in value]
    if isinstance(kind, MapType) and _pairs(value) is not None:
        keys = context.inside("key", counted=True)
        values = context.inside("value", counted=True)
        return [
            (
                _shaped(key, kind.key_type, keys, index, defaults),
                _shaped(one, kind.value_type, values, index, defaults),
            )
            for key, one in _pairs(value) or ()
        ]
    shaped = _shaped_leaf(value, kind) if kind.is_primitive else None
    if shaped is None:
        raise context.problem(index, json.dumps(value, default=str), kind)
    return shaped


def _pairs(value: Any) -> list[tuple[Any, Any]] | None:
    """Return the entries of a map, which is an object or a list of pairs."""
    if isinstance(value, Mapping):
        return list(value.items())
    paired = isinstance(value, list) and all(
        isinstance(one, list) and len(one) == 2  # noqa: PLR2004 - a pair
        for one in value
    )
    return [(key, one) for key, one in value] if paired else None


def _shaped_struct(
    value: Mapping[str, Any],
    kind: StructType,
    context: ValueContext,
    index: int,
    defaults: Mapping[int, Any],
) -> dict[str, Any]:
    fields = {item.name: item.field_type for item in kind.fields}
    if unknown := value.keys() - fields.keys():
        raise context.inside(min(unknown), counted=True).problem(
            index, json.dumps(value[min(unknown)], default=str), kind
        )
    lacking = {
        item.name: defaults[item.field_id] for item in kind.fields if item.field_id in defaults
    }
    return {
        name: _shaped(one, fields[name], context.inside(name, counted=True), index, defaults)
        for name, one in {**lacking, **value}.items()
    }


def _shaped_leaf(value: Any, kind: IcebergType) -> Any:
    """Convert a leaf's value; None if it is not of the type."""
    if isinstance(kind, BooleanType):
        return value if isinstance(value, bool) else None
    number = isinstance(value, int | Decimal) and not isinstance(value, bool)
    if isinstance(kind, INTEGERS):
        return (
            _shaped_integer(value, 31 if isinstance(kind, IntegerType) else 63) if number else None
        )
    if isinstance(kind, _FLOATING):
        return double_of(value) if number or isinstance(value, str) else None
    if isinstance(kind, DecimalType) and number:
        return str(value)
    return value if isinstance(value, str) else None


def _shaped_integer(value: int | Decimal, bits: int) -> int | None:
    whole = value if isinstance(value, int) else None
    if isinstance(value, Decimal) and value.adjusted() < 20 and value == value.to_integral_value():  # noqa: PLR2004 - longer than any 64-bit integer
        whole = int(value)
    return whole if whole is not None and -(2**bits) <= whole < 2**bits else None


def double_of(value: int | Decimal | str) -> float | None:
    """Return the double of a number, or of a word such as NaN; None if there is none."""
    if isinstance(value, str):
        word = _SPECIAL_DOUBLES.get(value)
        return None if word is None else float(word)
    try:
        double = float(value)
    except OverflowError:
        return None
    return None if double in {float("inf"), float("-inf")} else double
