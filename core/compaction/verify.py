"""Whether what was written is what was read: counts, bounds, and on demand every value.

A rewrite that changed a row would be silent for ever after, since its inputs are deleted later.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import BinaryType, FixedType, StringType

from lake.core.errors import CorruptFileError, LakeError
from lake.core.rows.metrics import Leaf, leaves
from lake.core.table.bounds import BoundColumn, bound_array, count_array
from lake.core.table.files import DataFile
from lake.core.table.manifests import entries_of

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionSpec
    from pyiceberg.schema import Schema

_MIX = np.uint64(0x9E3779B97F4A7C15)
_NULL = np.uint64(0x6E756C6C6E756C6C)


def check_figures(
    inputs: pa.Table,
    outputs: Sequence[DataFile],
    *,
    rows_read: int,
    schema: Schema,
    spec: PartitionSpec,
) -> None:
    """Compare a group's files before and after by their metadata.

    Args:
        inputs: canonical entries of the files that were read.
        outputs: the files that were written, all of one spec.
        rows_read: rows that the task counted while reading.
        schema: the table's.
        spec: the outputs' partition spec.

    Raises:
        CorruptFileError: the inputs hold other rows than the table's metadata says.
        LakeError: rows, NULLs or bounds differ: a defect; nothing may be committed.
    """
    expected = int(pc.sum(inputs["record_count"]).as_py() or 0)
    if rows_read != expected:
        raise CorruptFileError(f"read {rows_read} rows where the table's metadata says {expected}")
    written = sum(file.record_count for file in outputs)
    if written != rows_read:
        raise LakeError(f"read {rows_read} rows but wrote {written}: nothing was committed")
    after = entries_of(list(outputs), spec=spec, schema=schema, status=1, snapshot_id=0)
    for leaf in leaves(schema):
        if not leaf.repeated:
            _check_nulls(inputs, after, leaf)
            _check_bounds(inputs, after, leaf)


def _check_nulls(before: pa.Table, after: pa.Table, leaf: Leaf) -> None:
    counts = [count_array(table, "null_value_counts", leaf.field_id) for table in (before, after)]
    # Files that lack a count (older writers, columns added later) tell nothing.
    if any(column.null_count for column in counts):
        return
    nulls = [pc.sum(column).as_py() or 0 for column in counts]
    if nulls[0] != nulls[1]:
        name = ".".join(leaf.path)
        raise LakeError(
            f"column {name} had {nulls[0]} NULLs and has {nulls[1]}: nothing was committed"
        )


def _check_bounds(before: pa.Table, after: pa.Table, leaf: Leaf) -> None:
    if isinstance(leaf.kind, StringType | BinaryType | FixedType):
        return  # shortened by modes that may have changed since
    checks: tuple[tuple[BoundColumn, Any], ...] = (
        ("lower_bounds", pc.min),
        ("upper_bounds", pc.max),
    )
    for column, pick in checks:
        arrays = [bound_array(table, column, leaf.field_id, leaf.kind) for table in (before, after)]
        if any(array.null_count for array in arrays):
            continue
        values = [pick(array).as_py() for array in arrays]
        if values[0] != values[1]:
            name = ".".join(leaf.path)
            raise LakeError(
                f"the {column} of {name} were {values[0]} and are {values[1]}: nothing was committed"
            )


class ContentHash:
    """A hash of rows that no order changes: the sum of each row's hash, and their number."""

    def __init__(self) -> None:
        self.rows = 0
        self._sum = np.uint64(0)

    def add(self, batch: pa.RecordBatch) -> None:
        """Take rows in."""
        with np.errstate(over="ignore"):
            total = np.zeros(batch.num_rows, np.uint64)
            for column in batch.columns:
                total = total * _MIX + _hashes(column)
            self._sum += np.add.reduce(_finish(total), dtype=np.uint64)
        self.rows += batch.num_rows

    def text(self) -> str:
        """Return the hash so far."""
        return f"{self.rows}-{int(self._sum):016x}"


def hash_all(batches: Iterable[pa.RecordBatch]) -> str:
    """Return the content hash of batches."""
    content = ContentHash()
    for batch in batches:
        content.add(batch)
    return content.text()


def _finish(values: Any) -> Any:
    values = values ^ (values >> np.uint64(33))
    values = values * np.uint64(0xFF51AFD7ED558CCD)
    return values ^ (values >> np.uint64(33))


def _hashes(column: pa.Array) -> Any:
    """Return a number per value; NULL has its own, floats go by their bits."""
    from pandas.util import hash_array  # noqa: PLC0415 - only where contents are compared

    kind = column.type
    if pa.types.is_nested(kind):
        plain = [repr(value).encode() for value in column.to_pylist()]
        return hash_array(np.array(plain, dtype=object), categorize=False)
    if pa.types.is_decimal(kind):
        column = column.cast(pa.string())
    if pa.types.is_primitive(column.type) and not pa.types.is_boolean(column.type):
        width = column.type.bit_width
        bits = column.fill_null(_zero(column.type)) if column.null_count else column
        raw = bits.view(pa.int64() if width == 64 else pa.int32()) if width in {32, 64} else bits  # noqa: PLR2004
        values = raw.to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
        hashed = _finish(values + _MIX)
    else:
        texts = column.cast(pa.binary()) if not pa.types.is_boolean(column.type) else column
        hashed = hash_array(texts.to_numpy(zero_copy_only=False).astype(object), categorize=True)
    if column.null_count:
        hashed = np.where(column.is_null().to_numpy(zero_copy_only=False), _NULL, hashed)
    return hashed


def _zero(kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(0, pa.int64() if kind.bit_width == 64 else pa.int32()).cast(kind)  # noqa: PLR2004
