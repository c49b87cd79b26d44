"""Select the row groups of a Parquet file that may match a filter, and locate columns in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC

from lake.core.data.columns.file_slice import ReadSettings
from lake.core.data.columns.metrics import Leaf, Mode, leaves
from lake.core.data.columns.row_ranges import RowRange
from lake.core.data.formats.parquet.chunk_checks import ChunkChecks
from lake.core.data.formats.parquet.statistics import TrustedFooter
from lake.core.data.formats.parquet.writer import chunk_start, row_group_start
from lake.core.spec.types.arrow_schema import arrow_type, field_id
from lake.core.table.manifests.data_files import DataFile
from lake.core.table.manifests.entries import entries_of
from lake.core.table.snapshots.pruning import prune_files

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


def row_groups_of(metadata: Any, checks: ChunkChecks) -> Iterator[tuple[int, int]]:
    """Yield the offset of the first byte and the number of rows of each row group.

    Raises:
        OSError, pyarrow.ArrowException: the first column chunk of a row group is not valid.
    """
    for index in range(metadata.num_row_groups):
        checks.start(index)
        group = metadata.row_group(index)
        yield row_group_start(group), group.num_rows


def chunk_ranges(parquet: Any, group: int, columns: Sequence[int]) -> list[tuple[int, int]]:
    """Return where column chunks of a row group are, each as its first byte and the one after its last.

    The checks of the row group come before; offsets may be outside the file nevertheless.
    """
    stored = parquet.metadata.row_group(group)
    chunks = [stored.column(index) for index in columns]
    starts = [chunk_start(chunk) for chunk in chunks]
    return [
        (start, start + chunk.total_compressed_size)
        for start, chunk in zip(starts, chunks, strict=True)
    ]


def matching_ranges(
    parquet: Any,
    checks: ChunkChecks,
    ranges: list[RowRange],
    settings: ReadSettings,
    resolved: Mapping[int, pa.Field | None],
) -> list[RowRange]:
    """Omit row groups whose statistics hold and exclude the filter or the keys; each is evaluated like a file.

    Raises:
        OSError, pyarrow.ArrowException: what the footer says about a column chunk is not valid.
    """
    columns = flat_columns(parquet, settings.schema, resolved)
    positions = [position for position, _ in columns]
    for row_range in ranges:
        checks.group(row_range.piece, [parquet.schema.column(at).path for at in positions])
    notes = checks.statistics(positions, [row_range.piece for row_range in ranges])
    footer = TrustedFooter(parquet, notes)
    full = {leaf.field_id: Mode(counts=True, bounds=True) for _, leaf in columns}
    files = []
    for row_range in ranges:
        group = parquet.metadata.row_group(row_range.piece)
        found = footer.metrics(columns, full, row_range.piece)
        files.append(
            DataFile(
                path=str(row_range.piece),
                spec_id=0,
                record_count=group.num_rows,
                size_bytes=1,
                value_counts=found.value_counts,
                null_value_counts=found.null_value_counts,
                lower_bounds=found.lower_bounds,
                upper_bounds=found.upper_bounds,
            )
        )
    spec = UNPARTITIONED_PARTITION_SPEC
    entries = entries_of(files, spec=spec, schema=settings.schema, status=1, snapshot_id=0)
    mask = np.ones(len(ranges), np.bool_)
    if settings.row_filter is not None:
        by_filter = prune_files(entries, spec, settings.schema, settings.row_filter)
        mask = by_filter.to_numpy(zero_copy_only=False)
    if settings.keys is not None:
        kept = np.flatnonzero(mask)
        mask = np.zeros(len(ranges), np.bool_)
        mask[kept] = settings.keys.groups_match(entries.take(pa.array(kept)), settings.schema)
    return [row_range for row_range, keep in zip(ranges, mask.tolist(), strict=True) if keep]


def flat_columns(
    parquet: Any, schema: Schema, resolved: Mapping[int, pa.Field | None]
) -> list[tuple[int, Leaf]]:
    """Return (position in the file, leaf of the table's schema) of flat columns with the same type."""
    known = {leaf.field_id: leaf for leaf in leaves(schema) if len(leaf.path) == 1}
    by_name = {item.name: column for column, item in resolved.items() if item is not None}
    found = []
    for item, ranges in _leaf_ranges(parquet):
        leaf = known.get(by_name.get(item.name, -1))
        if len(ranges) != 1 or leaf is None or item.type != arrow_type(leaf.kind):
            continue
        found.append((ranges[0], leaf))
    return found


def struct_columns(parquet: Any, schema: Schema) -> list[tuple[int, Leaf]]:
    """Return (position in the file, leaf of the table's schema) of fields of structs with the same id and type."""
    known = {leaf.field_id: leaf for leaf in leaves(schema) if len(leaf.path) > 1}
    found = []
    for item, ranges in _leaf_ranges(parquet):
        if not pa.types.is_struct(item.type):
            continue
        for position, part in _parts(item.type, ranges.start):
            leaf = known.get(field_id(part) or -1)
            if leaf is None or leaf.repeated or part.type != arrow_type(leaf.kind):
                continue
            found.append((position, leaf))
    return found


def _parts(kind: pa.StructType, start: int) -> Iterator[tuple[int, pa.Field]]:
    """Yield the primitive fields of a struct and of structs in it, with their positions."""
    for item in kind:
        if pa.types.is_struct(item.type):
            yield from _parts(item.type, start)
        elif not pa.types.is_nested(item.type):
            yield start, item
        start += _leaf_count(item.type)


def leaf_indexes(parquet: Any, names: Sequence[str]) -> list[int]:
    """Return the indexes of the Parquet columns of top-level columns; all if they are not known."""
    wanted = set(names)
    ranges = _leaf_ranges(parquet)
    if not ranges:
        return list(range(parquet.metadata.num_columns))
    return [index for item, found in ranges if item.name in wanted for index in found]


def _leaf_ranges(parquet: Any) -> list[tuple[pa.Field, range]]:
    """Return each top-level column with the indexes of its Parquet columns; empty if they do not match."""
    ranges, start = [], 0
    for item in parquet.schema_arrow:
        end = start + _leaf_count(item.type)
        ranges.append((item, range(start, end)))
        start = end
    return ranges if start == parquet.metadata.num_columns else []


def _leaf_count(kind: pa.DataType) -> int:
    if isinstance(kind, pa.BaseExtensionType):
        return _leaf_count(kind.storage_type)
    if pa.types.is_struct(kind):
        return sum(_leaf_count(item.type) for item in kind)
    if pa.types.is_map(kind):
        return _leaf_count(kind.key_type) + _leaf_count(kind.item_type)
    if pa.types.is_nested(kind):
        return _leaf_count(kind.value_type)
    return 1
