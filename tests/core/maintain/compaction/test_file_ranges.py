"""The ranges of files are never longer than those of their rows, whatever was cut off from the bounds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.table.sorting import NullOrder, SortDirection, SortField
from pyiceberg.transforms import IdentityTransform, parse_transform
from pyiceberg.types import LongType, NestedField, StringType
from support.tables.random_filters import KINDS, File, Kind, arrow_column, entries_table, values
from support.tiers import examples

from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.maintain.compaction.file_ranges import FileRanges, file_ranges
from lake.core.spec.types.arrow_schema import arrow_schema

Row = Sequence[Any]
_LENGTH = 2
_PROPERTIES = {"write.metadata.metrics.default": f"truncate({_LENGTH})"}
LONG = next(kind for kind in KINDS if isinstance(kind.type_, LongType))
TEXT = next(kind for kind in KINDS if isinstance(kind.type_, StringType))


def schema_of(kinds: Sequence[Kind]) -> Schema:
    return Schema(
        *(NestedField(n, f"c{n}", kind.type_, required=False) for n, kind in enumerate(kinds, 1))
    )


def measured(files: Sequence[Sequence[Row]], kinds: Sequence[Kind]) -> pa.Table:
    """Return the entries of files with some rows."""
    found = []
    for rows in files:
        file = File(record_count=len(rows))
        for place, kind in enumerate(kinds):
            file.measure(place + 1, kind, [row[place] for row in rows], _LENGTH)
        found.append(file)
    entries = entries_table(found)
    names = ("record_count", "partition")
    counts = pa.array([file.record_count for file in found], pa.int64())
    partition = pa.array([{} for _ in found], pa.struct([]))
    return pa.table(
        {
            **{name: entries[name] for name in entries.column_names if name not in names},
            "record_count": counts,
            "partition": pa.chunked_array([partition]),
        }
    )


def ranges_of(
    files: Sequence[Sequence[Row]], kinds: Sequence[Kind], fields: Sequence[SortField]
) -> FileRanges:
    found = file_ranges(measured(files, kinds), fields, schema_of(kinds), _PROPERTIES)
    assert found is not None
    return found


@st.composite
def orders(draw: st.DrawFn) -> tuple[list[Kind], list[SortField]]:
    kinds = draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=3))
    fields = []
    for number in draw(st.permutations(range(1, len(kinds) + 1))):
        names = [name for name in kinds[number - 1].transforms if "bucket" not in name]
        transform = parse_transform(
            draw(st.sampled_from([name for name in names if name != "void"]))
        )
        direction, nulls = draw(st.sampled_from(SortDirection)), draw(st.sampled_from(NullOrder))
        fields.append(SortField(number, transform, direction, nulls))
    return kinds, fields


@settings(deadline=None, max_examples=examples(300))
@given(orders(), st.data())
def test_files_of_rows_in_order_do_not_overlap(
    drawn: tuple[list[Kind], list[SortField]], data: st.DataObject
) -> None:
    kinds, fields = drawn
    # A text that ends with the last code point cannot be increased there; no text in use has it.
    some = [values(kind).filter(lambda value: value != "\U0010ffff") for kind in kinds]
    rows = data.draw(st.lists(st.tuples(*some), min_size=1, max_size=20))
    schema = schema_of(kinds)
    columns = [
        arrow_column([row[place] for row in rows], kind.type_) for place, kind in enumerate(kinds)
    ]
    batch = pa.RecordBatch.from_arrays(columns, schema=arrow_schema(schema))
    keys = RowOrder(fields=tuple(fields)).keys(batch, schema).to_pylist()
    in_order = [rows[place] for place in sorted(range(len(rows)), key=keys.__getitem__)]
    size = data.draw(st.integers(1, 5))
    files = [in_order[start : start + size] for start in range(0, len(rows), size)]

    found = ranges_of(files, kinds, fields)

    assert not found.ranges.overlaps().any()
    assert (found.ranges.depths() == 1).all()


ASCENDING = SortField(1, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST)


@pytest.mark.parametrize(
    ("kind", "files", "overlaps"),
    [
        (LONG, [[1, 5], [5, 9], [5, 5], [9, 9]], [0, 0, 0, 0]),
        (LONG, [[1, 5], [4, 9], [3, 3], [7]], [2, 2, 1, 1]),
        # NULL is the last value.
        (LONG, [[1, None], [5, 6], [None], [None, None], [0, 1]], [1, 1, 0, 0, 0]),
        # Bounds are cut to two characters: the files of the first pair may be in order.
        (TEXT, [["abc", "abd"], ["abd", "abe"]], [0, 0]),
        (TEXT, [["a", "c"], ["b", "d"]], [1, 1]),
    ],
)
def test_files_overlap_if_their_values_do(
    kind: Kind, files: list[list[Any]], overlaps: list[int]
) -> None:
    rows = [[(value,) for value in file] for file in files]

    found = ranges_of(rows, [kind], [ASCENDING])

    assert found.ranges.overlaps().tolist() == overlaps


def test_files_with_one_value_are_compared_by_the_next_column() -> None:
    fields = [
        ASCENDING,
        SortField(2, IdentityTransform(), SortDirection.DESC, NullOrder.NULLS_LAST),
    ]
    files = [[(7, 1), (7, 5)], [(7, 4), (7, 9)], [(7, 9), (7, 12)], [(7, 3)], [(1, 0), (7, 99)]]

    found = ranges_of(files, [LONG, LONG], fields)

    assert found.ranges.overlaps().tolist() == [2, 1, 0, 1, 0]


def test_a_file_with_nan_and_another_value_has_several_values() -> None:
    real = next(kind for kind in KINDS if kind.has_nan)
    fields = [
        ASCENDING,
        SortField(2, IdentityTransform(), SortDirection.ASC, NullOrder.NULLS_LAST),
    ]
    files = [[(1.0, 1), (1.0, 2)], [(1.0, 2), (math.nan, 1)], [(math.nan, 1), (math.nan, 2)]]

    found = ranges_of(files, [real, LONG], fields)

    assert found.ranges.overlaps().tolist() == [0, 0, 0]


def test_a_file_without_bounds_or_of_nan_alone_is_not_taken_for_one_with_values() -> None:
    real = next(kind for kind in KINDS if kind.has_nan)
    files: list[list[Row]] = [[(1.0,), (5.0,)], [(math.nan,)], [(2.0,), (math.nan,)]]
    entries = measured(files, [real])
    bare = measured([[(3.0,)]], [real])
    for name in ("lower_bounds", "upper_bounds"):
        place = bare.schema.get_field_index(name)
        bare = bare.set_column(place, name, pa.array([[]], bare.schema.field(name).type))

    found = file_ranges(
        pa.concat_tables([bare, entries]), [ASCENDING], schema_of([real]), _PROPERTIES
    )

    assert found is not None
    assert found.known.tolist() == [1, 2, 3]
    assert found.ranges.overlaps().tolist() == [1, 0, 1]
    assert np.all(found.partitions == 0)


@pytest.mark.parametrize(
    ("transform", "properties"),
    [
        ("bucket[4]", {}),
        ("void", {}),
        ("identity", {"write.metadata.metrics.column.c1": "counts"}),
        ("identity", {"write.metadata.metrics.max-inferred-column-defaults": "0"}),
    ],
)
def test_an_order_that_no_bounds_show_has_no_ranges(
    transform: str, properties: dict[str, str]
) -> None:
    field = SortField(1, parse_transform(transform), SortDirection.ASC, NullOrder.NULLS_FIRST)

    assert file_ranges(measured([[(1,)]], [LONG]), [field], schema_of([LONG]), properties) is None
