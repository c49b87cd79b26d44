"""Columns of a source whose values are in an Arrow file beside it: a row for each row of the source, in its order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.errors import CorruptFileError
from lake.core.data.sources.acceptance import RawRows

if TYPE_CHECKING:
    from lake.core.data.sources.discovery import Source

# Returns rows with the columns of a schema; the last arguments are the source's name and the rows' numbers.
Convert = Callable[[pa.RecordBatch, Schema, str, Sequence[int]], pa.RecordBatch]


def write_added(path: str, values: pa.RecordBatch) -> None:
    """Write the values of added columns to a new file of this machine."""
    with pa.OSFile(path, "wb") as file, pa.ipc.new_file(file, values.schema) as writer:
        writer.write_batch(values)


def added_schema(path: str) -> pa.Schema:
    """Return the added columns of a file that `write_added` wrote."""
    with pa.OSFile(path) as file:
        return pa.ipc.open_file(file).schema


def with_added(
    parts: Iterator[RawRows], source: Source, schema: Schema, convert: Convert
) -> Iterator[RawRows]:
    """Yield rows of a source with the values of its added columns.

    Raises:
        CorruptFileError: the numbers of rows differ.
    """
    with pa.OSFile(str(source.added)) as file:
        values = pa.ipc.open_file(file).get_batch(0)
    added = Schema(*(item for item in schema.fields if item.name in values.schema.names))
    done = 0
    for raw in parts:
        # Together, the numbers of the rows and of those that cannot be read have no gap; the first one may be any.
        numbers = [*raw.numbers[:1], *(item.number for item in raw.unreadable)]
        first = done - min(numbers, default=0)
        done += raw.size + len(raw.unreadable)
        if done > values.num_rows:
            break
        rows = _AddedRows(raw, [first + number for number in raw.numbers], values, added)
        yield raw._replace(convert=partial(rows.converted, source.path, convert))
    if done != values.num_rows:
        raise CorruptFileError(
            f"{source.path} has {done} rows or more, but its added columns have {values.num_rows}"
        )


@dataclass(frozen=True, slots=True)
class _AddedRows:
    """Rows of a source, and the places of their values in the added columns."""

    raw: RawRows
    places: Sequence[int]
    values: pa.RecordBatch
    schema: Schema

    def converted(self, where: str, convert: Convert, start: int, count: int) -> pa.RecordBatch:
        """Return some of the rows with all columns."""
        batch = self.raw.convert(start, count)
        places = self.places[start : start + count]
        chosen = self.values.take(pa.array(places, pa.int64()))
        added = convert(chosen, self.schema, where, [place + 1 for place in places])
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        columns.update(zip(added.schema.names, added.columns, strict=True))
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=batch.schema)
