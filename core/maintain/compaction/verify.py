"""Check that a rewrite wrote the rows that it read: counts, bounds, and on request every value.

A changed row could not be detected later, because the input files are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import BinaryType, FixedType, StringType, UUIDType

from lake.core.base.errors import CorruptFileError, LakeError
from lake.core.data.columns.metrics import Leaf, leaves
from lake.core.data.columns.metrics_collector import ColumnMetrics, counted_columns
from lake.core.spec.properties.table_properties import METRICS_DEFAULT
from lake.core.spec.types.bounds import CountColumn, bound_array, comparable, count_array
from lake.core.table.manifests.api import entries_of
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

_COUNTS: tuple[tuple[CountColumn, str], ...] = (
    ("null_value_counts", "NULLs"),
    ("nan_value_counts", "NaNs"),
)
# The bounds of these types may be truncated, with a length that may have changed, or ordered differently by other
# writers.
_INEXACT = (StringType, BinaryType, FixedType, UUIDType)
_TRUNCATED = (StringType, BinaryType)

Hashes = npt.NDArray[np.uint64]
_MIX = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6E756C6C6E756C6C)


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A metric that differs between a group's files before and after the rewrite.

    Args:
        text: the metric and both values.
        certain: False if the metadata of correct files may differ like this (bounds need not be tight).
        of_bounds: whether the metric is a bound, not a count.
        lost_in: the id of the column if values may have been read as NULL.
    """

    text: str
    certain: bool
    of_bounds: bool = False
    lost_in: int | None = None


def check_rows(
    expected: int, rows_read: int, outputs: Sequence[DataFile], *, dropped: int = 0
) -> None:
    """Compare the row counts of the metadata, of what was read or dropped as deleted, and of what was written.

    Raises:
        CorruptFileError: the inputs' row count differs from the table's metadata.
        LakeError: rows were lost or duplicated, which is a defect; nothing may be committed.
    """
    if rows_read + dropped != expected:  # check: rows-read
        deleted = f" (with {dropped} deleted ones)" if dropped else ""
        raise CorruptFileError(
            f"read {rows_read + dropped} rows{deleted}, but the table's metadata says {expected}"
        )
    written = sum(file.record_count for file in outputs)
    if written != rows_read:  # check: rows-written
        raise LakeError(f"read {rows_read} rows but wrote {written}; nothing was committed")


def metric_differences(
    inputs: pa.Table,
    outputs: Sequence[DataFile],
    *,
    schema: Schema,
    spec: PartitionSpec,
    fewer_rows: bool = False,
) -> list[Disagreement]:
    """Compare each column's counts and bounds if the files of both sides have them.

    Args:
        inputs: canonical columns of the entries of the files that were read.
        outputs: the files that were written, all of one spec.
        schema: the table's.
        spec: the outputs' partition spec.
        fewer_rows: deleted rows were dropped, so counts differ and bounds may be tighter.
    """
    after = entries_of(outputs, spec=spec, schema=schema, status=1, snapshot_id=0)
    differences: list[Disagreement] = []
    for leaf in leaves(schema):
        if not leaf.repeated:
            differences += () if fewer_rows else _counts(inputs, after, leaf)
            differences += _bounds(inputs, after, leaf, only_outside=fewer_rows)
    return differences


def _counts(before: pa.Table, after: pa.Table, leaf: Leaf) -> Iterator[Disagreement]:
    formats = {
        name for table in (before, after) for name in pc.unique(table["file_format"]).to_pylist()
    }
    for column, what in _COUNTS:
        # For ORC, Java does not count the fields of a NULL struct as NULLs; other writers do.
        if len(leaf.path) > 1 and "ORC" in formats:
            continue
        counts = [count_array(table, column, leaf.field_id) for table in (before, after)]
        # Files that lack a count (older writers, columns added later) cannot be compared.
        if any(array.null_count for array in counts):
            continue
        read, written = (pc.sum(array).as_py() or 0 for array in counts)
        if read != written:
            name = ".".join(leaf.path)
            yield Disagreement(
                f"column {name} had {read} {what} and has {written}",
                certain=True,
                lost_in=leaf.field_id if column == "null_value_counts" and written > read else None,
            )


def _bounds(
    before: pa.Table, after: pa.Table, leaf: Leaf, *, only_outside: bool
) -> Iterator[Disagreement]:
    lower = _outermost_bounds(before, after, leaf, upper=False)
    if lower is not None and not _same(*lower, leaf, upper=False):
        outside = lower[1] < lower[0]
        if outside or not only_outside:
            yield _difference(leaf, "lower bound", *lower, outside=outside)
    upper = _outermost_bounds(before, after, leaf, upper=True)
    if upper is not None and not _same(*upper, leaf, upper=True):
        outside = upper[1] > upper[0]
        if outside or not only_outside:
            yield _difference(leaf, "upper bound", *upper, outside=outside)


def _outermost_bounds(
    before: pa.Table, after: pa.Table, leaf: Leaf, *, upper: bool
) -> tuple[Any, Any] | None:
    """Return the bound over all files before and over all files after; None if a file lacks it."""
    pair = []
    for table in (before, after):
        column = bound_array(
            table, "upper_bounds" if upper else "lower_bounds", leaf.field_id, leaf.kind
        )
        bounds = comparable(column, leaf.kind).to_pylist()
        nulls = count_array(table, "null_value_counts", leaf.field_id).to_pylist()
        values = count_array(table, "value_counts", leaf.field_id).to_pylist()
        # A file that contains only NULLs does not need a bound.
        known = [
            bound
            for bound, absent, count in zip(bounds, nulls, values, strict=True)
            if bound is not None or absent is None or absent != count
        ]
        # NaN is not a bound, although some writers stored it as one.
        if not known or any(bound is None or bound != bound for bound in known):  # noqa: PLR0124
            return None
        pair.append(max(known) if upper else min(known))
    return pair[0], pair[1]


def _same(before: Any, after: Any, leaf: Leaf, *, upper: bool) -> bool:
    if before == after or not isinstance(leaf.kind, _TRUNCATED):
        return bool(before == after)
    shorter, longer = sorted((before, after), key=len)
    if not upper:
        return bool(longer.startswith(shorter))
    # A truncated upper bound is the prefix with its last character incremented.
    return bool(len(shorter) < len(longer) and shorter > longer and longer.startswith(shorter[:-1]))


def _difference(leaf: Leaf, what: str, before: Any, after: Any, *, outside: bool) -> Disagreement:
    name = ".".join(leaf.path)
    certain = outside and not isinstance(leaf.kind, _INEXACT)
    text = f"the {what} of column {name} was {before!r} and is {after!r}"
    return Disagreement(text, certain, of_bounds=True)


def described(batches: Iterable[pa.RecordBatch], schema: Schema, like: DataFile) -> DataFile:
    """Return the entry of a file with these rows: counts and full bounds of its columns.

    Args:
        batches: the rows.
        schema: their columns.
        like: a file of the same partition.
    """
    metrics = ColumnMetrics(counted_columns(schema, {METRICS_DEFAULT.name: "full"}))
    rows = 0
    for batch in batches:
        metrics.add(pa.Table.from_batches([batch]))
        rows += batch.num_rows
    collected = metrics.metrics()
    return DataFile(
        path=like.path,
        spec_id=like.spec_id,
        partition=like.partition,
        record_count=rows,
        size_bytes=like.size_bytes,
        value_counts=collected.value_counts,
        null_value_counts=collected.null_value_counts,
        nan_value_counts=collected.nan_value_counts,
        lower_bounds=collected.lower_bounds,
        upper_bounds=collected.upper_bounds,
    )


class ContentHash:
    """A hash of rows that does not depend on their order: the sum of the rows' hashes, and their number.

    Values are compared by their bits: NULL differs from an empty text, -0.0 from 0.0.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.total = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        total = np.full(batch.num_rows, _MIX)
        for column in batch.columns:
            total = _finish(total * _MIX + _hashes(column))
        self.total += int(np.add.reduce(total, dtype=np.uint64))
        self.rows += batch.num_rows

    def text(self) -> str:
        """Return the hash so far."""
        return f"{self.rows}-{self.total % 2**64:016x}"


def hash_together(texts: Iterable[str]) -> str:
    """Return the content hash of all rows from the content hashes of their parts."""
    pairs = [text.split("-") for text in texts]
    whole = ContentHash()
    whole.rows = sum(int(rows) for rows, _ in pairs)
    whole.total = sum(int(total, 16) for _, total in pairs)
    return whole.text()


def hash_all(batches: Iterable[pa.RecordBatch]) -> str:
    """Return the content hash of batches."""
    content = ContentHash()
    for batch in batches:
        content.add(batch)
    return content.text()


def _finish(values: Hashes) -> Hashes:
    """Mix the bits of each value (the finaliser of MurmurHash3)."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return values ^ (values >> np.uint64(33))


def _hashes(column: pa.Array) -> Hashes:
    """Return a number per value."""
    type_ = column.type
    if isinstance(type_, pa.BaseExtensionType):
        return _hashes(column.storage)
    if pa.types.is_null(type_):
        return np.full(len(column), _NULL)
    if pa.types.is_struct(type_):
        hashed = _struct_hashes(column)
    elif pa.types.is_map(type_):
        entries = column.cast(pa.list_(pa.struct([type_.key_field, type_.item_field])))
        hashed = _list_hashes(entries)
    elif pa.types.is_list(type_):
        hashed = _list_hashes(column)
    elif pa.types.is_string(type_) or pa.types.is_binary(type_):
        hashed = _text_hashes(column)
    else:
        hashed = _fixed_hashes(column)
    if column.null_count:
        hashed = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashed)
    return hashed


def _struct_hashes(column: pa.StructArray) -> Hashes:
    total = np.full(len(column), _MIX)
    for child in column.flatten():
        total = _finish(total * _MIX + _hashes(child))
    return total


def _list_hashes(column: pa.ListArray) -> Hashes:
    lengths = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    return _summed(_hashes(column.flatten()), lengths.astype(np.int64))


def _text_hashes(column: pa.Array) -> Hashes:
    """Hash texts eight bytes at a time."""
    _, offset_buffer, data = column.buffers()
    offsets = np.frombuffer(offset_buffer, np.int32)[
        column.offset : column.offset + len(column) + 1
    ]
    starts = offsets[:-1].astype(np.int64)
    lengths = np.diff(offsets).astype(np.int64)
    counts = (lengths + 7) // 8
    position = _positions(counts)
    used = int(offsets[-1]) if len(offsets) else 0
    padded = np.zeros(used + 8, np.uint8)
    if used:
        padded[:used] = np.frombuffer(data, np.uint8, used)
    every_eight = np.ndarray((used + 1,), "<u8", padded.data, strides=(1,))
    words = every_eight[np.repeat(starts, counts) + 8 * position]
    used_bytes = np.minimum(np.repeat(lengths, counts) - 8 * position, 8)
    words &= np.uint64(0xFFFFFFFFFFFFFFFF) >> (64 - 8 * used_bytes).astype(np.uint64)
    return _finish(_summed(words, counts) + lengths.astype(np.uint64))


def _summed(values: Hashes, counts: npt.NDArray[np.int64]) -> Hashes:
    """Return one hash per run of values, which depends on their positions and their number."""
    placed = _finish(values ^ _finish(_positions(counts).astype(np.uint64) + _MIX))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(placed, dtype=np.uint64)])
    ends = np.cumsum(counts)
    return _finish(sums[ends] - sums[ends - counts] + counts.astype(np.uint64) * _MIX)


def _positions(counts: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return each item's position in its run, from 0."""
    ends = np.cumsum(counts)
    total = int(ends[-1]) if len(ends) else 0
    return np.arange(total, dtype=np.int64) - np.repeat(ends - counts, counts)


def _fixed_hashes(column: pa.Array) -> Hashes:
    """Hash values of a fixed width by their bytes."""
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    width = column.type.bit_width // 8
    if width == 0 or not len(column):
        return np.zeros(len(column), np.uint64)
    start = column.offset * width
    raw = np.frombuffer(column.buffers()[1], np.uint8)[start : start + len(column) * width]
    words = np.zeros((len(column), -(-width // 8) * 8), np.uint8)
    words[:, :width] = raw.reshape(len(column), width)
    total = np.full(len(column), _MIX)
    for word in words.view("<u8").T:
        total = _finish(total * _MIX + word)
    return total
