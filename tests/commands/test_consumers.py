"""Consumers: what a reader has not read yet stays in the table, and `lake consumers` lists the readers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.refs import SnapshotRef
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import (
    FixedClock,
    inject,
    make_table,
    open_session,
    pyiceberg_catalog,
    pyiceberg_table,
)

from lake.core.base.errors import InvalidRequestError
from lake.core.read.continuous.consumers import protect
from lake.core.table.refs.consumers import first_unread
from lake.core.table.snapshots import ancestry

NOW = ("--older-than", "0s", "--retain-last", "1", "--unsafe-retention")
DAY_MS = 86_400_000
TTL_MS = 30 * DAY_MS


def appended(warehouse: Path, *numbers: int) -> list[int]:
    """Append one row a snapshot and return the ids of the snapshots."""
    table = pyiceberg_table(warehouse)
    ids = []
    for number in numbers:
        table.append(pa.table({"id": pa.array([number], pa.int64()), "name": [f"n{number}"]}))
        ids.append(table.metadata.current_snapshot_id)
    return ids


@pytest.fixture
def ids(warehouse: Path) -> list[int]:
    """The snapshots of a table that received six appends of one row each."""
    make_table(warehouse)
    return appended(warehouse, *range(6))


def note(
    warehouse: Path,
    needed_from: int | None,
    *,
    name: str = "billing",
    branch: str = "main",
    ttl_ms: int = TTL_MS,
    **options: Any,
) -> list[str]:
    """Record a reader's progress, and return the warnings."""
    session = open_session(warehouse)
    table = session.table("db.t")
    protect(session, table, name, branch, needed_from, ttl_ms, **options)
    return list(session.warnings)


def refs(warehouse: Path) -> dict[str, SnapshotRef]:
    found: dict[str, SnapshotRef] = pyiceberg_table(warehouse).metadata.refs
    return found


def kept(warehouse: Path) -> list[int]:
    metadata = pyiceberg_table(warehouse).metadata
    return sorted(item.snapshot_id for item in metadata.snapshots)


def test_a_consumer_keeps_what_is_not_read_from_an_expiry(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    assert note(warehouse, ids[3]) == []
    ref = refs(warehouse)["lake-consumer-billing"]
    later = appended(warehouse, 6, 7)

    document = lake.ok("expire", "db.t", *NOW)

    assert (ref.snapshot_id, ref.min_snapshots_to_keep, ref.max_ref_age_ms) == (ids[5], 3, TTL_MS)
    assert kept(warehouse) == sorted([*ids[3:], *later])
    reasons = document["plan"]["kept_snapshots"]
    assert reasons == {"consumer": 4, "referenced": 1}


def test_a_reader_that_has_read_everything_keeps_its_position_only(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    note(warehouse, None)

    lake.ok("expire", "db.t", *NOW)

    assert kept(warehouse) == [ids[5]]
    [row] = lake.ok("consumers", "db.t")["result"]["consumers"]
    assert row["position"]["snapshot_id"] == str(ids[5])
    assert row["lag"] == {"snapshots": 0, "rows": 0, "ms": 0}


def test_a_consumer_whose_time_is_over_protects_nothing(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    note(warehouse, ids[1], ttl_ms=1)

    assert lake.ok("expire", "db.t", *NOW)["result"]["refs"] == 1

    assert kept(warehouse) == [ids[5]]
    assert lake.ok("consumers", "db.t")["result"]["consumers"] == []


@pytest.mark.parametrize("needs_position", [False, True])
def test_the_list_shows_position_and_lag(
    lake: CommandLine, warehouse: Path, ids: list[int], needs_position: bool
) -> None:
    """The reader is at the third snapshot, and two of the five unread ones came after its last refresh."""
    needed = ids[2] if needs_position else ids[3]
    note(warehouse, needed, needs_position=needs_position)
    appended(warehouse, 6, 7)

    document = lake.ok("consumers", "db.t")

    [row] = document["result"]["consumers"]
    assert (row["name"], row["branch"], row["head"]) == ("billing", "main", str(ids[5]))
    assert row["position"]["snapshot_id"] == str(ids[2])
    assert (row["lag"]["snapshots"], row["lag"]["rows"]) == (5, 5)
    assert row["lag"]["ms"] >= row["age_ms"] >= 0
    assert (row["expired_snapshots"], row["max_age_ms"]) == (0, TTL_MS)
    assert document["warnings"] == []
    text = lake("consumers", "db.t")
    assert "billing" in text.stdout
    assert "db.t: 1 consumer" in text.stderr
    assert "lake-consumer-billing" in lake("snapshots", "db.t").stdout


def test_a_reader_that_has_read_nothing_needs_the_whole_history(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    table = pyiceberg_table(warehouse)
    needed = first_unread(table.metadata, "main", None)
    note(warehouse, needed)

    [row] = lake.ok("consumers", "db.t")["result"]["consumers"]

    assert needed == ids[0]
    assert row["position"] == {"snapshot_id": None, "timestamp_ms": None}
    assert row["lag"]["rows"] == 6


def test_the_oldest_unread_snapshot_is_the_child_of_the_position(
    warehouse: Path, ids: list[int]
) -> None:
    metadata = pyiceberg_table(warehouse).metadata

    assert [first_unread(metadata, "main", number) for number in ids] == [*ids[1:], None]
    assert first_unread(metadata, "main", 42) == ids[0]


def test_a_position_that_does_not_move_makes_no_commit(warehouse: Path, ids: list[int]) -> None:
    note(warehouse, ids[2])
    before = pyiceberg_table(warehouse).metadata_location

    note(warehouse, ids[2])

    assert pyiceberg_table(warehouse).metadata_location == before
    note(warehouse, ids[4])
    assert refs(warehouse)["lake-consumer-billing"].min_snapshots_to_keep == 2


def test_several_consumers_are_kept_apart(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    note(warehouse, ids[4], name="b")
    note(warehouse, ids[2], name="a")

    lake.ok("expire", "db.t", *NOW)
    dropped = lake.ok("consumers", "db.t", "--drop", "a")
    lake.ok("expire", "db.t", *NOW)

    assert dropped["result"] == {"dropped": "a"}
    assert [row["name"] for row in lake.ok("consumers", "db.t")["result"]["consumers"]] == ["b"]
    assert kept(warehouse) == sorted(ids[4:])


def test_a_dry_run_drops_nothing(lake: CommandLine, warehouse: Path, ids: list[int]) -> None:
    note(warehouse, ids[4])

    assert lake.ok("consumers", "db.t", "--drop", "billing", "--dry-run")["status"] == "dry-run"

    assert "lake-consumer-billing" in refs(warehouse)


@pytest.mark.parametrize(
    ("options", "code"), [(("--drop", "none"), 7), (("--drop", "a/b"), 2), (("--dry-run",), 2)]
)
def test_a_mistake_in_the_options_is_named(
    lake: CommandLine, ids: list[int], options: tuple[str, ...], code: int
) -> None:
    assert lake("consumers", "db.t", *options).exit_code == code


def test_an_invalid_name_is_refused_before_the_table_is_touched(
    warehouse: Path, ids: list[int]
) -> None:
    with pytest.raises(InvalidRequestError):
        note(warehouse, None, name="x/y")


def test_a_snapshot_that_a_consumer_needs_does_not_expire_by_name(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    note(warehouse, ids[3])
    expire = ("expire", "db.t", "--snapshot")

    result = lake(*expire, str(ids[4]))

    assert result.exit_code == 3
    assert "remove it: lake consumers --drop billing" in result.stderr
    assert lake(*expire, str(ids[2])).exit_code == 0
    assert kept(warehouse) == sorted([*ids[:2], *ids[3:]])


@pytest.mark.parametrize("command", ["ingest", "compact", "replay"])
def test_lake_commits_nothing_to_the_ref_of_a_consumer(
    lake: CommandLine, warehouse: Path, ids: list[int], tmp_path: Path, command: str
) -> None:
    note(warehouse, ids[3])
    source = tmp_path / "rows.csv"
    source.write_text("id,name\n1,a\n")
    arguments: dict[str, tuple[object, ...]] = {
        "ingest": ("ingest", "db.t", source),
        "compact": ("compact", "db.t", "--rewrite-all"),
        "replay": ("replay", "db.t", "--job", "0" * 32, "--completed", "1"),
    }

    result = lake(*arguments[command], "--branch", "lake-consumer-billing")

    assert result.exit_code == 3, result
    assert "records what a reader has read" in result.stderr


def committed_to_the_ref(warehouse: Path) -> int:
    """Append a row to the ref of the consumer, as another program can."""
    table = pyiceberg_table(warehouse)
    row = pa.table({"id": pa.array([99], pa.int64()), "name": ["foreign"]})
    table.append(row, branch="lake-consumer-billing")
    return int(table.metadata.refs["lake-consumer-billing"].snapshot_id)


def test_a_commit_of_another_program_to_the_ref_is_reported_and_kept(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    note(warehouse, ids[3])
    foreign = committed_to_the_ref(warehouse)

    warnings = note(warehouse, None)
    document = lake.ok("consumers", "db.t")
    lake.ok("expire", "db.t", *NOW)

    assert "another program committed to the ref" in warnings[0]
    assert refs(warehouse)["lake-consumer-billing"].snapshot_id == foreign
    [row] = document["result"]["consumers"]
    assert (row["branch"], row["lag"]["snapshots"]) == (None, None)
    assert str(foreign) in document["warnings"][0]
    assert foreign in kept(warehouse)
    assert lake("consumers", "db.t", "--drop", "billing").exit_code == 3


def test_a_rollback_of_main_is_not_taken_for_a_commit_to_the_ref(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    note(warehouse, ids[3])
    table = pyiceberg_table(warehouse)
    table.manage_snapshots().rollback_to_snapshot(ids[4]).commit()

    assert note(warehouse, None) == []

    assert refs(warehouse)["lake-consumer-billing"].snapshot_id == ids[4]


def test_a_rolled_back_snapshot_is_kept_for_its_age_as_without_a_reader(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    note(warehouse, None)
    table = pyiceberg_table(warehouse)
    table.manage_snapshots().rollback_to_snapshot(ids[3]).commit()

    lake.ok("expire", "db.t", "--older-than", "1d", "--retain-last", "1")

    assert kept(warehouse) == sorted(ids)


def test_a_branch_that_moves_while_the_progress_is_recorded_loses_nothing(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    """The first request meets a commit of another writer: the second one records the newer head."""
    session = open_session(warehouse)
    table = session.table("db.t")
    later: list[int] = []

    def moved(commit: Any) -> Any:
        later.extend(appended(warehouse, 6))
        return commit()

    inject(session, [moved])
    protect(session, table, "billing", "main", ids[4], TTL_MS)

    assert session.warnings == []
    lake.ok("expire", "db.t", *NOW)
    assert kept(warehouse) == sorted([*ids[4:], *later])
    [row] = lake.ok("consumers", "db.t")["result"]["consumers"]
    assert row["lag"]["snapshots"] == 3


def test_a_ref_that_ended_meanwhile_is_made_again(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    note(warehouse, ids[2])
    session = open_session(warehouse)
    table = session.table("db.t")

    def ended(commit: Any) -> Any:
        lake.ok("consumers", "db.t", "--drop", "billing")
        return commit()

    inject(session, [ended])
    protect(session, table, "billing", "main", ids[3], TTL_MS)

    assert session.warnings == []
    assert refs(warehouse)["lake-consumer-billing"].min_snapshots_to_keep == 3


def test_a_failure_to_record_progress_is_a_warning(warehouse: Path, ids: list[int]) -> None:
    session = open_session(warehouse, FixedClock())
    table = session.table("db.t")
    pyiceberg_catalog(warehouse).drop_table("db.t")

    protect(session, table, "billing", "main", ids[3], TTL_MS)

    assert "the progress of consumer billing was not recorded" in session.warnings[0]


def test_another_table_with_the_same_name_gets_no_ref(warehouse: Path, ids: list[int]) -> None:
    session = open_session(warehouse, FixedClock())
    table = session.table("db.t")
    pyiceberg_catalog(warehouse).drop_table("db.t")
    make_table(warehouse, commit__retry__num_retries="0")
    appended(warehouse, 1)

    protect(session, table, "billing", "main", None, TTL_MS)

    assert len(session.warnings) == 1
    assert list(refs(warehouse)) == ["main"]


def test_a_consumer_of_a_branch_protects_that_branch(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    table = pyiceberg_table(warehouse)
    table.manage_snapshots().create_branch(ids[5], "audit").commit()
    for number in (10, 11):
        row = pa.table({"id": pa.array([number], pa.int64()), "name": ["x"]})
        table.append(row, branch="audit")
    head = table.metadata.refs["audit"].snapshot_id
    first = ancestry.snapshots_by_id(table.metadata)[head].parent_snapshot_id
    note(warehouse, first, branch="audit")

    lake.ok("expire", "db.t", *NOW)

    assert kept(warehouse) == sorted([ids[5], first, head])
    [row_] = lake.ok("consumers", "db.t")["result"]["consumers"]
    assert (row_["branch"], row_["lag"]["snapshots"]) == ("audit", 2)


def test_history_that_was_removed_all_the_same_is_reported(
    lake: CommandLine, warehouse: Path, ids: list[int]
) -> None:
    note(warehouse, ids[2])
    table = pyiceberg_table(warehouse)
    table.maintenance.expire_snapshots().by_ids(ids[:4]).commit()

    document = lake.ok("consumers", "db.t")

    assert document["result"]["consumers"][0]["expired_snapshots"] == 2
    assert "report a gap" in document["warnings"][0]
