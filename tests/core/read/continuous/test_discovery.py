"""What a follower of a real table reads next, through all kinds of commits, gaps and changes of the schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType
from support.tables.delete_files import commit_equality_delete
from support.tables.iceberg_tables import (
    make_table,
    named_rows,
    open_session,
    pyiceberg_table,
)

from lake.core.base.choices import NonAppend, OnGap, SchemaMode
from lake.core.base.errors import BadInputError, CorruptFileError, NotFoundError, RefusedError
from lake.core.read.continuous.discovery import Common, Discovery, discover, scan_again
from lake.core.read.continuous.handover.work import WorkHeader, WorkItem, rows_of
from lake.core.read.continuous.options import FollowOptions, Strategy
from lake.core.read.continuous.position import Gap, GapError, GapKind, Position
from lake.core.read.scan.execute import DROPPED
from lake.core.read.scan.plan import ScanOptions
from lake.core.table.catalogs.catalog import Table

NOW = 10**13
EARLIEST = FollowOptions(start=Strategy.EARLIEST)


@dataclass
class Follower:
    """A follower that takes every discovery at once, and keeps the rows that it read."""

    warehouse: Path
    options: FollowOptions = EARLIEST
    position: Position | None = None
    ordinal: int = 0
    pinned: Schema | None = None
    found: list[Discovery] = field(default_factory=list)
    dropped: int = 0

    def table(self) -> Table:
        return open_session(self.warehouse).table("db.t")

    def look(self, target: int | None = None) -> list[dict[str, Any]]:
        """Take all discoveries that there are; return their rows."""
        read: list[dict[str, Any]] = []
        while found := self.next(target):
            read += self.read(found)
            if found.reached_target:
                break
        return read

    def next(self, target: int | None = None) -> Discovery | None:
        table = self.table()
        if self.options.schema is SchemaMode.PIN and self.pinned is None:
            self.pinned = table.schema
        found = discover(
            table,
            self.position,
            self.options,
            now_ms=NOW,
            target=target,
            common=Common(pinned=self.pinned, ordinal=self.ordinal),
        )
        if found is not None:
            assert found.start == self.position
            self.found.append(found)
            self.position, self.ordinal = found.end, found.next_ordinal
        return found

    def read(self, found: Discovery) -> list[dict[str, Any]]:
        """Read what a discovery found, after it travelled as JSON."""
        if found.header is None:
            return []
        header = WorkHeader.from_plain(json.loads(json.dumps(found.header.to_plain())))
        items = [
            WorkItem.from_plain(json.loads(json.dumps(item.to_plain()))) for item in found.work()
        ]
        noted: Counter[str] = Counter()
        source = rows_of(self.table(), header, items)
        read = [row for batch in source.stream(noted) for row in batch.to_pylist()]
        if found.records is not None:
            assert len(read) + noted[DROPPED] == found.records
        self.dropped += noted[DROPPED]
        return read

    def ids(self, target: int | None = None) -> list[int]:
        return [row["id"] for row in self.look(target)]


@pytest.fixture
def follow(warehouse: Path) -> Callable[..., Follower]:
    """Return a follower of the table ``db.t`` with the given options."""

    def build(**options: Any) -> Follower:
        return Follower(warehouse, FollowOptions(**{"start": Strategy.EARLIEST, **options}))

    return build


@pytest.fixture
def table(warehouse: Path) -> Any:
    """An empty table of PyIceberg."""
    return make_table(warehouse)


def head(table: Any) -> int:
    return int(table.metadata.current_snapshot_id)


def forget_first_parent(table: Any) -> None:
    """Forget the parent of the oldest snapshot, as PyIceberg's own expiry does."""
    path = Path(table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    document["snapshots"][0].pop("parent-snapshot-id", None)
    path.write_text(json.dumps(document))


def keep_first_parent(table: Any, parent: int) -> None:
    """Name the parent of the oldest snapshot, as Iceberg Java's expiry does."""
    path = Path(table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    document["snapshots"][0]["parent-snapshot-id"] = parent
    path.write_text(json.dumps(document))


def expire(table: Any, count: int) -> None:
    """Expire the oldest snapshots; the oldest one that is left keeps its parent id."""
    ids = [item.snapshot_id for item in table.metadata.snapshots[:count]]
    table.maintenance.expire_snapshots().by_ids(ids).commit()
    keep_first_parent(table, ids[-1])


# Appends


def test_each_append_is_read_once_and_the_oldest_first(
    follow: Callable[..., Follower], table: Any
) -> None:
    follower = follow()
    assert follower.ids() == []
    assert follower.position == Position.EMPTY

    table.append(named_rows(1))
    table.append(named_rows(2, 3))
    assert follower.ids() == [1, 2, 3]
    assert follower.next() is None
    table.append(named_rows(4))
    assert follower.ids() == [4]


def test_the_whole_table_is_read_without_its_deleted_rows_and_then_what_is_appended(
    follow: Callable[..., Follower], table: Any
) -> None:
    table.append(named_rows(1, 2))
    table.delete("id = 1")
    follower = follow(start=Strategy.TABLE)

    assert follower.ids() == [2]
    assert (follower.found[0].kind, follower.found[0].records) == ("table", 1)
    table.append(named_rows(3))
    assert follower.ids() == [3]
    assert follower.found[-1].kind == "append"


def test_a_discovery_has_at_most_as_many_snapshots_as_was_said(
    follow: Callable[..., Follower], table: Any
) -> None:
    for number in range(5):
        table.append(named_rows(number))
    follower = follow(max_planning_snapshots=2)

    assert follower.ids() == [0, 1, 2, 3, 4]
    assert [len(item.snapshots) for item in follower.found] == [0, 2, 2, 1]
    assert [item.reached_target for item in follower.found] == [False, False, False, True]


def test_a_target_ends_the_reading_and_later_commits_wait(
    follow: Callable[..., Follower], table: Any
) -> None:
    table.append(named_rows(1))
    target = head(table)
    table.append(named_rows(2))
    follower = follow()

    assert follower.ids(target) == [1]
    assert follower.next(target) is None
    assert follower.ids() == [2]


def test_overwrites_are_passed_and_named_and_rewrites_are_only_passed(
    follow: Callable[..., Follower], table: Any
) -> None:
    table.append(named_rows(1, 2))
    table.delete("id = 1")
    table.overwrite(named_rows(3))
    table.append(named_rows(4))
    follower = follow()

    assert follower.ids() == [1, 2, 3, 4]
    skipped = [item.operation for found in follower.found for item in found.skipped]
    assert skipped == ["overwrite", "delete"]


def test_a_snapshot_that_is_not_an_append_ends_the_reading_if_asked_for(
    follow: Callable[..., Follower], table: Any
) -> None:
    table.append(named_rows(1, 2))
    table.delete("id = 1")
    table.append(named_rows(3))
    follower = follow(non_append=NonAppend.FAIL)

    assert follower.next() is not None
    found = follower.next()
    assert found is not None
    assert [row["id"] for row in follower.read(found)] == [1, 2]
    position = follower.position
    for _ in range(2):
        with pytest.raises(RefusedError, match=r"is not an append \(overwrite\)"):
            follower.next()
        assert follower.position == position
    follower.options = EARLIEST
    assert follower.ids() == [3]


# Changes


def test_changes_go_on_with_their_ordinals_and_lead_to_the_table(
    follow: Callable[..., Follower], table: Any
) -> None:
    follower = follow(changes=True, max_planning_snapshots=1)
    table.append(named_rows(1, 2))
    first = follower.look()
    table.delete("id = 1")
    table.append(named_rows(3))
    second = follower.look()

    shown = [(row["_change_ordinal"], row["_change_type"], row["id"]) for row in first + second]
    assert shown == [(0, "insert", 1), (0, "insert", 2), (1, "delete", 1), (2, "insert", 3)]


def test_changes_after_a_whole_table_apply_to_its_rows(
    follow: Callable[..., Follower], table: Any
) -> None:
    table.append(named_rows(1, 2, 3))
    follower = follow(start=Strategy.TABLE, changes=True, key=("id",))
    state = Counter(row["id"] for row in follower.look())
    table.overwrite(named_rows(2, 4), overwrite_filter="id = 2")
    table.delete("id = 3")

    for row in follower.look():
        state[row["id"]] += 1 if row["_change_type"] in {"insert", "update_after"} else -1
    assert +state == Counter([1, 2, 4])


# Gaps


def gap_of(follower: Follower) -> Gap:
    """Return the gap that a follower reports; its position does not change."""
    position = follower.position
    with pytest.raises(GapError) as failure:
        follower.next()
    assert follower.position == position
    assert failure.value.exit_code == 7
    assert failure.value.result == failure.value.gap
    return failure.value.gap


def resumed(follower: Follower, on_gap: OnGap) -> list[int]:
    """Return the rows that a follower reads after a gap, and check that it named the gap."""
    before = len(follower.found)
    follower.options = FollowOptions(
        start=Strategy.EARLIEST, on_gap=on_gap, changes=follower.options.changes
    )
    read = follower.ids()
    first = follower.found[before]
    assert first.gap is not None
    assert first.gap.resumed_at is not None
    assert first.replaces == (on_gap is OnGap.TABLE)
    assert all(found.gap is None for found in follower.found[before + 1 :])
    return read


@pytest.mark.parametrize(
    ("on_gap", "expected"), [(OnGap.SKIP, [3, 4]), (OnGap.TABLE, [4, 3, 2, 1])]
)
def test_expired_snapshots_are_a_gap(
    follow: Callable[..., Follower], table: Any, on_gap: OnGap, expected: list[int]
) -> None:
    follower = follow()
    table.append(named_rows(1))
    assert follower.ids() == [1]
    for number in (2, 3, 4):
        table.append(named_rows(number))
    expire(table, 2)

    gap = gap_of(follower)
    assert gap.kind is GapKind.EXPIRED
    assert gap.position == follower.position
    assert gap.head == head(pyiceberg_table(follower.warehouse))
    assert resumed(follower, on_gap) == expected
    assert follower.next() is None


def test_an_expired_position_whose_child_is_there_is_not_a_gap(
    follow: Callable[..., Follower], table: Any
) -> None:
    follower = follow()
    table.append(named_rows(1))
    assert follower.ids() == [1]
    table.append(named_rows(2))
    expire(table, 1)

    assert follower.ids() == [2]


@pytest.mark.parametrize(("on_gap", "expected"), [(OnGap.SKIP, [2]), (OnGap.TABLE, [2, 1])])
def test_the_beginning_of_a_history_that_forgot_its_beginning_is_a_gap(
    follow: Callable[..., Follower], table: Any, on_gap: OnGap, expected: list[int]
) -> None:
    follower = follow()
    assert follower.ids() == []
    table.append(named_rows(1))
    table.append(named_rows(2))
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
    forget_first_parent(table)

    assert gap_of(follower).kind is GapKind.TRUNCATED
    assert resumed(follower, on_gap) == expected


@pytest.mark.parametrize("changes", [False, True])
def test_the_earliest_snapshot_is_read_although_it_forgot_its_parent(
    follow: Callable[..., Follower], table: Any, changes: bool
) -> None:
    table.append(named_rows(1))
    table.append(named_rows(2))
    table.append(named_rows(3))
    table.maintenance.expire_snapshots().by_id(table.metadata.snapshots[0].snapshot_id).commit()
    forget_first_parent(table)
    follower = follow(changes=changes, max_planning_snapshots=1)

    assert follower.ids() == [2, 3]
    assert follower.next() is None


@pytest.mark.parametrize(("on_gap", "expected"), [(OnGap.SKIP, [3]), (OnGap.TABLE, [3, 1])])
def test_a_rollback_is_a_gap_and_what_both_histories_share_is_not_read_again(
    follow: Callable[..., Follower], table: Any, on_gap: OnGap, expected: list[int]
) -> None:
    table.append(named_rows(1))
    first = head(table)
    table.append(named_rows(2))
    follower = follow()
    assert follower.ids() == [1, 2]
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    table.append(named_rows(3))

    assert gap_of(follower).kind is GapKind.ROLLED_BACK
    assert resumed(follower, on_gap) == expected


def test_a_rollback_before_which_nothing_was_read_is_not_a_gap(
    follow: Callable[..., Follower], table: Any
) -> None:
    table.append(named_rows(1))
    first = head(table)
    follower = follow()
    assert follower.ids() == [1]
    table.append(named_rows(2))
    table.manage_snapshots().rollback_to_snapshot(first).commit()
    assert follower.next() is None
    table.append(named_rows(3))

    assert follower.ids() == [3]


@pytest.mark.parametrize("on_gap", [OnGap.SKIP, OnGap.TABLE])
def test_a_table_that_lost_all_snapshots_is_a_gap(
    follow: Callable[..., Follower], table: Any, on_gap: OnGap
) -> None:
    table.append(named_rows(1))
    follower = follow()
    assert follower.ids() == [1]
    path = Path(table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    document |= {"snapshots": [], "refs": {}, "current-snapshot-id": -1, "snapshot-log": []}
    path.write_text(json.dumps(document))

    assert gap_of(follower).kind is GapKind.EMPTIED
    assert resumed(follower, on_gap) == []
    assert follower.position == Position.EMPTY


@pytest.mark.parametrize(("on_gap", "expected"), [(OnGap.SKIP, [4]), (OnGap.TABLE, [4, 3, 2])])
def test_a_snapshot_whose_deleted_rows_are_not_known_is_a_gap_of_changes(
    warehouse: Path, follow: Callable[..., Follower], on_gap: OnGap, expected: list[int]
) -> None:
    table = make_table(warehouse)
    table.append(named_rows(1, 2))
    table.append(named_rows(3))
    commit_equality_delete(warehouse, [1])
    table = pyiceberg_table(warehouse)
    table.append(named_rows(4))
    follower = follow(changes=True)
    expire(table, 2)

    assert follower.next() is not None
    gap = gap_of(follower)
    assert gap.kind is GapKind.PARENT_EXPIRED
    assert resumed(follower, on_gap) == expected


def test_files_that_are_gone_are_read_again_with_the_whole_table(
    follow: Callable[..., Follower], table: Any
) -> None:
    table.append(named_rows(1))
    follower = follow(on_gap=OnGap.TABLE)
    follower.look()
    gap = Gap(GapKind.FILES_GONE, follower.position or Position.EMPTY)

    found = scan_again(follower.table(), gap.position, follower.options, gap)

    assert (found.kind, found.replaces, found.end) == ("table", True, follower.position)
    assert [row["id"] for row in follower.read(found)] == [1]


# Branches


def test_a_branch_is_followed_and_others_are_not(
    follow: Callable[..., Follower], table: Any
) -> None:
    table.append(named_rows(1))
    table.manage_snapshots().create_branch(head(table), "work").commit()
    follower = follow(scan=ScanOptions(branch="work"))
    assert follower.ids() == [1]
    table.append(named_rows(2))
    assert follower.next() is None
    table.append(named_rows(3), branch="work")

    assert follower.ids() == [3]
    table.manage_snapshots().remove_branch("work").commit()
    with pytest.raises(NotFoundError, match="no branch named work"):
        follower.next()


# Schemas


def evolve(table: Any) -> None:
    """Add, rename, drop and reorder columns."""
    with table.update_schema() as update:
        update.add_column("size", IntegerType())
        update.rename_column("name", "label")


def test_rows_have_the_schema_of_their_discovery(
    follow: Callable[..., Follower], table: Any
) -> None:
    follower = follow()
    table.append(named_rows(1))
    assert follower.look() == [{"id": 1, "name": "n1"}]
    table.append(named_rows(2))
    evolve(table)
    table.append(
        pa.table(
            {"id": pa.array([3], pa.int64()), "label": ["x"], "size": pa.array([7], pa.int32())}
        )
    )

    assert follower.look() == [
        {"id": 2, "label": "n2", "size": None},
        {"id": 3, "label": "x", "size": 7},
    ]


def test_pinned_rows_keep_the_schema_of_the_start(
    follow: Callable[..., Follower], table: Any
) -> None:
    follower = follow(schema=SchemaMode.PIN)
    table.append(named_rows(1))
    assert follower.look() == [{"id": 1, "name": "n1"}]
    evolve(table)
    table.append(
        pa.table(
            {"id": pa.array([3], pa.int64()), "label": ["x"], "size": pa.array([7], pa.int32())}
        )
    )
    assert follower.look() == [{"id": 3, "name": "x"}]
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("label")
    table.append(pa.table({"id": pa.array([4], pa.int64()), "size": pa.array([8], pa.int32())}))

    assert follower.look() == [{"id": 4, "name": None}]


@pytest.mark.parametrize("select", [None, ["id"], ["name"]])
def test_a_pinned_column_that_was_widened_ends_the_reading(
    warehouse: Path, follow: Callable[..., Follower], select: list[str] | None
) -> None:
    schema = Schema(
        NestedField(1, "id", IntegerType(), required=False),
        NestedField(2, "name", StringType(), required=False),
    )
    table = make_table(warehouse, schema=schema)
    follower = follow(schema=SchemaMode.PIN, scan=ScanOptions(select=select))
    follower.look()
    with table.update_schema() as update:
        update.update_column("id", LongType())
    table.append(named_rows(2**40))

    if select == ["name"]:
        assert follower.look() == [{"name": f"n{2**40}"}]
    else:
        with pytest.raises(
            BadInputError, match="column id is now long, and the pinned schema has int"
        ):
            follower.next()


@pytest.mark.parametrize(
    "options",
    [
        {"scan": ScanOptions(where="name = 'n1'")},
        {"scan": ScanOptions(select=["id", "name"])},
        {"changes": True, "key": ("name",)},
    ],
)
def test_a_column_that_is_gone_ends_the_reading_and_nothing_moves(
    follow: Callable[..., Follower], table: Any, options: dict[str, Any]
) -> None:
    follower = follow(**options)
    table.append(named_rows(1))
    assert follower.ids() == [1]
    position = follower.position
    with table.update_schema(allow_incompatible_changes=True) as update:
        update.delete_column("name")
    table.append(pa.table({"id": pa.array([2], pa.int64())}))

    with pytest.raises(NotFoundError, match="name"):
        follower.next()
    assert follower.position == position


def test_a_filter_applies_to_rows_of_all_schemas(
    follow: Callable[..., Follower], table: Any
) -> None:
    follower = follow(scan=ScanOptions(where="id > 1", select=["id"]))
    table.append(named_rows(1, 2))
    evolve(table)
    table.append(pa.table({"id": pa.array([0, 3], pa.int64())}))

    assert follower.ids() == [2, 3]
    assert follower.found[-1].records is None


# Damage


def test_a_manifest_list_that_lost_files_is_not_read_as_if_it_were_complete(
    follow: Callable[..., Follower], table: Any
) -> None:
    table.append(named_rows(1))
    path = Path(table.metadata_location.removeprefix("file://"))
    document = json.loads(path.read_text())
    document["snapshots"][0]["summary"]["added-data-files"] = "2"
    path.write_text(json.dumps(document))
    follower = follow()

    with pytest.raises(CorruptFileError, match="names 1 added data files"):
        follower.next()
