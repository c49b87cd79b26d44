"""The order of splits and the bounds of the watermark, by files whose bounds are known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import (
    DateType,
    IcebergType,
    LongType,
    NestedField,
    StringType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
)
from support.tables.iceberg_tables import make_table, open_session

from lake.core.base.choices import Order, TimeUnit
from lake.core.base.errors import BadInputError, InvalidRequestError, RefusedError
from lake.core.read.continuous.discovery import Discovery, discover
from lake.core.read.continuous.handover.work import WorkItem
from lake.core.read.continuous.options import FollowOptions, Strategy
from lake.core.read.continuous.order import WatermarkColumn, watermark_column
from lake.core.read.continuous.position import Position
from lake.core.read.scan.plan import ScanOptions

NOW = 10**13
SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "at", TimestampType(), required=False),
)


def rows(*moments: int | None) -> pa.Table:
    """Return rows with these microseconds as ``id`` and ``at``."""
    return pa.table(
        {"id": pa.array(moments, pa.int64()), "at": pa.array(moments, pa.timestamp("us"))}
    )


def made(warehouse: Path, parts: Sequence[Sequence[int | None]], **properties: str) -> None:
    """Make a table with one file for each part, the first part first."""
    table = make_table(warehouse, schema=SCHEMA, **properties)
    for part in parts:
        table.append(rows(*part))


def found(warehouse: Path, **options: Any) -> Discovery:
    """Return the discovery of everything."""
    table = open_session(warehouse).table("db.t")
    chosen = FollowOptions(start=Strategy.EARLIEST, **options)
    discovery = discover(table, Position.EMPTY, chosen, now_ms=NOW)
    assert discovery is not None
    return discovery


def items(warehouse: Path, **options: Any) -> list[WorkItem]:
    return list(found(warehouse, **options).work())


ALONE = ScanOptions(split_size=1)


def test_splits_are_ordered_by_their_least_time(warehouse: Path) -> None:
    made(warehouse, [[50_000, 60_000], [10_000, 90_000], [30_000]])

    ordered = items(warehouse, scan=ALONE, order=Order.TIME, watermark_column="at")

    assert [(item.least, item.greatest) for item in ordered] == [(10, 90), (30, 30), (50, 60)]


def test_a_split_of_several_files_has_the_bounds_of_all(warehouse: Path) -> None:
    made(warehouse, [[50_000, 60_000], [10_999, 20_000], [30_000]])

    (item,) = items(warehouse, watermark_column="at")

    assert (item.least, item.greatest) == (10, 60)


def test_without_a_watermark_column_splits_have_no_bounds(warehouse: Path) -> None:
    made(warehouse, [[1]])

    (item,) = items(warehouse)

    assert (item.least, item.greatest) == (None, None)


def test_splits_are_ordered_by_sequence_number_with_one_file_each(warehouse: Path) -> None:
    made(warehouse, [[3], [1], [2]])

    ordered = items(warehouse, order=Order.SEQUENCE)

    assert [[file.sequence_number for file in item.files] for item in ordered] == [[1], [2], [3]]


def test_pieces_of_one_file_are_ordered_by_their_start(warehouse: Path) -> None:
    made(warehouse, [[1], [2]])
    discovery = found(warehouse, order=Order.SEQUENCE, scan=ScanOptions(split_size=100))

    (first, *_), *_ = (item.files for item in discovery.work())
    starts = [(f.sequence_number, f.start) for item in discovery.work() for f in item.files]

    assert first.start == 0
    assert starts == sorted(starts)


def test_a_table_without_sequence_numbers_cannot_be_ordered_by_them(warehouse: Path) -> None:
    made(warehouse, [[1]], format_version="1")

    with pytest.raises(RefusedError, match="needs sequence numbers"):
        found(warehouse, order=Order.SEQUENCE)


@pytest.mark.parametrize(
    ("part", "properties"),
    [([None], {}), ([1], {"write__metadata__metrics__default": "none"})],
)
def test_a_file_without_bounds_is_named(
    warehouse: Path, part: list[int | None], properties: dict[str, str]
) -> None:
    made(warehouse, [part], **properties)

    with pytest.raises(
        BadInputError, match=r"missing statistics for column at \(field id 2\) in f"
    ):
        items(warehouse, watermark_column="at")


def test_values_become_milliseconds_rounded_down() -> None:
    values = np.array([-1, 0, 1999, 2_000_000], np.int64)

    def converted(unit: TimeUnit | None) -> list[int]:
        column = WatermarkColumn(1, "at", SCHEMA, unit)
        return column.milliseconds(values).tolist()

    assert converted(TimeUnit.MICROSECONDS) == [-1, 0, 1, 2000]
    assert converted(TimeUnit.MILLISECONDS) == [-1, 0, 1999, 2_000_000]
    assert converted(TimeUnit.SECONDS) == [-1000, 0, 1_999_000, 2_000_000_000]
    assert converted(None) == [-1, 0, 0, 2]


def test_seconds_that_do_not_fit_stay_in_order() -> None:
    column = WatermarkColumn(1, "at", SCHEMA, TimeUnit.SECONDS)
    ends = column.milliseconds(np.array([-(2**63), 0, 2**63 - 1], np.int64)).tolist()

    assert ends == sorted(ends)


def column_of(type_: IcebergType, unit: TimeUnit | None = None) -> WatermarkColumn | None:
    schema = Schema(NestedField(1, "at", type_, required=False))
    options = FollowOptions(watermark_column="at", watermark_unit=unit)
    return watermark_column(schema, options)


@pytest.mark.parametrize(
    ("type_", "given", "unit"),
    [
        (LongType(), None, TimeUnit.MICROSECONDS),
        (LongType(), TimeUnit.SECONDS, TimeUnit.SECONDS),
        (TimestampType(), None, TimeUnit.MICROSECONDS),
        (TimestamptzType(), None, TimeUnit.MICROSECONDS),
        (TimestampNanoType(), None, None),
    ],
)
def test_a_watermark_is_a_time_or_a_long(
    type_: IcebergType, given: TimeUnit | None, unit: TimeUnit | None
) -> None:
    column = column_of(type_, given)

    assert column is not None
    assert column.unit == unit


@pytest.mark.parametrize("type_", [StringType(), DateType()])
def test_other_types_have_no_time(type_: IcebergType) -> None:
    with pytest.raises(InvalidRequestError, match="not a long or a timestamp"):
        column_of(type_)


def test_the_unit_of_a_timestamp_is_not_a_choice() -> None:
    with pytest.raises(InvalidRequestError, match="is for columns of type long"):
        column_of(TimestampType(), TimeUnit.SECONDS)


def test_a_watermark_column_must_exist() -> None:
    options = FollowOptions(watermark_column="no")
    with pytest.raises(BadInputError, match="there is no column no"):
        watermark_column(SCHEMA, options)
    other_case = replace(options, watermark_column="AT", scan=ScanOptions(ignore_case=True))
    assert watermark_column(SCHEMA, other_case) is not None
