"""Check that a rewrite wrote the rows that it read: counts, bounds, and on request every value.

A changed row could not be detected later, because the input files are deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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
    """Return the entry of a file with these rows: counts and full bounds of its columns."""
    metrics = ColumnMetrics(counted_columns(schema, {METRICS_DEFAULT.name: "full"}))
    rows = 0
    for batch in batches:
        metrics.add(pa.Table.from_batches([batch]))
        rows += batch.num_rows
    return DataFile(
        path=like.path,
        spec_id=like.spec_id,
        partition=like.partition,
        record_count=rows,
        size_bytes=like.size_bytes,
        **metrics.metrics().of_entry(),
    )
