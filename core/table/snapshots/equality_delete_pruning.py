"""Exclude equality deletes that cannot match any row of a data file, by the bounds of both.

Rules: Iceberg Java's DeleteFileIndex.canContainEqDeletesForFile, except for floats and UUIDs, whose bounds are
not reliable (NaN, and writers that ordered UUIDs differently).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.types import DoubleType, FloatType, PrimitiveType, UUIDType

from lake.core.base.arrow import Int64s, Mask
from lake.core.spec.types.bounds import bound_array, comparable, count_array
from lake.core.spec.types.single_values import source_type

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.types import IcebergType

_UNORDERED = (FloatType, DoubleType, UUIDType)


@dataclass(frozen=True, slots=True)
class _Side:
    """Statistics of one column in each file.

    Args:
        lower: rank of the lower bound among all bounds of the column.
        upper: rank of the upper bound.
        known: whether both bounds are known.
        no_nulls: the file certainly does not contain NULL.
        only_nulls: the file certainly contains only NULL.
    """

    lower: Int64s
    upper: Int64s
    known: Mask
    no_nulls: Mask
    only_nulls: Mask

    def take(self, rows: Int64s) -> _Side:
        return _Side(
            self.lower[rows],
            self.upper[rows],
            self.known[rows],
            self.no_nulls[rows],
            self.only_nulls[rows],
        )


class KeyRanges:
    """Ranges of the key columns in data files and in equality delete files, prepared for comparison.

    Args:
        data: entries of data files with their counts and bounds.
        deletes: entries of equality delete files with the same columns, and their `equality_ids`.
        schemas: the schemas to search for the columns' types.
    """

    def __init__(self, data: pa.Table, deletes: pa.Table, schemas: Sequence[Schema]) -> None:
        ids = [frozenset(found or ()) for found in deletes["equality_ids"].to_pylist()]
        self._compares = {
            column: np.array([column in found for found in ids], np.bool_)
            for column in sorted(frozenset().union(*ids))
        }
        tops = {item.field_id for schema in schemas for item in schema.fields}
        self._sides = {
            column: _sides(
                data, deletes, column, source_type(column, schemas), nested=column not in tops
            )
            for column in self._compares
        }

    def may_match(self, files: Int64s, deletes: Int64s) -> Mask:
        """Return (files, deletes): whether a delete file may contain a key of a data file."""
        may = np.ones((len(files), len(deletes)), np.bool_)
        for column, compares in self._compares.items():
            data, keys = self._sides[column]
            apart = _disjoint(data.take(files), keys.take(deletes))
            may &= ~(apart & compares[deletes])
        return may


def _sides(
    data: pa.Table, deletes: pa.Table, column: int, field_type: IcebergType, *, nested: bool
) -> tuple[_Side, _Side]:
    tables = (data, deletes)
    lower = [_bounds(table, "lower_bounds", column, field_type) for table in tables]
    upper = [_bounds(table, "upper_bounds", column, field_type) for table in tables]
    split = np.cumsum([len(item) for item in (*lower, *upper)])[:-1]
    ranks = np.split(_ranks(pa.concat_arrays([*lower, *upper])), split)
    return (
        _side(data, column, ranks[0], ranks[2], nested=nested),
        _side(deletes, column, ranks[1], ranks[3], nested=nested),
    )


def _bounds(table: pa.Table, side: str, column: int, field_type: IcebergType) -> pa.Array:
    if not isinstance(field_type, PrimitiveType) or isinstance(field_type, _UNORDERED):
        return pa.nulls(table.num_rows, pa.int64())
    found = comparable(bound_array(table, side, column, field_type), field_type)  # type: ignore[arg-type]
    return pa.nulls(table.num_rows, pa.int64()) if pa.types.is_null(found.type) else found


def _ranks(values: pa.Array) -> Int64s:
    """Return each value's rank, equal for equal values; -1 for NULL."""
    distinct = pc.unique(values.drop_null())
    order = distinct.take(pc.sort_indices(distinct))
    found: Int64s = pc.index_in(values, value_set=order).fill_null(-1).to_numpy().astype(np.int64)
    return found


def _side(table: pa.Table, column: int, lower: Int64s, upper: Int64s, *, nested: bool) -> _Side:
    nulls = count_array(table, "null_value_counts", column)
    values = count_array(table, "value_counts", column)
    only = pc.and_(pc.equal(nulls, values), pc.greater(values, 0))
    return _Side(
        lower=lower,
        upper=upper,
        known=(lower >= 0) & (upper >= 0),
        # ORC counts a nested field only if its parent is not NULL.
        no_nulls=_certain(pc.equal(nulls, 0)) & (not nested),
        only_nulls=_certain(only),
    )


def _certain(mask: pa.Array) -> Mask:
    found: Mask = mask.fill_null(fill_value=False).to_numpy(zero_copy_only=False)
    return found


def _disjoint(data: _Side, keys: _Side) -> Mask:
    """Return (files, deletes): whether no value of the column can be in both."""
    one_without_nulls = data.no_nulls[:, None] | keys.no_nulls[None, :]
    known = data.known[:, None] & keys.known[None, :]
    beside = (data.upper[:, None] < keys.lower[None, :]) | (
        keys.upper[None, :] < data.lower[:, None]
    )
    nulls_apart = (data.only_nulls[:, None] & keys.no_nulls[None, :]) | (
        data.no_nulls[:, None] & keys.only_nulls[None, :]
    )
    apart: Mask = (one_without_nulls & known & beside) | nulls_apart
    return apart
