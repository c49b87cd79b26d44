"""A few of each kind of hostile input; `python -m soak --hostile` tries them all."""

from __future__ import annotations

from hostile.everyday import INPUTS
from hostile.numbers import tried


def test_hostile_input_ends_in_a_typed_error_or_in_what_is_right() -> None:
    counts, wrong = tried(INPUTS)
    assert not wrong
    assert counts["inputs"] == len(INPUTS)
