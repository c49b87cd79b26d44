"""Texts of options."""

from __future__ import annotations

import pytest

from lake.commands.parsing import parse_choice, parse_names, parse_pairs
from lake.core.base.errors import InvalidRequestError


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert parse_pairs(["a=1", "b=x=y", " c =", "a=1"], "--p") == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("texts", [["a"], ["=1"], [" =1"], ["a=1", "a=2"], [""]])
def test_a_text_that_is_not_a_pair_is_refused(texts: list[str]) -> None:
    with pytest.raises(InvalidRequestError, match="--p"):
        parse_pairs(texts, "--p")


def test_names_are_separated_by_commas() -> None:
    assert parse_names("a, b.c,d") == ["a", "b.c", "d"]
    assert parse_names(None) is None


def test_names_in_quotes_hold_any_character() -> None:
    assert parse_names('"a,b", `c``d`,e.f,"g ""h""" ') == ["a,b", "c`d", "e.f", 'g "h"']
    assert parse_names('"c.d",é') == ["c.d", "é"]
    # A quote inside of a name, or one that is not closed, is a character like others.
    assert parse_names('a"b,"c') == ['a"b', '"c']


@pytest.mark.parametrize("text", ["", ",", "a,,b", "a,a", "a,", 'a,""', 'a,"a"'])
def test_an_empty_or_repeated_name_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequestError, match="name"):
        parse_names(text)


def test_a_choice_is_one_of_a_few() -> None:
    assert parse_choice("b", "--x", ("a", "b")) == "b"
    with pytest.raises(InvalidRequestError, match="--x is 'c', not one of a, b"):
        parse_choice("c", "--x", ("a", "b"))
