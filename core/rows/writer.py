"""Rows into a table's data files: Parquet, rolled at the target size, one open file per partition.

What is buffered is bounded: a file's rows wait until a row group is full, and when many partitions are open
the largest goes to disk first. Names never repeat, not even between two attempts at one task.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

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

from lake.core import paths
from lake.core.errors import BadInputError, InvalidRequestError, RefusedError
from lake.core.rows import metrics
from lake.core.rows.partitioning import Partition, group_rows, partition_path
from lake.core.rows.required import fill_masked
from lake.core.rows.schema import (
    arrow_schema,
    schema_from_plain,
    schema_to_plain,
    spec_from_plain,
    spec_to_plain,
)
from lake.core.table.files import DataFile
from lake.core.table.storage import Storage

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from lake.core.table.catalog import Table

TARGET_BYTES = 512 * 1024 * 1024
_ROW_GROUP_BYTES = 128 * 1024 * 1024
_PAGE_BYTES = 1024 * 1024
_DICTIONARY_BYTES = 2 * 1024 * 1024
# All partitions of one task together.
_BUFFER_BYTES = 256 * 1024 * 1024
# A rest smaller than this part of the target is not worth a row group of its own.
_NEARLY_FULL = 0.95
_SMALLEST_ROW_GROUP = 64 * 1024
# So many small batches are put together, for each takes memory beyond its rows.
_MOST_SMALL = 64
# Systems commonly allow a process 1024.
_MOST_OPEN_FILES = 256
_MOST_GZIP = 9
_CODECS = {
    "zstd": "zstd",
    "gzip": "gzip",
    "snappy": "snappy",
    "lz4": "lz4",
    "brotli": "brotli",
    "uncompressed": "none",
    "none": "none",
}
_PROPERTIES = ("write.parquet.", "write.metadata.metrics.", "write.object-storage.", "write.data.")


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteSettings:
    """Everything a task needs to write a table's files; plain but for schema and spec.

    Args:
        schema: the columns to write.
        spec: how rows are partitioned.
        data_location: where the table's data files go.
        location: the table's own location.
        operation_id: the commit's UUID; part of every file's name.
        target_bytes: size at which a file is closed.
        properties: the table's properties that writing heeds.
        sort_order_id: the table's sort order, if the rows come sorted by it.
    """

    schema: Schema
    spec: PartitionSpec
    data_location: str
    location: str
    operation_id: str
    target_bytes: int = TARGET_BYTES
    properties: Mapping[str, str] = field(default_factory=dict)
    sort_order_id: int | None = None

    @classmethod
    def of(
        cls,
        table: Table,
        operation_id: str,
        *,
        target_bytes: int | None = None,
        spec: PartitionSpec | None = None,
        schema: Schema | None = None,
    ) -> WriteSettings:
        """Return the settings for a table as it is.

        Raises:
            RefusedError: the table wants a file format that lake does not write.
        """
        properties = {k: v for k, v in table.properties.items() if k.startswith(_PROPERTIES)}
        wanted = table.properties.get("write.format.default", "parquet").lower()
        if wanted != "parquet":
            raise RefusedError(f"the table asks for {wanted} files; lake writes Parquet only, yet")
        size = table.properties.get("write.target-file-size-bytes", "")
        return cls(
            schema=schema or table.schema,
            spec=spec or table.spec,
            data_location=table.data_location,
            location=table.metadata.location,
            operation_id=operation_id,
            target_bytes=target_bytes
            or (int(size) if size.isdigit() and int(size) else TARGET_BYTES),
            properties=properties,
        )

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "schema": schema_to_plain(self.schema),
            "spec": spec_to_plain(self.spec),
            "data_location": self.data_location,
            "location": self.location,
            "operation_id": self.operation_id,
            "target_bytes": self.target_bytes,
            "properties": dict(self.properties),
            "sort_order_id": self.sort_order_id,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> WriteSettings:
        """Rebuild from `to_plain`'s values."""
        values = dict(plain)
        values["schema"] = schema_from_plain(values["schema"])
        values["spec"] = spec_from_plain(values["spec"])
        return cls(**values)


@dataclass(slots=True)
class _Format:
    """What all files of a writer have in common."""

    storage: Storage
    settings: WriteSettings
    task: int
    attempt: str
    count: int = 0
    schema: pa.Schema = field(init=False)
    columns: list[metrics.Leaf] = field(init=False)
    modes: dict[int, metrics.Mode] = field(init=False)
    options: dict[str, Any] = field(init=False)
    row_group_bytes: int = field(init=False)
    _names: Any = field(init=False)

    def __post_init__(self) -> None:
        from pyiceberg.table.locations import load_location_provider  # noqa: PLC0415

        settings = self.settings
        self.schema = _file_schema(settings.schema)
        self.columns = metrics.leaves(settings.schema)
        self.modes = metrics.modes(settings.schema, settings.properties)
        self.options = _parquet_options(settings.properties)
        self.row_group_bytes = _integer(
            settings.properties, "write.parquet.row-group-size-bytes", _ROW_GROUP_BYTES
        )
        self._names = load_location_provider(
            settings.location, {**settings.properties, "write.data.path": settings.data_location}
        )

    def new_path(self, partition: Partition) -> str:
        """Return a name that no other file of any attempt has."""
        settings = self.settings
        self.count += 1
        name = f"{self.task:05d}-{self.attempt}-{settings.operation_id}-{self.count:05d}.parquet"
        if not partition:
            return str(self._names.new_data_location(name))
        folder = partition_path(settings.spec, settings.schema, partition)
        if settings.properties.get("write.object-storage.enabled", "false").lower() == "true":
            return str(self._names.new_data_location(f"{folder}/{name}"))
        return paths.join(settings.data_location, folder, name)


class RollingWriter:
    """Writes the rows of one partition to files near the target size."""

    def __init__(self, common: _Format, partition: Partition) -> None:
        self._common = common
        self._partition = partition
        self._waiting: list[pa.RecordBatch] = []
        self._small = 0
        self.waiting_bytes = 0
        self._file: _OpenFile | None = None
        self._ratio = 1.0
        self.files: list[DataFile] = []
        self.paths: list[str] = []

    def write(self, batch: pa.RecordBatch) -> None:
        """Take rows; a full row group goes to disk."""
        if batch.num_rows == 0:
            return
        self._waiting.append(batch)
        self.waiting_bytes += batch.nbytes
        self._put_together(batch.nbytes)
        while self._waiting and self.waiting_bytes >= (limit := self._row_group_limit()):
            self._flush(limit)

    def _put_together(self, newest_bytes: int) -> None:
        """Make one batch of many small ones at the end of those that wait."""
        self._small = self._small + 1 if newest_bytes < _SMALLEST_ROW_GROUP else 0
        if self._small >= _MOST_SMALL:
            self._waiting[-self._small :] = [pa.concat_batches(self._waiting[-self._small :])]
            self._small = 0

    def _row_group_limit(self) -> int:
        common = self._common
        written = self._file.size if self._file else 0
        room = (common.settings.target_bytes - written) / self._ratio
        return int(min(common.row_group_bytes, max(room, _SMALLEST_ROW_GROUP)))

    def flush(self) -> None:
        """Write all that waits."""
        while self._waiting:
            self._flush(self.waiting_bytes)

    def _flush(self, limit: int) -> None:
        rows = sum(batch.num_rows for batch in self._waiting)
        part = limit / self.waiting_bytes if self.waiting_bytes else 1
        share = min(rows, max(1, int(rows * part)))
        table = pa.Table.from_batches(self._waiting)
        head, rest = table.slice(0, share), table.slice(share)
        self._waiting, self._small = rest.to_batches(), 0
        taken = int(self.waiting_bytes * share / rows)
        self.waiting_bytes = self.waiting_bytes - taken if self._waiting else 0
        if self._file is None:
            path = self._common.new_path(self._partition)
            self.paths.append(path)
            self._file = _OpenFile(self._common, path)
        before = self._file.size
        self._file.write(head)
        self._ratio = max((self._file.size - before) / max(taken, 1), 0.001)
        if self._file.size >= self._common.settings.target_bytes * _NEARLY_FULL:
            self.finish_file()

    @property
    def open_bytes(self) -> int:
        """Bytes in the file that is being written; 0 if there is none."""
        return self._file.size if self._file else 0

    def finish_file(self) -> None:
        """Close the file that is being written, if any; further rows go to a new one."""
        if self._file is not None:
            self.files.append(self._file.close(self._common, self._partition))
            self._file = None

    def close(self) -> list[DataFile]:
        """Write the rest and return the files; none for no rows."""
        self.flush()
        self.finish_file()
        return self.files

    def abandon(self) -> None:
        """Close what is open without finishing it."""
        self._waiting.clear()
        if self._file is not None:
            self._file.abandon()
            self._file = None


class _OpenFile:
    """A Parquet file that is being written."""

    def __init__(self, common: _Format, path: str) -> None:
        self._path = path
        self._storage = common.storage
        self._schema = common.schema
        self._sink = common.storage.open_output(path)
        self._footer: list[Any] = []
        self._nans = metrics.NanCounter(common.columns)
        self._writer = pq.ParquetWriter(
            self._sink, common.schema, metadata_collector=self._footer, **common.options
        )

    @property
    def size(self) -> int:
        """Bytes written so far."""
        return int(self._sink.tell())

    def write(self, table: pa.Table) -> None:
        """Write a row group."""
        self._nans.add(table)
        table = fill_masked(table)
        if table.schema != self._schema:
            table = table.cast(self._schema)
        try:
            self._writer.write_table(table, row_group_size=max(table.num_rows, 1))
        except pa.ArrowInvalid as error:
            raise BadInputError(f"rows do not fit the table: {error}") from error

    def close(self, common: _Format, partition: Partition) -> DataFile:
        """Finish the file, make it durable and describe it."""
        self._writer.close()
        size = self.size
        self._sink.close()
        self._storage.persist(self._path)
        footer = self._footer[0]
        found = metrics.footer_metrics(footer, common.columns, common.modes, self._nans.counts)
        return DataFile(
            path=self._path,
            spec_id=common.settings.spec.spec_id,
            partition=partition,
            record_count=footer.num_rows,
            size_bytes=size,
            column_sizes=found.column_sizes,
            value_counts=found.value_counts,
            null_value_counts=found.null_value_counts,
            nan_value_counts=found.nan_value_counts,
            lower_bounds=found.lower_bounds,
            upper_bounds=found.upper_bounds,
            split_offsets=tuple(
                row_group_start(footer.row_group(index)) for index in range(footer.num_row_groups)
            ),
            sort_order_id=common.settings.sort_order_id,
        )

    def abandon(self) -> None:
        """Stop writing."""
        # After an error in the middle of a row group there is no footer to write.
        with suppress(RuntimeError, OSError, pa.ArrowException):
            self._writer.close()
        with suppress(OSError, pa.ArrowException):
            self._sink.close()


def row_group_start(group: Any) -> int:
    """Return the offset of a row group's first byte."""
    first = group.column(0)
    start = first.data_page_offset
    if first.has_dictionary_page and 0 < first.dictionary_page_offset < start:
        start = first.dictionary_page_offset
    return int(start)


class TableWriter:
    """Writes rows of any partitions; each file holds one partition's.

    Use it as a context manager: an error, or leaving it without `close`, removes everything it wrote.
    """

    def __init__(self, common: _Format) -> None:
        self._common = common
        self._open: dict[Partition, RollingWriter] = {}
        self._closed = False
        self.rows = 0

    def write(self, batch: pa.RecordBatch) -> None:
        """Write rows, each to its partition."""
        settings = self._common.settings
        for partition, part in group_rows(batch, settings.spec, settings.schema):
            writer = self._open.get(partition)
            if writer is None:
                writer = self._open[partition] = RollingWriter(self._common, partition)
            # A slice keeps the whole batch alive: with many partitions that would be all of the input.
            alone = len(self._open) == 1
            writer.write(part if alone else _compact(part))
        self.rows += batch.num_rows
        self._keep_within_budget()
        self._limit_open_files()

    def _keep_within_budget(self) -> None:
        while len(self._open) > 1:
            waiting = sum(writer.waiting_bytes for writer in self._open.values())
            if waiting <= _BUFFER_BYTES:
                return
            max(self._open.values(), key=lambda writer: writer.waiting_bytes).flush()
            self._limit_open_files()

    def _limit_open_files(self) -> None:
        if len(self._open) <= _MOST_OPEN_FILES:
            return
        being_written = [writer for writer in self._open.values() if writer.open_bytes]
        being_written.sort(key=lambda writer: writer.open_bytes)
        for writer in being_written[_MOST_OPEN_FILES:]:
            writer.finish_file()

    def close(self) -> list[DataFile]:
        """Finish all files and return them."""
        files = [file for writer in self._open.values() for file in writer.close()]
        self._closed = True
        return files

    def abort(self) -> None:
        """Remove everything that was written."""
        written: list[str] = []
        for writer in self._open.values():
            writer.abandon()
            written += writer.paths
        self._common.storage.delete(written)
        self._open.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is not None or not self._closed:
            self.abort()


def open_writer(
    storage: Storage, settings: WriteSettings, *, task: int, attempt: str
) -> TableWriter:
    """Return a writer; ``task`` and ``attempt`` make its file names unique."""
    return TableWriter(_Format(storage, settings, task, attempt))


def _compact(batch: pa.RecordBatch) -> pa.RecordBatch:
    return pa.concat_batches([batch, batch.slice(0, 0)]) if batch.num_rows else batch


def _file_schema(schema: Schema) -> pa.Schema:
    """Return the Arrow schema to write: as lake's batches, but UUIDs are marked as such."""
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


def _parquet_options(properties: Mapping[str, str]) -> dict[str, Any]:
    codec = properties.get("write.parquet.compression-codec", "zstd").lower()
    if codec not in _CODECS:
        raise InvalidRequestError(
            f"the table's write.parquet.compression-codec {codec!r} is none of {', '.join(_CODECS)}"
        )
    level = properties.get("write.parquet.compression-level", "")
    if codec == "gzip" and level.isdigit() and int(level) > _MOST_GZIP:
        raise InvalidRequestError(f"the table's gzip compression level {level} is above 9")
    return {
        "version": "2.6",
        "compression": _CODECS[codec],
        "compression_level": int(level) if level.isdigit() and codec in {"zstd", "gzip"} else None,
        "data_page_size": _integer(properties, "write.parquet.page-size-bytes", _PAGE_BYTES),
        "dictionary_pagesize_limit": _integer(
            properties, "write.parquet.dict-size-bytes", _DICTIONARY_BYTES
        ),
        "write_page_checksum": True,
        "store_decimal_as_integer": True,
        "store_schema": False,
    }


def _integer(properties: Mapping[str, str], key: str, default: int) -> int:
    text = properties.get(key, "")
    return int(text) if text.isdigit() and int(text) > 0 else default
