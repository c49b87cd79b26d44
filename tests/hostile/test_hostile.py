"""A few of each kind of hostile input; `python -m soak --hostile` tries them all."""

from __future__ import annotations

import pytest

from hostile.numbers import tried

_SLICES = {
    # Every edge of a block, where a shorter list is a valid one, and points between.
    "avro:Truncations:blocks": [*range(4530, 5154, 52), 4533, 4534, 4689, 4690, 4845, 4999],
    "avro:Lies:lake-v2": [24, 59, 73, 84, 90, 135],
    "parquet:Flips:lake-v2": range(6),
    "parquet:Vectors:lake-v3": range(4),
    "metadata:Values:lake-v2": range(12),
    "places:Named": range(0, 424, 53),
    "places:Nested": [0, 3],
}


@pytest.mark.parametrize("kind", list(_SLICES))
def test_hostile_input_ends_in_a_typed_error_or_in_what_is_right(kind: str) -> None:
    counts, wrong = tried(kind, list(_SLICES[kind]))
    assert not wrong
    assert counts["inputs"] == len(_SLICES[kind])
