"""Figures of a rewrite are compared only where they must agree."""

from __future__ import annotations

import struct

import pytest
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from lake.core.base.errors import CorruptFileError, LakeError
from lake.core.maintain.compaction.verify import check_rows, metric_differences
from lake.core.table.manifests.api import entries_of
from lake.core.table.manifests.data_files import DataFile

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "d", DoubleType(), required=False),
    NestedField(3, "name", StringType(), required=False),
)


def long(value: int) -> bytes:
    return struct.pack("<q", value)


def file(
    *, nulls: object = None, nans: object = None, low: object = None, high: object = None
) -> DataFile:
    return DataFile(
        path="f",
        spec_id=0,
        record_count=10,
        size_bytes=1,
        value_counts={1: 10, 2: 10, 3: 10},
        null_value_counts=nulls or {},
        nan_value_counts=nans or {},
        lower_bounds=low or {},
        upper_bounds=high or {},
    )


def found(before: list[DataFile], *after: DataFile) -> list[bool]:
    """Return for each disagreement whether it is certain."""
    spec = UNPARTITIONED_PARTITION_SPEC
    inputs = entries_of(before, spec=spec, schema=SCHEMA, status=1, snapshot_id=1)
    return [item.certain for item in metric_differences(inputs, after, schema=SCHEMA, spec=spec)]


def test_rows_must_be_what_metadata_promised_and_what_was_written() -> None:
    check_rows(10, 10, [file()])
    with pytest.raises(CorruptFileError):
        check_rows(11, 10, [file()])
    with pytest.raises(LakeError) as caught:
        check_rows(20, 20, [file()])
    assert not isinstance(caught.value, CorruptFileError)


def test_counts_must_agree_where_both_sides_have_them() -> None:
    assert found([file(nulls={1: 2}), file(nulls={1: 3})], file(nulls={1: 5})) == []
    assert found([file(nulls={1: 2})], file(nulls={1: 3})) == [True]
    assert found([file(nans={2: 1})], file(nans={2: 0})) == [True]
    assert found([file(nulls={1: 2}), file()], file(nulls={1: 9})) == []
    assert found([file(nulls={1: 2})], file()) == []


def test_bounds_must_agree_and_may_only_have_been_loose() -> None:
    before = [file(low={1: long(3)}, high={1: long(9)}), file(low={1: long(-2)}, high={1: long(4)})]

    assert found(before, file(low={1: long(-2)}, high={1: long(9)})) == []
    assert found(before, file(low={1: long(-1)}, high={1: long(8)})) == [False, False]
    assert found(before, file(low={1: long(-3)}, high={1: long(10)})) == [True, True]
    assert found([*before, file()], file(low={1: long(-3)}, high={1: long(10)})) == []


def test_a_file_of_nulls_only_needs_no_bounds() -> None:
    empty = file(nulls={1: 10})
    before = [empty, file(nulls={1: 0}, low={1: long(3)}, high={1: long(3)})]

    assert found(before, file(nulls={1: 10}, low={1: long(3)}, high={1: long(3)})) == []
    assert found(before, file(nulls={1: 10}, low={1: long(2)}, high={1: long(3)})) == [True]
    assert found([empty], file(nulls={1: 10})) == []


def test_bounds_written_before_a_promotion_are_read_as_what_they_were() -> None:
    old = file(low={1: struct.pack("<i", -7)}, high={1: struct.pack("<i", 7)})

    assert found([old], file(low={1: long(-7)}, high={1: long(7)})) == []


def test_zeros_of_either_sign_agree_and_nan_is_not_a_bound() -> None:
    def double(value: float) -> bytes:
        return struct.pack("<d", value)

    zero = file(low={2: double(-0.0)}, high={2: double(0.0)})
    assert found([zero], file(low={2: double(0.0)}, high={2: double(0.0)})) == []
    nan = file(low={2: double(float("nan"))}, high={2: double(1)})
    assert found([nan], file(low={2: double(0.5)}, high={2: double(1)})) == []


def test_shortened_text_bounds_agree_whatever_their_length() -> None:
    full = file(low={3: b"abcdefgh"}, high={3: b"xyzzyxyz"})

    assert found([full], file(low={3: b"abcd"}, high={3: b"xyz{"})) == []
    assert found([file(low={3: b"abcd"}, high={3: b"xyz{"})], full) == []
    assert found([full], file(low={3: b"b"}, high={3: b"x"})) == [False, False]
    assert found([file(high={3: b"n9"})], file(high={3: b"n0"})) == [False]
