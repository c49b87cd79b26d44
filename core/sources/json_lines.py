"""Read JSON as batches: one object per line, fast with Arrow, or slowly but exactly if Arrow cannot.

Arrow reads blocks of whole lines. A block that it refuses (for an invalid value, an unknown field, a map, or a
double written as "NaN") is read again by Python's parser, which accepts it or reports line, field and value.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import json as arrow_json
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
    NestedField,
    StructType,
)

from lake.core.arrow import one_array
from lake.core.columns.defaults import defaulted_fields, json_defaults, write_column
from lake.core.errors import BadInputError
from lake.core.options import Option
from lake.core.sources.acceptance import BadRow, RawRows, ValuedRows, located_later
from lake.core.sources.discovery import Position, Source, open_stream
from lake.core.sources.inference import TIMES, InferredType, infer_type, joined
from lake.core.sources.json_documents import HINT, LONGEST_OBJECT, is_document, objects
from lake.core.sources.text_forms import TextForms
from lake.core.sources.text_values import ValueContext, from_text, tidied
from lake.core.storage.storage import Storage
from lake.core.types.arrow_schema import arrow_schema, arrow_type, parts_of

_BLOCK_BYTES = 8 * 1024 * 1024
_DEEPEST = 200
_NO_OBJECT = re.compile(rb"^[ \t\r]*+[^{ \t\r\n]", re.MULTILINE)
# A string that is not closed extends to the end of the line, so that nothing is read twice.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_INTEGERS = (IntegerType, LongType)
_FLOATING = (FloatType, DoubleType)
_DIRECT = (BooleanType, *_INTEGERS, DoubleType, DecimalType)
_SPECIAL_DOUBLES = {"NaN": "nan", "Infinity": "inf", "+Infinity": "inf", "-Infinity": "-inf"}


@dataclass(frozen=True, slots=True)
class _Block:
    """Objects, one per line, and the numbers of their lines in the file, from 1.

    `first_line` is the number of the first one. The others follow one another unless `numbers` has all of them.
    """

    data: bytes
    first_line: int
    numbers: Sequence[int] = ()

    def line(self, index: int) -> int:
        """Return the number of a line in the file, by its position in the block."""
        return (
            self.numbers[min(index, len(self.numbers) - 1)]
            if self.numbers
            else self.first_line + index
        )


def json_rows(
    storage: Storage,
    source: Source,
    schema: Schema,
    *,
    rejects: bool,
    position: Position | None = None,
) -> Iterator[RawRows]:
    """Yield the rows, which have the schema's columns; a column that a line does not have gets its write default.

    Args:
        storage: the storage of the file.
        source: the file.
        schema: the table's schema.
        rejects: whether lines that are not valid objects are reported with the rows; otherwise one is an error.
        position: is kept current.

    Raises:
        BadInputError: a line is not an object; for a value that does not match its column, the rows raise it.
    """
    convert = _BlockRows(schema, source, rejects=rejects)
    for block in _blocks(storage, source, position):
        if not rejects:
            _refuse_fatal(block, source.path)
        found = convert(block)
        if found.size or found.unreadable:
            yield found


class _BlockRows:
    """Converts the blocks of a source to rows of a schema, whose Arrow types are made once."""

    def __init__(self, schema: Schema, source: Source, *, rejects: bool) -> None:
        self._schema, self._source, self._rejects = schema, source, rejects
        self._defaulted = list(defaulted_fields(schema.fields))
        self._whole = _forms(schema)

    def __call__(self, block: _Block) -> RawRows:
        """Return the rows of a block; the caller has refused fatal lines unless rows may be rejected."""
        forms = self._forms_of(block)
        try:
            if self._rejects:
                _refuse_fatal(block, self._source.path)
            batch = None if forms is None else _fast(block, forms, self._schema, self._source)
        except (pa.ArrowException, UnicodeDecodeError, BadInputError):
            batch = None
        if batch is None:
            return _exact(block, self._schema, self._source, rejects=self._rejects)
        return RawRows(
            batch.num_rows, partial(batch.slice), range(batch.num_rows), partial(_located, block)
        )

    def _forms_of(self, block: _Block) -> pa.Schema | None:
        if not self._defaulted:
            return self._whole
        return _forms(self._schema, _not_named(self._defaulted, block.data))


def json_values(
    storage: Storage,
    source: Source,
    column: str,
    kind: pa.DataType,
    *,
    rejects: bool,
    position: Position | None = None,
) -> Iterator[ValuedRows]:
    """Yield the rows with the values of a column, by which they are divided.

    Args:
        storage: the storage of the file.
        source: the file.
        column: the column.
        kind: the type of its values: text, integer or Boolean.
        rejects: as in `json_rows`.
        position: is kept current.

    Raises:
        BadInputError: a line is not an object, or its value is not of the type.
    """
    for block in _blocks(storage, source, position):
        lines = list(_numbered(block))
        bad: list[BadRow] = []
        positions: Sequence[int] = range(len(lines))
        found = _fast_values(block, column, kind, source, rejects=rejects)
        if found is None or len(found) != len(lines):
            found, positions, bad = _exact_values(lines, column, source, rejects=rejects)
        yield ValuedRows(
            values=found,
            numbers=positions,
            part=partial(_lines_part, lines, positions, source, rejects),
            locate=partial(_located, block),
            unreadable=bad,
        )


def _fast_values(
    block: _Block, column: str, kind: pa.DataType, source: Source, *, rejects: bool
) -> pa.StringArray | None:
    """Return the values of a column as Arrow reads them; None if it cannot."""
    try:
        _refuse_fatal(block, source.path)
        found = _read(block.data, pa.schema([(column, kind)]), "ignore")
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    except BadInputError:
        if not rejects:
            raise
        return None
    if column not in found.schema.names:
        return None
    values = one_array(found[column])
    # Arrow does not find a name with an escaped character.
    is_hidden = values.null_count and b"\\u" in block.data
    return None if is_hidden else values.cast(pa.string())


def _exact_values(
    lines: Sequence[tuple[int, bytes]], column: str, source: Source, *, rejects: bool
) -> tuple[pa.StringArray, list[int], list[BadRow]]:
    """Return the values of a column, the positions of their lines, and the lines that are not valid objects."""
    values: list[str | None] = []
    positions: list[int] = []
    bad: list[BadRow] = []
    for index, (number, line) in enumerate(lines):
        try:
            if _depth(line) > _DEEPEST:
                raise _too_deep(number, source.path)
            row = _parsed_line(line, number, source.path)
            values.append(_plain_text(row.get(column), column, number, source.path))
        except BadInputError as error:
            if not rejects:
                raise
            bad.append(BadRow(index, error.message))
            continue
        positions.append(index)
    return pa.array(values, pa.string()), positions, bad


def _plain_text(value: Any, column: str, number: int, where: str) -> str | None:
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool | int):
        return json.dumps(value)
    raise BadInputError(
        f"column {column} of {where}, line {number}: {json.dumps(value, default=str)} is not text, an integer or "
        "a Boolean"
    )


def _lines_part(
    lines: Sequence[tuple[int, bytes]],
    positions: Sequence[int],
    source: Source,
    rejects: bool,  # noqa: FBT001 - the first arguments of a partial
    indexes: Sequence[int],
    schema: Schema,
) -> RawRows:
    """Return some lines of a block as rows."""
    places = [positions[index] for index in indexes]
    chosen = [lines[place] for place in places]
    numbers = [number for number, _ in chosen]
    block = _Block(b"\n".join(line for _, line in chosen), numbers[0], numbers)
    raw = _BlockRows(schema, source, rejects=rejects)(block)
    return raw._replace(
        numbers=[places[number] for number in raw.numbers],
        locate=located_later,
        unreadable=[BadRow(places[row.number], row.reason) for row in raw.unreadable],
    )


def _located(block: _Block, indexes: Sequence[int]) -> tuple[Sequence[int], Sequence[str]]:
    """Return the numbers and the texts of a block's lines, by their positions among those that are not blank."""
    wanted, found = set(indexes), []
    for index, (number, line) in enumerate(_numbered(block)):
        if index in wanted:
            found.append((number, line.decode(errors="replace").strip()))
    return [number for number, _ in found], [text for _, text in found]


def infer_columns(storage: Storage, source: Source, *, skip_bad: bool = False) -> pa.Schema | None:
    """Return the columns of all lines, with types for all of their values; None for no lines.

    Args:
        storage: the storage of the file.
        source: the file.
        skip_bad: ignore lines that are not objects.

    Raises:
        BadInputError: a line is not an object, or a column has values without a common type.
    """
    types: dict[str, pa.DataType] = {}
    texts: dict[str, InferredType] = {}
    seen = False
    for block in _blocks(storage, source):
        found = _inferred(block, source.path, skip_bad=skip_bad)
        seen = seen or found.num_rows > 0
        for name in found.schema.names:
            column = found.column(name)
            types[name] = _joined(types.get(name, pa.null()), column.type, name, source.path)
            if pa.types.is_string(column.type):
                kind = _time_kind(column, source.text.forms)
                texts[name] = joined(texts.get(name, InferredType.NOTHING), kind)
    refined = {name: kind.arrow for name, kind in texts.items() if kind in TIMES}
    columns = [(name, refined.get(name, kind)) for name, kind in types.items()]
    return pa.schema(columns) if seen else None


def first_columns(storage: Storage, source: Source, *, skip_bad: bool = False) -> pa.Schema | None:
    """Return the columns of the first lines; None if they are not valid, which reading reports."""
    for block in _blocks(storage, source):
        if not skip_bad:
            _refuse_fatal(block, source.path)
        try:
            found = _inferred(block, source.path, skip_bad=skip_bad)
        except BadInputError:
            return None
        return found.schema if found.num_rows else None
    return None


def from_json_texts(column: pa.Array, kind: IcebergType, context: ValueContext) -> pa.Array:
    """Convert a column of JSON texts, such as nested values in CSV cells, to a type.

    Raises:
        BadInputError: a text is not JSON or not of the type; the message contains the first one.
    """
    values, defaults = [], json_defaults(parts_of(kind))
    for index, text in enumerate(column.to_pylist()):
        try:
            value = None if not text else _loads(text)
        except (ValueError, RecursionError) as error:
            raise context.problem(index, text, kind) from error
        values.append(_shaped(value, kind, context, index, defaults))
    return from_text(pa.array(values, _exact_form(kind)), kind, context)


# Blocks of lines


def _blocks(storage: Storage, source: Source, position: Position | None = None) -> Iterator[_Block]:
    with open_stream(storage, source, position) as stream:
        head = bytes(stream.read(_BLOCK_BYTES))
        cut = _object_blocks if is_document(head) else _line_blocks
        yield from cut(stream, head, source.path)


def _object_blocks(stream: Any, head: bytes, where: str) -> Iterator[_Block]:
    """Yield the objects of an array, or objects that extend over several lines."""
    found: list[bytes] = []
    numbers: list[int] = []
    size = 0
    for line, text in objects(stream, head, where):
        found.append(text)
        numbers.append(line)
        size += len(text)
        if size >= _BLOCK_BYTES:
            yield _Block(b"\n".join(found), numbers[0], numbers)
            found, numbers, size = [], [], 0
    if found:
        yield _Block(b"\n".join(found), numbers[0], numbers)


def _line_blocks(stream: Any, head: bytes, where: str) -> Iterator[_Block]:
    """Yield whole lines."""
    rest, line, data = bytearray(), 1, head
    while data:
        end = data.rfind(b"\n") + 1
        if end == 0:
            rest += data
            if len(rest) > LONGEST_OBJECT:
                raise BadInputError(
                    f"line {line} of {where} is longer than {LONGEST_OBJECT} bytes", hint=HINT
                )
        else:
            block = _Block(bytes(rest) + data[:end], line)
            yield block
            line += block.data.count(b"\n")
            rest = bytearray(data[end:])
        data = bytes(stream.read(_BLOCK_BYTES))
    if rest.strip():
        yield _Block(bytes(rest), line)


def _refuse_fatal(block: _Block, where: str) -> None:
    """Refuse lines that crash Arrow's reader and the process: deeply nested ones, and lines such as `null`.

    Raises:
        BadInputError: a line is of this kind.
    """
    data = block.data
    lines = data.count(b"\n") + (not data.endswith(b"\n"))
    if data.count(b"\n{") + data.startswith(b"{") != lines and _NO_OBJECT.search(data):
        for _ in _lines(block, where):
            pass
    if data.count(b"[") + data.count(b"{") <= _DEEPEST:
        return
    raw = np.frombuffer(data, np.uint8)
    ends = np.append(np.flatnonzero(raw == ord("\n")), len(raw))
    opened = np.cumsum((raw == ord("[")) | (raw == ord("{")))
    at_ends = np.concatenate(([0], opened[np.minimum(ends, len(raw) - 1)]))
    for index in np.flatnonzero(np.diff(at_ends) > _DEEPEST).tolist():
        start = int(ends[index - 1]) + 1 if index else 0
        if _depth(data[start : int(ends[index])]) > _DEEPEST:
            raise _too_deep(block.line(index), where)


def _too_deep(line: int, where: str) -> BadInputError:
    return BadInputError(f"line {line} of {where} is nested more than {_DEEPEST} levels deep")


def _depth(line: bytes) -> int:
    """Return the nesting depth of a line."""
    raw = np.frombuffer(_STRING.sub(b"", line), np.uint8)
    opens = ((raw == ord("[")) | (raw == ord("{"))).astype(np.int64)
    closes = (raw == ord("]")) | (raw == ord("}"))
    return int(np.max(np.cumsum(opens - closes), initial=0))


# Arrow's reader


def _forms(schema: Schema, left_out: Collection[int] = ()) -> pa.Schema | None:
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


def _not_named(fields: Sequence[NestedField], data: bytes) -> frozenset[int]:
    """Return the ids of the fields whose quoted names do not occur in the lines.

    A name with an escaped character is unexpected to Arrow, so those lines are read by Python's parser.
    """
    return frozenset(item.field_id for item in fields if f'"{item.name}"'.encode() not in data)


def _read(data: bytes, schema: pa.Schema | None, unexpected: str) -> pa.Table:
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


def _fast(block: _Block, forms: pa.Schema, schema: Schema, source: Source) -> pa.RecordBatch | None:
    """Return the rows; None if Arrow cannot distinguish NULL from a missing field with a default."""
    found = _read(block.data, forms, "error")
    columns = []
    for item in schema.fields:
        if item.name in found.schema.names:
            column = one_array(found[item.name])
            if _null_with_default(item, column):
                return None
            context = ValueContext(item.name, source.path, forms=source.text.forms)
            columns.append(from_text(column, item.field_type, context))
        else:
            columns.append(write_column(item, found.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


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


# Python's parser


def _exact(block: _Block, schema: Schema, source: Source, *, rejects: bool = False) -> RawRows:
    """Return the rows of a block; with ``rejects`` also the lines that are not valid objects."""
    rows: list[dict[str, Any]] = []
    lines: list[int] = []
    indexes: list[int] = []
    bad: list[BadRow] = []
    for index, (number, line) in enumerate(_numbered(block)):
        try:
            if rejects and _depth(line) > _DEEPEST:
                raise _too_deep(number, source.path)
            row = _parsed_line(line, number, source.path)
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

    return RawRows(len(rows), convert, indexes, partial(_located, block), bad)


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
        columns.append(from_text(pa.array(values, _exact_form(kind)), kind, context))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _lines(block: _Block, where: str) -> Iterator[tuple[int, dict[str, Any]]]:
    for number, line in _numbered(block):
        yield number, _parsed_line(line, number, where)


def _numbered(block: _Block) -> Iterator[tuple[int, bytes]]:
    """Yield the lines that are not blank, with their numbers in the file."""
    for index, line in enumerate(block.data.split(b"\n")):
        if line.strip():
            yield block.line(index), line


def _parsed_line(line: bytes, number: int, where: str) -> dict[str, Any]:
    text = line.decode("utf-8-sig" if number == 1 else "utf-8", errors="replace")
    try:
        row = _loads(text)
    except (ValueError, RecursionError) as error:
        raise BadInputError(
            f"line {number} of {where} cannot be read: {error}", hint=HINT
        ) from error
    if not isinstance(row, dict):
        raise BadInputError(f"line {number} of {where} is not a JSON object", hint=HINT)
    if "\ufffd" in text and b"\xef\xbf\xbd" not in line:
        raise BadInputError(f"line {number} of {where} is not UTF-8")
    return row


def _loads(text: str) -> Any:
    value = json.loads(text, parse_float=Decimal, object_pairs_hook=_no_duplicates)
    if "\\u" in text:
        try:
            json.dumps(value, default=str, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise ValueError("a lone surrogate") from error
    return value


def _no_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) != len(pairs):
        raise ValueError("an object has a name twice")
    return row


def _exact_form(kind: IcebergType) -> pa.DataType:
    if isinstance(kind, MapType):
        return pa.map_(_exact_form(kind.key_type), _exact_form(kind.value_type))
    if isinstance(kind, StructType):
        return pa.struct([(item.name, _exact_form(item.field_type)) for item in kind.fields])
    if isinstance(kind, ListType):
        return pa.list_(_exact_form(kind.element_type))
    if isinstance(kind, _FLOATING):
        return pa.float64()
    return arrow_type(kind) if isinstance(kind, (BooleanType, *_INTEGERS)) else pa.string()


def _shaped(
    value: Any, kind: IcebergType, context: ValueContext, index: int, defaults: Mapping[int, Any]
) -> Any:
    """Convert a JSON value for `_exact_form`; `defaults` are those of `json_defaults`."""
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
    if isinstance(kind, _INTEGERS):
        return (
            _shaped_integer(value, 31 if isinstance(kind, IntegerType) else 63) if number else None
        )
    if isinstance(kind, _FLOATING):
        return _shaped_double(value) if number or isinstance(value, str) else None
    if isinstance(kind, DecimalType) and number:
        return str(value)
    return value if isinstance(value, str) else None


def _shaped_integer(value: int | Decimal, bits: int) -> int | None:
    whole = value if isinstance(value, int) else None
    if isinstance(value, Decimal) and value.adjusted() < 20 and value == value.to_integral_value():  # noqa: PLR2004 - longer than any 64-bit integer
        whole = int(value)
    return whole if whole is not None and -(2**bits) <= whole < 2**bits else None


def _shaped_double(value: int | Decimal | str) -> float | None:
    if isinstance(value, str):
        word = _SPECIAL_DOUBLES.get(value)
        return None if word is None else float(word)
    try:
        double = float(value)
    except OverflowError:
        return None
    return None if double in {float("inf"), float("-inf")} else double


# Inference


def _inferred(block: _Block, where: str, *, skip_bad: bool) -> pa.Table:
    try:
        _refuse_fatal(block, where)
        return _inferred_lines(block, where)
    except BadInputError:
        if not skip_bad:
            raise
    good = [line for number, line in _numbered(block) if _is_object(line, number, where)]
    return _inferred_lines(_Block(b"\n".join(good), block.first_line), where)


def _is_object(line: bytes, number: int, where: str) -> bool:
    try:
        _parsed_line(line, number, where)
    except BadInputError:
        return False
    return _depth(line) <= _DEEPEST


def _inferred_lines(block: _Block, where: str) -> pa.Table:
    try:
        found = _read(block.data, None, "infer")
        timed = [item for item in found.schema if _has_time(item.type)]
        if timed:
            # Arrow infers whole seconds for times and drops their zones.
            texts = pa.schema([item.with_type(_without_times(item.type)) for item in found.schema])
            found = _read(block.data, texts, "error")
    except (pa.ArrowException, UnicodeDecodeError) as error:
        for _ in _lines(block, where):  # raises an error for an unreadable line
            pass
        end = block.line(block.data.count(b"\n"))
        raise BadInputError(
            f"{where} cannot be read between lines {block.first_line} and {end}: {error}",
            hint=HINT,
        ) from error
    return found


def _has_time(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_time(kind.field(index).type) for index in range(kind.num_fields))
    if pa.types.is_list(kind):
        return _has_time(kind.value_type)
    return bool(pa.types.is_timestamp(kind))


def _without_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_without_times(item.type)) for item in kind])
    if pa.types.is_list(kind):
        return pa.list_(_without_times(kind.value_type))
    return pa.string() if pa.types.is_timestamp(kind) else kind


def _time_kind(column: pa.ChunkedArray, forms: TextForms) -> InferredType:
    """Return the type of time in a column of strings, TEXT if any is not a time."""
    texts = one_array(column)
    if tidied(texts).null_count > texts.null_count:
        return InferredType.TEXT
    kind = infer_type(texts, forms)
    return kind if kind in TIMES or kind is InferredType.NOTHING else InferredType.TEXT


def _joined(first: pa.DataType, second: pa.DataType, name: str, where: str) -> pa.DataType:
    if first == second or pa.types.is_null(second):
        return first
    if pa.types.is_null(first):
        return second
    if {first, second} == {pa.int64(), pa.float64()}:
        return pa.float64()
    if pa.types.is_struct(first) and pa.types.is_struct(second):
        parts = {item.name: item.type for item in first}
        for item in second:
            inner = parts.get(item.name, pa.null())
            parts[item.name] = _joined(inner, item.type, f"{name}.{item.name}", where)
        return pa.struct(list(parts.items()))
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(_joined(first.value_type, second.value_type, f"{name}.element", where))
    raise BadInputError(f"column {name} of {where} is {first} in some lines and {second} in others")
