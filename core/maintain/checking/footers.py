"""Compare what files say about themselves with the table's metadata: counts, columns, bounds, deletion vectors."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow as pa
from pyiceberg.conversions import from_bytes
from pyiceberg.schema import Schema
from pyiceberg.types import BinaryType, FixedType, StringType, UUIDType

from lake.core.base.errors import BadInputError, RefusedError
from lake.core.data.columns.column_mapping import ColumnMapping
from lake.core.data.columns.file_slice import FileSlice, ReadSettings
from lake.core.data.columns.int96 import schema_of_file
from lake.core.data.columns.metrics import Leaf, Metrics, Mode
from lake.core.data.columns.reading_errors import reading_error
from lake.core.data.columns.type_promotion import promotable
from lake.core.data.deletes.position_files import POSITION_NAMES, POSITION_SCHEMA, read_vector
from lake.core.data.deletes.puffin import MAGIC
from lake.core.data.formats.avro.reader import AvroContainer
from lake.core.data.formats.orc.reader import OrcStripes
from lake.core.data.formats.parquet.footer import open_parquet
from lake.core.data.formats.parquet.row_groups import flat_columns, struct_columns
from lake.core.data.formats.parquet.statistics import TrustedFooter
from lake.core.io.work_ahead import ReadingThreads
from lake.core.maintain.checking.findings import Finding
from lake.core.spec.properties.table_properties import NAME_MAPPING
from lake.core.spec.types.arrow_schema import struct_field_ids
from lake.core.spec.types.type_text import type_text
from lake.core.spec.types.unsupported_columns import has_unsupported
from lake.core.table.manifests.data_files import (
    DATA,
    EQUALITY_DELETES,
    POSITION_DELETES,
    DeleteFile,
)

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table

COLUMNS = (
    "null_value_counts",
    "value_counts",
    "equality_ids",
    "referenced_data_file",
    "content_offset",
    "content_size_in_bytes",
)
_THREADS = 8
_AT_ONCE = 1000
# Some writers truncate the statistics of texts and binaries in footers to this number of bytes, and do not say so.
_TRUNCATED_BYTES = 64
_EXACT = Mode(counts=True, bounds=True)


class DeletedEnds(NamedTuple):
    """The last positions that a delete file in `place` deletes (`file_path` and `position`)."""

    place: str
    last: pa.Table


@dataclass(frozen=True, slots=True)
class FooterReport:
    """What was found in some files."""

    findings: Sequence[Finding]
    ends: Sequence[DeletedEnds]


class Footers:
    """Reads the footers of a table's files, some files at a time."""

    def __init__(self, table: Table) -> None:
        """Take a table; nothing is read yet."""
        self._storage = table.storage
        self._schema = table.schema
        self._specs = table.metadata.specs()
        self._mapping = NAME_MAPPING.of(table.properties)

    def reports(self, entries: pa.Table) -> Iterator[FooterReport]:
        """Yield what the files of entries contradict.

        Args:
            entries: the entries of files that exist, with the `COLUMNS` and those of the metadata level.

        Raises:
            StorageError: the storage does not answer.
        """
        # Python has no values for the dates of many partitions, which are not compared here.
        entries = entries.select([name for name in entries.column_names if name != "partition"])
        with ReadingThreads(_THREADS) as pool:
            for start in range(0, entries.num_rows, _AT_ONCE):
                yield from pool.map(self._report, entries.slice(start, _AT_ONCE).to_pylist())

    def _report(self, row: Mapping[str, Any]) -> FooterReport:
        try:
            if row["content"] == POSITION_DELETES and row["file_format"] == "PUFFIN":
                return self._vector(row)
            with self._storage.open_input(row["file_path"]) as source:
                return FooterReport(self._contradictions(source, row), ())
        except RefusedError as error:
            return FooterReport([Finding("D007", row["file_path"], error.message)], ())
        except BadInputError as error:
            code = "V001" if row["file_format"] == "PUFFIN" else "D001"
            return FooterReport([Finding(code, row["file_path"], error.message)], ())

    def _vector(self, row: Mapping[str, Any]) -> FooterReport:
        path = row["file_path"]
        positions = read_vector(
            self._storage,
            DeleteFile(
                path=path,
                format="PUFFIN",
                content=POSITION_DELETES,
                spec_id=0,
                record_count=row["record_count"],
                size_bytes=row["file_size_in_bytes"],
                sequence_number=0,
                content_offset=row["content_offset"],
                content_size_bytes=row["content_size_in_bytes"],
            ),
        )
        found = []
        # Early versions of DuckDB write vectors without a Puffin file around them.
        if self._storage.read_part(path, 0, len(MAGIC)) != MAGIC:
            found.append(Finding("V007", path, "it is a deletion vector, not a Puffin file"))
        data_file = row["referenced_data_file"]
        if data_file is None:
            return FooterReport(found, ())
        last = pa.table(
            {"file_path": [data_file], "position": pa.array([positions.last], pa.int64())}
        )
        return FooterReport(found, [DeletedEnds(path, last)])

    def _contradictions(self, source: Any, row: Mapping[str, Any]) -> Sequence[Finding]:
        try:
            return list(self._file(source, row))
        except (pa.ArrowException, OSError, UnicodeDecodeError, OverflowError) as error:
            raise reading_error(error, row["file_path"]) from error

    def _file(self, source: Any, row: Mapping[str, Any]) -> Iterator[Finding]:
        path = row["file_path"]
        opened = _open(source, row)
        if opened.rows != row["record_count"]:
            text = f"has {opened.rows} rows, its manifest says {row['record_count']}"
            yield Finding("D002", path, text)
        schema = self._schema if row["content"] == DATA else _delete_schema(row)
        mapping = None
        if schema is not None:
            mapping = ColumnMapping.of(opened.schema, _slice(row), self._settings(schema), ())
            yield from _types(path, mapping)
        if row["content"] != DATA:
            yield from _missing(path, row, opened.schema, mapping)
        elif opened.footer is not None and mapping is not None:
            columns = [
                *flat_columns(opened.parquet, self._schema, mapping.found),
                *struct_columns(opened.parquet, self._schema),
            ]
            found = opened.footer.metrics(columns, {leaf.field_id: _EXACT for _, leaf in columns})
            for position, leaf in columns:
                yield from _nulls(path, leaf, row, found)
                if position not in opened.footer.truncated:
                    yield from _bounds(path, leaf, row, found)

    def _settings(self, schema: Schema) -> ReadSettings:
        names = POSITION_NAMES if schema is POSITION_SCHEMA else self._mapping
        return ReadSettings(projection=schema, schema=schema, specs=self._specs, name_mapping=names)


@dataclass(frozen=True, slots=True)
class _Opened:
    """The rows and columns that a file declares; `parquet` and `footer` are None for other formats."""

    rows: int
    schema: pa.Schema
    parquet: Any = None
    footer: TrustedFooter | None = None


def _open(source: Any, row: Mapping[str, Any]) -> _Opened:
    path, kind = row["file_path"], row["file_format"]
    if kind == "PARQUET":
        parquet, checks = open_parquet(source, path)
        footer = TrustedFooter(parquet, checks.all_groups())
        return _Opened(parquet.metadata.num_rows, schema_of_file(parquet), parquet, footer)
    if kind == "ORC":
        stripes = OrcStripes(source, path)
        return _Opened(stripes.rows, stripes.schema)
    if kind == "AVRO":
        container = AvroContainer(source, path)
        return _Opened(sum(block.objects for block in container.blocks()), container.schema)
    raise RefusedError(f"cannot read data files in format {kind}: {path}")


def _slice(row: Mapping[str, Any]) -> FileSlice:
    return FileSlice(
        path=row["file_path"],
        format=row["file_format"],
        size_bytes=row["file_size_in_bytes"],
        record_count=row["record_count"],
        spec_id=0,
    )


def _delete_schema(row: Mapping[str, Any]) -> Schema | None:
    """Return the columns of a position delete file; None for an equality delete file, whose entry has their ids."""
    return POSITION_SCHEMA if row["content"] == POSITION_DELETES else None


def _types(path: str, mapping: ColumnMapping) -> Iterator[Finding]:
    for item in mapping.wanted:
        found = mapping.found[item.field_id]
        if found is None or has_unsupported(item.field_type):
            continue
        if not promotable(found.type, item.field_type):
            own, wanted = type_text(found.type), type_text(item.field_type)
            text = f"its column {found.name} has the type {own}, the table {wanted}"
            yield Finding("D003", path, text)


def _missing(
    path: str, row: Mapping[str, Any], schema: pa.Schema, mapping: ColumnMapping | None
) -> Iterator[Finding]:
    """Find columns that a delete file lacks."""
    if row["content"] == EQUALITY_DELETES:
        ids = struct_field_ids(schema)
        lost = sorted(set(row["equality_ids"] or ()) - ids) if ids else []
    else:
        wanted = () if mapping is None else mapping.wanted
        lost = [
            item.field_id for item in wanted if mapping and mapping.found[item.field_id] is None
        ]
    if lost:
        yield Finding("D006", path, f"has no column with the id {lost[0]}")


def _of(row: Mapping[str, Any], column: str, leaf: Leaf) -> Any:
    pairs = row[column] or ()
    return next((pair["value"] for pair in pairs if pair["key"] == leaf.field_id), None)


def _nulls(path: str, leaf: Leaf, row: Mapping[str, Any], found: Metrics) -> Iterator[Finding]:
    declared, actual = (
        _of(row, "null_value_counts", leaf),
        found.null_value_counts.get(leaf.field_id),
    )
    if declared is None or actual is None or declared == actual:
        return
    values = _of(row, "value_counts", leaf)
    # Scans skip a file without NULL for IS NULL, and a file of NULLs only for everything else.
    excludes = declared == 0 or (values is not None and declared >= values)
    text = f"its column {'.'.join(leaf.path)} has {actual} NULLs, its manifest says {declared}"
    yield Finding("D005" if excludes else "D008", path, text)


def _bounds(path: str, leaf: Leaf, row: Mapping[str, Any], found: Metrics) -> Iterator[Finding]:
    # Writers do not agree on the order of UUIDs.
    if isinstance(leaf.kind, UUIDType):
        return
    for column, stored, is_upper in (
        ("lower_bounds", found.lower_bounds, False),
        ("upper_bounds", found.upper_bounds, True),
    ):
        declared, actual = _of(row, column, leaf), stored.get(leaf.field_id)
        if declared is None or actual is None:
            continue
        is_text = isinstance(leaf.kind, StringType | BinaryType | FixedType)
        if is_text and len(actual) >= _TRUNCATED_BYTES:
            continue
        side = "upper" if is_upper else "lower"
        # Texts are compared as bytes, which have the same order: some writers store invalid ones.
        kind = BinaryType() if isinstance(leaf.kind, StringType) else leaf.kind
        try:
            bound, value = from_bytes(kind, declared), from_bytes(kind, actual)
        except (ValueError, struct.error):
            text = f"the {side} bound of the column {'.'.join(leaf.path)} is not a {leaf.kind}"
            yield Finding("D004", path, text)
            continue
        if (bound < value) if is_upper else (bound > value):
            text = f"the {side} bound of the column {'.'.join(leaf.path)} in its manifest excludes rows"
            yield Finding("D004", path, text)
