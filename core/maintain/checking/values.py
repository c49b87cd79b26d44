"""Read all values of files, and compare them with what manifests say.

Files are read with the readers that scans use, several at a time, in batches of bounded size. Checksums of pages are
verified where a file has them.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.transforms import UnknownTransform, VoidTransform
from pyiceberg.types import DoubleType, FloatType, StringType, UnknownType, UUIDType

from lake.core.base.arrow import nested_field, one_array
from lake.core.base.errors import BadInputError, RefusedError
from lake.core.data.columns.metrics import Metrics, Mode
from lake.core.data.columns.metrics_collector import ColumnMetrics, Counted, nested_columns
from lake.core.data.columns.reading_errors import reading_error
from lake.core.data.deletes.equality_files import read_deleted_keys
from lake.core.data.deletes.position_files import read_positions
from lake.core.data.keys.columns import key_schema
from lake.core.data.rows.reader import FileSlice, ReadSettings, read_batches
from lake.core.io.work_ahead import ReadingThreads
from lake.core.maintain.checking.findings import Finding
from lake.core.maintain.checking.footers import DeletedEnds, FooterReport
from lake.core.spec.properties.table_properties import NAME_MAPPING
from lake.core.spec.types.arrow_schema import field_path
from lake.core.spec.types.bounds import comparable, decode_bounds
from lake.core.spec.types.single_values import from_single_values, source_type
from lake.core.spec.types.transforms import transformed_values, unfit
from lake.core.spec.types.unsupported_columns import has_unsupported
from lake.core.table.manifests.data_files import (
    DATA,
    EQUALITY_DELETES,
    DataFile,
    DeleteFile,
)
from lake.core.table.manifests.entries import files_of
from lake.core.table.snapshots.delete_scopes import PUFFIN, all_schemas

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField
    from pyiceberg.types import IcebergType

    from lake.core.table.catalogs.catalog import Table

COLUMNS = ("nan_value_counts",)
_THREADS = min(4, os.cpu_count() or 1)
_AT_ONCE = 1000
_EXACT = Mode(counts=True, bounds=True)


class Values:
    """Reads the values of a table's files, some files at a time."""

    def __init__(self, table: Table) -> None:
        """Take a table; nothing is read yet."""
        self._storage = table.storage
        self._specs = table.metadata.specs()
        self._schemas = all_schemas(table.metadata)
        self._table_schema = table.schema
        readable = [item for item in table.schema.fields if not has_unsupported(item.field_type)]
        self._schema = Schema(*readable)
        self._settings = ReadSettings(
            projection=self._schema,
            schema=table.schema,
            specs=self._specs,
            name_mapping=NAME_MAPPING.of(table.properties),
        )
        self._columns = [
            Counted(item.field_id, item.field_type, path, _EXACT)
            for path, item in nested_columns(self._schema)
            if item.field_type.is_primitive and not isinstance(item.field_type, UnknownType)
        ]

    def reports(self, entries: pa.Table, spec_id: int) -> Iterator[FooterReport]:
        """Yield what the values in files contradict.

        Raises:
            StorageError: the storage does not answer.
        """
        spec, schema = self._specs[spec_id], self._table_schema
        with ReadingThreads(_THREADS) as pool:
            for start in range(0, entries.num_rows, _AT_ONCE):
                some = entries.slice(start, _AT_ONCE)
                files = [
                    file
                    for file in files_of(some, spec=spec, schema=schema)
                    if file.format != PUFFIN
                ]
                yield from pool.map(self._report, files)

    def _report(self, file: DataFile) -> FooterReport:
        try:
            return self._checked(file)
        except RefusedError as error:
            return FooterReport([Finding("D007", file.path, error.message)], ())
        except BadInputError as error:
            return FooterReport([Finding("D009", file.path, error.message)], ())

    def _checked(self, file: DataFile) -> FooterReport:
        try:
            if file.content == DATA:
                return FooterReport(list(self._data(file)), ())
            if file.content == EQUALITY_DELETES:
                return FooterReport(list(self._keys(file)), ())
            return FooterReport((), [DeletedEnds(file.path, self._last_positions(file))])
        except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
            raise reading_error(error, file.path) from error

    def _data(self, file: DataFile) -> Iterator[Finding]:
        metrics = ColumnMetrics(self._columns)
        partition = _PartitionValues(file, self._specs[file.spec_id].fields, self._table_schema)
        rows = 0
        for batch in read_batches(self._storage, FileSlice.of(file), self._settings):
            rows += batch.num_rows
            metrics.add(pa.Table.from_batches([batch]))
            partition.add(batch)
        yield from _count(file, rows)
        yield from partition.findings()
        found = metrics.metrics()
        for column in self._columns:
            if len(column.path) == 1:
                yield from _counts(file, column, found)
            if not isinstance(column.kind, UUIDType):
                yield from _bounds(file, column, found)

    def _keys(self, file: DataFile) -> Iterator[Finding]:
        ids = file.equality_ids or ()
        types = key_schema(ids, self._schemas)
        settings = ReadSettings(
            projection=types,
            schema=types,
            specs={},
            name_mapping=self._settings.name_mapping,
            key_types=types,
        )
        read = read_deleted_keys(self._storage, [_delete_file(file)], ids, settings)
        yield from _count(file, sum(batch.num_rows for batch, _ in read))

    def _last_positions(self, file: DataFile) -> pa.Table:
        """Return the last deleted position of each data file that a position delete file names."""
        found = pa.table(
            {"file_path": pa.array([], pa.string()), "position": pa.array([], pa.int64())}
        )
        for batch in read_positions(self._storage, _delete_file(file)):
            rows = pa.table(
                {"file_path": batch.column(0).cast(pa.string()), "position": batch.column(1)}
            )
            grouped = pa.concat_tables([found, rows]).group_by("file_path")
            largest = grouped.aggregate([("position", "max")])
            found = largest.rename_columns({"position_max": "position"})
        return found


class _PartitionValues:
    """Compares the partition of a data file with its rows."""

    def __init__(self, file: DataFile, fields: Sequence[PartitionField], schema: Schema) -> None:
        self._file = file
        self._schema = schema
        self._bad: set[str] = set()
        self._expected: list[tuple[PartitionField, IcebergType, pa.Array]] = []
        for field, value in zip(fields, file.partition, strict=True):
            kind = source_type(field.source_id, [schema])
            known = schema.find_column_name(field.source_id)
            is_compared = not isinstance(field.transform, VoidTransform | UnknownTransform)
            if known is None or not is_compared or isinstance(kind, _NOT_COMPARED):
                continue
            result = field.transform.result_type(kind)
            self._expected.append((field, kind, from_single_values([value], result)))

    def add(self, batch: pa.RecordBatch) -> None:
        """Compare rows."""
        for field, kind, expected in self._expected:
            source = _column(batch, self._schema, field.source_id)
            if field.name in self._bad or source is None:
                continue
            values = transformed_values(source, kind, field.transform)
            if pc.any(unfit(source, values), min_count=0).as_py():
                # No value of the field is that of the row.
                same = pa.array([False])
            elif expected.null_count:
                same = pc.is_null(values)
            else:
                same = pc.fill_null(
                    pc.equal(values.cast(expected.type), expected[0]), fill_value=False
                )
            if not pc.all(same, min_count=0).as_py():
                self._bad.add(field.name)

    def findings(self) -> Iterator[Finding]:
        """Yield the partition fields that rows contradict."""
        for name in sorted(self._bad):
            text = f"it has rows with another value of the partition field {name}"
            yield Finding("P001", self._file.path, text)


_NOT_COMPARED = (FloatType, DoubleType, UUIDType)


def _column(batch: pa.RecordBatch, schema: Schema, source_id: int) -> pa.Array | None:
    path = field_path(schema, source_id)
    if path is None or path[0].name not in batch.schema.names:
        return None
    column = batch.column(path[0].name)
    return one_array(nested_field(column, (item.name for item in path[1:])))


def _delete_file(file: DataFile) -> DeleteFile:
    return DeleteFile(
        path=file.path,
        format=file.format,
        content=file.content,
        spec_id=file.spec_id,
        record_count=file.record_count,
        size_bytes=file.size_bytes,
        sequence_number=0,
        equality_ids=file.equality_ids,
    )


def _count(file: DataFile, rows: int) -> Iterator[Finding]:
    if rows != file.record_count:
        text = f"has {rows} rows, its manifest says {file.record_count}"
        yield Finding("D002", file.path, text)


def _counts(file: DataFile, column: Counted, found: Metrics) -> Iterator[Finding]:
    for noun, declared, actual in (
        ("NULLs", file.null_value_counts, found.null_value_counts),
        ("NaNs", file.nan_value_counts, found.nan_value_counts),
    ):
        number, count = declared.get(column.field_id), actual.get(column.field_id)
        if number is None or count is None or number == count:
            continue
        values = file.value_counts.get(column.field_id)
        excludes = number == 0 or (values is not None and number >= values)
        text = f"its column {column.path[0]} has {count} {noun}, its manifest says {number}"
        yield Finding("D005" if excludes else "D008", file.path, text)


def _bounds(file: DataFile, column: Counted, found: Metrics) -> Iterator[Finding]:
    for side, stored, actual in (
        ("lower", file.lower_bounds, found.lower_bounds),
        ("upper", file.upper_bounds, found.upper_bounds),
    ):
        bound = _ordered(stored, column)
        value = _ordered(actual, column)
        if bound is None or value is None:
            continue
        if (bound > value) if side == "lower" else (bound < value):
            name = ".".join(column.path)
            text = f"the {side} bound of the column {name} in its manifest excludes rows"
            yield Finding("D004", file.path, text)


def _ordered(bounds: Mapping[int, bytes], column: Counted) -> Any:
    """Return a bound as a value that can be compared; None if it is not a value of the column's type."""
    raw = bounds.get(column.field_id)
    if raw is None or isinstance(column.kind, StringType):
        return raw
    value = comparable(decode_bounds(pa.array([raw], pa.binary()), column.kind), column.kind)[0]
    found = value.as_py()
    return None if isinstance(found, float) and np.isnan(found) else found
