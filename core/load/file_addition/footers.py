"""Describe an existing Parquet file for a table from its footer, which is checked as far as it can be.

Rows are not read. Statistics of a footer become bounds and counts where they hold
(`lake.core.data.columns.trusted_statistics`), as in Iceberg Java's add_files.
Format: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.data.columns.int96 import schema_of_file
from lake.core.data.columns.metrics import Mode
from lake.core.data.formats.parquet.footer import open_parquet
from lake.core.data.formats.parquet.page_sizes import refuse_large_pages
from lake.core.data.formats.parquet.statistics import TrustedFooter
from lake.core.data.formats.parquet.writer import row_group_start
from lake.core.data.sources.discovery import readable
from lake.core.load.file_addition.columns import FileColumns, FileLeaf, compare_columns
from lake.core.load.file_addition.partition_values import folder_values, partition_of
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

    from lake.core.io.storage.storage import Storage

_MAX_ROW_GROUPS = 100_000
# The magic bytes at the beginning of a file, and the footer's length and magic bytes at its end.
_BEGIN_BYTES, _END_BYTES = 4, 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a file must match.

    Args:
        schema: the table's schema.
        spec: the partition spec of added files.
        names: the names of each field in all schemas of the table, by field id.
        mapping: the name mapping for files without field ids.
        modes: the metrics to keep of each column.
    """

    schema: Schema
    spec: PartitionSpec
    names: Mapping[int, frozenset[str]]
    mapping: str
    modes: Mapping[int, Mode]


@dataclass(frozen=True, slots=True)
class FoundFile:
    """A file that can be added: its entry, and whether it has field ids."""

    entry: DataFile
    has_ids: bool


def describe(storage: Storage, path: str, target: Target) -> FoundFile:
    """Read and check the footer of a file.

    Raises:
        RefusedError: the table's readers would not read the file's rows, not all of them, or only with much memory.
        CorruptFileError: it is not a Parquet file, or its footer contradicts itself or the file.
    """
    with readable(path), storage.open_input(path) as source:
        size = source.size()
        parquet, checks = open_parquet(source, path)
        metadata = parquet.metadata
        if metadata.num_row_groups > _MAX_ROW_GROUPS:
            raise CorruptFileError(f"{path} has too many row groups")
        if metadata.num_rows == 0:
            raise RefusedError(f"{path} has no rows", hint="leave it out")
        footer = TrustedFooter(parquet, checks.all_groups())
        for index in range(metadata.num_row_groups):
            refuse_large_pages(parquet, source, path, index, range(metadata.num_columns))
        columns = compare_columns(
            schema_of_file(parquet),
            target.schema.fields,
            target.names,
            target.mapping,
            path,
            set(folder_values(path)) & _identity_columns(target),
        )
        if len(columns.leaves) != metadata.num_columns:
            raise RefusedError(f"{path} has columns that PyArrow does not read")
        _check_footer(footer, columns, size, path)
        _require_values(footer, columns, path)
        partition = partition_of(target.spec, target.schema, columns, footer, path)
        return FoundFile(_entry(footer, columns, target, path, size, partition), columns.has_ids)


def _identity_columns(target: Target) -> set[str]:
    """Return the names of the columns whose values a partition contains."""
    return {
        target.schema.find_column_name(item.source_id) or ""
        for item in target.spec.fields
        if str(item.transform) == "identity"
    }


def _entry(
    footer: TrustedFooter,
    columns: FileColumns,
    target: Target,
    path: str,
    size: int,
    partition: tuple[bytes | None, ...],
) -> DataFile:
    chosen = {
        item.leaf.field_id: target.modes[item.leaf.field_id]
        if item.exact
        else Mode(counts=target.modes[item.leaf.field_id].counts, bounds=False)
        for item in columns.leaves
    }
    pairs = [(item.position, item.leaf) for item in columns.leaves]
    metadata = footer.metadata
    return DataFile(
        path=path,
        spec_id=target.spec.spec_id,
        partition=partition,
        record_count=metadata.num_rows,
        size_bytes=size,
        **footer.metrics(pairs, chosen).of_entry(),
        split_offsets=tuple(
            row_group_start(metadata.row_group(index)) for index in range(metadata.num_row_groups)
        ),
    )


def _check_footer(footer: TrustedFooter, columns: FileColumns, size: int, path: str) -> None:
    """Check a footer against itself and the size of the file.

    Raises:
        CorruptFileError: it is not the footer of this file, or the file is damaged.
        RefusedError: rows are in another file.
    """
    rows, metadata = 0, footer.metadata
    end = size - _END_BYTES - metadata.serialized_size
    for index in range(metadata.num_row_groups):
        group = metadata.row_group(index)
        if group.num_rows < 0:
            raise CorruptFileError(f"{path} has a row group with {group.num_rows} rows")
        rows += group.num_rows
        for item in columns.leaves:
            chunk = group.column(item.position)
            if chunk.file_path:
                raise RefusedError(f"{path} refers to columns in other files")
            start = chunk.data_page_offset
            if chunk.has_dictionary_page and 0 < chunk.dictionary_page_offset < start:
                start = chunk.dictionary_page_offset
            length = chunk.total_compressed_size
            if start < _BEGIN_BYTES or length < 0 or start + length > end:
                raise CorruptFileError(
                    f"{path} is damaged: its footer places the column {_name(item)} at byte {start} with {length} "
                    f"bytes, and the file has {size}"
                )
            _check_counts(chunk, item, group.num_rows, path)
            if item.exact and not footer.is_ordered(index, item.position, item.leaf):
                raise CorruptFileError(
                    f"{path} is damaged: the least value of its column {_name(item)} is greater than the greatest"
                )
    if rows != metadata.num_rows:
        raise CorruptFileError(
            f"{path} is damaged: its row groups have {rows} rows, and its footer says {metadata.num_rows}"
        )


def _check_counts(chunk: Any, item: FileLeaf, rows: int, path: str) -> None:
    values = chunk.num_values
    if values != rows if not item.leaf.repeated else values < 0:
        raise CorruptFileError(
            f"{path} is damaged: its column {_name(item)} has {values} values in {rows} rows"
        )
    statistics = chunk.statistics
    nulls = statistics.null_count if statistics is not None and statistics.has_null_count else 0
    if not 0 <= nulls <= values:
        raise CorruptFileError(
            f"{path} is damaged: its column {_name(item)} has {nulls} NULLs in {values} values"
        )


def _require_values(footer: TrustedFooter, columns: FileColumns, path: str) -> None:
    """Check that required columns have no NULL.

    Raises:
        RefusedError: the footer shows NULL, or does not show that there is none.
    """
    for name, positions in columns.unproven:
        if not any(_has_no_null(footer, position) for position in positions):
            raise RefusedError(
                f"column {name} is required, and the footer of {path} does not show that it has no NULL",
                hint="load its rows with `lake ingest` instead, which checks every value",
            )


def _has_no_null(footer: TrustedFooter, position: int) -> bool:
    groups = range(footer.metadata.num_row_groups)
    return all(footer.statistics(index, position).null_count == 0 for index in groups)


def _name(item: FileLeaf) -> str:
    return ".".join(item.leaf.path)
