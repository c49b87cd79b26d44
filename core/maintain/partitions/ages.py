"""The time up to which the rows of a partition can reach, from its partition values.

Times are milliseconds since 1970 UTC. The end of a partition is exclusive: all its rows are older than it.
Source of the transforms: https://iceberg.apache.org/spec/#partition-transforms.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)

from lake.core.base.arrow import Int64s, one_array
from lake.core.base.errors import InvalidRequestError, NotFoundError
from lake.core.base.options import Option
from lake.core.base.units import directives, read_time
from lake.core.spec.types.arrow_schema import find_id
from lake.core.table.snapshots.partition_activity import ACTIVITY_COLUMNS

if TYPE_CHECKING:
    from pyiceberg.partitioning import PartitionField, PartitionSpec
    from pyiceberg.schema import Schema

# The end of a partition whose values do not give a time.
NEVER = np.iinfo(np.int64).max
# The columns of entries that an expiration and a report read.
COLUMNS = (
    *ACTIVITY_COLUMNS,
    "content",
    "sequence_number",
    "file_path",
    "record_count",
    "file_size_in_bytes",
)
DEFAULT_FORMAT = "%Y-%m-%d"
_UNITS: dict[type[Transform], str] = {  # type: ignore[type-arg]
    YearTransform: "Y",
    MonthTransform: "M",
    DayTransform: "D",
    HourTransform: "h",
}
# The finest directive of a format decides how long its period is.
_DIRECTIVES = (
    ("fSXTc", timedelta(seconds=1)),
    ("M", timedelta(minutes=1)),
    ("HI", timedelta(hours=1)),
    ("djDxuwaA", timedelta(days=1)),
    ("GVUW", timedelta(days=7)),
)
# In the afternoon, and with a different number in each of its parts.
_SAMPLE = datetime(2001, 11, 23, 16, 45, 56, tzinfo=UTC)
_MOST_YEARS = 250_000


def time_fields(spec: PartitionSpec, schema: Schema, by: str) -> list[PartitionField]:
    """Return the fields of a spec that are named, or whose source column is named, and that may give a time."""
    source = find_id(schema, by)
    return [
        field
        for field in spec.fields
        if (field.name == by or field.source_id == source)
        and isinstance(field.transform, (*_UNITS, IdentityTransform))
    ]


def require_time_field(specs: list[PartitionSpec], schema: Schema, by: str) -> None:
    """Check that some spec has a partition field from which a time can be taken.

    Raises:
        NotFoundError: no partition field has this name or source column.
        InvalidRequestError: its transform does not give a time, or other specs have fields of its name for other
            columns.
    """
    sources = {item.source_id for spec in specs for item in time_fields(spec, schema, by)}
    if len(sources) > 1:  # check: one-time-column
        columns = [schema.find_column_name(one) or "a dropped column" for one in sorted(sources)]
        raise InvalidRequestError(
            f"partition field {by} has another column in another partition spec: {', '.join(columns)}",
            hint=f"name the column whose time counts, with {Option.BY}",
        )
    if sources:
        return
    source = find_id(schema, by)
    every = [field for spec in specs for field in spec.fields]
    for field in every:
        if field.name == by or field.source_id == source:
            raise InvalidRequestError(
                f"partition field {field.name} is {field.transform}, which does not give a time"
            )
    names = ", ".join(sorted({field.name for field in every})) or "none"
    raise NotFoundError(
        f"no partition field is named {by}, or has a column {by}",
        hint=f"partition fields: {names}",
    )


def partition_ends(
    partitions: pa.ChunkedArray, fields: list[PartitionField], text_format: str | None
) -> Int64s:
    """Return the end of each partition; `NEVER` if no field gives a time.

    Args:
        partitions: partition structs; children are named by field id.
        fields: the fields that may give a time.
        text_format: how texts and integers contain a time, as ``strptime`` reads it.
    """
    ends = np.full(len(partitions), NEVER, np.int64)
    structs = one_array(partitions)
    for field in fields:
        if structs.type.get_field_index(str(field.field_id)) < 0:
            continue
        values = pc.struct_field(structs, str(field.field_id))
        unit = _UNITS.get(type(field.transform))
        found = _periods(values, unit) if unit is not None else _identity_ends(values, text_format)
        # Rows match all fields, so the earliest end holds.
        ends = np.minimum(ends, found)
    return ends


def _identity_ends(values: pa.Array, text_format: str | None) -> Int64s:
    kind = values.type
    if pa.types.is_date(kind):
        return _periods(values, "D")
    if pa.types.is_timestamp(kind):
        per_ms = {"us": 1000, "ns": 1_000_000}[kind.unit]
        counted, known = _numbers(values)
        return np.where(known, counted // per_ms + 1, NEVER)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text_ends(values, text_format or DEFAULT_FORMAT)
    if pa.types.is_integer(kind) and text_format is not None:
        return _text_ends(values.cast(pa.string()), text_format)
    return np.full(len(values), NEVER, np.int64)


def _periods(values: pa.Array, unit: str) -> Int64s:
    """Return the ends of periods that are counted from 1970."""
    counted, known = _numbers(values)
    limit = _MOST_YEARS * {"Y": 1, "M": 12, "D": 365, "h": 8760}[unit]
    known &= np.abs(counted) < limit
    ends = (np.where(known, counted, 0) + 1).astype(f"datetime64[{unit}]")
    return np.where(known, ends.astype("datetime64[ms]").astype(np.int64), NEVER)


def _numbers(values: pa.Array) -> tuple[Int64s, npt.NDArray[np.bool_]]:
    """Return values as integers, and which are not NULL."""
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if values.type.bit_width == 32 else pa.int64())  # noqa: PLR2004
    known = pc.is_valid(values).to_numpy(zero_copy_only=False)
    numbers: Int64s = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    return numbers, known


def _text_ends(values: pa.Array, text_format: str) -> Int64s:
    encoded = values.dictionary_encode(null_encoding="encode")
    found = [_text_end(text, text_format) for text in encoded.dictionary.to_pylist()]
    ends: Int64s = np.array(found, np.int64)[encoded.indices.to_numpy()]
    return ends


def _text_end(text: str | None, text_format: str) -> int:
    if text is None:
        return NEVER
    try:
        begin = _begin(text, text_format)
        end = _next_period(begin, text_format)
    except (ValueError, OverflowError):
        return NEVER
    # The next millisecond: a period has not ended before.
    return -((datetime(1970, 1, 1, tzinfo=UTC) - end) // timedelta(milliseconds=1))


def _begin(text: str, text_format: str) -> datetime:
    begin = read_time(text, text_format)
    return begin if begin.tzinfo else begin.replace(tzinfo=UTC)


def _next_period(moment: datetime, text_format: str) -> datetime:
    letters = directives(text_format)
    for names, length in _DIRECTIVES:
        if letters.intersection(names):
            return moment + length
    if letters.intersection("mbB"):
        return moment.replace(year=moment.year + moment.month // 12, month=moment.month % 12 + 1)
    return moment.replace(year=moment.year + 1)


def check_format(text_format: str | None) -> None:
    """Check that a format contains a year, and that what it reads is the period that it wrote.

    Raises:
        InvalidRequestError: it cannot give a time.
    """
    if text_format is None:
        return
    try:
        begin = _begin(_SAMPLE.strftime(text_format), text_format)
        end = _next_period(begin, text_format)
    except (ValueError, re.error) as error:
        raise InvalidRequestError(f"{Option.FORMAT} {text_format!r} is not valid") from error
    hint = "write it as %Y-%m-%d or %Y%m%d%H"
    if begin.year != _SAMPLE.year:
        raise InvalidRequestError(
            f"{Option.FORMAT} {text_format!r} does not contain the year", hint=hint
        )
    if not begin <= _SAMPLE < end:  # check: period-of-format
        raise InvalidRequestError(
            f"{Option.FORMAT} {text_format!r} does not read a time as it writes it: it would give partitions the "
            "wrong age",
            hint=f"{hint}; %M is the minute, %I needs %p, and %W needs the weekday",
        )
