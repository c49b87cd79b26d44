"""Sketches are those of the Apache DataSketches library."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from lake.core.maintain.statistics.theta_sketch import NOMINAL_ENTRIES, ThetaSketch, hashes_of
from lake.core.maintain.statistics.value_bytes import value_bytes


def sketch_of(*columns: pa.Array) -> ThetaSketch:
    sketch = ThetaSketch()
    for column in columns:
        for values in value_bytes(column):
            sketch.add(hashes_of(values))
    return sketch


def library_sketch(values: Any) -> Any:
    sketch = datasketches.update_theta_sketch()
    for value in values:
        sketch.update(value)
    return sketch.compact()


@given(st.lists(st.text(max_size=9).map(lambda text: text * 5), max_size=9))
def test_texts_have_the_hashes_of_the_library(values: list[str]) -> None:
    sketch, expected = sketch_of(pa.array(values, pa.string())), library_sketch(values)

    assert sketch.hashes.tolist() == sorted(expected)
    assert sketch.to_bytes() == expected.serialize()


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=20))
def test_integers_have_the_hashes_of_the_library(values: list[int | None]) -> None:
    sketch = sketch_of(pa.array(values, pa.int64()))

    assert sketch.hashes.tolist() == sorted(library_sketch(v for v in values if v is not None))


def test_a_large_sketch_is_read_and_merged_by_the_library() -> None:
    count = 50_000
    sketch = sketch_of(pa.array(np.arange(count)))

    found = datasketches.compact_theta_sketch.deserialize(sketch.to_bytes())

    assert round(found.get_estimate()) == sketch.estimate
    assert abs(sketch.estimate - count) < 0.06 * count
    union = datasketches.theta_union()
    union.update(found)
    union.update(library_sketch(range(count)))
    assert abs(union.get_result().get_estimate() - count) < 0.06 * count


@given(st.lists(st.integers(1, 40_000), max_size=6), st.integers(0, 2**32))
def test_merged_sketches_are_the_sketch_of_all_values(sizes: list[int], start: int) -> None:
    bounds = np.cumsum([start, *sizes])
    # Neighbours overlap.
    parts = [pa.array(np.arange(a - 5, b)) for a, b in pairwise(bounds)]
    merged = ThetaSketch()
    for part in parts:
        merged.merge(sketch_of(part))

    whole = sketch_of(*parts)
    assert merged.hashes.tolist() == whole.hashes.tolist()
    assert merged.theta == whole.theta
    assert len(merged.hashes) <= NOMINAL_ENTRIES
