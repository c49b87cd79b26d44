"""Rows of CSV files with the types of a table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.data.columns.defaults import write_column
from lake.core.data.sources.acceptance import BadRow, RawRows
from lake.core.data.sources.csv.lines import Lines
from lake.core.data.sources.csv.texts import text_rows
from lake.core.data.sources.discovery import Position, Source
from lake.core.data.sources.json.exact import from_json_texts
from lake.core.data.sources.text_values import ValueContext, from_text
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_schema


def csv_rows(
    storage: Storage,
    source: Source,
    schema: Schema,
    first: int | None,
    position: Position | None,
    *,
    rejects: bool,
) -> Iterator[RawRows]:
    """Yield the rows with the columns of a table's schema, at most `first` of each batch.

    Raises:
        CorruptFileError: as of `text_rows`; a ragged row is reported with the others if rows may be rejected.
    """
    lines = Lines(storage, source)
    for rows in text_rows(storage, source, skip_ragged=rejects, position=position):
        batch, numbers = rows.batch.slice(0, first), rows.numbers[:first]
        yield RawRows(
            size=batch.num_rows,
            convert=partial(csv_part, batch, numbers, source, schema),
            numbers=numbers,
            locate=lines.find_all,
            unreadable=[BadRow(item.row, item.reason) for item in rows.ragged],
        )


def csv_part(
    batch: pa.RecordBatch,
    numbers: Sequence[int],
    source: Source,
    schema: Schema,
    start: int,
    count: int,
) -> pa.RecordBatch:
    """Return some rows of a batch of texts with the columns of a table's schema.

    Args:
        batch: the rows, all columns as text.
        numbers: the number of each of its rows in the file.
        source: the file.
        schema: the table's schema.
        start: the first row that is wanted.
        count: the number of rows.

    Raises:
        BadInputError: a value does not match its column.
    """
    batch, numbers = batch.slice(start, count), numbers[start : start + count]
    if source.needed is not None:
        source.needed.check_rows(batch, numbers, source.path)
    columns = []
    for item in schema.fields:
        if item.name in batch.schema.names:
            context = ValueContext(item.name, source.path, numbers, forms=source.text.forms)
            parse = from_text if item.field_type.is_primitive else from_json_texts
            columns.append(parse(batch.column(item.name), item.field_type, context))
        else:
            columns.append(write_column(item, batch.num_rows))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))
