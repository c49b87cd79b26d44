"""The time that `lake maintain` has when the tables are too many to be read in it."""

from __future__ import annotations

import sqlite3
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import FixedClock
from support.tables.neglected_tables import run

from lake.core.base.clock import SystemIds
from lake.core.base.settings import Settings
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
