"""Encode columns as text without a loop over rows: cells for CSV, values and lines for JSON.

The text is exact: times as ISO 8601, decimals with all digits, binaries as base64, UUIDs with hyphens, NaN and the
infinities as words in quotes. A map with text keys is an object; any other map is a list of pairs.
`lake.core.data.sources.text_values` and `lake.core.data.sources.json.exact` read all of these.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    UUIDType,
)

from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.base.plain import base64_text

_NULL = "null"
_BARE = (BooleanType, IntegerType, LongType)
_FLOATING = (FloatType, DoubleType)
_NESTED = (StructType, ListType, MapType)
# Characters that must be escaped in JSON.
_SPECIAL = r'["\\\x00-\x1f]'
# Arrow's text for a time outside its calendar.
_NO_TIME = "<value out of range"


def json_lines(batch: pa.RecordBatch, schema: Schema) -> pa.StringArray:
    """Return each row as a JSON object followed by a newline.

    Args:
        batch: rows with the columns of ``schema``, in their order.
        schema: the types of the columns.
    """
    kinds = [(field.name, field.field_type) for field in schema.fields]
    if not kinds:
        return pa.array(["{}\n"] * batch.num_rows, pa.string())
    return _join(*_object(kinds, batch.columns), "\n")


def cells(column: pa.Array, kind: IcebergType) -> pa.Array:
    """Return a column as text, with NULL for NULL; nested values as JSON.

    Raises:
        BadInputError: a time is outside the years that can be written.
    """
    if isinstance(kind, _NESTED):
        return pc.if_else(column.is_null(), pa.scalar(None, pa.string()), json_values(column, kind))
    if isinstance(kind, StringType):
        return column
    if isinstance(kind, UUIDType):
        return _each(column, lambda value: str(uuid.UUID(bytes=value)))
    if isinstance(kind, BinaryType | FixedType):
        return _each(column, base64_text)
    if not pa.types.is_temporal(column.type):
        return column.cast(pa.string())
    zone = getattr(column.type, "tz", None)
    # Arrow checks the range of the calendar only for types without a zone.
    local = column.cast(pa.timestamp(column.type.unit)) if zone else column
    texts = _times(local.cast(pa.string()), kind)
    return _join(texts, "Z") if zone else texts


def json_values(column: pa.Array, kind: IcebergType) -> pa.Array:
    """Return a column as JSON; NULL becomes ``null``."""
    values = _json_of(column, kind)
    return pc.if_else(column.is_null(), _NULL, values) if column.null_count else values


def _json_of(column: pa.Array, kind: IcebergType) -> pa.Array:
    if isinstance(kind, StructType):
        return _join(*_object([(f.name, f.field_type) for f in kind.fields], column.flatten()))
    if isinstance(kind, ListType):
        return _joined(column, json_values(column.values, kind.element_type), "[", "]")
    if isinstance(kind, MapType):
        return _map(column, kind)
    if isinstance(kind, _BARE):
        return column.cast(pa.string())
    if isinstance(kind, _FLOATING):
        return _floats(column)
    return _quoted(cells(column, kind))


def _object(kinds: Sequence[tuple[str, IcebergType]], columns: Sequence[pa.Array]) -> list[Any]:
    """Return the parts of JSON objects, to be joined row by row."""
    parts: list[Any] = []
    for (name, kind), column in zip(kinds, columns, strict=True):
        start = ", " if parts else "{"
        parts += [f"{start}{json.dumps(name, ensure_ascii=False)}: ", json_values(column, kind)]
    return [*parts, "}"]


def _map(column: pa.MapArray, kind: MapType) -> pa.Array:
    keys, items = (
        json_values(column.keys, kind.key_type),
        json_values(column.items, kind.value_type),
    )
    if isinstance(kind.key_type, StringType):
        return _joined(column, _join(keys, ": ", items), "{", "}")
    return _joined(column, _join("[", keys, ", ", items, "]"), "[", "]")


def _joined(column: Any, values: pa.Array, start: str, end: str) -> pa.Array:
    """Join the texts of each list's values with commas."""
    offsets = column.offsets.cast(pa.int32())
    lists = pa.ListArray.from_arrays(offsets, values)
    return _join(start, pc.binary_join(lists, ", "), end)


def _floats(column: pa.Array) -> pa.Array:
    texts = column.cast(pa.string())
    whole = pc.match_substring_regex(texts, r"^-?[0-9]+$")
    # A reader that infers types must not read 1.0 as an integer.
    texts = pc.if_else(whole, _join(texts, ".0"), texts)
    if pc.all(pc.is_finite(column), min_count=0).as_py():
        return texts
    for word, shown in (("nan", '"NaN"'), ("inf", '"Infinity"'), ("-inf", '"-Infinity"')):
        texts = pc.if_else(pc.equal(texts, word), shown, texts)
    return texts


def _quoted(texts: pa.Array) -> pa.Array:
    special = pc.fill_null(pc.match_substring_regex(texts, _SPECIAL), fill_value=False)
    simple = _join('"', texts, '"')
    if not pc.any(special, min_count=0).as_py():
        return simple
    escaped = [json.dumps(text, ensure_ascii=False) for text in texts.filter(special).to_pylist()]
    return pc.replace_with_mask(simple, special, pa.array(escaped, pa.string()))


def _times(texts: pa.Array, kind: IcebergType) -> pa.Array:
    if pc.any(pc.starts_with(texts, _NO_TIME), min_count=0).as_py():
        raise BadInputError(
            f"a {kind} is outside the years that text can represent",
            hint=f"write Parquet ({Option.OUTPUT_FORMAT} parquet) to keep it",
        )
    return pc.replace_substring(texts, " ", "T", max_replacements=1)


def _each(column: pa.Array, text: Callable[[bytes], str]) -> pa.Array:
    values = [None if value is None else text(value) for value in column.to_pylist()]
    return pa.array(values, pa.string())


def _join(*parts: Any) -> pa.Array:
    return pc.binary_join_element_wise(*parts, "")
