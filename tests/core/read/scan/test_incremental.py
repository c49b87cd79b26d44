"""Which snapshots an increment reads, judged by the rules of Iceberg's documentation."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from support.tables.histories import (
    APPEND,
    DELETE,
    OVERWRITE,
    REPLACE,
    line,
    metadata_of,
    snapshot,
)
from support.tiers import examples

from lake.core.base.errors import BadInputError, InvalidRequestError, NotFoundError
from lake.core.read.scan.incremental import Increment, plan_increment


def chosen(metadata: TableMetadata, start: object = None, end: object = None, **more: Any) -> Any:
    found = plan_increment(
        metadata,
        start=None if start is None else str(start),
        end=None if end is None else str(end),
        inclusive=more.pop("inclusive", False),
        **more,
    )
    return [item.snapshot_id for item in found.appends]


def test_the_start_is_left_out_and_the_end_is_not() -> None:
    assert chosen(line(5), 2, 4) == [4, 3]
    assert chosen(line(5), 2, 4, inclusive=True) == [4, 3, 2]
    assert chosen(line(5), 2) == [5, 4, 3]
    assert chosen(line(5), end=2) == [2, 1]


def test_a_reader_that_is_up_to_date_gets_nothing() -> None:
    assert chosen(line(5), 5) == []
    assert chosen(line(5), 3, 3) == []
    assert chosen(line(5), 3, 3, inclusive=True) == [3]


def test_a_first_snapshot_whose_parent_was_forgotten_is_not_the_beginning() -> None:
    cut = line(4, first_kept=3)
    forgotten = [cut.snapshots[0].model_copy(update={"parent_snapshot_id": None}), cut.snapshots[1]]

    found = plan_increment(metadata_of(forgotten, 4), start=None, end=None, inclusive=False)

    assert found.truncated
    assert [item.snapshot_id for item in found.appends] == [4, 3]


def test_an_expired_start_is_known_by_its_child() -> None:
    metadata = line(6, first_kept=4)

    assert chosen(metadata, 3) == [6, 5, 4]
    with pytest.raises(BadInputError) as failure:
        chosen(metadata, 2)
    assert "(exclusive) 2 is not a parent ancestor of end snapshot 6" in failure.value.message
    assert "between 2 and 3" in (failure.value.hint or "")
    with pytest.raises(BadInputError, match=r"\(inclusive\) 3 .* end snapshot 6") as failure:
        chosen(metadata, 3, inclusive=True)
    assert "has expired" in (failure.value.hint or "")


def test_no_start_means_all_that_is_known_and_says_if_that_is_not_all() -> None:
    whole = plan_increment(line(4), start=None, end="4", inclusive=False)
    cut = plan_increment(line(4, first_kept=3), start=None, end="4", inclusive=False)

    assert not whole.truncated
    assert cut.truncated
    assert [item.snapshot_id for item in cut.appends] == [4, 3]


def test_only_appends_are_read_and_the_others_are_reported() -> None:
    operations = [APPEND, OVERWRITE, DELETE, REPLACE, APPEND, None]
    kept = [
        snapshot(number, number - 1 if number > 1 else None, operation)
        for number, operation in enumerate(operations, 1)
    ]

    found = plan_increment(metadata_of(kept, 6), start="1", end=None, inclusive=False)

    assert [item.snapshot_id for item in found.appends] == [5]
    assert [item.snapshot_id for item in found.skipped] == [6, 4, 3, 2]


def test_an_end_of_another_branch_is_refused_where_a_branch_was_named() -> None:
    kept = [snapshot(1, None), snapshot(2, 1), snapshot(3, 1)]
    metadata = metadata_of(kept, 2, work=(3, "branch"), old=(1, "tag"))

    assert chosen(metadata, 1, branch="work") == [3]
    assert chosen(metadata, 1, "work") == [3]
    assert chosen(metadata, "old") == [2]
    with pytest.raises(BadInputError, match="2 is not a valid snapshot on the branch work"):
        chosen(metadata, 1, 2, branch="work")
    with pytest.raises(BadInputError, match="3 is not a parent ancestor of end snapshot 2"):
        chosen(metadata, 3)
    with pytest.raises(BadInputError, match="old is a tag"):
        chosen(metadata, 1, branch="old")


def test_an_empty_table_has_an_empty_increment_but_no_start() -> None:
    empty = metadata_of([], None)

    assert plan_increment(empty, start=None, end=None, inclusive=False) == Increment(None, (), ())
    with pytest.raises(NotFoundError):
        chosen(empty, 1)
    with pytest.raises(NotFoundError):
        chosen(empty, None, 1)


@pytest.mark.parametrize("name", ["²", "--5", "1_0", "１", "9" * 30, "", "x"])
def test_what_only_looks_like_a_number_is_a_name_that_means_nothing(name: str) -> None:
    with pytest.raises(NotFoundError):
        chosen(line(2), name)


def test_a_time_means_the_snapshot_that_was_current_then() -> None:
    assert chosen(line(5), "@1970-01-01T00:00:02.500Z") == [5, 4, 3]
    with pytest.raises(NotFoundError):
        chosen(line(5), "@1969-01-01")
    with pytest.raises(InvalidRequestError):
        chosen(line(5), "@yesterday")


@st.composite
def histories(draw: st.DrawFn) -> tuple[TableMetadata, int, int]:
    """A tree of snapshots some of which have expired, a start that may be any, and an end that is kept."""
    count = draw(st.integers(1, 9))
    tree = [
        snapshot(
            number,
            draw(st.none() | st.integers(1, number - 1)) if number > 1 else None,
            draw(st.sampled_from([APPEND, APPEND, *Operation])),
        )
        for number in range(1, count + 1)
    ]
    end = draw(st.integers(1, count))
    kept = [item for item in tree if item.snapshot_id == end or draw(st.booleans())]
    return metadata_of(kept, end), draw(st.integers(1, count + 1)), end


def by_the_rules(
    metadata: TableMetadata, start: int, end: int, *, inclusive: bool
) -> list[int] | None:
    """The published rules, in the words of snapshots' sets; None for an error."""
    known = {item.snapshot_id: item for item in metadata.snapshots}
    lineage = []
    walk: int | None = end
    while walk in known:
        lineage.append(walk)
        walk = known[walk].parent_snapshot_id
    if inclusive:
        if start not in lineage:
            return None
        kept = lineage[: lineage.index(start) + 1]
    elif start == end:
        kept = []
    else:
        children = [item for item in lineage if known[item].parent_snapshot_id == start]
        if not children:
            return None
        kept = lineage[: lineage.index(children[0]) + 1]
    return [item for item in kept if known[item].summary.operation is APPEND]


@settings(deadline=None, max_examples=examples(300))
@given(histories(), st.booleans())
def test_increments_of_any_history_follow_the_rules(
    history: tuple[TableMetadata, int, int], inclusive: bool
) -> None:
    metadata, start, end = history
    expected = by_the_rules(metadata, start, end, inclusive=inclusive)

    if expected is None:
        with pytest.raises(BadInputError) as failure:
            chosen(metadata, start, end, inclusive=inclusive)
        assert str(start) in failure.value.message
        assert str(end) in failure.value.message
    else:
        assert chosen(metadata, start, end, inclusive=inclusive) == expected


@settings(deadline=None, max_examples=examples(100))
@given(st.integers(2, 12), st.data())
def test_increments_one_behind_the_other_are_one_increment(count: int, data: st.DataObject) -> None:
    metadata = line(count)
    stops = sorted(data.draw(st.sets(st.integers(1, count), min_size=2)))

    pieces = [chosen(metadata, a, b) for a, b in itertools.pairwise(stops)]

    assert sorted(itertools.chain(*pieces)) == sorted(chosen(metadata, stops[0], stops[-1]))


def test_parents_in_a_circle_are_refused() -> None:
    kept = [snapshot(1, 2), snapshot(2, 1)]
    with pytest.raises(BadInputError, match="cycle"):
        chosen(metadata_of(kept, 2), end=2)
