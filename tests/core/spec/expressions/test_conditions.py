"""Conditions of runs: the grammar, the logic of three values, and which measures are taken."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import InvalidRequestError
from lake.core.base.options import Option
from lake.core.spec.expressions.conditions import (
    BYTES,
    COUNT,
    MILLISECONDS,
    RATIO,
    AllOf,
    AnyOf,
    AtLeast,
    Comparison,
    Condition,
    Evaluation,
    Value,
    evaluate,
    parse_condition,
)

# Beside two counts, because a test compares with SQLite, whose names contain no hyphen.
QUANTITIES = {"a": COUNT, "b": COUNT, "r": RATIO, "size": BYTES, "late-by": MILLISECONDS}


def parse(text: str) -> Condition:
    return parse_condition(text, QUANTITIES, option=Option.WHEN, example="a >= 1")


@st.composite
def comparisons(draw: Any) -> str:
    name = draw(st.sampled_from(["a", "b", "r"]))
    signs = [">", ">=", "<", "<="] if name == "r" else [">", ">=", "<", "<=", "=", "==", "!=", "<>"]
    return f"{name}{draw(st.sampled_from(['', ' ']))}{draw(st.sampled_from(signs))} {draw(st.integers(0, 3))}"


def joined(parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    def of(word: str) -> st.SearchStrategy[str]:
        return st.lists(parts, min_size=2, max_size=3).map(f" {word} ".join)

    return of("and") | of("OR") | parts.map("not ({})".format) | parts.map("({})".format)


texts = st.recursive(comparisons() | comparisons().map("not {}".format), joined, max_leaves=8)
numbers = st.none() | st.integers(0, 4)
values = st.fixed_dictionaries({"a": numbers, "b": numbers, "r": numbers})
known_or_bounded = numbers | st.integers(0, 4).map(AtLeast) | st.just(math.inf)


@settings(max_examples=examples(500))
@given(texts)
def test_the_text_of_a_condition_is_parsed_to_the_same_condition(text: str) -> None:
    parsed = parse(text)
    assert parse(str(parsed)) == parsed
    assert parsed.negated().negated() == parsed


@settings(max_examples=examples(500))
@given(texts, values)
def test_a_condition_is_true_false_or_unknown_as_in_sql(
    text: str, measured: dict[str, int | None]
) -> None:
    with closing(sqlite3.connect(":memory:")) as connection:
        row = "select :a as a, :b as b, :r as r"
        found = connection.execute(f"select {text} from ({row})", measured).fetchone()[0]
    expected = None if found is None else bool(found)
    assert parse(text).holds(measured) is expected
    assert Evaluation(parse(text), measured).is_due is (expected is True)


class Meters(dict[str, Callable[[], Value]]):
    """Measures that note the order in which they were taken."""

    def __init__(self, measured: Mapping[str, Value]) -> None:
        super().__init__({name: lambda name=name: self._take(name) for name in measured})
        self.measured = measured
        self.taken: list[str] = []

    def _take(self, name: str) -> Value:
        self.taken.append(name)
        return self.measured[name]


@settings(max_examples=examples(500))
@given(texts, st.fixed_dictionaries(dict.fromkeys("abr", known_or_bounded)))
def test_measures_are_taken_in_their_order_until_the_answer_is_decided(
    text: str, measured: dict[str, Value]
) -> None:
    condition, meters = parse(text), Meters(measured)
    evaluation = evaluate(condition, meters)

    assert condition.holds(evaluation.values) is condition.holds(measured)
    assert evaluation.is_due is Evaluation(condition, measured).is_due
    assert meters.taken == [name for name in measured if name in evaluation.values]
    assert set(meters.taken) <= {item.name for item in condition.comparisons()}
    # Before each measure the answer was open, and it depended on this one: some value of it decides more.
    for number, name in enumerate(meters.taken):
        before = {taken: measured[taken] for taken in meters.taken[:number]}
        assert condition.holds(before) is None
        assert any(
            item.name == name and item.holds(before) is None for item in condition.comparisons()
        )


@pytest.mark.parametrize(
    ("text", "measured", "taken"),
    [
        ("a > 1 or r > 2", {"a": 2, "r": 9}, "a"),
        ("a > 1 or r > 2", {"a": 1, "r": 9}, "ar"),
        ("a > 1 and r > 2", {"a": 1, "r": 9}, "a"),
        ("r > 2 and a > 1", {"a": 2, "r": 9}, "ar"),
        ("r > 2 and a > 1 or b > 1", {"a": 1, "b": 1, "r": 9}, "ab"),
        ("(r > 2 or a > 1) and b > 1", {"a": 2, "b": 2, "r": 9}, "ab"),
        ("not (a > 1 or r > 2)", {"a": 2, "r": 9}, "a"),
        ("a >= 1 and a < 5", {"a": 3, "r": 9}, "a"),
    ],
)
def test_a_costly_measure_is_taken_only_if_it_decides(
    text: str, measured: dict[str, Value], taken: str
) -> None:
    meters = Meters(measured)
    evaluate(parse(text), meters)
    assert meters.taken == list(taken)


@given(comparisons(), st.integers(0, 4), st.integers(0, 6))
def test_a_lower_bound_decides_what_no_greater_value_changes(
    text: str, least: int, more: int
) -> None:
    condition = parse(text)
    (item,) = condition.comparisons()
    found = condition.holds({item.name: AtLeast(least)})
    actual = [condition.holds({item.name: least + number}) for number in range(7)]
    assert found is (actual[0] if len(set(actual)) == 1 else None)
    assert found in {None, actual[more]}


def test_a_condition_is_a_tree_without_negations() -> None:
    first, second = Comparison("a", ">", 1, "1"), Comparison("size", ">=", 10 << 30, "10GB")
    assert parse("a > 1") == parse("  (a>1) ") == parse("not not a > 1") == first
    assert parse("a > 1 AND size >= 10 GB") == AllOf((first, second))
    third = Comparison("late-by", "<", 90_000, "1.5m")
    assert parse("a > 1 and size >= 10GB or late-by < 1.5m") == AnyOf(
        (AllOf((first, second)), third)
    )
    assert parse("a > 1 and (size >= 10GB or late-by < 1.5m)") == AllOf(
        (first, AnyOf((second, third)))
    )
    assert str(parse("not (a > 1 and (size >= 10GB or late-by < 1.5m))")) == (
        "a <= 1 or size < 10GB and late-by >= 1.5m"
    )
    assert str(parse("not (a == 1 or b <> 2)")) == "a != 1 and b = 2"


def test_facts_contain_each_value_with_its_limits_and_what_holds() -> None:
    condition = parse("a >= 10 or not (a < 2 or r > 0.5) or late-by >= 1h")
    facts = (
        Evaluation(condition, {"a": AtLeast(3), "r": None, "late-by": math.inf}).facts().document()
    )
    assert facts == {
        "triggers": {"a": [3, 10, 2], "r": [None, 0.5], "late-by": [None, 3_600_000]},
        "is_due": True,
        "conditions": [
            {"condition": "a >= 10", "value": 3, "holds": None},
            {"condition": "a >= 2", "value": 3, "holds": True},
            {"condition": "r <= 0.5", "value": None, "holds": None},
            {"condition": "late-by >= 1h", "value": None, "holds": True},
        ],
    }


@pytest.mark.parametrize(
    ("text", "place", "reason"),
    [
        ("", "at its end", "expected a name, not or ("),
        ("a", "at its end", "expected one of > >= < <= = !="),
        ("a >= ", "at its end", "expected a limit of a"),
        ("a >= -1", "at character 6", "'-' is not valid here"),
        ("a >= 1.5", "at character 6", "'1.5' is not a number of a"),
        ("a >= 9223372036854775808", "at character 6", "is not a number of a"),
        ("a in (1, 2)", "at character 3", "expected one of"),
        ("a >= b", "at character 6", "expected a limit of a"),
        ("a >= 1 or", "at its end", "expected a name, not or ("),
        ("a >= 1 b >= 2", "at character 8", "expected and, or or the end"),
        ("a >= 1 size >= 2", "at character 8", "expected and, or or the end"),
        ("(a >= 1", "at its end", "expected )"),
        ("a >= 1)", "at character 7", "expected and, or or the end"),
        ("not", "at its end", "expected a name, not or ("),
        ("c >= 1", "at character 1", "nothing that is measured is named c"),
        ("a > 1 and late_by > 1h", "at character 11", "nothing that is measured is named late_by"),
        ("or >= 1", "at character 1", "expected a name, not or ("),
        ("A >= 1", "at character 1", "nothing that is measured is named A"),
        ("size >= 10", "at character 9", "the size '10' has no unit"),
        ("size >= many", "at character 9", "expected a limit of size"),
        ("size = 10GB", "at character 6", "size is not a count"),
        ("late-by != 1h", "at character 9", "late-by is not a count"),
        ("r = 2", "at character 3", "r is not a count"),
        ("late-by >= 3", "at character 12", "not a duration: '3'"),
        ("late-by >= 3 apples", "at character 12", "not a duration: '3apples'"),
        ("r > 1e5", "at character 5", "'1e5' is not a number of r"),
        ("a > 1; drop", "at character 6", "';' is not valid here"),
    ],
)
def test_what_is_not_a_condition_is_refused_with_its_place(
    text: str, place: str, reason: str
) -> None:
    with pytest.raises(InvalidRequestError, match=re.escape(place)) as caught:
        parse(text)
    assert reason in caught.value.message
    assert str(Option.WHEN) in caught.value.message
    assert caught.value.hint


def test_long_and_deep_conditions_are_bounded() -> None:
    with pytest.raises(InvalidRequestError, match="has 4097 characters; at most 4096"):
        parse("a > 1".ljust(4097))
    with pytest.raises(InvalidRequestError, match="more than 32 parentheses"):
        parse("(" * 33 + "a > 1" + ")" * 33)
    assert parse("not (" * 32 + "a > 1" + ")" * 32) == parse("a > 1")
    chain = parse(" or ".join(["a>1"] * 585))
    assert isinstance(chain, AnyOf)
    assert chain.holds({"a": 1}) is False
    deep = parse("(" * 32 + "a > 1" + " and b > 1) or a > 2" + " and b > 1) or a > 2" * 31)
    assert deep.holds({"a": 1, "b": 2}) is False
    assert parse("not " * 1000 + "a > 1") == parse("a > 1")


FRAGMENTS = "a b r size late-by or and not ( ) > >= = <> 1 10GB 1.5 90s x - ' é \x00 1e9 GB"


@settings(deadline=None, max_examples=examples(400))
@given(st.lists(st.sampled_from(FRAGMENTS.split(" ")), max_size=12))
def test_any_text_is_a_condition_or_an_invalid_request(words: list[str]) -> None:
    with suppress(InvalidRequestError):
        parsed = parse(" ".join(words))
        assert parse(str(parsed)) == parsed
