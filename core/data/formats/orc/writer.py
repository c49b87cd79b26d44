"""Write an ORC file, and return its manifest entry."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.orc

from lake.core.base.arrow import one_array
from lake.core.base.errors import BadInputError, CorruptFileError
from lake.core.data.columns.data_file import NewFile
from lake.core.data.columns.metrics_collector import ColumnMetrics, Counted, counted_columns
from lake.core.data.columns.nullability import null_in_required
from lake.core.data.formats.orc.reader import open_orc
from lake.core.data.formats.orc.tail import OrcTail
from lake.core.data.formats.orc.timestamps import check_times
from lake.core.data.formats.orc.types import column_numbers, orc_schema
from lake.core.io.storage.storage import Storage
from lake.core.spec.properties.table_properties import (
    ORC_BLOOM_COLUMNS,
    ORC_BLOOM_FPP,
    ORC_CODEC,
    ORC_STRATEGY,
    ORC_STRIPE_BYTES,
)
from lake.core.spec.types.arrow_schema import arrow_schema
from lake.core.spec.types.type_text import in_iceberg_words
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

_BLOCK_BYTES = 64 * 1024
# Rows to write at once. With more rows than a batch, PyArrow would slice nested columns, which it writes wrongly
# (see `_with_nulls`).
_BATCH_ROWS = 4 * 1024
# The estimated size in the file of buffered rows, as a fraction of their size in memory.
_PACKED = 0.25
_CODECS = {
    "zlib": "zlib",
    "zstd": "zstd",
    "snappy": "snappy",
    "lz4": "lz4",
    "none": "uncompressed",
    "uncompressed": "uncompressed",
}


@dataclass(slots=True)
class OrcFormat:
    """The settings of ORC files with one schema; see `lake.core.data.columns.data_file.FileFormat`.

    Args:
        schema: the columns of the files.
        properties: the table's properties that begin with ``write.``.
    """

    schema: Schema
    properties: Mapping[str, str]
    arrow: pa.Schema = field(init=False)
    required: pa.Schema = field(init=False)
    columns: list[Counted] = field(init=False)
    options: dict[str, Any] = field(init=False)
    piece_bytes: int = field(init=False)
    ending = ".orc"

    def __post_init__(self) -> None:
        self.arrow = orc_schema(self.schema)
        self.required = arrow_schema(self.schema)
        self.columns = counted_columns(self.schema, self.properties)
        self.piece_bytes = ORC_STRIPE_BYTES.of(self.properties)
        self.options = {
            "file_version": "0.12",
            "batch_size": _BATCH_ROWS,
            "stripe_size": self.piece_bytes,
            "compression": _CODECS[ORC_CODEC.of(self.properties)],
            "compression_block_size": _BLOCK_BYTES,
            "compression_strategy": ORC_STRATEGY.of(self.properties),
            "bloom_filter_columns": self._bloom_filter_columns(),
            "bloom_filter_fpp": ORC_BLOOM_FPP.of(self.properties),
        }

    def _bloom_filter_columns(self) -> list[int]:
        """Return the ORC numbers of the columns with a Bloom filter."""
        numbers = column_numbers(self.schema)
        names = [name.strip() for name in ORC_BLOOM_COLUMNS.of(self.properties).split(",")]
        return [numbers[name] for name in names if name in numbers]

    def create(self, storage: Storage, path: str) -> OrcFile:
        """Create a file."""
        return OrcFile(storage, self, path)


class OrcFile(NewFile):
    """An ORC file that is being written."""

    def __init__(self, storage: Storage, file_format: OrcFormat, path: str) -> None:
        super().__init__(storage, path)
        self._form = file_format
        self._writer = pyarrow.orc.ORCWriter(self._sink, **file_format.options)
        self._metrics = ColumnMetrics(file_format.columns)
        self._rows = 0
        self._flushed = 0
        self._waiting = 0

    @property
    def size(self) -> int:
        """The bytes written so far and the estimated size of the unfinished stripe."""
        flushed = int(self._sink.tell())
        if flushed > self._flushed:
            self._flushed, self._waiting = flushed, 0
        return flushed + int(self._waiting * _PACKED)

    def write(self, table: pa.Table) -> None:
        """Write rows."""
        for start in range(0, table.num_rows, _BATCH_ROWS):
            part = table.slice(start, _BATCH_ROWS)
            self._metrics.add(part)
            self._check_required(part)
            part = _rows(part, self._form.arrow)
            check_times(part)
            try:
                self._writer.write(pa.Table.from_batches([part]))
            except pa.ArrowInvalid as error:
                raise BadInputError(
                    f"rows do not match the table's schema: {in_iceberg_words(error)}"
                ) from error
            self._waiting += part.nbytes
            self._rows += part.num_rows

    def _check_required(self, table: pa.Table) -> None:
        fields = [
            item.with_type(column.type)
            for item, column in zip(self._form.required, table.columns, strict=True)
        ]
        columns = [one_array(column) for column in table.columns]
        if name := null_in_required(pa.RecordBatch.from_arrays(columns, schema=pa.schema(fields))):
            raise BadInputError(
                f"rows do not match the table's schema: column {name} contains NULL"
            )

    def close(self, **described: Any) -> DataFile:
        """Finish the file, make it durable and return its entry with the given additional fields."""
        self._writer.close()
        size = self._persist()
        # PyArrow does not report the offsets of the stripes that it writes.
        with self._storage.open_input(self._path) as source:
            stripes = OrcTail.of(open_orc(source), self._path).stripes
        if sum(stripe.rows for stripe in stripes) != self._rows:
            raise CorruptFileError(
                f"{self._path} has a row count that differs from the rows written to it"
            )
        return DataFile(
            path=self._path,
            format="ORC",
            record_count=self._rows,
            size_bytes=size,
            **self._metrics.metrics().of_entry(),
            split_offsets=tuple(stripe.offset for stripe in stripes),
            **described,
        )

    def abandon(self) -> None:
        """Stop writing."""
        with suppress(RuntimeError, OSError, pa.ArrowException):
            self._writer.close()
        super().abandon()


def _with_nulls(column: pa.Array) -> pa.Array:
    """Return a copy of a column in which the fields of a NULL struct are NULL, and NULL lists and maps are empty.

    PyArrow's ORC writer writes wrong rows if a nested column is a slice of a longer one, or if a field of a NULL
    struct is not NULL itself. All nested fields of the result except the keys of maps are nullable.
    """
    kind = column.type
    if column.offset:
        column = pa.concat_arrays([column, column.slice(0, 0)])
    if not pa.types.is_nested(kind):
        return column
    mask = column.is_null() if column.null_count else None
    if pa.types.is_struct(kind):
        parts = [_with_nulls(part) for part in column.flatten()]
        fields = [
            item.with_type(part.type).with_nullable(nullable=True)
            for item, part in zip(kind, parts, strict=True)
        ]
        return pa.StructArray.from_arrays(parts, fields=fields, mask=mask)
    if pa.types.is_map(kind):
        fields = [kind.key_field, kind.item_field]
        pairs = pa.StructArray.from_arrays([column.keys, column.items], fields=fields)
        lists = pa.ListArray.from_arrays(column.offsets, pairs, mask=mask)
        keys, items = (_with_nulls(part) for part in lists.flatten().flatten())
        item = kind.item_field.with_type(items.type).with_nullable(nullable=True)
        kind = pa.map_(kind.key_field, item)
        return pa.MapArray.from_arrays(_offsets(column), keys, items, type=kind, mask=mask)
    values = _with_nulls(column.flatten())
    item = kind.value_field.with_type(values.type).with_nullable(nullable=True)
    return pa.ListArray.from_arrays(_offsets(column), values, type=pa.list_(item), mask=mask)


def _offsets(column: pa.Array) -> pa.Array:
    """Return the offsets of lists in which NULL lists are empty."""
    lengths = np.diff(column.offsets.to_numpy())
    lengths[column.is_null().to_numpy(zero_copy_only=False)] = 0
    return pa.array(np.concatenate(([0], np.cumsum(lengths))), pa.int32())


def _rows(table: pa.Table, schema: pa.Schema) -> pa.RecordBatch:
    columns = []
    for column, item in zip(table.columns, schema, strict=True):
        values = _with_nulls(one_array(column))
        columns.append(values if values.type == item.type else values.cast(item.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)
