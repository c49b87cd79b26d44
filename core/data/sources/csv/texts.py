"""Read CSV and TSV files as batches of strings: RFC 4180 quoting, in the form that a `TextFormat` describes.

Every column is read as text and parsed by `lake.core.data.sources.text_values`. So errors can show the invalid value,
and types inferred from the whole file are the types that are read. An empty cell is NULL; ``""`` in quotes is the
empty text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, NamedTuple

import pyarrow as pa
from pyarrow import csv as arrow_csv

from lake.core.base.errors import CorruptFileError
from lake.core.data.sources.csv.lines import BLOCK_BYTES, delimiter_of, ends_in_quotes
from lake.core.data.sources.csv.refusals import RaggedRow, ragged_error, refuse_other_encoding
from lake.core.data.sources.discovery import Position, Source, open_stream
from lake.core.data.sources.text_forms import replaced_nulls
from lake.core.io.storage.storage import Storage

_NO_ROWS = "Empty CSV file"


class TextRows(NamedTuple):
    """Rows with all columns as text, the number of each row, and the ragged rows up to the last of these."""

    batch: pa.RecordBatch
    numbers: Sequence[int]
    ragged: Sequence[RaggedRow]


def column_names(storage: Storage, source: Source) -> list[str] | None:
    """Return the column names in the header; None for an empty file.

    Raises:
        CorruptFileError: the header is not UTF-8, or the rows after it do not have its columns.
    """
    if not source.text.header:
        return list(source.text.names) or None
    with _opened(storage, source) as stream:
        try:
            # Ragged rows are found when the rows are read.
            reader = _open(stream, source, {}, lambda _: "skip")
            return list(reader.schema.names)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if str(error).startswith(_NO_ROWS):
                return None
            refuse_other_encoding(error, storage, source)
            raise


def text_rows(
    storage: Storage,
    source: Source,
    *,
    skip_ragged: bool = False,
    position: Position | None = None,
) -> Iterator[TextRows]:
    """Yield the rows, with all columns as text.

    Args:
        storage: the storage of the file.
        source: the file.
        skip_ragged: leave out ragged rows, and report them with the batch; otherwise one is an error. The last
            batch has no rows and reports the ragged rows after the last good one.
        position: is kept current.

    Raises:
        CorruptFileError: a row is ragged, the file is not UTF-8, or it ends inside a quoted value; the last is
            raised after the last row.
    """
    names = column_names(storage, source)
    if names is None:
        return
    ragged = _RaggedRows(source, skip=skip_ragged)
    types = dict.fromkeys(names, pa.string())
    with _opened(storage, source, position) as stream:
        try:
            reader = _open(stream, source, types, ragged)
            row = 1
            for batch in reader:
                numbers, reported = ragged.numbers(row, batch.num_rows)
                row = numbers[-1] + 1 if len(numbers) else row
                nulls = source.text.forms.nulls
                yield TextRows(replaced_nulls(batch, nulls) if nulls else batch, numbers, reported)
            if rest := ragged.rest():
                yield TextRows(_no_rows(names), (), rest)
        except (pa.ArrowInvalid, UnicodeDecodeError) as error:
            if ragged.fatal is not None:
                raise ragged_error(ragged.fatal, storage, source) from error
            refuse_other_encoding(error, storage, source)
            raise
    # PyArrow accepts such a value. The number of quotes may also be odd because of quotes in unquoted values.
    if stream.quotes % 2 and ends_in_quotes(storage, source):
        raise CorruptFileError(f"{source.path} ends inside a quoted value: the file is incomplete")


def _no_rows(names: Sequence[str]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array([], pa.string()) for name in names})


class _RaggedRows:
    """Receives the rows that PyArrow finds ragged, in the order of the file."""

    def __init__(self, source: Source, *, skip: bool) -> None:
        self._skip = skip
        # PyArrow counts the header and the skipped lines.
        self._above = source.text.skip_rows + source.text.header
        self._pending: list[RaggedRow] = []
        self.fatal: RaggedRow | None = None

    def __call__(self, row: Any) -> str:
        found = RaggedRow(row.number - self._above, row.expected_columns, row.actual_columns)
        if self._skip:
            self._pending.append(found)
            return "skip"
        self.fatal = self.fatal or found
        return "error"

    def numbers(self, first: int, count: int) -> tuple[Sequence[int], Sequence[RaggedRow]]:
        """Return the numbers of the next good rows, and the ragged rows before the last of them."""
        numbers: list[range] = []
        reported = 0
        for item in self._pending:
            good = item.row - first
            if good >= count:
                break
            numbers.append(range(first, item.row))
            first, count = item.row + 1, count - good
            reported += 1
        before, self._pending = self._pending[:reported], self._pending[reported:]
        numbers.append(range(first, first + count))
        if len(numbers) == 1:
            return numbers[0], before
        return [number for part in numbers for number in part], before

    def rest(self) -> Sequence[RaggedRow]:
        """Return the ragged rows after the last good row."""
        return self._pending


@contextmanager
def _opened(
    storage: Storage, source: Source, position: Position | None = None
) -> Iterator[_ReadAhead]:
    """Open a file for PyArrow's reader."""
    with open_stream(storage, source, position) as stream:
        read = _ReadAhead(stream, source.text.quote)
        try:
            yield read
        finally:
            read.end()


class _ReadAhead:
    """A stream that PyArrow reads in a thread of its own, a few blocks ahead; counts the quotes read from it.

    PyArrow does not wait for that thread if its reader is released early, so it may still read while the stream is
    closed.
    """

    closed = False

    def __init__(self, stream: Any, quote: str) -> None:
        self._stream = stream
        self._quote = quote.encode()
        self._reading = Lock()
        self._has_ended = False
        self.quotes = 0

    def read(self, size: int = -1) -> bytes:
        """Read at most ``size`` bytes; none after `end`."""
        with self._reading:
            if self._has_ended:
                return b""
            data = self._stream.read(size)
            if self._quote:
                self.quotes += data.count(self._quote)
            return bytes(data)

    def end(self) -> None:
        """Wait for the call of `read` that is in progress; later ones find the end of the file."""
        with self._reading:
            self._has_ended = True


def _open(stream: Any, source: Source, types: dict[str, pa.DataType], ragged: Any) -> Any:
    text = source.text
    return arrow_csv.open_csv(
        stream,
        read_options=arrow_csv.ReadOptions(
            block_size=BLOCK_BYTES,
            use_threads=False,
            skip_rows=text.skip_rows,
            column_names=None if text.header else text.names,
        ),
        parse_options=arrow_csv.ParseOptions(
            delimiter=delimiter_of(source),
            quote_char=text.quote or False,
            newlines_in_values=bool(text.quote),
            invalid_row_handler=ragged,
        ),
        convert_options=arrow_csv.ConvertOptions(
            column_types=types,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
