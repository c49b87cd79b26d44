"""The order of a discovery's splits, and the bounds of the watermark column."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.schema import Schema
from pyiceberg.types import (
    LongType,
    TimestampNanoType,
    TimestampType,
    TimestamptzNanoType,
    TimestamptzType,
)

from lake.core.base.choices import Order, TimeUnit
from lake.core.base.errors import BadInputError, InvalidRequestError
from lake.core.base.options import Option
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.scan.plan import ScanPlan
from lake.core.spec.types.bounds import bound_array, comparable
from lake.core.spec.types.type_text import type_text

Int64s = npt.NDArray[np.int64]

_PER_MS: Mapping[TimeUnit, int] = {
    TimeUnit.MICROSECONDS: 1000,
    TimeUnit.MILLISECONDS: 1,
}
_NANOS_PER_MS = 1_000_000
_MS_PER_SECOND = 1000
_LARGEST_SECONDS = ((1 << 63) - 1) // _MS_PER_SECOND


@dataclass(frozen=True, slots=True)
class WatermarkColumn:
    """The column of the watermark.

    Args:
        field_id: its id.
        name: its name.
        schema: the schema that contains it.
        unit: the unit of its values; None for nanoseconds.
    """

    field_id: int
    name: str
    schema: Schema
    unit: TimeUnit | None

    def milliseconds(self, values: Int64s) -> Int64s:
        """Return values as milliseconds since 1970, rounded down."""
        if self.unit is TimeUnit.SECONDS:
            return np.clip(values, -_LARGEST_SECONDS, _LARGEST_SECONDS) * _MS_PER_SECOND
        found: Int64s = values // (_NANOS_PER_MS if self.unit is None else _PER_MS[self.unit])
        return found


@dataclass(frozen=True, slots=True)
class Bounds:
    """The least and the greatest value of a column in each file, as stored."""

    least: Int64s
    greatest: Int64s


def watermark_column(schema: Schema, options: FollowOptions) -> WatermarkColumn | None:
    """Return the column of the watermark; None if there is none.

    Raises:
        BadInputError: the column does not exist.
        InvalidRequestError: its type has no time, or the unit was given for a column that has its own.
    """
    name = options.watermark_column
    if name is None:
        return None
    try:
        found = schema.find_field(name, case_sensitive=not options.scan.ignore_case)
    except ValueError:
        columns = ", ".join(item.name for item in schema.fields)
        raise BadInputError(
            f"there is no column {name} for {Option.WATERMARK_COLUMN}",
            hint=f"the columns are {columns}",
        ) from None
    if isinstance(found.field_type, LongType):
        unit = options.watermark_unit or TimeUnit.MICROSECONDS
        return WatermarkColumn(found.field_id, name, schema, unit)
    if options.watermark_unit is not None:
        raise InvalidRequestError(
            f"{Option.WATERMARK_UNIT} is for columns of type long, and {name} is "
            f"{type_text(found.field_type)}"
        )
    if isinstance(found.field_type, TimestampType | TimestamptzType):
        return WatermarkColumn(found.field_id, name, schema, TimeUnit.MICROSECONDS)
    if isinstance(found.field_type, TimestampNanoType | TimestamptzNanoType):
        return WatermarkColumn(found.field_id, name, schema, None)
    raise InvalidRequestError(
        f"{Option.WATERMARK_COLUMN} {name} is {type_text(found.field_type)}, not a long or a timestamp"
    )


def file_bounds(plan: ScanPlan, column: WatermarkColumn) -> Bounds:
    """Return the bounds of the files of a plan, in the order of their numbers.

    Raises:
        BadInputError: a file with rows has no bound for the column.
    """
    type_ = plan.schema.find_type(column.field_id)
    least, greatest = [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    for entries in plan.found.by_spec.values():
        lower, upper = (
            comparable(bound_array(entries, side, column.field_id, type_), type_)
            for side in ("lower_bounds", "upper_bounds")
        )
        missing = pc.and_(
            pc.or_(lower.is_null(), upper.is_null()),
            pc.not_equal(entries["record_count"], 0).combine_chunks(),
        )
        for row in np.flatnonzero(missing.to_numpy(zero_copy_only=False))[:1]:
            raise BadInputError(
                f"missing statistics for column {column.name} (field id {column.field_id}) in "
                f"{entries['file_path'][int(row)].as_py()}",
                hint=f"omit {Option.WATERMARK_COLUMN}, or rewrite the file with statistics",
            )
        least.append(_filled(lower))
        greatest.append(_filled(upper))
    return Bounds(np.concatenate(least), np.concatenate(greatest))


def ordered(plan: ScanPlan, order: Order, column: WatermarkColumn | None) -> ScanPlan:
    """Return a plan with its splits in an order.

    ``sequence``: by data sequence number, path and start; each split must consist of one piece. ``time``: by the
    least bound of the watermark column.

    Raises:
        BadInputError: a file has no bound for the column.
    """
    if order is Order.SEQUENCE:
        return replace(plan, ordered=_by_sequence(plan))
    if order is Order.TIME and column is not None:
        least = file_bounds(plan, column).least
        firsts = [int(least[plan.pieces.file[list(split)]].min()) for split in plan.splits]
        chosen = np.argsort(np.array(firsts, np.int64), kind="stable")
        return replace(plan, ordered=[plan.splits[number] for number in chosen])
    return plan


def _by_sequence(plan: ScanPlan) -> list[list[int]]:
    files = [
        entries.select(["sequence_number", "file_path"]) for entries in plan.found.by_spec.values()
    ]
    known = pa.concat_tables(files).take(pa.array(plan.pieces.file))
    keys = pa.table(
        {
            "sequence": known["sequence_number"],
            "path": known["file_path"].cast(pa.string()),
            "start": pa.array(plan.pieces.start),
        }
    )
    order = pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in keys.column_names])
    return [[number] for number in order.to_pylist()]


def _filled(values: pa.Array) -> Int64s:
    found: Int64s = pc.fill_null(values.cast(pa.int64()), 0).to_numpy(zero_copy_only=False)
    return found
