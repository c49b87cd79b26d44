"""The rectangles of a treemap."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.maintain.health.page.treemap import Rectangle, squarified

_ROUNDING = 1e-6


@settings(max_examples=examples(200))
@given(
    st.lists(st.floats(0.001, 1), min_size=1, max_size=40),
    st.floats(100, 2000),
    st.floats(100, 2000),
)
def test_rectangles_have_the_areas_of_weights_and_fill_the_picture(
    weights: list[float], width: float, height: float
) -> None:
    weights.sort(reverse=True)

    found = squarified(weights, width, height)

    scale = width * height / sum(weights)
    assert [one.width * one.height for one in found] == pytest.approx(
        [weight * scale for weight in weights], rel=_ROUNDING
    )
    for one in found:
        assert -_ROUNDING <= one.x <= one.x + one.width <= width + _ROUNDING
        assert -_ROUNDING <= one.y <= one.y + one.height <= height + _ROUNDING
    for one, other in itertools.combinations(found, 2):
        assert not _overlap(one, other)


def _overlap(one: Rectangle, other: Rectangle) -> bool:
    return (
        min(one.x + one.width, other.x + other.width) - max(one.x, other.x) > _ROUNDING
        and min(one.y + one.height, other.y + other.height) - max(one.y, other.y) > _ROUNDING
    )


def test_the_example_of_the_paper_has_its_layout() -> None:
    found = squarified([6, 6, 4, 3, 2, 2, 1], 6, 4)

    assert found[:2] == [Rectangle(0, 0, 3, 2), Rectangle(0, 2, 3, 2)]
    ratios = [max(one.width / one.height, one.height / one.width) for one in found]
    assert max(ratios) < 3


def test_nothing_has_no_rectangles() -> None:
    assert squarified([], 6, 4) == []
