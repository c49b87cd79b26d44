"""Read JSON as batches: one object per line, fast with Arrow, or slowly but exactly if Arrow cannot.

Arrow reads blocks of whole lines. A block that it refuses (for an invalid value, an unknown field, a map, or a
double written as "NaN") is read again by Python's parser, which accepts it or reports line, field and value.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.arrow import one_array
from lake.core.base.errors import BadInputError
from lake.core.data.columns.defaults import defaulted_fields
from lake.core.data.sources.acceptance import (
    BadRow,
    NeededColumns,
    RawRows,
    ValuedRows,
    located_later,
)
from lake.core.data.sources.discovery import Position, Source
from lake.core.data.sources.json.blocks import Block, blocks
from lake.core.data.sources.json.exact import exact_rows
from lake.core.data.sources.json.parsing import parsed_line, refuse_deep, refuse_fatal
from lake.core.data.sources.json.typed import forms_of, not_named, read_block, typed_rows
from lake.core.io.storage.storage import Storage


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
    for block in blocks(storage, source, position):
        if not rejects:
            refuse_fatal(block, source.path)
        found = convert(block)
        if found.size or found.unreadable:
            yield found


class _BlockRows:
    """Converts the blocks of a source to rows of a schema, whose Arrow types are made once."""

    def __init__(self, schema: Schema, source: Source, *, rejects: bool) -> None:
        self._schema, self._source, self._rejects = schema, source, rejects
        self._defaulted = list(defaulted_fields(schema.fields))
        self._whole = forms_of(schema)

    def __call__(self, block: Block) -> RawRows:
        """Return the rows of a block; the caller has refused fatal lines unless rows may be rejected."""
        forms = self._forms_of(block)
        try:
            if self._rejects:
                refuse_fatal(block, self._source.path)
            batch = None if forms is None else typed_rows(block, forms, self._schema, self._source)
        except (pa.ArrowException, UnicodeDecodeError, BadInputError):
            batch = None
        if batch is None:
            return exact_rows(block, self._schema, self._source, rejects=self._rejects)
        return RawRows(batch.num_rows, partial(batch.slice), range(batch.num_rows), block.located)

    def _forms_of(self, block: Block) -> pa.Schema | None:
        if not self._defaulted:
            return self._whole
        return forms_of(self._schema, not_named(self._defaulted, block.data))


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
    for block in blocks(storage, source, position):
        lines = list(block.numbered())
        bad: list[BadRow] = []
        positions: Sequence[int] = range(len(lines))
        found = _fast_values(block, column, kind, source, rejects=rejects)
        if found is None or len(found) != len(lines):
            found, positions, bad = _exact_values(lines, column, source, rejects=rejects)
        yield ValuedRows(
            values=found,
            numbers=positions,
            part=partial(_lines_part, lines, positions, source, rejects),
            locate=block.located,
            unreadable=bad,
        )


def _fast_values(
    block: Block, column: str, kind: pa.DataType, source: Source, *, rejects: bool
) -> pa.StringArray | None:
    """Return the values of a column as Arrow reads them; None if it cannot."""
    try:
        refuse_fatal(block, source.path)
        found = read_block(block.data, pa.schema([(column, kind)]), "ignore")
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
            refuse_deep(line, number, source.path)
            row = parsed_line(line, number, source.path)
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
    block = Block(b"\n".join(line for _, line in chosen), numbers[0], numbers)
    raw = _BlockRows(schema, replace(source, needed=needed), rejects=rejects)(block)
    return raw._replace(
        numbers=[places[number] for number in raw.numbers],
        locate=located_later,  # check: row-located-in-file
        unreadable=[BadRow(places[row.number], row.reason) for row in raw.unreadable],
    )
