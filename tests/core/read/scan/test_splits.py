"""Splits cover every byte once and are packed as Iceberg packs them."""

from __future__ import annotations

import itertools
from collections import deque
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import open_session
from support.tiers import examples

from lake.core.base.errors import InvalidRequestError
from lake.core.read.scan.plan import ScanOptions, plan_scan
from lake.core.read.scan.splits import SplitOptions, SplitPiece, cut_all, merged, pack, weights


def cut(
    file: int, length: int, offsets: list[int] | None, options: SplitOptions
) -> list[SplitPiece]:
    """Cut one file at its offsets if they rise to less than its length, else at multiples of the size, by a loop."""
    if offsets and all(a < b for a, b in itertools.pairwise([*offsets, length])):
        pairs = itertools.pairwise([*offsets, length])
        return [SplitPiece(file, start, end - start) for start, end in pairs]
    return [
        SplitPiece(file, start, min(options.size, length - start))
        for start in range(0, max(length, 1), options.size)
    ]


def files_of(files: list[tuple[int, list[int] | None]]) -> pa.Table:
    """Return entries of files: the size and the offsets of each."""
    columns = {
        "split_offsets": pa.array([offsets for _, offsets in files], pa.list_(pa.int64())),
        "file_size_in_bytes": pa.array([size for size, _ in files], pa.int64()),
    }
    return pa.table(columns)


def pieces_of(
    files: list[tuple[int, list[int] | None]], options: SplitOptions, *, batch: int = 100
) -> list[SplitPiece]:
    """Cut files whose entries are in batches of some size."""
    entries = pa.Table.from_batches(
        files_of(files).to_batches(max_chunksize=batch), files_of([]).schema
    )
    found = cut_all([files_of([]), entries], options)
    columns = (found.file.tolist(), found.start.tolist(), found.length.tolist())
    return [SplitPiece(*row) for row in zip(*columns, strict=True)]


def packed_by_the_book(weights: list[int], size: int, lookback: int) -> list[list[int]]:
    """First fit over open bins, as the specification words it: a second writing of the algorithm."""
    done: list[list[int]] = []
    bins: deque[tuple[int, list[int]]] = deque()
    for number, each in enumerate(weights):
        for place, (load, members) in enumerate(bins):
            if load + each <= size:
                members.append(number)
                bins[place] = (load + each, members)
                break
        else:
            bins.append((each, [number]))
            if len(bins) > lookback:
                heaviest = max(range(len(bins)), key=lambda place: (bins[place][0], -place))
                done.append(bins[heaviest][1])
                del bins[heaviest]
    return done + [members for _, members in bins]


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(st.integers(1, 200) | st.sampled_from([0, 7, 40]), max_size=60),
    st.integers(1, 150),
    st.integers(1, 12),
)
def test_packing_is_first_fit_with_a_lookback_and_the_heaviest_goes_first(
    weights: list[int], size: int, lookback: int
) -> None:
    found = pack(weights, SplitOptions(size=size, lookback=lookback, open_cost=0))

    assert list(map(list, found)) == packed_by_the_book(weights, size, lookback)


@settings(deadline=None, max_examples=examples(200))
@given(st.integers(0, 5000), st.integers(1, 700), st.lists(st.integers(0, 5000), max_size=8))
def test_pieces_of_a_file_cover_it_once(length: int, size: int, offsets: list[int]) -> None:
    pieces = pieces_of([(length, offsets)], SplitOptions(size=size))

    rising = all(a < b for a, b in itertools.pairwise(offsets))
    begin = offsets[0] if offsets and rising and offsets[-1] < length else 0
    assert pieces[0].start == begin
    for one, after in itertools.pairwise(pieces):
        assert one.start + one.length == after.start
    assert pieces[-1].start + pieces[-1].length == length


def test_split_offsets_decide_and_the_split_size_does_not() -> None:
    pieces = pieces_of([(1000, [4, 300, 900])], SplitOptions(size=10))

    assert pieces == [SplitPiece(0, 4, 296), SplitPiece(0, 300, 600), SplitPiece(0, 900, 100)]


@pytest.mark.parametrize("offsets", [None, [], [300, 4], [4, 4], [4, 2000]])
def test_offsets_that_do_not_rise_are_not_believed(offsets: list[int] | None) -> None:
    pieces = pieces_of([(1000, offsets)], SplitOptions(size=400))

    assert [piece.length for piece in pieces] == [400, 400, 200]


def test_neighbouring_pieces_of_a_file_become_one_again() -> None:
    pieces = [SplitPiece(0, 0, 10), SplitPiece(0, 10, 5), SplitPiece(1, 0, 5), SplitPiece(0, 20, 5)]

    assert merged(pieces) == [SplitPiece(0, 0, 15), SplitPiece(1, 0, 5), SplitPiece(0, 20, 5)]


def test_a_piece_weighs_its_bytes_but_at_least_its_opening() -> None:
    assert weights(np.array([10, 250]), SplitOptions(open_cost=100)).tolist() == [100, 250]


@settings(deadline=None, max_examples=examples(200))
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3000),
            st.none() | st.lists(st.integers(0, 3000), max_size=4),
        ),
        max_size=20,
    ),
    st.integers(1, 5),
)
def test_cutting_many_files_at_once_is_cutting_each(
    files: list[tuple[int, list[int] | None]], batch: int
) -> None:
    options = SplitOptions(size=700)

    assert pieces_of(files, options, batch=batch) == [
        piece
        for number, (size, starts) in enumerate(files)
        for piece in cut(number, size, starts, options)
    ]


@pytest.mark.parametrize("wrong", [{"size": 0}, {"lookback": 0}, {"open_cost": -1}])
def test_impossible_sizes_are_invalid_requests(wrong: dict[str, int]) -> None:
    with pytest.raises(InvalidRequestError):
        SplitOptions(**wrong)


def test_the_table_says_how_it_is_cut_unless_the_user_does() -> None:
    said = {"read.split.target-size": "1000", "read.split.open-file-cost": "0", "other": "x"}

    assert SplitOptions.of({}) == SplitOptions()
    assert SplitOptions.of(said) == SplitOptions(size=1000, open_cost=0)
    assert SplitOptions.of(said, size=5, lookback=2) == SplitOptions(
        size=5, lookback=2, open_cost=0
    )
    for key, text in (("target-size", "big"), ("open-file-cost", "9" * 20), ("target-size", "-3")):
        with pytest.raises(InvalidRequestError, match=rf"read\.split\.{key} is '{text}'"):
            SplitOptions.of({f"read.split.{key}": text})


def test_a_spread_has_splits_of_16_mb_until_there_are_200() -> None:
    mega, plain = 1 << 20, SplitOptions()

    assert plain.spread(0, 0).size == 1
    assert plain.spread(10 * mega, 12 * mega).size == 12 * mega
    assert plain.spread(100 * mega, 104 * mega).size == 104 * mega // 7
    # 500 small files
    assert plain.spread(mega, 500 * plain.open_cost) == plain
    assert plain.spread(20_000 * mega, 20_000 * mega).size == 100 * mega
    assert plain.spread(90_000 * mega, 90_000 * mega) == plain


def test_the_pieces_of_a_plan_are_packed_once_and_only_if_splits_are_read(
    lake: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        lake.load(f"id\n{number}\n", "--create")
    packed: list[SplitOptions] = []

    def noted(weights: Any, options: SplitOptions) -> Any:
        packed.append(options)
        return pack(weights, options)

    monkeypatch.setattr("lake.core.read.scan.plan.pack", noted)
    plan = plan_scan(open_session(lake.warehouse).table("db.t"), ScanOptions(split_open_cost=0))

    assert packed == []
    assert [len(split.slices) for split in plan.spread().reads()] == [3]
    (options,) = packed
    assert options.size == plan.pieces.length.sum()


def test_more_pieces_than_memory_holds_are_refused_before_they_are_made() -> None:
    with pytest.raises(InvalidRequestError, match="more than 50000000 pieces"):
        pieces_of([(2**62, None)], SplitOptions(size=1))
