"""Where a follower starts and what it has not seen, judged by a model of the whole history."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot
from support.tables.histories import line, metadata_of, snapshot
from support.tiers import examples

from lake.core.base.errors import BadInputError, InvalidRequestError, NotFoundError
from lake.core.read.continuous.position import (
    Gap,
    GapKind,
    Position,
    Start,
    Started,
    Strategy,
    after_gap,
    starting_position,
    unseen,
)
from lake.core.table.snapshots import ancestry

NOW = 10_000_000


def forgotten(first_kept: int = 3, count: int = 5) -> TableMetadata:
    """The history of `line`, whose oldest retained snapshot has lost its parent id, as after PyIceberg's expiry."""
    first, *rest = line(count, first_kept).snapshots
    return metadata_of([first.model_copy(update={"parent_snapshot_id": None}), *rest], count)


@dataclass(frozen=True)
class Shape:
    """A history, and what is known about it without looking at parent ids.

    Args:
        metadata: the history.
        branch: the branch to follow.
        lineage: the retained snapshots of the branch, oldest first.
        parent: the parent id of the oldest one.
        whole: whether the table never had an older one.
    """

    metadata: TableMetadata
    lineage: list[int]
    branch: str = "main"
    parent: int | None = None
    whole: bool = True


SHAPES = {
    "empty": Shape(metadata_of([], None), []),
    "one snapshot": Shape(line(1), [1]),
    "three snapshots": Shape(line(3), [1, 2, 3]),
    "a branch": Shape(
        metadata_of(
            [snapshot(1, None), snapshot(2, 1), snapshot(3, 2), snapshot(4, 2), snapshot(5, 4)],
            3,
            work=(5, "branch"),
        ),
        [1, 2, 4, 5],
        branch="work",
    ),
    "an expired root": Shape(line(5, first_kept=3), [3, 4, 5], parent=2, whole=False),
    "a forgotten parent": Shape(forgotten(), [3, 4, 5], whole=False),
}


def started(shape: Shape, start: Start) -> Started | Gap:
    return starting_position(
        shape.metadata,
        shape.branch,
        start,
        now_ms=NOW,
        is_first=lambda item: ancestry.is_first(shape.metadata, item),
    )


def read(shape: Shape, start: Start) -> tuple[int | None, list[int]]:
    """Return the snapshot that is read whole, and those whose appends are read after it."""
    found = started(shape, start)
    assert isinstance(found, Started)
    head = ancestry.branch_head(shape.metadata, shape.branch)
    whole = None if found.scanned is None else found.scanned.snapshot_id
    if found.first is not None:
        return whole, shape.lineage[shape.lineage.index(found.first.snapshot_id) :]
    rest = unseen(
        shape.metadata,
        head,
        found.position,
        is_first=lambda item: ancestry.is_first(shape.metadata, item),
    )
    assert not isinstance(rest, Gap)
    return whole, [item.snapshot_id for item in rest]


@pytest.mark.parametrize("name", SHAPES)
def test_the_whole_table_is_read_and_then_what_follows(name: str) -> None:
    shape = SHAPES[name]
    head = shape.lineage[-1] if shape.lineage else None

    assert read(shape, Start(strategy=Strategy.TABLE)) == (head, [])


@pytest.mark.parametrize("name", SHAPES)
def test_the_latest_snapshot_is_read_or_only_what_follows_it(name: str) -> None:
    shape = SHAPES[name]

    assert read(shape, Start(strategy=Strategy.LATEST)) == (None, shape.lineage[-1:])
    assert read(shape, Start(strategy=Strategy.LATEST_EXCLUSIVE)) == (None, [])


@pytest.mark.parametrize("name", SHAPES)
def test_the_earliest_strategy_reads_all_that_is_retained(name: str) -> None:
    shape = SHAPES[name]

    assert read(shape, Start(strategy=Strategy.EARLIEST)) == (None, shape.lineage)


@pytest.mark.parametrize("name", SHAPES)
def test_the_position_of_an_inclusive_start_is_that_of_the_parent(name: str) -> None:
    shape = SHAPES[name]
    for strategy, parents in {
        Strategy.EARLIEST: [shape.parent],
        Strategy.LATEST: [shape.parent, *shape.lineage][-2:-1] or [None],
    }.items():
        found = started(shape, Start(strategy=strategy))

        assert isinstance(found, Started)
        assert [found.position.snapshot_id] == parents


@pytest.mark.parametrize("name", SHAPES)
def test_a_start_behind_a_snapshot_reads_what_follows_it(name: str) -> None:
    shape = SHAPES[name]
    for index, number in enumerate(shape.lineage):
        after = Start(strategy=Strategy.SNAPSHOT, snapshot=str(number))
        inclusive = Start(strategy=Strategy.SNAPSHOT, snapshot=str(number), inclusive=True)

        assert read(shape, after) == (None, shape.lineage[index + 1 :])
        assert read(shape, inclusive) == (None, shape.lineage[index:])


def test_a_start_behind_an_expired_snapshot_needs_its_child() -> None:
    shape = SHAPES["an expired root"]

    assert read(shape, Start(strategy=Strategy.SNAPSHOT, snapshot="2")) == (None, [3, 4, 5])
    gap = started(shape, Start(strategy=Strategy.SNAPSHOT, snapshot="1"))
    assert isinstance(gap, Gap)
    assert (gap.kind, gap.oldest_retained, gap.head) == (GapKind.EXPIRED, 3, 5)
    with pytest.raises(NotFoundError):
        started(shape, Start(strategy=Strategy.SNAPSHOT, snapshot="2", inclusive=True))


def test_a_start_on_another_branch_is_refused() -> None:
    shape = SHAPES["a branch"]

    gap = started(shape, Start(strategy=Strategy.SNAPSHOT, snapshot="3"))
    assert isinstance(gap, Gap)
    assert gap.kind is GapKind.ROLLED_BACK
    with pytest.raises(BadInputError, match="not in the history of branch work"):
        started(shape, Start(strategy=Strategy.SNAPSHOT, snapshot="3", inclusive=True))


def test_an_empty_table_has_no_snapshot_to_start_behind() -> None:
    for inclusive in (False, True):
        start = Start(strategy=Strategy.SNAPSHOT, snapshot="1", inclusive=inclusive)
        with pytest.raises(NotFoundError, match="the table has no snapshots"):
            started(SHAPES["empty"], start)


@pytest.mark.parametrize("name", SHAPES)
def test_a_time_starts_with_the_first_snapshot_that_is_not_older(name: str) -> None:
    shape = SHAPES[name]
    oldest = shape.lineage[0] if shape.lineage else None
    for time_ms in range(0, 7000, 500):
        start = Start(strategy=Strategy.TIME, time_ms=time_ms)
        if oldest is not None and not shape.whole and time_ms < 1000 * oldest:
            gap = started(shape, start)
            assert isinstance(gap, Gap)
            assert (gap.kind, gap.position) == (GapKind.TRUNCATED, Position.EMPTY)
        else:
            wanted = [number for number in shape.lineage if 1000 * number >= time_ms]
            assert read(shape, start) == (None, wanted)


def test_of_snapshots_with_one_time_the_oldest_is_the_first() -> None:
    same = [
        snapshot(number, number - 1 or None).model_copy(update={"timestamp_ms": time_ms})
        for number, time_ms in ((1, 1000), (2, 2000), (3, 2000), (4, 3000))
    ]
    shape = Shape(metadata_of(same, 4), [1, 2, 3, 4])

    assert read(shape, Start(strategy=Strategy.TIME, time_ms=2000)) == (None, [2, 3, 4])


def test_a_time_in_the_future_is_an_invalid_request() -> None:
    for shape in SHAPES.values():
        with pytest.raises(InvalidRequestError, match="in the future"):
            started(shape, Start(strategy=Strategy.TIME, time_ms=NOW + 1))


def test_a_branch_that_does_not_exist_is_not_found() -> None:
    shape = Shape(line(2), [1, 2], branch="other")

    with pytest.raises(NotFoundError, match="no branch named other"):
        started(shape, Start(strategy=Strategy.TABLE))


def test_a_position_travels_as_json_with_its_id_as_text() -> None:
    for position in (Position.EMPTY, Position(2**62, 5), Position(-7)):
        plain = position.document()

        assert isinstance(plain["snapshot_id"], str | None)
        assert Position.from_plain(plain) == position
    for wrong in ({"snapshot_id": 5}, {"snapshot_id": "x"}, {"timestamp_ms": "1"}):
        with pytest.raises(ValueError, match="not a position"):
            Position.from_plain(wrong)


# A model: the whole history is known to it, also what has expired.


@dataclass
class BranchModel:
    """A table's branch, of which snapshots expire, and everything that was ever committed."""

    parents: dict[int, int | None] = field(default_factory=dict)
    retained: list[Snapshot] = field(default_factory=list)
    head: int | None = None

    def commit(self) -> None:
        number = len(self.parents) + 1
        self.parents[number] = self.head
        self.retained.append(snapshot(number, self.head))
        self.head = number

    def roll_back(self, choice: int) -> None:
        line = [number for number in self.lineage() if number in self.ids()]
        if line:
            self.head = line[choice % len(line)]

    def expire(self, choice: int, *, forgets: bool) -> None:
        """Expire the oldest snapshots of the branch, or snapshots of no branch."""
        line = [number for number in self.lineage() if number in self.ids()]
        if not line:
            return
        kept = set(line[choice % len(line) :])
        self.retained = [item for item in self.retained if item.snapshot_id in kept]
        if forgets:
            self.retained = [
                item.model_copy(update={"parent_snapshot_id": None})
                if item.parent_snapshot_id not in kept
                else item
                for item in self.retained
            ]

    def ids(self) -> set[int]:
        return {item.snapshot_id for item in self.retained}

    def lineage(self) -> list[int]:
        """Return the branch's history from its first snapshot, expired or not."""
        found, number = [], self.head
        while number is not None:
            found.append(number)
            number = self.parents[number]
        return found[::-1]

    def unseen(self, position: Position) -> list[int] | None:
        """Return what a follower has not seen; None if it cannot be read any more."""
        line, number = self.lineage(), position.snapshot_id
        if number is not None and number not in line:
            return None
        rest = line if number is None else line[line.index(number) + 1 :]
        return rest if set(rest) <= self.ids() else None


ACTIONS = st.tuples(
    st.sampled_from(["commit", "commit", "commit", "roll back", "expire", "forget", "look"]),
    st.integers(0, 9),
)


@settings(deadline=None, max_examples=examples(500))
@given(st.lists(ACTIONS, max_size=25), st.booleans())
def test_a_follower_sees_each_snapshot_once_or_reports_a_gap(
    actions: list[tuple[str, int]], skips: bool
) -> None:
    branch, position = BranchModel(), Position.EMPTY
    for action, choice in [*actions, ("look", 0)]:
        if action == "commit":
            branch.commit()
        elif action == "roll back":
            branch.roll_back(choice)
        elif action in {"expire", "forget"}:
            branch.expire(choice, forgets=action == "forget")
        else:
            position = look(branch, position, skips=skips)


def look(branch: BranchModel, position: Position, *, skips: bool) -> Position:
    """Look once, compare with the model, and return the new position."""
    metadata = metadata_of(branch.retained, branch.head)
    head = ancestry.branch_head(metadata, "main")
    found = unseen(
        metadata, head, position, is_first=lambda item: ancestry.is_first(metadata, item)
    )
    expected = branch.unseen(position)
    if isinstance(found, Gap):
        # A parent that was forgotten is not proven to be the position, although it may have been.
        lost = branch.retained and branch.retained[0].parent_snapshot_id is None
        assert expected is None or lost
        if not skips:
            return position
        position, rest = after_gap(metadata, head, found)
        numbers = [item.snapshot_id for item in rest]
        retained = [number for number in branch.lineage() if number in branch.ids()]
        assert numbers == retained[len(retained) - len(numbers) :]
        # Skipping must not repeat what both histories share.
        assert found.kind is not GapKind.ROLLED_BACK or found.position.snapshot_id not in numbers
    else:
        assert [item.snapshot_id for item in found] == expected
    return position if head is None else Position(head.snapshot_id, head.timestamp_ms)


def test_after_a_rollback_a_follower_goes_on_behind_what_both_histories_share() -> None:
    kept: list[Any] = [snapshot(1, None), snapshot(2, 1), snapshot(3, 2), snapshot(4, 1)]
    metadata = metadata_of([*kept, snapshot(5, 4)], 5)
    head = ancestry.branch_head(metadata, "main")

    found = unseen(metadata, head, Position(3), is_first=lambda _: True)

    assert isinstance(found, Gap)
    assert found.kind is GapKind.ROLLED_BACK
    position, rest = after_gap(metadata, head, found)
    assert position.snapshot_id == 1
    assert [item.snapshot_id for item in rest] == [4, 5]


def test_a_table_without_snapshots_has_lost_the_position() -> None:
    empty = metadata_of([], None)

    assert unseen(empty, None, Position.EMPTY, is_first=lambda _: True) == []
    gap = unseen(empty, None, Position(3), is_first=lambda _: True)
    assert isinstance(gap, Gap)
    assert gap.kind is GapKind.EMPTIED
    assert after_gap(empty, None, gap) == (Position.EMPTY, [])
    assert Gap.from_plain(gap.document()) == gap
