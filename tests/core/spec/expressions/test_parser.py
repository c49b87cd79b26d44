"""Filters are read as SQL reads them, and what is not a filter is refused with its place."""

from __future__ import annotations

import json
import re
import sqlite3
from contextlib import closing, suppress
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.expressions import (
    AlwaysFalse,
    AlwaysTrue,
    And,
    EqualTo,
    In,
    IsNull,
    LessThan,
    Not,
    NotNull,
    Or,
    StartsWith,
)
from pyiceberg.schema import Schema
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DoubleType,
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
)
from support.tiers import examples

from lake.core.base.errors import BadInputError
from lake.core.spec.expressions.filters import (
    bind_filter,
    filter_columns,
    filter_from_plain,
    filter_to_plain,
    row_mask,
)
from lake.core.spec.expressions.like import Like
from lake.core.spec.expressions.parser import parse_filter


def schema_of(**types: IcebergType) -> Schema:
    return Schema(
        *(NestedField(number, name, type_) for number, (name, type_) in enumerate(types.items(), 1))
    )


def kept(text: str, type_: IcebergType, column: pa.Array | list[Any], name: str = "x") -> list[Any]:
    """Return the values of a column that a filter keeps."""
    schema = schema_of(**{name: type_})
    batch = pa.RecordBatch.from_pydict({name: column})
    mask = row_mask(bind_filter(parse_filter(text), schema), batch, schema)
    return batch.column(0).filter(mask).to_pylist()


DAYS = pa.array([date(2023, 12, 31), date(2024, 1, 1), date(2024, 1, 2), None])
TIMES = [datetime(2023, 12, 31, 23), datetime(2024, 1, 1), datetime(2024, 1, 1, 12), None]
NOON_NANOS = 1_704_110_400_000_000_000


@pytest.mark.parametrize(
    ("text", "type_", "column", "found"),
    [
        ("x >= date '2024-01-01'", DateType(), DAYS, [1, 2]),
        ("DATE'2024-01-01' < x", DateType(), DAYS, [2]),
        ("x in (date '2023-12-31', DATE '2024-01-02')", DateType(), DAYS, [0, 2]),
        ("x in ('2023-12-31', date '2024-01-02')", DateType(), DAYS, [0, 2]),
        ("x between date '2024-01-01' and date '2024-01-01'", DateType(), DAYS, [1]),
        ("x is distinct from date '2024-01-01'", DateType(), DAYS, [0, 2, 3]),
        # A date is its midnight where it is compared with a timestamp.
        ("x < timestamp '2024-01-01 00:00:01'", DateType(), DAYS, [0, 1]),
        ("x = timestamp '2024-01-01 00:00:00'", DateType(), DAYS, [1]),
        ("x = timestamp '2024-01-01 00:00:00.000000001'", DateType(), DAYS, []),
        ("x > date '2024-01-01'", TimestampType(), TIMES, [2]),
        ("x >= timestamp '2024-01-01'", TimestampType(), TIMES, [1, 2]),
        ("x = TIMESTAMP '2024-01-01T12:00:00'", TimestampType(), TIMES, [2]),
        ("x = timestamp_ntz '2024-01-01 12:00'", TimestampType(), TIMES, [2]),
        (
            "x > timestamp '2024-01-01 12:00:00.123456788'",
            TimestampNanoType(),
            pa.array([NOON_NANOS + 123_456_788, NOON_NANOS + 123_456_789], pa.timestamp("ns")),
            [1],
        ),
        ("x > time '11:59:59'", TimeType(), pa.array([time(11), time(12)]), [1]),
    ],
)
def test_typed_values_are_those_of_sql(
    text: str, type_: IcebergType, column: Any, found: list[int]
) -> None:
    values = pa.array(column)

    assert kept(text, type_, values) == [values[index].as_py() for index in found]


def test_a_column_may_have_the_name_of_a_type() -> None:
    assert kept("date > date '2024-01-01'", DateType(), DAYS, "date") == [date(2024, 1, 2)]
    assert kept("time is null", LongType(), [1, None], "time") == [None]
    assert kept("timestamp in (1)", LongType(), [1, 2], "timestamp") == [1]


@pytest.mark.parametrize(
    "text",
    [
        "x > timestamp '2024-01-01T00:00:00Z'",
        "x > timestamptz '2024-01-01 01:00:00+01:00'",
        "x > timestamp_ltz '2024-01-01 00:00:00Z'",
    ],
)
def test_a_typed_timestamp_with_a_zone_is_a_point_in_time(text: str) -> None:
    points = [datetime(2024, 1, 1, hour, tzinfo=UTC) for hour in (0, 1)]

    assert kept(text, TimestamptzType(), points) == points[1:]


@pytest.mark.parametrize(
    ("text", "type_", "reason", "hint"),
    [
        ("x >= date '2024-01-01'", StringType(), "not text", "write x >= '2024-01-01'"),
        ("x in ('a', date '2024-01-01')", StringType(), "not text", "write x = '2024-01-01'"),
        ("x = timestamp '2024-01-01'", StringType(), "not text", "write x = '2024-01-01'"),
        ("x = date '2024-01-01'", LongType(), "not a number", "write x = 10"),
        ("x in (19723, date '2024-01-01')", LongType(), "not a number", "write x = 10"),
        ("x = time '10:00:00'", DateType(), "not a date", "write x = '2024-12-31'"),
        (
            "x > date '2024-01-01'",
            TimestamptzType(),
            "the time has no zone",
            "write x > '2024-01-01T00:00:00Z'",
        ),
        (
            "x > timestamptz '2024-01-01 10:00'",
            TimestamptzType(),
            "the time has no zone",
            "write x > '2024-01-01T10:00Z'",
        ),
        (
            "x > timestamp '2024-01-01 10:00'",
            TimestamptzType(),
            "the time has no zone",
            "write x > '2024-01-01T10:00Z'",
        ),
        (
            "x > timestamp '2024-01-01 10:00Z'",
            TimestampType(),
            "the column has no time zone: leave it out",
            "write x > '2024-12-31T23:59:59'",
        ),
        (
            "x > timestamptz '2024-01-01 10:00Z'",
            DateType(),
            "not a date",
            "write x > '2024-12-31'",
        ),
    ],
)
def test_a_typed_value_is_not_compared_with_a_column_of_another_type(
    text: str, type_: IcebergType, reason: str, hint: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        bind_filter(parse_filter(text), schema_of(x=type_))
    assert caught.value.message.endswith(f": {reason}")
    assert caught.value.hint == hint


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("x > date '2024-1-1'", "5: \"date '2024-1-1'\"", "write dates as 2024-12-31"),
        ("x > date '2024-02-30'", "5", "day is out of range for month"),
        ("x > timestamp 'noon'", "5", "write timestamps as 2024-12-31T23:59:59"),
        ("x > time '25:00:00'", "5", "no such time of day"),
        ("x > date", "5", "expected a value"),
        ("x > interval '1' day", "5", "expected a value"),
        ("x like date '2024-01-01'", "8", "expected a pattern in single quotes"),
    ],
)
def test_a_typed_value_that_is_not_one_is_refused_at_its_place(
    text: str, place: str, reason: str
) -> None:
    with pytest.raises(BadInputError) as caught:
        parse_filter(text)
    assert f"at character {place}" in caught.value.message
    assert reason in caught.value.message


@pytest.mark.parametrize(
    "value",
    [
        "date '2024-01-01'",
        "time '10:00'",
        "timestamp '2024-01-01'",
        "timestamptz '2024-01-01T00:00Z'",
    ],
)
def test_a_typed_value_travels_to_tasks(value: str) -> None:
    found = parse_filter(f"x > {value} or x in ({value}, null)")

    assert filter_from_plain(json.loads(json.dumps(filter_to_plain(found)))) == found


# The same text goes to SQLite and to lake.

CHARACTERS = ["a", "b", "é", "%", "_", "\\", "'", '"', "\n", " ", "\U0001f600"]
texts = st.lists(st.sampled_from(CHARACTERS), max_size=4).map("".join)
ROWS = st.lists(
    st.tuples(
        st.sampled_from([None, -2, -1, 0, 1, 2, 2**53 + 1]),
        st.none() | texts,
        st.sampled_from([None, -1.5e-3, 0.0, 1.0, 1e300]),
        st.sampled_from([None, True, False]),
    ),
    min_size=1,
    max_size=10,
)
ROW_SCHEMA = schema_of(n=LongType(), s=StringType(), f=DoubleType(), b=BooleanType())
NUMBERS = st.sampled_from(["-2", "+1", "0", "1.0", "0.5", ".5", "1e0", "-1.5E-3", "1e300", "9e99"])
SIGNS = st.sampled_from(["=", "==", "<>", "!=", "<", "<=", ">", ">="])
PATTERN_PARTS = ["%", "_", "a", "b", "é", "\n", "\\%", "\\_", "\\\\", "\U0001f600"]
patterns = st.lists(st.sampled_from(PATTERN_PARTS), max_size=5).map("".join)


def quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def maybe_null(values: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return values | values | values | st.just("NULL")


@st.composite
def conditions(draw: Any) -> str:
    column = draw(st.sampled_from(["n", "f", "s", "b"]))
    name = draw(st.sampled_from([column, f'"{column}"', f"`{column}`"]))
    values = {"s": texts.map(quoted), "b": st.sampled_from(["true", "FALSE"])}.get(column, NUMBERS)
    negation = draw(st.sampled_from(["", " not", " NOT"]))
    kind = draw(st.sampled_from(["compare", "mirror", "in", "between", "is", "distinct", "own"]))
    if kind == "compare":
        return f"{name} {draw(SIGNS)} {draw(values)}"
    if kind == "mirror":
        return f"{draw(values)}{draw(SIGNS)}{name}"
    if kind == "in":
        wanted = draw(st.lists(maybe_null(values), min_size=1, max_size=4))
        return f"{name}{negation} in ({', '.join(wanted)})"
    if kind == "between":
        return f"{name}{negation} between {draw(values)} and {draw(values)}"
    if kind == "is":
        known = ["null", "true", "False"] if column == "b" else ["null"]
        return f"{name} is{negation} {draw(st.sampled_from(known))}"
    if kind == "distinct":
        return f"{name} is{negation} distinct from {draw(maybe_null(values))}"
    if column == "s":
        return f"{name}{negation} like {quoted(draw(patterns))} escape '\\'"
    return name if column == "b" else f"{name} = {draw(values)}"


@st.composite
def where(draw: Any, depth: int = 3) -> str:
    join = draw(st.sampled_from(["leaf", "constant", "and", "or", "not", "()"])) if depth else ""
    if join in {"", "leaf"}:
        return draw(conditions())
    if join == "constant":
        return draw(st.sampled_from(["true", "FALSE"]))
    inner = draw(where(depth - 1))
    if join == "not":
        return f"not {inner}"
    return f"({inner})" if join == "()" else f"{inner} {join} {draw(where(depth - 1))}"


@settings(deadline=None, max_examples=examples(600))
@given(text=where(), rows=ROWS)
def test_a_filter_keeps_the_rows_that_sqlite_keeps_for_the_same_text(text: str, rows: Any) -> None:
    batch = pa.RecordBatch.from_pydict(
        {name: [row[place] for row in rows] for place, name in enumerate("nsfb")},
        pa.schema({"n": pa.int64(), "s": pa.string(), "f": pa.float64(), "b": pa.bool_()}),
    )
    with closing(sqlite3.connect(":memory:")) as database:
        database.execute("PRAGMA case_sensitive_like = ON")
        database.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, n INT, s TEXT, f REAL, b INT)")
        database.executemany("INSERT INTO t (n, s, f, b) VALUES (?, ?, ?, ?)", rows)
        found = database.execute(f"SELECT k FROM t WHERE {text} ORDER BY k").fetchall()
    mask = row_mask(bind_filter(parse_filter(text), ROW_SCHEMA), batch, ROW_SCHEMA)
    assert mask.null_count == 0
    assert pc.indices_nonzero(mask).to_pylist() == [row[0] - 1 for row in found]


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("a_c", ["abc", "a%c", "aéc", "a\nc", "a\0c", "a\U0001f600c"]),
        ("%c", ["abc", "a%c", "aéc", "a\nc", "a\0c", "a\U0001f600c", "ac"]),
        ("%b%", ["abc", "b"]),
        ("a\\%c", ["a%c"]),
        ("_", ["b", "\\"]),
        ("\\\\", ["\\"]),
        ("a%", ["abc", "a%c", "aéc", "a\nc", "a\0c", "a\U0001f600c", "ac"]),
        ("", [""]),
        ("__", ["ac"]),
    ],
)
def test_like_reads_wildcards_anywhere(pattern: str, wanted: list[str]) -> None:
    column = ["abc", "a%c", "aéc", "a\nc", "a\0c", "a\U0001f600c", "ac", "b", "\\", "", None]
    assert kept(f"x like '{pattern}'", StringType(), column) == wanted
    rest = [text for text in column if text is not None and text not in wanted]
    assert kept(f"x not like '{pattern}'", StringType(), column) == rest
    assert kept(f"not x like '{pattern}'", StringType(), column) == rest


def test_a_pattern_becomes_the_predicate_that_leaves_out_most_files() -> None:
    assert parse_filter("x like 'ab'") == EqualTo("x", "ab")
    assert parse_filter("x like 'a\\_b'") == EqualTo("x", "a_b")
    assert parse_filter("x like 'ab%%'") == StartsWith("x", "ab")
    assert parse_filter("x like '%'") == StartsWith("x", "")
    assert parse_filter("x like 'a!%b%' escape '!'") == StartsWith("x", "a%b")
    assert parse_filter("x like 'a\\b%' escape '!'") == StartsWith("x", "a\\b")
    assert parse_filter("x like 'a!_\\_' escape '!'") == Like("x", "a\\_\\\\_")


@pytest.mark.parametrize("pattern", ["a\\b", "a\\", "\\a%"])
def test_an_escape_before_an_ordinary_character_is_refused(pattern: str) -> None:
    with pytest.raises(BadInputError, match=r"at character 8: .*must precede %, _ or itself"):
        parse_filter(f"x like '{pattern}'")
    with pytest.raises(BadInputError, match="one character"):
        parse_filter(f"x like '{pattern}' escape ''")


@pytest.mark.slow
def test_a_pattern_as_long_as_a_filter_may_be_is_read() -> None:
    for part in ("_", "%a", "é", "\\%"):
        pattern = part * (65_000 // len(part))
        text = pattern.replace("%a", "a").replace("\\%", "%").replace("_", "é")
        assert kept(f"x like '{pattern}'", StringType(), [text, "b"]) == [text]


@pytest.mark.parametrize("character", [*map(chr, range(256)), "\u2028", "\ufeff", "\U0010ffff"])
def test_every_character_may_be_in_a_text(character: str) -> None:
    value = f"a{character}b"
    written = value.replace("'", "''")
    assert parse_filter(f"x = '{written}'") == EqualTo("x", value)
    assert kept(f"x = '{written}'", StringType(), [value, "ab"]) == [value]
    number = f"\\{ord(character):04x}" if ord(character) < 0x10000 else f"\\+{ord(character):06X}"
    assert parse_filter(f"x = U&'a{number}b'") == EqualTo("x", value)


def test_unicode_escapes_are_those_of_sql() -> None:
    assert parse_filter("x = u&'it''s \\\\ \\00e9\\+01F600'") == EqualTo("x", "it's \\ é\U0001f600")
    for text in ("\\", "\\12", "\\+12", "\\+110000"):
        with pytest.raises(BadInputError, match="at character 5"):
            parse_filter(f"x = U&'{text}'")
    with pytest.raises(BadInputError, match="column x is a string"):
        bind_filter(parse_filter("x = U&'\\d800'"), schema_of(x=StringType()))


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("1e300", Decimal("1e300")),
        ("-1.5E-3", Decimal("-0.0015")),
        ("+2e+2", Decimal(200)),
        (".5", Decimal("0.5")),
        ("5.", Decimal(5)),
        ("-0", 0),
        ("9" * 40, int("9" * 40)),
    ],
)
def test_numbers_are_read_exactly(text: str, number: Any) -> None:
    assert parse_filter(f"x < {text}") == LessThan("x", number)
    assert parse_filter(f"{text} > x") == LessThan("x", number)


def test_an_exponent_is_compared_exactly_with_columns_of_other_types() -> None:
    assert kept("x = 1e2", IntegerType(), pa.array([100, 99], pa.int32())) == [100]
    assert kept("x < 1e300", IntegerType(), pa.array([100, -1], pa.int32())) == [100, -1]
    assert kept("x >= 1e300", DoubleType(), [1e300, 1e299]) == [1e300]
    assert kept("x < 1e400", DoubleType(), [1e300, float("inf")]) == [1e300]
    assert kept("x > -1e99999", DoubleType(), [0.0]) == [0.0]


@pytest.mark.parametrize(
    ("text", "column"),
    [
        ("é = 1", "é"),
        ("`é` = 1", "é"),
        ('"é" = 1', "é"),
        ("straße_1$ = 1", "straße_1$"),
        ('"c.d" = 1', "c.d"),
        ("`c.d` = 1", "c.d"),
        ('"a ""b""" = 1', 'a "b"'),
        ("`a ``b``` = 1", "a `b`"),
        ('"and" = 1', "and"),
        ("`not` = 1", "not"),
        ('"back\\slash" = 1', "back\\slash"),
        ("nan = 1", "nan"),
        ("escape = 1", "escape"),
        ("ANDY = 1", "ANDY"),
    ],
)
def test_columns_of_any_name_can_be_named(text: str, column: str) -> None:
    assert parse_filter(text) == EqualTo(column, 1)
    assert kept(text, LongType(), [1, 2], name=column) == [1]


def test_a_dot_in_a_name_and_a_dot_between_names_find_their_own_columns() -> None:
    schema = Schema(
        NestedField(1, "a", StructType(NestedField(2, "b.c", LongType()))),
        NestedField(3, "d.e", LongType()),
        NestedField(4, "f", StructType(NestedField(5, "g", LongType()))),
    )
    for text, field_id in (('a."b.c" = 1', 2), ('"d.e" = 1', 3), ('f.g=1 and "f".`g`=1', 5)):
        assert filter_columns(bind_filter(parse_filter(text), schema)) == {field_id}


def test_constants_and_boolean_columns_are_conditions() -> None:
    one = EqualTo("x", 1)
    assert parse_filter("x = 1 and true") == one
    assert parse_filter("false or x = 1") == one
    assert parse_filter("not true") == AlwaysFalse()
    assert parse_filter("not (true and not false)") == AlwaysFalse()
    assert parse_filter("true or x = 1") == AlwaysTrue()
    column = [True, False, None]
    assert kept("x and true", BooleanType(), column) == [True]
    assert kept("not x", BooleanType(), column) == [False]
    assert kept("(x)", BooleanType(), column) == [True]
    assert kept("x is not true", BooleanType(), column) == [False, None]
    assert kept("true = x", BooleanType(), column) == [True]


def test_null_safe_equality_is_never_unknown() -> None:
    column = [1, 2, None]
    assert kept("x <=> 1", LongType(), column) == [1]
    assert kept("1 <=> x", LongType(), column) == [1]
    assert kept("not x <=> 1", LongType(), column) == [2, None]
    assert kept("x is distinct from 1", LongType(), column) == [2, None]
    assert kept("x <=> null", LongType(), column) == [None]
    assert parse_filter("x <=> 1") == And(NotNull("x"), EqualTo("x", 1))
    assert parse_filter("not x <=> null") == Not(IsNull("x"))


def test_a_null_in_a_list_leaves_the_rest_unknown() -> None:
    column = [1, 2, None]
    assert kept("x in (1, null)", LongType(), column) == [1]
    assert kept("x not in (1, null)", LongType(), column) == []
    assert kept("not (x in (1, null) or x is null)", LongType(), column) == []
    assert kept("x in (null) or x = 2", LongType(), column) == [2]


def test_bytes_are_written_as_hexadecimal_digits() -> None:
    assert kept("x = X'00fF'", BinaryType(), [b"\x00\xff", b""]) == [b"\x00\xff"]
    assert kept("x = x''", BinaryType(), [b"\x00\xff", b""]) == [b""]


def test_spaces_and_case_do_not_matter() -> None:
    assert parse_filter("\n x\tIN(1,2)AND`y`Is\u00a0NULL ") == And(In("x", [1, 2]), IsNull("y"))


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", "at its end", "expected a column, a value, not or ("),
        ("x >", "at its end", "expected a value"),
        ("x = 'a", "at character 5", "this ' has no closing '"),
        ('x = 1 and "y', "at character 11", 'this " has no closing "'),
        ("x = 1 or", "at its end", "expected a column"),
        ("(x = 1", "at its end", "expected )"),
        ("x = 1)", "at character 6", "expected and, or or the end"),
        ("x in ()", "at character 7", "expected a value"),
        ("x in (1 2)", "at character 9", "expected )"),
        ("x not = 1", "at character 7", "expected in, like or between"),
        ("x like a", "at character 8", "expected a pattern in single quotes"),
        ("x is 1", "at character 6", "expected null, nan, true, false or distinct from"),
        ("x between 1 or 2", "at character 13", "expected and"),
        ("x = 1 y = 2", "at character 7: 'y = 2'", "expected and, or or the end"),
        ("x = 1 or y rlike 'a'", "at character 12: \"rlike 'a'\"", "expected =, <>, <"),
        ("upper(x) = 'A'", "at character 6", "functions are not supported"),
        ("x = nan", "at character 5", "write: is nan"),
        ("x > -infinity", "at character 5", "this is not a number"),
        ("x = null", "at character 5", "write: is null"),
        ("null = x", "at character 1", "write: is null"),
        ("x = 1; drop table t", "at character 6", "';' is not valid in a filter"),
        ("x > 1 -- comment", "at character 7", "this is not a number"),
        ("x == y", "at character 6", "expected a value"),
        ("1 = 1", "at character 5", "expected the name of a column"),
        ("5", "at its end", "expected a comparison"),
        ("x = 1a", "at character 5", "this is not a number"),
        ("x = 1.2.3", "at character 5", "this is not a number"),
        ("in = 1", "at character 1", "expected a column"),
        ("1 = in", "at character 5", 'a column of this name is written "in"'),
        ('"" = 1', "at character 1", "expected the name of a column"),
        ("x. = 1", "at character 4", "expected the name of a column"),
        ("x = X'0'", "at character 5", "pairs of hexadecimal digits"),
        ("x = " + "9" * 5_000, "at character 5", "at most 400 digits"),
        ("x = 1e99999999999999999999999", "at character 5", "too many digits"),
    ],
)
def test_what_is_not_a_filter_is_refused_with_its_place_and_what_was_expected(
    text: str, place: str, reason: str
) -> None:
    with pytest.raises(BadInputError, match=re.escape(place)) as caught:
        parse_filter(text)
    assert reason in caught.value.message
    assert re.search("single quotes|if it is one name, quote it: ", caught.value.hint or "")


def test_a_name_of_two_words_is_suggested_in_quotes() -> None:
    with pytest.raises(BadInputError) as caught:
        parse_filter("id = 1 and Order ID > 5")
    assert caught.value.hint == 'if it is one name, quote it: "Order ID" > 5'


def test_long_and_deep_filters_are_bounded() -> None:
    with pytest.raises(BadInputError, match="at most 65536"):
        parse_filter("x = " + "9" * 70_000)
    with pytest.raises(BadInputError, match="more than 32 parentheses"):
        parse_filter("(" * 33 + "x = 1" + ")" * 33)
    assert parse_filter("(" * 32 + "x = 1" + ")" * 32) == EqualTo("x", 1)
    text = "x = '" + "(" * 100 + "' and \"y\" = ''''"
    assert parse_filter(text) == And(EqualTo("x", "(" * 100), EqualTo("y", "'"))


@pytest.mark.slow
def test_long_chains_are_read_and_bound() -> None:
    for count in (10, 1001, 16_000):
        parsed = parse_filter("not " * count + "x = 1")
        assert parsed == (Not(EqualTo("x", 1)) if count % 2 else EqualTo("x", 1))
    wanted = " or ".join(f"x = {number}" for number in range(5_000))
    assert kept(wanted, LongType(), [4_999, 5_000]) == [4_999]
    wanted = " and ".join(f"x <> {number}" for number in range(4_000))
    assert kept(wanted, LongType(), [3_999, 4_000]) == [4_000]
    assert isinstance(parse_filter(wanted), And)
    assert isinstance(parse_filter("x = 1 or x = 2"), Or)


FRAGMENTS = (
    "x = 1 'a' ( ) and or not in like is null , < between nan true % é 1.5 - ' \" \\ \x00 ` <=> e9 "
    "U&'\\0 X'0 escape distinct from . $"
)


@settings(deadline=None, max_examples=examples(400))
@given(st.lists(st.sampled_from(FRAGMENTS.split(" ")), max_size=12))
def test_any_text_is_a_filter_or_bad_input(words: list[str]) -> None:
    schema = schema_of(x=StringType(), y=IntegerType())
    with suppress(BadInputError):
        bind_filter(parse_filter(" ".join(words)), schema)
