"""Filters are parsed safely, bound exactly, carried without loss, and keep only TRUE rows."""

from __future__ import annotations

import json
import math
import re
import sqlite3
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    BooleanExpression,
    EqualTo,
    GreaterThan,
    In,
    IsNull,
    LessThan,
    LessThanOrEqual,
    Not,
    NotIn,
    NotNaN,
    Or,
    StartsWith,
)
from pyiceberg.expressions.literals import DateLiteral, TimestampLiteral
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    ListType,
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
from support.tables.random_filters import (
    ALL_OPS,
    KINDS,
    Kind,
    arrow_column,
    filters,
    kinds,
    predicates,
    values,
)
from support.tiers import examples

from lake.core.base.errors import BadInputError, NotFoundError
from lake.core.spec.expressions.filters import (
    TRUE,
    bind_filter,
    filter_columns,
    filter_from_plain,
    filter_to_plain,
    row_mask,
)
from lake.core.spec.expressions.parser import parse_filter
from lake.core.spec.types.type_text import type_text

NUMBERS = Kind(LongType(), [-1, 0, 1, 2], int)
WORDS = Kind(StringType(), ["", "a", "ab", "b", "it's", 'q"', "é"], str)


def schema_of(**types: Any) -> Schema:
    return Schema(
        *(
            NestedField(number, name, type_, required=False)
            for number, (name, type_) in enumerate(types.items(), 1)
        )
    )


def batch_of(schema: Schema, **columns: Any) -> pa.RecordBatch:
    fields, arrays = [], []
    for field in schema.fields:
        array = arrow_column(columns[field.name], field.field_type)
        metadata = {"PARQUET:field_id": str(field.field_id)}
        fields.append(pa.field(field.name, array.type, metadata=metadata))
        arrays.append(array)
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def mask_of(expression: BooleanExpression, type_: Any, column: list[Any]) -> list[bool]:
    schema = schema_of(x=type_)
    return row_mask(bind_filter(expression, schema), batch_of(schema, x=column), schema).to_pylist()


def as_sql(node: BooleanExpression) -> str:
    if isinstance(node, And | Or):
        return f"({as_sql(node.left)} {type(node).__name__} {as_sql(node.right)})"
    if isinstance(node, Not):
        return f"(NOT {as_sql(node.child)})"
    name = node.term.name
    op = node.type
    if op in {"is-null", "not-null"}:
        return f"({name} IS {'NOT ' if op == 'not-null' else ''}NULL)"
    if op in {"in", "not-in"}:
        wanted = ", ".join(sql_literal(literal.value) for literal in node.literals)
        return f"({name} {op.replace('-', ' ')} ({wanted}))"
    value = node.literal.value
    if op in {"starts-with", "not-starts-with"}:
        found = f"(substr({name}, 1, {len(value)}) = {sql_literal(value)})"
        return f"(NOT {found})" if op.startswith("not") else found
    sign = {"lt": "<", "lt-eq": "<=", "gt": ">", "gt-eq": ">=", "eq": "=", "not-eq": "<>"}[op]
    return f"({name} {sign} {sql_literal(value)})"


def sql_literal(value: Any) -> str:
    return str(value) if isinstance(value, int) else "'{}'".format(value.replace("'", "''"))


SQL_OPS = tuple(op for op in ALL_OPS if not op.endswith("nan"))


@settings(deadline=None, max_examples=examples(250))
@given(
    expression=filters({"n": NUMBERS, "s": WORDS}, SQL_OPS),
    rows=st.lists(st.tuples(values(NUMBERS), values(WORDS)), min_size=1, max_size=12),
)
def test_a_filter_keeps_the_rows_that_sql_keeps(expression: Any, rows: Any) -> None:
    schema = schema_of(n=LongType(), s=StringType())
    batch = batch_of(schema, n=[row[0] for row in rows], s=[row[1] for row in rows])
    with sqlite3.connect(":memory:") as database:
        database.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, n INTEGER, s TEXT)")
        database.executemany("INSERT INTO t (n, s) VALUES (?, ?)", rows)
        sql = f"SELECT k FROM t WHERE {as_sql(expression)} ORDER BY k"
        wanted = [row[0] - 1 for row in database.execute(sql)]
    mask = row_mask(bind_filter(expression, schema), batch, schema)
    assert pc.indices_nonzero(mask).to_pylist() == wanted


# PyIceberg lacks literals for nanoseconds, and its UUID column is an extension array.
PYICEBERG_KINDS = [kind for kind in KINDS if not ("_ns" in repr(kind) or repr(kind) == "uuid")]
# Its "not in" is true for NULL, and it binds "is not nan" to true for all but floats.
PYICEBERG_OPS = tuple(op for op in ALL_OPS if op not in {"not-in", "is-nan", "not-nan"})


@settings(deadline=None, max_examples=examples(250))
@given(data=st.data(), kind=st.sampled_from(PYICEBERG_KINDS), negations=st.booleans())
def test_a_filter_keeps_the_rows_that_pyiceberg_keeps(
    data: Any, kind: Kind, negations: bool
) -> None:
    ops = PYICEBERG_OPS if not kind.has_nan else (*PYICEBERG_OPS, "is-nan", "not-nan")
    # Its "in" is false for NULL, and distinguishes -0.0 from 0.0.
    usable = [op for op in ops if op != "in" or not (negations or kind.has_nan)]
    expression = data.draw(filters({"x": kind}, usable, negations=negations))
    column = data.draw(st.lists(values(kind), min_size=1, max_size=10))
    schema = schema_of(x=kind.type_)
    batch = batch_of(schema, x=column)
    mask = row_mask(bind_filter(expression, schema), batch, schema)
    theirs = expression_to_pyarrow(bind(schema, expression, case_sensitive=True), schema)
    numbered = pa.table({"x": batch.column(0), "row": range(len(column))})
    assert pc.indices_nonzero(mask).to_pylist() == numbered.filter(theirs)["row"].to_pylist()
    assert mask.null_count == 0


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data(), kind=kinds)
def test_no_row_matches_both_a_filter_and_its_negation(data: Any, kind: Kind) -> None:
    expression = data.draw(filters({"x": kind}))
    column = data.draw(st.lists(values(kind), min_size=1, max_size=10))
    kept, dropped = (
        mask_of(expression, kind.type_, column),
        mask_of(Not(expression), kind.type_, column),
    )
    assert not any(left and right for left, right in zip(kept, dropped, strict=True))
    if None not in column:
        assert all(left or right for left, right in zip(kept, dropped, strict=True))


def test_nulls_match_neither_a_comparison_nor_its_negation() -> None:
    column = [None, 1, 2]
    assert mask_of(EqualTo("x", 1), IntegerType(), column) == [False, True, False]
    assert mask_of(Not(EqualTo("x", 1)), IntegerType(), column) == [False, False, True]
    assert mask_of(NotIn("x", [1, 5]), IntegerType(), column) == [False, False, True]
    assert mask_of(Not(In("x", [1, 5])), IntegerType(), column) == [False, False, True]
    assert mask_of(Not(IsNull("x")), IntegerType(), column) == [False, True, True]
    assert mask_of(NotNaN("x"), IntegerType(), column) == [False, True, True]


def test_nan_compares_as_ieee_says_and_negation_keeps_that() -> None:
    column = [math.nan, 0.0, -0.0, 2.0, None]
    assert mask_of(parse_filter("x < 1"), DoubleType(), column) == [False, True, True, False, False]
    assert mask_of(parse_filter("not x < 1"), DoubleType(), column) == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert mask_of(In("x", [-0.0, 7.0]), FloatType(), column) == [False, True, True, False, False]
    assert mask_of(parse_filter("x is not nan"), FloatType(), column) == [
        False,
        True,
        True,
        True,
        False,
    ]


def test_a_value_with_quotes_stays_a_value() -> None:
    value = "x' or k is not null or k == 'y"
    assert mask_of(EqualTo("x", value), StringType(), ["a", value, None]) == [False, True, False]
    escaped = value.replace("'", "''")
    assert parse_filter(f"x == '{escaped}'") == EqualTo("x", value)


def test_an_unknown_column_is_named_with_the_columns_there_are() -> None:
    schema = schema_of(id=LongType(), name=StringType())
    with pytest.raises(NotFoundError, match="no column nmae") as caught:
        bind_filter(EqualTo("nmae", "a"), schema)
    assert caught.value.hint == "did you mean name? columns: id, name"
    with pytest.raises(NotFoundError):
        bind_filter(EqualTo("NAME", "a"), schema)
    assert filter_columns(bind_filter(EqualTo("NAME", "a"), schema, case_sensitive=False)) == {2}


@pytest.mark.parametrize(
    ("text", "type_", "message", "correct"),
    [
        (
            "zip = 5",
            StringType(),
            "a string, which cannot be compared with 5: not text",
            "zip = '5'",
        ),
        (
            "zip < '2024-02-02'",
            TimestamptzType(),
            "compared with '2024-02-02': the time has no zone",
            "zip < '2024-02-02T00:00:00Z'",
        ),
        ("zip = true", LongType(), "cannot be compared with true: not a number", "zip = 10"),
        ("zip > X'0A'", LongType(), "cannot be compared with X'0a': not a number", "zip > 10"),
        (
            "zip = 1.5",
            DateType(),
            "cannot be compared with 1.5: not a date",
            "zip = '2024-12-31'",
        ),
    ],
)
def test_a_literal_of_the_wrong_kind_is_shown_as_filters_write_it_with_the_correction(
    text: str, type_: Any, message: str, correct: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        bind_filter(parse_filter(text), schema_of(zip=type_))
    assert message in caught.value.message
    assert caught.value.hint == f"write {correct}"


def test_a_name_that_several_columns_have_in_other_cases_is_ambiguous() -> None:
    schema = schema_of(id=LongType(), ID=LongType())
    assert filter_columns(bind_filter(EqualTo("ID", 1), schema)) == {2}
    with pytest.raises(BadInputError, match="Id is ambiguous; it matches the columns id, ID"):
        bind_filter(EqualTo("Id", 1), schema, case_sensitive=False)


@pytest.mark.parametrize(
    ("text", "type_"),
    [
        ("x = 'abc'", LongType()),
        ("x = 5", StringType()),
        ("x = true", LongType()),
        ("x = 1", UUIDType()),
        ("x = 'zz'", UUIDType()),
        ("x = 'ab'", BinaryType()),
        ("x = 'yesterday'", DateType()),
        ("x = '2024-02-30'", DateType()),
        ("x = '25:00:00'", TimeType()),
        ("x = '2024-01-01T00:00:00Z'", TimestampType()),
        ("x = '2024-01-01T00:00:00'", TimestamptzType()),
        ("x = 1.5", DateType()),
        ("x like '1%'", LongType()),
        ("x like '_%1'", LongType()),
        ("x", LongType()),
        ("x = X'00'", StringType()),
        ("x = 'nan'", DoubleType()),
        ("x = 1", StructType(NestedField(9, "y", LongType()))),
    ],
)
def test_a_literal_of_the_wrong_kind_is_bad_input_that_names_column_and_type(
    text: str, type_: Any
) -> None:
    with pytest.raises(BadInputError) as caught:
        bind_filter(parse_filter(text), schema_of(x=type_))
    assert "column x" in caught.value.message
    assert type_text(type_) in caught.value.message
    example = r"columns: x\.y, x|write x (=|<) ('.+'|X'00FF'|10(\.5)?|true)"
    assert re.fullmatch(example, caught.value.hint or "")


SIGNS = {
    "<": Decimal.__lt__,
    "<=": Decimal.__le__,
    ">": Decimal.__gt__,
    ">=": Decimal.__ge__,
    "=": Decimal.__eq__,
    "!=": Decimal.__ne__,
}


@settings(deadline=None, max_examples=examples(250))
@given(
    sign=st.sampled_from(sorted(SIGNS)),
    negated=st.booleans(),
    literal=st.decimals(-4_000_000_000, 4_000_000_000, places=4)
    | st.sampled_from([Decimal("1.005"), Decimal("-2.5"), Decimal("2147483647.5")]),
    type_=st.sampled_from([IntegerType(), DecimalType(6, 2), DecimalType(20, 3)]),
    data=st.data(),
)
def test_a_number_that_the_column_cannot_hold_is_compared_exactly(
    sign: str, negated: bool, literal: Decimal, type_: Any, data: Any
) -> None:
    if isinstance(type_, IntegerType):
        near = int(literal.to_integral_value())
        pool = [min(max(near + step, -(2**31)), 2**31 - 1) for step in (-1, 0, 1)]
        pool += [2**31 - 1, -(2**31)]
    else:
        unit = Decimal(1).scaleb(-type_.scale)
        largest = Decimal(10**type_.precision - 1).scaleb(-type_.scale)
        near = literal.quantize(unit)
        pool = [min(max(near + step * unit, -largest), largest) for step in (-1, 0, 1)]
        pool += [largest, -largest]
    text = f"x {sign} {literal:.4f}"
    mask = mask_of(parse_filter(f"not {text}" if negated else text), type_, [*pool, None])
    wanted = [SIGNS[sign](Decimal(value), literal) != negated for value in pool]
    assert mask == [*wanted, False]


def test_numbers_out_of_an_int_match_as_numbers_do() -> None:
    column = [2**31 - 1, -(2**31), None]
    huge = 10**12
    assert mask_of(In("x", [huge, 1]), IntegerType(), column) == [False, False, False]
    assert mask_of(NotIn("x", [huge, -huge]), IntegerType(), column) == [True, True, False]
    assert mask_of(LessThan("x", huge), IntegerType(), column) == [True, True, False]
    assert mask_of(GreaterThan("x", -huge), IntegerType(), column) == [True, True, False]
    assert mask_of(Not(EqualTo("x", huge)), IntegerType(), column) == [True, True, False]
    assert mask_of(parse_filter("x < '1e999999999'"), IntegerType(), column) == [True, True, False]
    assert mask_of(parse_filter("x = '0e999999999'"), IntegerType(), [0]) == [True]


def test_a_double_beyond_floats_is_below_infinity_only() -> None:
    column = [math.inf, 1.0, math.nan, -math.inf, None]
    assert mask_of(LessThanOrEqual("x", 1e39), FloatType(), column) == [
        False,
        True,
        False,
        True,
        False,
    ]
    assert mask_of(GreaterThan("x", 1e39), FloatType(), column) == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert mask_of(GreaterThan("x", -1e39), FloatType(), column) == [
        True,
        True,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("1969-12-31T22:00:00", TimestampType(), -7_200_000_000),
        ("1970-01-01 00:00:00.000001", TimestampType(), 1),
        ("2024-01-01", TimestampType(), 1_704_067_200_000_000),
        ("1970-01-01T01:00:00+01:00", TimestamptzType(), 0),
        ("1970-01-01T00:00Z", TimestamptzType(), 0),
        ("1969-12-31T23:59:59.999999999", TimestampNanoType(), -1),
        ("1969-12-31", DateType(), -1),
        ("0001-01-01", DateType(), -719_162),
        ("9999-12-31T23:59:59.999999", TimestampType(), 253_402_300_799_999_999),
        ("23:59:59.5", TimeType(), 86_399_500_000),
    ],
)
def test_text_is_read_as_a_point_in_time(text: str, type_: Any, value: int) -> None:
    column = [value - 1, value, value + 1]
    if isinstance(type_, DateType | TimeType) and value <= 0:
        column = [value, value, value + 1]
    mask = mask_of(parse_filter(f"x = '{text}'"), type_, column)
    assert mask == [one == value for one in column]


def test_nanoseconds_are_not_rounded_for_a_column_of_microseconds() -> None:
    text = "'1970-01-01T00:00:00.000000500'"
    assert mask_of(parse_filter(f"x < {text}"), TimestampType(), [0, 1]) == [True, False]
    assert mask_of(parse_filter(f"x >= {text}"), TimestampType(), [0, 1]) == [False, True]
    assert mask_of(parse_filter(f"x = {text}"), TimestampType(), [0, 1]) == [False, False]


def test_a_timestamp_within_a_day_is_compared_exactly_with_dates() -> None:
    noon = TimestampLiteral(43_200_000_000)
    assert mask_of(EqualTo("x", noon), DateType(), [0, 1]) == [False, False]
    assert mask_of(LessThan("x", noon), DateType(), [0, 1]) == [True, False]
    assert mask_of(LessThan("x", DateLiteral(1)), TimestampType(), [0, 86_400_000_000]) == [
        True,
        False,
    ]


@settings(deadline=None, max_examples=examples(200))
@given(data=st.data(), kind=kinds)
def test_a_filter_comes_back_from_plain_data_as_it_was(data: Any, kind: Kind) -> None:
    expression = data.draw(filters({"a.x": kind, "x": kind}))
    schema = Schema(
        NestedField(1, "a", StructType(NestedField(2, "x", kind.type_)), required=True),
        NestedField(3, "x", kind.type_),
    )
    bound = bind_filter(expression, schema)
    for source in (expression, bound, Not(bound)):
        carried = filter_from_plain(json.loads(json.dumps(filter_to_plain(source))))
        assert repr(bind_filter(carried, schema)) == repr(bind_filter(source, schema))


@settings(deadline=None, max_examples=examples(100))
@given(data=st.data(), kind=kinds)
def test_binding_a_bound_filter_again_changes_nothing(data: Any, kind: Kind) -> None:
    bound = bind_filter(data.draw(predicates({"x": kind})), schema_of(x=kind.type_))
    assert repr(bind_filter(bound, schema_of(x=kind.type_))) == repr(bound)


def test_a_carried_bound_filter_finds_a_renamed_column() -> None:
    plain = filter_to_plain(bind_filter(EqualTo("old", 1), schema_of(old=LongType())))
    renamed = schema_of(new=LongType())
    bound = bind_filter(filter_from_plain(plain), renamed)
    assert row_mask(bound, batch_of(renamed, new=[1, 2]), renamed).to_pylist() == [True, False]


def test_awkward_literals_survive_plain_data() -> None:
    quoted = 'it\'s "q" \x00 \U0010ffff'
    expression = And(
        EqualTo("s", quoted),
        Or(LessThan("d", -math.inf), In("u", [UUID(int=1), UUID(int=2**128 - 1)])),
    )
    carried = filter_from_plain(json.loads(json.dumps(filter_to_plain(expression))))
    assert repr(carried) == repr(expression)
    assert filter_from_plain(filter_to_plain(TRUE)) is TRUE
    assert isinstance(filter_from_plain("false"), AlwaysFalse)


@pytest.mark.parametrize(
    "plain",
    [
        "maybe",
        {},
        {"op": "exec", "column": "x"},
        {"op": "eq", "column": "x"},
        {"op": "eq", "column": "x", "literal": ["pickle", "gA=="]},
        {"op": "eq", "column": "x", "literal": ["decimal", "abc"]},
        {"op": "eq", "column": "x", "literal": ["double", "nan"]},
        {"op": "eq", "field-id": "x", "literal": ["long", 1]},
        {"op": "in", "column": "x", "literals": 5},
        {"op": "and", "left": "true"},
        None,
    ],
)
def test_plain_data_that_is_not_a_filter_is_bad_input(plain: Any) -> None:
    with pytest.raises(BadInputError):
        filter_from_plain(plain)


def test_plain_data_nested_too_deep_is_bad_input() -> None:
    plain: Any = "true"
    for _ in range(5_000):
        plain = {"op": "not", "child": plain}
    with pytest.raises(BadInputError):
        filter_from_plain(plain)


def nested_schema(*, required_parent: bool = False) -> Schema:
    below = StructType(NestedField(3, "b", LongType(), required=True))
    return Schema(
        NestedField(1, "a", below, required=required_parent),
        NestedField(4, "l", ListType(5, LongType())),
    )


def test_a_field_of_a_struct_is_null_where_the_struct_is() -> None:
    schema = nested_schema()
    kind = pa.struct([pa.field("b", pa.int64(), metadata={"PARQUET:field_id": "3"})])
    column = pa.array([{"b": 1}, None, {"b": 2}], kind)
    batch = pa.RecordBatch.from_arrays(
        [column], schema=pa.schema([pa.field("a", kind, metadata={"PARQUET:field_id": "1"})])
    )
    assert row_mask(bind_filter(parse_filter("a.b = 1"), schema), batch, schema).to_pylist() == [
        True,
        False,
        False,
    ]
    null = row_mask(bind_filter(parse_filter("a.b is null"), schema), batch, schema)
    assert null.to_pylist() == [False, True, False]
    whole = row_mask(bind_filter(parse_filter("a is null"), schema), batch, schema)
    assert whole.to_pylist() == [False, True, False]
    certain = bind_filter(parse_filter("a.b is null"), nested_schema(required_parent=True))
    assert isinstance(certain, AlwaysFalse)


def test_a_filter_inside_a_list_is_bad_input() -> None:
    with pytest.raises(BadInputError, match=r"l\.element: it is inside a list"):
        bind_filter(EqualTo("l.element", 1), nested_schema())


def test_columns_are_found_by_field_id_before_their_name() -> None:
    schema = schema_of(x=LongType())
    ids = [{"PARQUET:field_id": "9"}, {"PARQUET:field_id": "1"}]
    fields = [pa.field(name, pa.int64(), metadata=one) for name, one in zip("xy", ids, strict=True)]
    batch = pa.RecordBatch.from_arrays([pa.array([1]), pa.array([2])], schema=pa.schema(fields))
    bound = bind_filter(EqualTo("x", 2), schema)
    assert row_mask(bound, batch, schema).to_pylist() == [True]
    unnumbered = pa.RecordBatch.from_pydict({"x": [2]})
    assert row_mask(bound, unnumbered, schema).to_pylist() == [True]
    with pytest.raises(NotFoundError, match="lack the filter's column x"):
        row_mask(bound, batch.select(["x"]), schema)


@pytest.mark.parametrize(
    "column",
    [
        pa.array(["ab", None, "b"]).dictionary_encode(),
        pa.array(["ab", None, "b"], pa.large_string()),
        pa.array(["ab", None, "b"], pa.string_view()),
    ],
)
def test_text_in_any_arrow_form_is_filtered(column: pa.Array) -> None:
    schema = schema_of(x=StringType())
    batch = pa.RecordBatch.from_arrays([column], ["x"])
    for expression in (StartsWith("x", "a"), EqualTo("x", "ab"), In("x", ["ab", "c"])):
        mask = row_mask(bind_filter(expression, schema), batch, schema)
        assert mask.to_pylist() == [True, False, False]


def test_rows_written_before_a_promotion_are_filtered() -> None:
    schema = schema_of(x=LongType(), d=DecimalType(20, 2))
    batch = pa.RecordBatch.from_pydict(
        {
            "x": pa.array([1, 2], pa.int32()),
            "d": pa.array([Decimal("1.50"), None], pa.decimal128(5, 2)),
        }
    )
    mask = row_mask(bind_filter(LessThan("x", 2**40), schema), batch, schema)
    assert mask.to_pylist() == [True, True]
    mask = row_mask(bind_filter(parse_filter("d = 1.5"), schema), batch, schema)
    assert mask.to_pylist() == [True, False]


def test_constant_filters_and_empty_batches_have_masks_of_the_right_length() -> None:
    schema = schema_of(x=LongType())
    batch = batch_of(schema, x=[1, None])
    assert row_mask(TRUE, batch, schema).to_pylist() == [True, True]
    assert row_mask(AlwaysFalse(), batch, schema).to_pylist() == [False, False]
    assert (
        row_mask(bind_filter(EqualTo("x", 1), schema), batch.slice(0, 0), schema).to_pylist() == []
    )
    assert row_mask(AlwaysTrue(), batch.slice(0, 0), schema).to_pylist() == []


def test_columns_of_a_filter_are_field_ids() -> None:
    schema = schema_of(x=LongType(), y=LongType(), z=LongType())
    bound = bind_filter(parse_filter("not (x = 1 or z is null)"), schema)
    assert filter_columns(bound) == {1, 3}
    assert filter_columns(TRUE) == set()


def test_an_unbound_filter_is_refused_by_what_needs_a_bound_one() -> None:
    schema = schema_of(x=LongType())
    with pytest.raises(TypeError, match="bind_filter"):
        row_mask(EqualTo("x", 1), batch_of(schema, x=[1]), schema)
