"""The time that `lake maintain` has when the tables are too many to be read in it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.faults.store_time import store_time_of_commands
from support.tables.iceberg_tables import FixedClock, after, inject
from support.tables.neglected_tables import Warehouse, run

from lake.core.base.clock import SystemIds
from lake.core.base.settings import Settings
from lake.core.io.storage.storage import Storage
from lake.core.maintain.orphans import trash
from lake.core.maintain.statistics.theta_sketch import ThetaSketch
from lake.core.table.catalogs.sql import SqlBackend
from lake.core.transaction.session import Session, open_session

TABLES, FILES = 200, 4
NAMES = [f"db.t{number:03}" for number in range(TABLES)]
COMPACT = ("maintain", "--only", "compact", "--max-seconds", "60s")
POLICY = """
["*".compact]
when = "files > 1"
min-input-files = 2
"""


class Middle(SystemIds):
    """Random numbers that are all in the middle."""

    def jitter(self) -> float:
        return 0.5


@pytest.fixture
def lake(tmp_path: Path) -> CommandLine:
    """`lake` on many tables, which are one until each is changed."""
    warehouse = tmp_path / "warehouse"
    lake = CommandLine(warehouse, engine="inline")
    for number in range(FILES):
        lake.load(f"id,name\n{number},n{number}\n", "--create", table=NAMES[0])
    with closing(sqlite3.connect(warehouse / "catalog.db")) as catalog:
        columns = "catalog_name, table_namespace, metadata_location, iceberg_type"
        catalog.executemany(
            f"INSERT INTO iceberg_tables ({columns}, table_name)"
            f" SELECT {columns}, ? FROM iceberg_tables WHERE table_name = 't000'",
            [(name.removeprefix("db."),) for name in NAMES[1:]],
        )
        catalog.commit()
    return lake


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FixedClock:
    """A clock of a slow store: each load of a table takes a second, and nothing else takes any time."""
    clock, lock, load = FixedClock(), threading.Lock(), SqlBackend.load

    def slow(self: SqlBackend, *asked: Any, **named: Any) -> Any:
        with lock:
            clock.sleep(1)
        return load(self, *asked, **named)

    monkeypatch.setattr(SqlBackend, "load", slow)
    return clock


def slowly(lake: CommandLine, clock: FixedClock) -> CommandLine:
    """Return `lake` with this clock."""

    def opened(settings: Settings) -> Session:
        return open_session(settings, clock=clock, ids=Middle())

    return CommandLine(lake.warehouse, engine="inline", open_session=opened)


@pytest.mark.parametrize("entries", [1, 1000], ids=["large tables", "small tables"])
def test_a_minute_ends_in_time_although_the_tables_take_longer_to_be_read(
    lake: CommandLine,
    clock: FixedClock,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    entries: int,
) -> None:
    monkeypatch.setattr("lake.core.maintain.rounds.tables.MOST_ENTRIES", entries)
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY)
    begun = clock.monotonic()

    code, result = run(slowly(lake, clock), *COMPACT, "--policy", policy)

    assert code == 6
    assert clock.monotonic() - begun <= 75
    done = [row["table"] for row in result["actions"]]
    unread = {row["table"] for row in result["rest"] if row["action"] == "all"}
    left = {row["table"] for row in result["rest"] if row["action"] == "compact"}
    # A part of the time is for what the reading found.
    assert done
    assert {row["status"] for row in result["actions"]} == {"done"}
    assert result["tables"] == TABLES - len(unread)
    assert sorted([*done, *left, *unread]) == NAMES
    # The next run may begin elsewhere.
    assert NAMES[TABLES // 2] in {*done, *left}
    reasons = {row["reason"] for row in result["rest"] if row["action"] == "all"}
    assert reasons == {"it was not read: the rest of the 1m 00s is for other tables"}


@pytest.mark.slow
def test_with_little_to_do_the_reading_takes_all_of_the_time(
    lake: CommandLine, clock: FixedClock, tmp_path: Path
) -> None:
    policy = tmp_path / "policy.toml"
    policy.write_text(POLICY.replace("1", "100"))
    command = (*COMPACT, "--policy", policy)
    begun = clock.monotonic()

    code, result = run(slowly(lake, clock), *command)

    assert code == 6
    assert 30 <= clock.monotonic() - begun <= 75
    assert result["actions"] == []
    assert {row["action"] for row in result["rest"]} == {"all"}
    assert len(result["rest"]) + result["tables"] == TABLES
    text = slowly(lake, clock)(*command)
    assert " tables not read in time" in text.stderr + text.stdout
    assert " more rows are not shown (--verbose shows all)" in text.stderr + text.stdout
    # A dry run shows all.
    assert slowly(lake, clock).ok(*command, "--dry-run")["plan"]["tables"] == TABLES


CLEAN = ("maintain", "--only", "clean")
# One of each kind: a batch of a removal has files of one kind. A listing has a part for each file.
ORPHANS = ("data/orphan.parquet", "metadata/orphan.stats", "metadata/orphan-m0.avro")


@pytest.fixture
def littered(tmp_path: Path) -> Iterator[CommandLine]:
    """`lake` on a table with orphan files, on stores that have the time of the commands."""
    lake = CommandLine(tmp_path / "warehouse", engine="inline")
    lake.load("id,name\n1,a\n", "--create")
    for name in ORPHANS:
        (table_folder(lake) / name).write_bytes(b"rows")
    with store_time_of_commands():
        yield lake


def table_folder(lake: CommandLine) -> Path:
    """Return the folder of the table."""
    return next(lake.warehouse.rglob("metadata")).parent


def orphans(lake: CommandLine) -> set[str]:
    """Return the orphan files that are in their places."""
    return {name for name in ORPHANS if (table_folder(lake) / name).exists()}


def test_a_first_clean_ends_with_the_time_and_removes_nothing_by_a_part_of_a_listing(
    littered: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, each_batch = FixedClock(), Storage.each_batch

    def slow(*asked: Any, **named: Any) -> Iterator[Any]:
        for batch in each_batch(*asked, **named):
            clock.sleep(600)
            yield batch

    monkeypatch.setattr("lake.core.io.storage.storage._BATCH_FILES", 1)
    monkeypatch.setattr(Storage, "each_batch", slow)
    lake, begun = slowly(littered, clock), clock.monotonic()

    code, result = run(lake, *CLEAN, "--max-seconds", "15m")

    assert code == 6
    assert clock.monotonic() - begun == 1200
    assert orphans(littered) == set(ORPHANS)
    assert not list(littered.warehouse.rglob(".lake-trash"))
    (row,) = result["rest"]
    ended = "the time has ended: not all files were listed, and none was removed"
    assert (row["action"], row["reason"], result["failed"]) == ("clean", ended, [])
    (row,) = result["actions"]
    assert (row["status"], row["seconds"]) == ("partial", 1200)
    assert row["error"] == {
        "kind": "out-of-time",
        "message": ended,
        "hint": "lake clean db.t has no limit",
    }
    assert "\tclean\tout-of-time\t" in lake("runs").stdout

    # It would take the time of other tables again, so it waits for a day.
    code, result = run(lake, *CLEAN, "--max-seconds", "15m")
    assert (code, result["actions"]) == (0, [])
    (reason,) = [row["reason"] for row in result["left_alone"] if row["action"] == "clean"]
    assert reason.startswith("its time ended last time; it is tried again at ")

    # Then it begins only with as much time as it had, or more than half of all.
    clock.sleep(24 * 3600)
    monkeypatch.setattr(Storage, "each_batch", each_batch)
    load = SqlBackend.load

    def late(*asked: Any, **named: Any) -> Any:
        clock.sleep(600)
        return load(*asked, **named)

    with monkeypatch.context() as changed:
        changed.setattr(SqlBackend, "load", late)
        code, result = run(lake, *CLEAN, "--max-seconds", "2100s")
    assert (code, result["actions"]) == (6, [])
    assert result["rest"][0]["reason"] == "it takes about 20m 00s, and 15m 00s are left"

    code, result = run(lake, *CLEAN, "--max-seconds", "15m")
    assert (code, orphans(littered)) == (0, set())


def test_a_clean_that_has_no_time_for_all_removals_leaves_the_rest_in_its_place(
    littered: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, move = FixedClock(), trash.move

    def slow(*asked: Any, **named: Any) -> None:
        move(*asked, **named)
        clock.sleep(600)

    monkeypatch.setattr(trash, "move", slow)

    code, result = run(slowly(littered, clock), *CLEAN, "--max-seconds", "15m")

    assert (code, len(orphans(littered))) == (6, 1)
    (row,) = result["rest"]
    assert row["reason"] == "the time has ended: 1 of 3 files were not removed"
    # What was moved away can be moved back.
    operation_id = result["actions"][0]["operation_id"]
    assert slowly(littered, clock)("clean", "db.t", "--restore", operation_id).exit_code == 0
    assert orphans(littered) == set(ORPHANS)


def test_files_that_an_expiry_had_no_time_to_delete_are_deleted_by_the_next_run(
    littered: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(2, 14):
        littered.load(f"id,name\n{number},a\n", "--overwrite")
    clock, delete = FixedClock(), Storage.delete
    folder = littered.warehouse

    def slow(*asked: Any, **named: Any) -> Any:
        deleted = delete(*asked, **named)
        clock.sleep(600)
        return deleted

    words = ("maintain", "--only", "expire", "--max-seconds", "15m")
    with monkeypatch.context() as changed:
        changed.setattr(Storage, "delete", slow)
        code, result = run(slowly(littered, clock), *words)

    assert code == 6
    assert [row["reason"] for row in result["rest"]] == ["the time has ended, and a part is left"]
    (row,) = result["actions"]
    assert (row["status"], row["after"]["snapshots"]) == ("partial", 1)
    assert any("the time has ended" in text for text in row["warnings"])
    assert len(list(folder.rglob("snap-*.avro"))) == 13

    code, result = run(slowly(littered, clock), *words)

    assert (code, result["actions"][0]["reason"]) == (0, "the last run did not delete all files")
    assert len(list(folder.rglob("snap-*.avro"))) == 1
    assert not list(folder.rglob("*journal*"))
    assert littered.ok("check", "db.t", "--deep")["result"]["findings"] == []
    assert run(slowly(littered, clock), *words)[1]["actions"] == []


def test_statistics_that_the_time_does_not_suffice_for_are_not_written(
    littered: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    littered.ok("alter", "db.t", "--set", "read.split.target-size=1")
    littered.ok("stats", "db.t")
    littered.load("id,name\n2,a\n")
    clock, merge = FixedClock(), ThetaSketch.merge
    before = littered.table("db.t").metadata.statistics

    def slow(*asked: Any) -> None:
        clock.sleep(600)
        merge(*asked)

    monkeypatch.setattr(ThetaSketch, "merge", slow)
    code, result = run(
        slowly(littered, clock), "maintain", "--only", "stats", "--max-seconds", "15m"
    )

    assert code == 6
    (row,) = result["rest"]
    ended = "the time has ended: not all files were read, and no statistics were written"
    assert (row["action"], row["reason"]) == ("stats", ended)
    assert littered.table("db.t").metadata.statistics == before


def test_deletes_are_rewritten_in_parts_until_the_time_has_ended(
    tmp_path: Path, neglected: Warehouse
) -> None:
    lake, clock = neglected.restored(), FixedClock()
    policy = tmp_path / "policy.toml"
    policy.write_text(
        '["*".deletes]\nwhen = "delete_files > 1"\npartial-progress = true\nmax-commits = 3\n'
    )

    def opened(settings: Settings) -> Session:
        session = open_session(settings, clock=clock)
        inject(session, [after(lambda: clock.sleep(1000))])
        return session

    command = CommandLine(lake.warehouse, engine="inline", open_session=opened)
    words = ("maintain", "db.deletes", "--only", "deletes", "--policy", policy)
    code, result = run(command, *words, "--max-seconds", "15m")

    assert code == 6
    assert [row["reason"] for row in result["rest"]] == ["the time has ended, and a part is left"]
    (row,) = result["actions"]
    assert (row["status"], len(row["snapshot_ids"])) == ("partial", 1)
    left = row["after"]["delete_files"]
    assert 1 < left < row["before"]["delete_files"]
    # The next run does the rest.
    code, result = run(lake, *words)
    assert (code, result["actions"][0]["after"]["delete_files"] < left) == (0, True)
