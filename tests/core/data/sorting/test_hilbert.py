"""The Hilbert curve visits every cell once, each beside the one before, and reads fewer files than a Z-order."""

from __future__ import annotations

import random
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType
from support.tiers import examples

from lake.core.data.sorting.hilbert import along_curve
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.spec.types.arrow_schema import arrow_schema

# The numbers of dimensions and of bits in each.
CUBES = [(1, 8), (2, 1), (2, 8), (3, 4), (4, 3), (5, 2), (7, 1)]


def taken_in_turn(places: Sequence[bytes]) -> int:
    """Return the number whose bits are those of the columns in turn."""
    texts = ["".join(f"{byte:08b}" for byte in place) for place in places]
    return int("".join("".join(bits) for bits in zip(*texts, strict=True)), 2)


def cell_at(place: int, dimensions: int, bits: int) -> list[int]:
    """Return the cell at a place of the curve: Skilling's TransposetoAxes, for one cell."""
    digits = f"{place:0{dimensions * bits}b}"
    cell = [int(digits[axis::dimensions], 2) for axis in range(dimensions)]
    carry = cell[-1] >> 1
    for axis in range(dimensions - 1, 0, -1):
        cell[axis] ^= cell[axis - 1]
    cell[0] ^= carry
    bit = 2
    while bit != 2**bits:
        for axis in range(dimensions - 1, -1, -1):
            if cell[axis] & bit:
                cell[0] ^= bit - 1
            else:
                exchanged = (cell[0] ^ cell[axis]) & (bit - 1)
                cell[0] ^= exchanged
                cell[axis] ^= exchanged
        bit <<= 1
    return cell


@pytest.mark.parametrize(("dimensions", "bits"), CUBES, ids=str)
def test_the_curve_visits_every_cell_once_and_steps_to_a_neighbour(
    dimensions: int, bits: int
) -> None:
    cells = np.indices([2**bits] * dimensions).reshape(dimensions, -1)
    shifted = (cells << (8 - bits)).astype(np.uint8)

    found = along_curve([axis.reshape(-1, 1) for axis in shifted], 2**31)

    # The bits below those of the cube are zero, so the first bits are the place of the cell.
    turns = np.stack([np.unpackbits(place, axis=1)[:, :bits] for place in found], axis=2)
    places = turns.reshape(len(turns), -1).astype(np.int64) @ (
        1 << np.arange(dimensions * bits)[::-1]
    )
    assert sorted(places.tolist()) == list(range(2 ** (dimensions * bits)))
    path = cells[:, np.argsort(places)]
    assert (np.abs(np.diff(path, axis=1)).sum(axis=0) == 1).all()
    assert not path[:, 0].any()


@settings(deadline=None, max_examples=examples(60))
@given(st.data(), st.integers(1, 5), st.integers(1, 20))
def test_a_place_of_any_width_is_that_of_the_inverse_transform(
    data: st.DataObject, dimensions: int, width: int
) -> None:
    bits = 8 * width
    wanted = data.draw(st.lists(st.integers(0, 2 ** (dimensions * bits) - 1), min_size=1))
    cells = [cell_at(place, dimensions, bits) for place in wanted]

    columns = [
        as_bytes([cell[axis].to_bytes(width, "big") for cell in cells])
        for axis in range(dimensions)
    ]
    found = along_curve(columns, 2**31)

    assert [
        taken_in_turn([place[row].tobytes() for place in found]) for row in range(len(cells))
    ] == wanted


@settings(deadline=None, max_examples=examples(30))
@given(st.lists(st.tuples(st.binary(min_size=8, max_size=8), st.binary(max_size=11))), st.data())
def test_a_shorter_place_is_the_beginning_of_the_whole(
    rows: list[tuple[bytes, bytes]], data: st.DataObject
) -> None:
    longs = [int.from_bytes(first, "big", signed=True) for first, _ in rows]
    texts = [second.decode("latin-1") for _, second in rows]
    schema = Schema(
        NestedField(1, "a", LongType(), required=False),
        NestedField(2, "b", StringType(), required=False),
    )
    batch = pa.RecordBatch.from_arrays(
        [pa.array(longs, pa.int64()), pa.array(texts, arrow_schema(schema).field(1).type)],
        schema=arrow_schema(schema),
    )
    text_bytes, most = data.draw(st.integers(1, 12)), data.draw(st.integers(1, 24))

    whole = RowOrder(curve=(1, 2), is_hilbert=True, text_bytes=text_bytes)
    part = RowOrder(curve=(1, 2), is_hilbert=True, text_bytes=text_bytes, most_bytes=most)

    keys = whole.keys(batch, schema).to_pylist()
    assert part.keys(batch, schema).to_pylist() == [key[:most] for key in keys]
    # NULL, and a text of no bytes, have the least value; numbers of the same text keep a place of their own.
    assert len({key for key, *_ in zip(keys, rows, strict=True)}) >= len(set(longs)) or not keys


def as_bytes(values: list[bytes]) -> npt.NDArray[np.uint8]:
    return np.frombuffer(b"".join(values), np.uint8).reshape(len(values), -1)


def files_read(order: RowOrder, columns: list[list[int]], boxes: list[list[range]]) -> int:
    """Return how many files all box filters read, if the sorted rows are cut into 64 files."""
    schema = Schema(
        *(NestedField(n, f"c{n}", LongType(), required=False) for n in range(1, len(columns) + 1))
    )
    batch = pa.RecordBatch.from_pydict(
        {f"c{n}": column for n, column in enumerate(columns, 1)}, schema=arrow_schema(schema)
    )
    keys = order.keys(batch, schema).to_pylist()
    ordered = np.array(columns)[:, sorted(range(len(keys)), key=keys.__getitem__)]
    pieces = np.array_split(ordered, 64, axis=1)
    low = np.array([piece.min(axis=1) for piece in pieces])
    high = np.array([piece.max(axis=1) for piece in pieces])
    read = 0
    for box in boxes:
        begin, end = [one.start for one in box], [one.stop for one in box]
        read += int(((low < end) & (high >= begin)).all(axis=1).sum())
    return read


@pytest.mark.parametrize("dimensions", [2, 3])
@pytest.mark.parametrize("scale", [2**10, 2**31, 10**6])
def test_box_filters_read_at_most_as_many_files_as_along_a_z_order(
    dimensions: int, scale: int
) -> None:
    source = random.Random(dimensions * scale)
    columns = [[source.randrange(scale) for _ in range(20_000)] for _ in range(dimensions)]
    boxes = []
    for _ in range(200):
        side = source.randrange(scale // 50, scale // 3)
        starts = [source.randrange(scale - side) for _ in range(dimensions)]
        boxes.append([range(start, start + side) for start in starts])
    curve = tuple(range(1, dimensions + 1))

    hilbert = files_read(RowOrder(curve=curve, is_hilbert=True), columns, boxes)

    assert hilbert <= files_read(RowOrder(curve=curve), columns, boxes)
