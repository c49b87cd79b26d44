"""Squarified treemaps: rectangles whose areas are proportional to weights and whose shapes are near squares.

Source: Bruls, Huizing and van Wijk, Squarified Treemaps (2000).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Rectangle(NamedTuple):
    """A part of a picture, in the unit of the picture; y grows downwards."""

    x: float
    y: float
    width: float
    height: float


def squarified(weights: Sequence[float], width: float, height: float) -> list[Rectangle]:
    """Return a rectangle for each weight; together they fill the picture.

    Args:
        weights: the largest first, none of them below a millionth of their sum, so that rounding leaves space for the
            last one.
        width: the width of the picture.
        height: its height.
    """
    scale = width * height / (sum(weights) or 1)
    areas = [weight * scale for weight in weights]
    free = Rectangle(0, 0, width, height)
    found: list[Rectangle] = []
    while len(found) < len(areas):
        rest = areas[len(found) :]
        side = min(free.width, free.height)
        count = 1
        while count < len(rest) and _worst(rest[: count + 1], side) <= _worst(rest[:count], side):
            count += 1
        strip, free = _cut(free, rest[:count])
        found += strip
    return found


def _worst(areas: Sequence[float], side: float) -> float:
    """Return the greatest ratio of the sides of rectangles that share a strip along a side."""
    square = (sum(areas) / side) ** 2
    return max(areas[0] / square, square / areas[-1])


def _cut(free: Rectangle, areas: Sequence[float]) -> tuple[list[Rectangle], Rectangle]:
    """Return rectangles in a strip along the shorter side, and what remains."""
    x, y, width, height = free
    total, before = sum(areas), 0.0
    is_column = width >= height
    size = total / (height if is_column else width)
    found = []
    for area in areas:
        begin, length = before / size, area / size
        before += area
        found.append(
            Rectangle(x, y + begin, size, length)
            if is_column
            else Rectangle(x + begin, y, length, size)
        )
    if is_column:
        return found, Rectangle(x + size, y, width - size, height)
    return found, Rectangle(x, y + size, width, height - size)
