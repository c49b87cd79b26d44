"""Read a source once and divide its rows by the values of a column; each part may have its own schema."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.base.errors import BadInputError
from lake.core.data.sources.acceptance import (
    BadRow,
    NeededColumns,
    RawRows,
    ValuedRows,
    located_later,
)
from lake.core.data.sources.batches import (
    as_table_rows,
    row_text,
    typed_batches,
    with_needed,
)
from lake.core.data.sources.csv.lines import Lines
from lake.core.data.sources.csv.rows import csv_part
from lake.core.data.sources.csv.texts import text_rows
from lake.core.data.sources.discovery import CSV, JSON, Position, Source, readable
from lake.core.data.sources.json.rows import json_values
from lake.core.io.storage.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def plain_type(kind: pa.DataType) -> pa.DataType | None:
    """Return the type as which values of a column are read to divide rows; None if they have no plain text."""
    types = pa.types
    if types.is_dictionary(kind):
        return plain_type(kind.value_type)
    if types.is_boolean(kind) or types.is_integer(kind):
        return kind
    texts = (types.is_string, types.is_large_string, types.is_string_view)
    # A time is never part of a name, but each such row is reported.
    others = (types.is_null, types.is_date, types.is_timestamp)
    return pa.string() if any(test(kind) for test in (*texts, *others)) else None


def valued_rows(
    storage: Storage,
    source: Source,
    column: str,
    kind: pa.DataType,
    names: Sequence[str],
    *,
    rejects: bool,
    position: Position | None = None,
) -> Iterator[ValuedRows]:
    """Yield a source's rows with the values of a column as text.

    Args:
        storage: the storage of the file.
        source: the file.
        column: the column by which rows are divided. A value of CSV is the cell's text, whatever type it has in a
            table.
        kind: its type, of `plain_type`.
        names: the columns that are read.
        rejects: whether rows that cannot be read are reported with the others; otherwise one is an error.
        position: is kept current.

    Raises:
        CorruptFileError: the file is corrupt.
        BadInputError: the file lacks the column, or a row cannot be read.
    """
    with readable(source.path):
        if source.format == JSON:
            yield from json_values(
                storage, source, column, kind, rejects=rejects, position=position
            )
        elif source.format == CSV:
            yield from _csv_values(storage, source, column, position, rejects=rejects)
        else:
            yield from _typed_values(storage, source, column, names, position)


def _index(schema: pa.Schema, column: str, where: str) -> int:
    index: int = schema.get_field_index(column)
    if index < 0:
        raise BadInputError(f"{where} has no column {column}")
    return index


def _csv_values(
    storage: Storage, source: Source, column: str, position: Position | None, *, rejects: bool
) -> Iterator[ValuedRows]:
    lines = Lines(storage, source)
    for rows in text_rows(storage, source, skip_ragged=rejects, position=position):
        yield ValuedRows(
            values=rows.batch.column(_index(rows.batch.schema, column, source.path)),
            numbers=rows.numbers,
            part=partial(_csv_rows, rows.batch, rows.numbers, source),
            locate=lines.find_all,
            unreadable=[BadRow(item.row, item.reason) for item in rows.ragged],
        )


def _csv_rows(
    batch: pa.RecordBatch,
    numbers: Sequence[int],
    source: Source,
    indexes: Sequence[int],
    schema: Schema,
    needed: NeededColumns | None,
) -> RawRows:
    part, chosen = _taken(batch, numbers, indexes)
    convert = partial(csv_part, part, chosen, replace(source, needed=needed), schema)
    return RawRows(part.num_rows, convert, chosen, located_later)


def _typed_values(
    storage: Storage,
    source: Source,
    column: str,
    names: Sequence[str],
    position: Position | None,
) -> Iterator[ValuedRows]:
    for first, batch, types in typed_batches(storage, source, names, position):
        values = batch.column(_index(batch.schema, column, source.path))
        if pa.types.is_dictionary(values.type):
            values = values.dictionary_decode()
        numbers = range(first, first + batch.num_rows)
        yield ValuedRows(
            values=values.cast(pa.string()),
            numbers=numbers,
            part=partial(_typed_rows, batch, numbers, types, source),
            locate=partial(_located, batch, first),
        )


def _located(
    batch: pa.RecordBatch, first: int, numbers: Sequence[int]
) -> tuple[Sequence[int], Sequence[str]]:
    return numbers, [row_text(batch, number - first) for number in numbers]


def _typed_rows(
    batch: pa.RecordBatch,
    numbers: Sequence[int],
    types: pa.Schema | None,
    source: Source,
    indexes: Sequence[int],
    schema: Schema,
    needed: NeededColumns | None,
) -> RawRows:
    part, chosen = _taken(batch, numbers, indexes)

    def convert(start: int, count: int) -> pa.RecordBatch:
        rows = chosen[start : start + count]
        return as_table_rows(part.slice(start, count), schema, source.path, rows, types)

    raw = RawRows(part.num_rows, convert, chosen, located_later)
    return raw if needed is None else with_needed(raw, part, needed, source.path)


def _taken(
    batch: pa.RecordBatch, numbers: Sequence[int], indexes: Sequence[int]
) -> tuple[pa.RecordBatch, Sequence[int]]:
    if len(indexes) == batch.num_rows:
        return batch, numbers
    return batch.take(pa.array(indexes, pa.int64())), [numbers[index] for index in indexes]
