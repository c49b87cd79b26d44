"""Read JSON as batches: one object per line, fast with Arrow, or slowly but exactly if Arrow cannot.

Arrow reads blocks of whole lines. A block that it refuses (for an invalid value, an unknown field, a map, or a
double written as "NaN") is read again by Python's parser, which accepts it or reports line, field and value.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import partial
from typing import Any

import numpy as np
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
    IntegerType,
    ListType,
    LongType,
    MapType,
    NestedField,
    StructType,
    UnknownType,
)

from lake.core.base.arrow import one_array
from lake.core.base.errors import BadInputError
from lake.core.base.options import Option
from lake.core.data.columns.defaults import defaulted_fields, json_defaults, write_column
from lake.core.data.sources.acceptance import (
    BadRow,
    NeededColumns,
    RawRows,
    ValuedRows,
    located_later,
)
from lake.core.data.sources.discovery import Position, Source, open_stream
from lake.core.data.sources.inference import TIMES, InferredType, infer_type, joined
from lake.core.data.sources.json_documents import HINT, LONGEST_OBJECT, is_document, objects
from lake.core.data.sources.text_forms import TextForms
from lake.core.data.sources.text_values import ValueContext, from_text, tidied
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_schema, arrow_type, parts_of

_BLOCK_BYTES = 8 * 1024 * 1024
_DEEPEST = 200
_NO_OBJECT = re.compile(rb"^[ \t\r]*+[^{ \t\r\n]", re.MULTILINE)
# A string that is not closed extends to the end of the line, so that nothing is read twice.
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+(?:"|\\?\Z)', re.DOTALL)
_INTEGERS = (IntegerType, LongType)
_FLOATING = (FloatType, DoubleType)
_DIRECT = (BooleanType, *_INTEGERS, DoubleType, DecimalType)
_ONE_TYPE = (
    f"a new column has the type of its first value; {Option.REJECTS} PATH writes rows of other types to a file and "
    "loads the rest"
)
_WORDS = (
    (pa.types.is_string, "text"),
    (pa.types.is_boolean, "true or false"),
    (pa.types.is_integer, "a number"),
    (pa.types.is_floating, "a number"),
    (pa.types.is_struct, "an object"),
    (pa.types.is_list, "an array"),
)
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
    needed: NeededColumns | None,
) -> RawRows:
    """Return some lines of a block as rows."""
    places = [positions[index] for index in indexes]
    chosen = [lines[place] for place in places]
    numbers = [number for number, _ in chosen]
    block = _Block(b"\n".join(line for _, line in chosen), numbers[0], numbers)
    raw = _BlockRows(schema, replace(source, needed=needed), rejects=rejects)(block)
    return raw._replace(
        numbers=[places[number] for number in raw.numbers],
        locate=located_later,  # check: row-located-in-file
        unreadable=[BadRow(places[row.number], row.reason) for row in raw.unreadable],
    )


def _located(block: _Block, indexes: Sequence[int]) -> tuple[Sequence[int], Sequence[str]]:
    """Return the numbers and the texts of a block's lines, by their positions among those that are not blank."""
    wanted, found = set(indexes), []
    for index, (number, line) in enumerate(_numbered(block)):
        if index in wanted:
            found.append((number, line.decode(errors="replace").strip()))
    return [number for number, _ in found], [text for _, text in found]


def infer_columns(
    storage: Storage,
    source: Source,
    known: Schema | None = None,
    seen: Mapping[str, pa.DataType] | None = None,
    *,
    skip_bad: bool = False,
) -> pa.Schema | None:
    """Return the columns of all lines, with types for all of their values; None for no lines.

    Args:
        storage: the storage of the file.
        source: the file.
        known: the table's columns; a value that is not of such a type is reported when it is read.
        seen: the types of other columns in the files before this one.
        skip_bad: ignore lines that are not objects, or have a value of another type than the lines before: they will
            be rejected.

    Raises:
        BadInputError: a line is not an object, or has a value of another type than the lines before.
    """
    inference = _Inference(source, known, seen or {}, skip_bad=skip_bad)
    for block in _blocks(storage, source):
        inference.add(block)
    return inference.columns()


def first_columns(
    storage: Storage, source: Source, known: Schema | None = None, *, skip_bad: bool = False
) -> pa.Schema | None:
    """Return the columns of the first lines; None if they are not valid, which reading reports."""
    for block in _blocks(storage, source):
        if not skip_bad:
            _refuse_fatal(block, source.path)
        inference = _Inference(source, known, {}, skip_bad=skip_bad)
        try:
            inference.add(block)
        except BadInputError:
            return None
        return inference.columns(refined=False)
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


def _has_infinity(column: pa.Array) -> bool:
    """Whether a number was too large for a double: Arrow reads a long integer as infinity."""
    kind = column.type
    if pa.types.is_floating(kind):
        return bool(pc.any(pc.is_inf(column)).as_py())
    if pa.types.is_struct(kind):
        return any(map(_has_infinity, column.flatten()))
    return bool(pa.types.is_list(kind)) and _has_infinity(column.flatten())


def _check_needed(block: _Block, source: Source, needed: NeededColumns, found: pa.Table) -> None:
    """Refuse a line without a column that it needs.

    Raises:
        BadInputError: there is one.
    """
    present = [found[name] for name in needed.names if name in found.schema.names]
    all_there = len(present) == len(needed.names)
    valid = [column.is_valid().to_numpy() for column in present if column.null_count]
    for index, (number, line) in enumerate(_numbered(block)):
        if all_there and all(column[index] for column in valid):
            continue
        needed.check_row(_parsed_line(line, number, source.path), f"{source.path}, line {number},")


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


class _Inference:
    """The columns of a source so far, inferred from blocks of lines; the arguments are those of `infer_columns`."""

    def __init__(
        self,
        source: Source,
        known: Schema | None,
        seen: Mapping[str, pa.DataType],
        *,
        skip_bad: bool,
    ) -> None:
        self._source = source
        self._skip_bad = skip_bad
        fields = known.fields if known else ()
        self._known = {
            item.name: item.field_type
            for item in fields
            if not isinstance(item.field_type, UnknownType)
        }
        self._seen = seen
        # Texts of files before are compared as what they were taken for, at the end.
        self._types = {
            name: pa.string() if _has_time(kind) else kind for name, kind in seen.items()
        }
        self._texts: dict[str, InferredType] = {}
        # In the order of their first lines.
        self._names: dict[str, None] = {}
        self._has_lines = False

    def add(self, block: _Block) -> None:
        """Add the columns of a block.

        Raises:
            BadInputError: a line is not an object, or has a value of another type than the lines before.
        """
        try:
            _refuse_fatal(block, self._source.path)
            found = _inferred_lines(block, self._source.path)
            types = self._with_types(found.schema, self._types)
        except BadInputError:
            self._add_lines(block)
            return
        self._has_lines = self._has_lines or found.num_rows > 0
        self._types = types
        for name in found.schema.names:
            self._names[name] = None
            if pa.types.is_string(found.schema.field(name).type):
                self._add_texts(name, found.column(name))

    def columns(self, *, refined: bool = True) -> pa.Schema | None:
        """Return the columns; None for no lines.

        Args:
            refined: whether columns of texts that all are times have a type of times.
        """
        columns = [(name, self._type(name, refined=refined)) for name in self._names]
        return pa.schema(columns) if self._has_lines else None

    def _with_types(
        self, found: Iterable[pa.Field], types: Mapping[str, pa.DataType]
    ) -> dict[str, pa.DataType]:
        """Return the types of all columns, with those of more lines.

        Raises:
            BadInputError: a column has another type.
        """
        joint = dict(types)
        for item in found:
            kind = self._known.get(item.name)
            if kind is not None and self._skip_bad:
                if kind.is_primitive:
                    continue
                _check_shape(item.type, kind, item.name)
            joint[item.name] = _joined(types.get(item.name, pa.null()), item.type, item.name)
        return joint

    def _add_lines(self, block: _Block) -> None:
        """Add the lines of a block that Arrow cannot read as a whole, one by one."""
        texts: dict[str, list[str]] = {}
        for number, line in _numbered(block):
            try:
                self._add_line(line, number, texts)
            except BadInputError:
                if not self._skip_bad:
                    raise
        for name, values in texts.items():
            self._add_texts(name, pa.chunked_array([pa.array(values, pa.string())]))

    def _add_line(self, line: bytes, number: int, texts: dict[str, list[str]]) -> None:
        path = self._source.path
        if _depth(line) > _DEEPEST:
            raise _too_deep(number, path)
        row = _parsed_line(line, number, path)
        fields = [(name, value) for name, value in row.items() if not self._is_plain(name)]
        try:
            found = [pa.field(name, _type_of(value, name)) for name, value in fields]
            self._types = self._with_types(found, self._types)
        except BadInputError as error:
            raise BadInputError(
                f"line {number} of {path}: {error.message}", hint=_ONE_TYPE
            ) from error
        self._has_lines = True
        self._names |= dict.fromkeys(row)
        for name, value in fields:
            if isinstance(value, str):
                texts.setdefault(name, []).append(value)

    def _is_plain(self, name: str) -> bool:
        """Whether the values of a column are checked when they are read, and show nothing new."""
        kind = self._known.get(name)
        return kind is not None and kind.is_primitive

    def _add_texts(self, name: str, column: pa.ChunkedArray) -> None:
        kind = _time_kind(column, self._source.text.forms)
        self._texts[name] = joined(self._texts.get(name, InferredType.NOTHING), kind)

    def _type(self, name: str, *, refined: bool) -> pa.DataType:
        known, kind = self._known.get(name), self._types.get(name)
        if known is not None and (kind is None or (self._skip_bad and known.is_primitive)):
            return arrow_type(known)
        if kind is None:
            return pa.null()
        if not (refined and pa.types.is_string(kind)):
            return kind
        texts = self._texts.get(name, InferredType.NOTHING)
        own = texts.arrow if texts in TIMES else kind
        before = self._seen.get(name)
        return before if before is not None and self._skip_bad else own


def _check_shape(found: pa.DataType, kind: IcebergType, name: str) -> None:
    """Refuse a value that no value of a nested type can be; a map may be an object or a list of pairs."""
    is_object, is_array = pa.types.is_struct(found), pa.types.is_list(found)
    if pa.types.is_null(found) or (isinstance(kind, MapType) and (is_object or is_array)):
        return
    if not (is_object if isinstance(kind, StructType) else is_array):
        raise BadInputError(f"column {name} is {_word(found)}, and {kind} in the table")


def _type_of(value: Any, name: str) -> pa.DataType:
    """Return the type of a value of Python's parser.

    Raises:
        BadInputError: no type fits all values of a list, or a number is too large.
    """
    if isinstance(value, bool):
        return pa.bool_()
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return pa.int64()
    if isinstance(value, int | Decimal):
        if _shaped_double(value) is None:
            raise BadInputError(f"column {name} has a number that is too large: {str(value)[:20]}")
        return pa.float64()
    if isinstance(value, str):
        return pa.string()
    if isinstance(value, Mapping):
        return pa.struct([(key, _type_of(one, f"{name}.{key}")) for key, one in value.items()])
    if isinstance(value, list):
        kind, inner = pa.null(), f"{name}.element"
        for one in value:
            kind = _joined(kind, _type_of(one, inner), inner)
        return pa.list_(kind)
    return pa.null()


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


def _joined(first: pa.DataType, second: pa.DataType, name: str) -> pa.DataType:
    """Return the type for the values of both.

    Raises:
        BadInputError: there is none.
    """
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
            parts[item.name] = _joined(inner, item.type, f"{name}.{item.name}")
        return pa.struct(list(parts.items()))
    if pa.types.is_list(first) and pa.types.is_list(second):
        return pa.list_(_joined(first.value_type, second.value_type, f"{name}.element"))
    raise BadInputError(f"column {name} is {_word(second)}, and {_word(first)} in the lines before")


def _word(kind: pa.DataType) -> str:
    """Return what JSON calls values of a type."""
    for test, word in _WORDS:
        if test(kind):
            return word
    return str(kind)
