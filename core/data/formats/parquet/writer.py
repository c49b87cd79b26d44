"""Write a Parquet file with the options of a table's properties, and return its manifest entry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.types import (
    IcebergType,
    ListType,
    MapType,
    NestedField,
    StructType,
    UUIDType,
)

from lake.core.base.errors import BadInputError
from lake.core.data.columns import metrics
from lake.core.data.columns.data_file import NewFile
from lake.core.data.columns.nullability import fill_masked
from lake.core.data.formats.parquet.dictionaries import poor_dictionaries, with_one_dictionary
from lake.core.data.formats.parquet.options import leaf_paths, writer_options
from lake.core.io.storage.storage import Storage
from lake.core.spec.properties.table_properties import PARQUET_ROW_GROUP_BYTES
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.spec.types.type_text import in_iceberg_words
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


@dataclass(slots=True)
class ParquetFormat:
    """The settings of Parquet files with one schema; see `lake.core.data.columns.data_file.FileFormat`.

    Args:
        schema: the columns of the files.
        properties: the table's properties that begin with ``write.``.
        metadata: fields to write to every file's footer.
    """

    schema: Schema
    properties: Mapping[str, str]
    metadata: Mapping[str, str] = field(default_factory=dict)
    arrow: pa.Schema = field(init=False)
    columns: list[metrics.Leaf] = field(init=False)
    modes: dict[int, metrics.Mode] = field(init=False)
    options: dict[str, Any] = field(init=False)
    piece_bytes: int = field(init=False)
    ending = ".parquet"

    def __post_init__(self) -> None:
        self.arrow = _file_schema(self.schema)
        self.columns = metrics.leaves(self.schema)
        self.modes = metrics.modes(self.schema, self.properties)
        self.options = writer_options(self.schema, self.properties)
        self.piece_bytes = PARQUET_ROW_GROUP_BYTES.of(self.properties)

    def create(self, storage: Storage, path: str) -> NewFile:
        """Create a file."""
        return ParquetFile(storage, self, path)


class RowGroups:
    """Encodes row groups into a file.

    Arrow's writer stores the dictionary of a dictionary array without looking at the values. It needs one dictionary
    in a row group, and the type of the column in all of them.
    """

    def __init__(self, file_format: ParquetFormat, sink: Any) -> None:
        self._format = file_format
        self._sink = sink
        self._footer: list[Any] = []
        self._nans = metrics.NanCounter(file_format.columns)
        self._writer: pq.ParquetWriter | None = None

    @property
    def nan_counts(self) -> Mapping[int, int]:
        """How many NaN were written, by the id of the column."""
        return self._nans.counts

    def write(self, table: pa.Table) -> None:
        """Write a row group.

        Raises:
            BadInputError: the rows do not match the schema.
        """
        self._nans.add(table)
        most = self._format.options["dictionary_pagesize_limit"]
        filtered = self._format.options["bloom_filter_options"] or ()
        table = fill_masked(table)
        kept = []
        for index, item in enumerate(table.schema):
            if pa.types.is_dictionary(item.type):
                column = with_one_dictionary(table.column(index), most)
                if column is not None and item.name not in filtered:
                    table = table.set_column(index, item, column)
                    kept.append(item.name)
        writer = self._writer or self._open(kept, [*poor_dictionaries(table, most)])
        if table.schema != writer.schema:
            table = table.cast(writer.schema)
        try:
            writer.write_table(table, row_group_size=max(table.num_rows, 1))
        except pa.ArrowInvalid as error:
            raise BadInputError(
                f"rows do not match the table's schema: {in_iceberg_words(error)}"
            ) from error

    def _open(self, kept: Sequence[str], poor: Sequence[str]) -> pq.ParquetWriter:
        """Return a new writer.

        Args:
            kept: the columns that are dictionary arrays in each row group.
            poor: the columns that get no dictionary.
        """
        schema = pa.schema(
            [
                item.with_type(pa.dictionary(pa.int32(), item.type)) if item.name in kept else item
                for item in self._format.arrow
            ]
        )
        options = {**self._format.options}
        if poor:
            wanted = options["use_dictionary"]
            paths = leaf_paths(self._format.schema) if wanted is True else wanted
            options["use_dictionary"] = [path for path in paths if path not in poor]
        self._writer = pq.ParquetWriter(
            self._sink, schema, metadata_collector=self._footer, **options
        )
        return self._writer

    def close(self) -> Any:
        """Write the footer and return it as PyArrow describes it."""
        writer = self._writer or self._open((), ())
        if self._format.metadata:
            writer.add_key_value_metadata(self._format.metadata)
        writer.close()
        return self._footer[0]

    def abandon(self) -> None:
        """Stop writing."""
        # After an error inside a row group, a footer cannot be written.
        with suppress(RuntimeError, OSError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()


class ParquetFile(NewFile):
    """A Parquet file that is being written."""

    def __init__(self, storage: Storage, file_format: ParquetFormat, path: str) -> None:
        super().__init__(storage, path)
        self._format = file_format
        self._rows = RowGroups(file_format, self._sink)

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        self._rows.write(table)

    def close(self, **described: Any) -> DataFile:
        """Finish the file, make it durable and return its entry with the given additional fields."""
        footer, file_format = self._rows.close(), self._format
        size = self._persist()
        found = metrics.footer_metrics(
            footer, file_format.columns, file_format.modes, self._rows.nan_counts
        )
        return DataFile(
            path=self._path,
            record_count=footer.num_rows,
            size_bytes=size,
            **found.of_entry(),
            split_offsets=tuple(
                row_group_start(footer.row_group(index)) for index in range(footer.num_row_groups)
            ),
            **described,
        )

    def abandon(self) -> None:
        """Stop writing."""
        self._rows.abandon()
        super().abandon()


def row_group_start(group: Any) -> int:
    """Return the offset of a row group's first byte."""
    return chunk_start(group.column(0))


def chunk_start(chunk: Any) -> int:
    """Return the offset of a column chunk's first byte."""
    start = chunk.data_page_offset
    if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
        start = chunk.dictionary_page_offset
    return int(start)


def _file_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema to write: that of lake's batches, with UUIDs as the extension type."""
    pairs = zip(arrow_schema(schema), schema.fields, strict=True)
    return pa.schema([_file_field(item, field) for item, field in pairs])


def _file_field(item: pa.Field, field: NestedField) -> pa.Field:
    return item.with_type(_file_type(item.type, field.field_type))


def _file_type(found: pa.DataType, kind: IcebergType) -> pa.DataType:
    if isinstance(kind, UUIDType):
        return pa.uuid()
    if isinstance(kind, StructType):
        pairs = zip(found, kind.fields, strict=True)
        return pa.struct([_file_field(item, field) for item, field in pairs])
    if isinstance(kind, ListType):
        return pa.list_(_file_field(found.value_field, kind.element_field))
    if isinstance(kind, MapType):
        return pa.map_(
            _file_field(found.key_field, kind.key_field),
            _file_field(found.item_field, kind.value_field),
        )
    return found
