"""Read the columns of a source, and its rows with the types of a table, in batches of bounded size.

Columns are matched by name; field ids in a Parquet file belong to another table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any
from zlib import crc32

import pyarrow as pa

from lake.core.base import locations
from lake.core.base.errors import BadInputError, CorruptFileError, RefusedError
from lake.core.base.options import Option
from lake.core.data.columns.defaults import write_column
from lake.core.data.columns.type_promotion import convert
from lake.core.data.formats.avro.reader import AvroContainer
from lake.core.data.formats.ipc.reader import open_ipc
from lake.core.data.formats.ipc.shared_values import longest_shared
from lake.core.data.formats.orc.reader import OrcStripes
from lake.core.data.formats.parquet.batch_sizes import batch_rows
from lake.core.data.formats.parquet.chunk_checks import ChunkChecks
from lake.core.data.formats.parquet.footer import batches_of_group, check_group, open_parquet
from lake.core.data.formats.parquet.legacy_calendar import is_legacy, refuse_old_times
from lake.core.data.formats.parquet.page_sizes import refuse_large_pages
from lake.core.data.formats.parquet.row_groups import chunk_ranges, leaf_indexes, row_groups_of
from lake.core.data.formats.parquet.types import source_schema, variant_columns
from lake.core.data.sources.acceptance import EVERY_ROW, Acceptance, NeededColumns, RawRows
from lake.core.data.sources.added_columns import added_schema, with_added
from lake.core.data.sources.csv.columns import csv_columns
from lake.core.data.sources.csv.rows import csv_rows
from lake.core.data.sources.csv.texts import column_names
from lake.core.data.sources.discovery import (
    ARROW,
    AVRO,
    CSV,
    JSON,
    ORC,
    PARQUET,
    Position,
    Source,
    changed_source,
    readable,
)
from lake.core.data.sources.json.inference import first_columns, infer_columns
from lake.core.data.sources.json.rows import json_rows
from lake.core.data.sources.text_values import ValueContext, first_refused
from lake.core.data.sources.type_notes import TypeNote
from lake.core.io.objects.large_file import LargeFile
from lake.core.io.storage.storage import Storage
from lake.core.spec.types.arrow_schema import arrow_schema

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import NestedField

# PyArrow's message about lost nanoseconds.
_LOST_NANOSECONDS = re.compile(r"Casting from time(stamp(tz)?_ns)? to .* would lose data")
_ROUND = "round the values to microseconds"
_KEEP_NANOSECONDS = (
    f"format version 3 supports timestamp_ns and timestamptz_ns: {Option.CREATE} with {Option.PROPERTIES} "
    "format-version=3 creates such columns for times with nanoseconds"
)
_MOST_COLUMNS = 10_000
_BATCH_BYTES = 16 * 1024 * 1024
_BATCH_ROWS = 64 * 1024


def source_columns(
    storage: Storage,
    source: Source,
    known: Schema | None,
    *,
    infer: bool,
    notes: list[TypeNote] | None = None,
    seen: Mapping[str, pa.DataType] | None = None,
    skip_bad: bool = False,
) -> pa.Schema | None:
    """Return a source's columns; None if a text file is empty, or must be read to find them.

    Args:
        storage: the storage of the file.
        source: the file.
        known: the table's columns, which define the types of CSV columns.
        infer: infer the types of other columns of text files from the whole file.
        notes: receives the reasons for which columns are inferred as text.
        seen: the types of new columns of JSON in the files before this one.
        skip_bad: ignore rows that cannot be read, or do not fit: they will be rejected.
    """
    if source.format == JSON:
        with readable(source.path):
            columns = (
                infer_columns(storage, source, known, seen, skip_bad=skip_bad)
                if infer
                else first_columns(storage, source, known, skip_bad=skip_bad)
            )
    else:
        columns = _columns(storage, source, known, infer=infer, notes=notes, skip_bad=skip_bad)
    if columns is not None and source.added is not None:
        columns = pa.schema([*columns, *added_schema(source.added)])
    if columns is not None:
        _refuse_many(source, len(columns))
    return columns


def _refuse_many(source: Source, columns: int) -> None:
    if columns > _MOST_COLUMNS:
        raise BadInputError(
            f"{source.path} has {columns} columns, but lake reads at most {_MOST_COLUMNS}"
        )


def _columns(
    storage: Storage,
    source: Source,
    known: Schema | None,
    *,
    infer: bool,
    notes: list[TypeNote] | None,
    skip_bad: bool,
) -> pa.Schema | None:
    with readable(source.path):
        if source.format == PARQUET:
            with storage.open_source(source.path) as file:
                parquet, checks = open_parquet(file, source.path)
                for index in range(parquet.metadata.num_row_groups):
                    # A feature of a column that is not read does not matter.
                    with suppress(pa.ArrowNotImplementedError):
                        checks.group(index)
                return _parquet_schema(parquet, source.path)
        if source.format in (ORC, AVRO):
            with storage.open_source(source.path) as file:
                opened = _opened(file, source)
                return (
                    opened.rows.source_schema
                    if isinstance(opened, AvroContainer)
                    else opened.schema
                )
        if source.format == ARROW:
            with _open_arrow(storage, source.path) as (schema, _):
                return schema
        names = column_names(storage, source)
        if names is None:
            return None
        _refuse_many(source, len(names))
        return csv_columns(
            storage, source, names, known, infer=infer, notes=notes, skip_bad=skip_bad
        )


def _parquet_schema(parquet: Any, path: str) -> pa.Schema:
    if names := variant_columns(parquet):
        raise RefusedError(
            f"column {names[0]} of {path} is Parquet's VARIANT, which lake cannot read",
            hint="write its values to the file as text, or as columns of other types",
        )
    return source_schema(parquet)


def source_batches(
    storage: Storage,
    source: Source,
    schema: Schema,
    acceptance: Acceptance = EVERY_ROW,
    *,
    first: int | None = None,
    position: Position | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield a source's rows with exactly the columns of a table's schema.

    A column that is not in the source gets its write default, or NULL.

    Args:
        storage: the storage of the file.
        source: the file.
        schema: the table's schema.
        acceptance: decides which rows are loaded.
        first: the number of rows that are wanted of each batch of CSV; None for all.
        position: is kept current for CSV, JSON and Parquet.

    Raises:
        CorruptFileError: the file is corrupt.
        BadInputError: a value does not match its column; the message contains the first such value.
    """
    with readable(source.path):
        rejects = acceptance.rejects is not None
        if source.format == JSON:
            parts = json_rows(storage, source, schema, rejects=rejects, position=position)
        elif source.format == CSV:
            parts = csv_rows(storage, source, schema, first, position, rejects=rejects)
        else:
            parts = _typed_rows(storage, source, schema, position)
        if source.added is not None:
            parts = with_added(parts, source, schema, as_table_rows)
        for part in parts:
            batch = acceptance.accepted(part, source.path)
            if batch.num_rows or source.format != JSON:
                yield batch


def _typed_rows(
    storage: Storage, source: Source, schema: Schema, position: Position | None
) -> Iterator[RawRows]:
    names = [item.name for item in schema.fields]
    for first_row, batch, types in typed_batches(storage, source, names, position):
        raw = raw_table_rows(batch, schema, source.path, first_row, types)
        yield raw if source.needed is None else with_needed(raw, batch, source.needed, source.path)


def with_needed(raw: RawRows, batch: pa.RecordBatch, needed: NeededColumns, where: str) -> RawRows:
    """Return rows of a typed source that are not converted if they lack a column that they need."""

    def convert(start: int, count: int) -> pa.RecordBatch:
        needed.check_rows(batch.slice(start, count), raw.numbers[start : start + count], where)
        return raw.convert(start, count)

    return raw._replace(convert=convert)


def typed_batches(
    storage: Storage, source: Source, names: Sequence[str], position: Position | None = None
) -> Iterator[tuple[int, pa.RecordBatch, pa.Schema | None]]:
    """Yield the rows of a file that has types.

    Args:
        storage: the storage of the file.
        source: the file.
        names: the columns to read; other formats than Parquet yield all columns.
        position: is kept current for Parquet.

    Yields:
        the number of the batch's first row, the batch, and the types in the file if PyArrow reads other types.
    """
    if source.format == PARQUET:
        yield from _parquet_batches(storage, source, names, position)
        return
    for first_row, batch in _TYPED[source.format](storage, source):
        yield first_row, batch, None


def raw_table_rows(
    batch: pa.RecordBatch,
    schema: Schema,
    where: str,
    first_row: int | None = None,
    types: pa.Schema | None = None,
) -> RawRows:
    """Return rows of a typed source; the arguments are those of `as_table_rows`.

    The number of the first row is None if the rows have none in their file.
    """
    first = first_row or 1
    numbers = range(first, first + batch.num_rows)

    def convert(start: int, count: int) -> pa.RecordBatch:
        part = numbers[start : start + count]
        return as_table_rows(batch.slice(start, count), schema, where, part, types)

    def locate(wanted: Sequence[int]) -> tuple[Sequence[int | None], Sequence[str]]:
        lines = [None if first_row is None else number for number in wanted]
        return lines, [row_text(batch, number - first) for number in wanted]

    return RawRows(batch.num_rows, convert, numbers, locate)


def row_text(batch: pa.RecordBatch, index: int) -> str:
    """Return a row of a batch as text."""
    values = [f"{name}: {_shown(batch.column(name)[index])}" for name in batch.schema.names]
    return ", ".join(values)


def as_table_rows(
    batch: pa.RecordBatch,
    schema: Schema,
    where: str,
    numbers: Sequence[int],
    types: pa.Schema | None = None,
) -> pa.RecordBatch:
    """Return a batch of rows with the columns of a table's schema, matched by name.

    A column that is not in the batch gets its write default, or NULL.

    Args:
        batch: the rows as read from the file.
        schema: the table's schema.
        where: the file's name, for errors.
        numbers: the number of each row in the file, for errors.
        types: the types of the columns in the file, if PyArrow reads them as other types.

    Raises:
        BadInputError: a value does not match its column; the message contains the first such value.
    """
    columns = []
    for item in schema.fields:
        index = batch.schema.get_field_index(item.name)
        if index < 0:
            columns.append(write_column(item, batch.num_rows))
        else:
            context = ValueContext(item.name, where, numbers)
            labels = None if types is None else types.field(item.name).type
            columns.append(_converted(batch.column(index), item, context, labels))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))


def _converted(
    column: pa.Array, item: NestedField, context: ValueContext, labels: pa.DataType | None
) -> pa.Array:
    def attempt(part: pa.Array) -> pa.Array:
        return convert(part, item, context.where, by_name=True, labels=labels)

    try:
        return attempt(column)
    except CorruptFileError as error:
        # The file is valid, but does not match the table.
        raise BadInputError(error.message) from error
    except BadInputError as error:
        index = first_refused(column, attempt, BadInputError)
        problem = context.problem(index, _shown(column[index]), item.field_type)
        raise _with_reason(problem, error) from error


def _with_reason(problem: BadInputError, error: BadInputError) -> BadInputError:
    """Return the error for a value, with the reason if its nanoseconds would be lost."""
    if not _LOST_NANOSECONDS.search(error.message):
        return problem
    return BadInputError(
        f"{problem.message}: it has nanoseconds, but the table's column has microseconds",
        hint=_KEEP_NANOSECONDS if "_ns to" in error.message else _ROUND,
    )


def _shown(value: pa.Scalar) -> Any:
    try:
        return value.as_py()
    except (OverflowError, ValueError):
        # A time outside the range of Python's datetime.
        return str(value.cast(pa.string()).as_py())


# Parquet


def _parquet_batches(
    storage: Storage, source: Source, names: Sequence[str], position: Position | None
) -> Iterator[tuple[int, pa.RecordBatch, pa.Schema]]:
    """Yield batches of columns, each with the number of its first row and the types in the file."""
    with storage.open_source(source.path) as file:
        parquet, checks = open_parquet(file, source.path)
        if source.version not in {None, _version(file, checks)}:  # check: one-version-of-source
            raise changed_source(source.path)
        types, legacy = source_schema(parquet), is_legacy(parquet)
        footer = parquet.metadata
        present = parquet.schema_arrow.names
        columns = None if set(present) <= set(names) else [x for x in present if x in names]
        leaves = leaf_indexes(parquet, present if columns is None else columns)
        counts = [footer.row_group(index).num_rows for index in range(footer.num_row_groups)]
        chosen = range(len(counts)) if source.row_groups is None else source.row_groups
        done, total = 0, max(sum(counts[index] for index in chosen), 1)
        if position is not None:
            position.follow(lambda: done / total)
        for index in chosen:
            row = first = 1 + sum(counts[:index])
            check_group(
                parquet, checks, source.path, index, present if columns is None else columns
            )
            if isinstance(file, LargeFile):
                file.fetch(chunk_ranges(parquet, index, leaves))
            refuse_large_pages(parquet, file, source.path, index, leaves)
            size = batch_rows(
                parquet, file, index, leaves, _BATCH_BYTES, _BATCH_BYTES, path=source.path
            )
            size = min(size, _BATCH_ROWS)
            for batch in batches_of_group(parquet, source.path, index, columns, size):
                batch.validate(full=True)
                if legacy:  # check: julian-dates
                    refuse_old_times(batch, source.path)
                done += batch.num_rows
                yield row, batch, types
                row += batch.num_rows
            if row - first != counts[index]:
                raise CorruptFileError(
                    f"{source.path} has {row - first} rows in a row group that should have {counts[index]}"
                )


def split_parquet(storage: Storage, source: Source, target_bytes: int) -> Sequence[Source]:
    """Cut a large Parquet file into pieces of whole row groups."""
    if source.format != PARQUET or source.size_bytes <= target_bytes:
        return [source]
    with readable(source.path), storage.open_source(source.path) as file:
        parquet, checks = open_parquet(file, source.path)
        starts = [start for start, _ in row_groups_of(parquet.metadata, checks)]
        version = _version(file, checks)
    ends = [*starts[1:], source.size_bytes]
    pieces: list[tuple[int, list[int]]] = []
    for index, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if not pieces or end - pieces[-1][0] > target_bytes:
            pieces.append((start, []))
        pieces[-1][1].append(index)
    return [
        Source(
            path=source.path,
            format=PARQUET,
            size_bytes=max(ends[groups[-1]] - start, 0),
            row_groups=tuple(groups),
            version=version,
            needed=source.needed,
        )
        for start, groups in pieces
    ]


def _version(file: Any, checks: ChunkChecks) -> str:
    """Return the checksum of the footer of an open file, and the ETag of an object."""
    return f"{crc32(checks.footer)} {file.tag if isinstance(file, LargeFile) else ''}"


# ORC and Avro


def _opened(file: Any, source: Source) -> OrcStripes | AvroContainer:
    if source.format == ORC:
        return OrcStripes(file, source.path, exact=True)
    return AvroContainer(file, source.path)


def _file_batches(storage: Storage, source: Source) -> Iterator[tuple[int, pa.RecordBatch]]:
    with storage.open_source(source.path) as file:
        for start, batch in _opened(file, source).all_rows(_BATCH_BYTES):
            yield start + 1, batch


# Arrow IPC


def _arrow_batches(storage: Storage, source: Source) -> Iterator[tuple[int, pa.RecordBatch]]:
    row = 1
    with _open_arrow(storage, source.path) as (_, batches):
        for batch in batches:
            # Offsets in a corrupt file are arbitrary; even computing its size may crash the process.
            batch.validate(full=True)
            rows = min(_BATCH_ROWS, batch.num_rows * _BATCH_BYTES // max(batch.nbytes, 1))
            rows = max(
                1, min(rows, _BATCH_BYTES // max(map(longest_shared, batch.columns), default=1))
            )
            for start in range(0, batch.num_rows, rows):
                part = batch.slice(start, rows)
                yield row, part
                row += part.num_rows


@contextmanager
def _open_arrow(
    storage: Storage, path: str
) -> Iterator[tuple[pa.Schema, Iterator[pa.RecordBatch]]]:
    """Open an Arrow IPC file or stream. Local files are memory-mapped, so that large batches stay on disk."""
    location = locations.parse(path)
    opened = pa.memory_map(location.path) if location.is_local else storage.open_source(path)
    with opened as file:
        yield open_ipc(file, path)


_TYPED = {
    ORC: _file_batches,
    AVRO: _file_batches,
    ARROW: _arrow_batches,
}
