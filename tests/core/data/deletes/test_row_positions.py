"""Sets of positions against Python's own sets, their blobs, and broken blobs."""

from __future__ import annotations

import random
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.tiers import examples

from lake.core.base.errors import CorruptFileError
from lake.core.data.deletes.row_positions import RowPositions

POSITIONS = st.sets(
    st.one_of(st.integers(0, 300), st.integers(60_000, 70_000), st.integers(0, 2**63 - 1)),
    max_size=300,
)


def positions_of(values: set[int]) -> RowPositions:
    return RowPositions(np.array(list(values), np.int64))


@settings(deadline=None, max_examples=examples(100))
@given(POSITIONS, POSITIONS)
def test_a_set_of_positions_behaves_as_a_set(left: set[int], right: set[int]) -> None:
    found = positions_of(left)
    rest = found.without(positions_of(right))
    both = positions_of(left)
    both.update(positions_of(right))

    assert found.to_numpy().tolist() == sorted(left)
    assert (len(found), found.last) == (len(left), max(left, default=-1))
    assert both == positions_of(left | right)
    assert rest == positions_of(left - right)
    for start in (0, 59_990, max(left, default=0)):
        expected = [start + offset in left for offset in range(40)]
        assert found.mask(start, 40).tolist() == expected


@settings(deadline=None, max_examples=examples(100))
@given(POSITIONS, st.integers(0, 100_000))
def test_a_blob_holds_what_was_put_in(values: set[int], run: int) -> None:
    found = positions_of(values | set(range(run)))

    assert RowPositions.from_blob(found.to_blob(), "x.puffin") == found


def test_a_run_of_a_million_positions_takes_a_few_bytes() -> None:
    assert len(RowPositions(np.arange(1_000_000)).to_blob()) < 300


def test_a_broken_blob_is_refused_and_never_read_as_another_set() -> None:
    chosen = random.Random(1)
    found = positions_of({chosen.randrange(2**40) for _ in range(50)} | set(range(5000)))
    blob = found.to_blob()
    for _ in range(2000):
        mutant = bytearray(blob)
        if chosen.random() < 0.3:
            del mutant[chosen.randrange(len(mutant)) :]
        else:
            mutant[chosen.randrange(len(mutant))] ^= 1 << chosen.randrange(8)
        with pytest.raises(CorruptFileError, match=r"x\.puffin"):
            RowPositions.from_blob(bytes(mutant), "x.puffin")


@pytest.mark.parametrize("bitmap", [b"", b"\x01", bytes(7)])
def test_a_blob_without_a_bitmap_is_refused_though_its_checksum_fits(bitmap: bytes) -> None:
    body = b"\xd1\xd3\x39\x64" + bitmap
    ends = (len(body).to_bytes(4, "big"), zlib.crc32(body).to_bytes(4, "big"))

    with pytest.raises(CorruptFileError, match=r"x\.puffin"):
        RowPositions.from_blob(ends[0] + body + ends[1], "x.puffin")


def test_a_bitmap_that_a_stranger_made_up_is_refused_or_is_a_set() -> None:
    chosen = random.Random(2)
    scattered = {chosen.randrange(200_000) for _ in range(9000)}
    made = positions_of(set(range(100, 300, 3)) | set(range(70_000, 75_000)) | {2**33} | scattered)
    bitmap = made.to_blob()[8:-4]
    refused = 0
    for _ in range(2000):
        mutant = bytearray(bitmap)
        for _ in range(chosen.randint(1, 3)):
            mutant[chosen.randrange(60)] = chosen.randrange(256)
        body = b"\xd1\xd3\x39\x64" + mutant
        ends = (len(body).to_bytes(4, "big"), zlib.crc32(body).to_bytes(4, "big"))
        try:
            found = RowPositions.from_blob(ends[0] + body + ends[1], "x.puffin")
        except CorruptFileError:
            refused += 1
            continue
        assert np.all(np.diff(found.to_numpy()) > 0)
    assert refused > 0


def test_positions_that_no_file_can_have_are_refused() -> None:
    from pyroaring import BitMap64

    found = RowPositions()
    found._bitmap = BitMap64([2**63])

    with pytest.raises(CorruptFileError, match="beyond"):
        RowPositions.from_blob(found.to_blob(), "x.puffin")
