"""Text becomes the value that it says, exactly, or is refused with its place."""

from __future__ import annotations

import base64
import datetime as dt
import uuid
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    LongType,
    NestedField,
    StringType,
    StructType,
    TimestampNanoType,
    TimestampType,
    TimestamptzType,
    TimeType,
    UUIDType,
)
from support.tiers import examples

from lake.core.base.errors import BadInputError
from lake.core.data.sources.inference import InferredType, infer_type, joined
from lake.core.data.sources.text_values import NULL_WORDS, ValueContext, from_text

PLACE = ValueContext("c", "f.csv", range(11, 1000))


def parsed(texts: list[str | None], kind: IcebergType) -> list[Any]:
    return from_text(pa.array(texts, pa.string()), kind, PLACE).to_pylist()  # type: ignore[no-any-return]


_TIMES = st.datetimes(dt.datetime(1, 1, 2), dt.datetime(9999, 12, 30))
WRITTEN: list[tuple[IcebergType, st.SearchStrategy[Any], Any]] = [
    (BooleanType(), st.booleans(), lambda v: str(v).lower()),
    (IntegerType(), st.integers(-(2**31), 2**31 - 1), str),
    (LongType(), st.integers(-(2**63), 2**63 - 1), str),
    (DoubleType(), st.floats(allow_nan=False), repr),
    (
        DecimalType(20, 3),
        st.integers(-(10**20) + 1, 10**20 - 1).map(lambda n: Decimal(n).scaleb(-3)),
        str,
    ),
    (DateType(), st.dates(), dt.date.isoformat),
    (TimeType(), st.times(), dt.time.isoformat),
    (TimestampType(), _TIMES, dt.datetime.isoformat),
    (TimestampType(), _TIMES, lambda v: v.isoformat(" ")),
    (TimestamptzType(), _TIMES.map(lambda v: v.replace(tzinfo=dt.UTC)), dt.datetime.isoformat),
    (UUIDType(), st.uuids(), str),
    (UUIDType(), st.uuids(), lambda v: v.hex.upper()),
    (BinaryType(), st.binary(), lambda v: base64.b64encode(v).decode()),
    (FixedType(3), st.binary(min_size=3, max_size=3), lambda v: base64.b64encode(v).decode()),
]


@settings(max_examples=examples(150), deadline=None)
@given(data=st.data(), form=st.sampled_from(WRITTEN), blanks=st.booleans())
def test_what_is_written_as_text_is_read_as_the_value(
    data: st.DataObject, form: tuple[IcebergType, st.SearchStrategy[Any], Any], blanks: bool
) -> None:
    kind, strategy, write = form
    values = data.draw(st.lists(st.one_of(st.none(), strategy), min_size=1))
    # Any word may be a binary.
    words = [None] if isinstance(kind, BinaryType | FixedType) else [None, *NULL_WORDS]
    texts = [data.draw(st.sampled_from(words)) if v is None else write(v) for v in values]
    if blanks and len(words) > 1:
        texts = [None if text is None else f"  {text}\t" for text in texts]

    found = parsed(texts, kind)

    assert found == [v.bytes if isinstance(v, uuid.UUID) else v for v in values]


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        (IntegerType(), "2147483648"),
        (IntegerType(), "1.0"),
        (IntegerType(), "1e3"),
        (LongType(), "9223372036854775808"),
        (LongType(), "one"),
        (BooleanType(), "yes"),
        (FloatType(), "1e39"),
        (DoubleType(), "1e999"),
        (DoubleType(), "1,5"),
        (DecimalType(5, 2), "1.234"),
        (DecimalType(5, 2), "1234.5"),
        (DecimalType(5, 2), "NaN"),
        (DateType(), "2020-02-30"),
        (DateType(), "2020-01-01T00:00:00"),
        (TimeType(), "25:00:00"),
        (TimeType(), "10:00:00Z"),
        (TimestampType(), "2020-01-01T00:00:00Z"),
        (TimestampType(), "2020-01-01T00:00:00.1234567"),
        (TimestamptzType(), "yesterday"),
        (UUIDType(), "0000"),
        (FixedType(3), base64.b64encode(b"xxxx").decode()),
        (BinaryType(), "no base64!"),
    ],
)
def test_a_text_that_is_not_a_value_of_the_type_is_named_with_its_row(
    kind: IcebergType, bad: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        parsed([None, None, bad, bad], kind)

    assert caught.value.message == f"column c of f.csv, row 13: {bad!r} is not a valid {kind}"


def test_zoned_times_without_a_zone_are_utc() -> None:
    texts = [
        "2020-01-01",
        "2020-01-01 10:00",
        "2020-01-01T10:00:00+02:00",
        "2020-01-01T10:00:00.5-0330",
    ]

    assert [value.isoformat() for value in parsed([*texts], TimestamptzType())] == [
        "2020-01-01T00:00:00+00:00",
        "2020-01-01T10:00:00+00:00",
        "2020-01-01T08:00:00+00:00",
        "2020-01-01T13:30:00.500000+00:00",
    ]


def test_nanoseconds_are_kept() -> None:
    column = from_text(pa.array(["1969-12-31T23:59:59.999999999"]), TimestampNanoType(), PLACE)

    assert column.cast(pa.int64()).to_pylist() == [-1]


def test_in_text_columns_words_for_null_are_words() -> None:
    assert parsed(["", "NULL", "NA", " x ", None], StringType()) == ["", "NULL", "NA", " x ", None]


# Inference


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ([], InferredType.NOTHING),
        ([None, "", "NA", " NULL "], InferredType.NOTHING),
        (["true", "False"], InferredType.BOOLEAN),
        (["true", "1"], InferredType.TEXT),
        (["1", "-2", "NA", "0"], InferredType.INTEGER),
        (["1", "007"], InferredType.TEXT),
        (["1", "0.5"], InferredType.FLOATING),
        (["00.5"], InferredType.TEXT),
        (["9007199254740993"], InferredType.LARGE_INTEGER),
        (["9007199254740993", "0.5"], InferredType.TEXT),
        (["12345678901234567890"], InferredType.TEXT),
        (["nan", "inf"], InferredType.TEXT),
        (["nan", "1.5"], InferredType.FLOATING),
        (["2020-01-01"], InferredType.DATE),
        (["2020-01-01", "2020-01-01 10:00:00"], InferredType.TIMESTAMP),
        (["2020-01-01T10:00:00Z", "2020-01-01T10:00:00+01:00"], InferredType.ZONED_TIMESTAMP),
        (["2020-01-01T10:00:00Z", "2020-01-01T10:00:00"], InferredType.TEXT),
        (["2020-13-01"], InferredType.TEXT),
        (["1", "x"], InferredType.TEXT),
    ],
)
def test_the_narrowest_type_that_keeps_every_value_is_inferred(
    texts: list[str], kind: InferredType
) -> None:
    assert infer_type(pa.array(texts, pa.string())) is kind


CELLS = st.one_of(
    st.none(),
    st.sampled_from(
        ["", "NA", "true", "2020-01-01", "2020-01-01T10:00:00", "2020-01-01T10:00:00Z", "x"]
    ),
    st.integers(-(2**66), 2**66).map(str),
    st.floats().map(repr),
    st.from_regex(r"[+-]?[0-9]{1,3}(\.[0-9]{1,3})?", fullmatch=True),
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(st.lists(CELLS, max_size=4), max_size=4))
def test_blocks_join_to_a_type_that_reads_every_block(blocks: list[list[str | None]]) -> None:
    kind = InferredType.NOTHING
    for block in blocks:
        kind = joined(kind, infer_type(pa.array(block, pa.string())))
    types = {
        InferredType.BOOLEAN: BooleanType(),
        InferredType.INTEGER: LongType(),
        InferredType.LARGE_INTEGER: LongType(),
        InferredType.FLOATING: DoubleType(),
        InferredType.DATE: DateType(),
        InferredType.TIMESTAMP: TimestampType(),
        InferredType.ZONED_TIMESTAMP: TimestamptzType(),
    }
    cells = [cell for block in blocks for cell in block]

    found = parsed(cells, types.get(kind, StringType()))

    if kind in {InferredType.INTEGER, InferredType.LARGE_INTEGER, InferredType.FLOATING}:
        for cell, value in zip(cells, found, strict=True):
            says_nothing = cell is None or cell in NULL_WORDS
            assert value is None if says_nothing else repr(value) == repr(type(value)(cell))


def test_a_null_struct_has_no_fields_whatever_its_children_contain() -> None:
    texts = pa.StructArray.from_arrays(
        [pa.array(["", "AQI="]), pa.array(["", "2"])],
        names=["x", "n"],
        mask=pa.array([True, False]),
    )
    kind = StructType(
        NestedField(2, "x", FixedType(2), required=True), NestedField(3, "n", LongType())
    )

    found = from_text(texts, kind, PLACE)

    assert found.to_pylist() == [None, {"x": b"\1\2", "n": 2}]
    found.validate(full=True)
