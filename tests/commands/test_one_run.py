"""Runs from cron that overlap: the second of two maintenance runs of a table leaves, everything else goes on."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.faults.killed_runs import SENDING, killed, signalled
from support.tables.built_once import BuiltOnce
from support.tables.iceberg_tables import (
    FixedClock,
    files_below,
    ids_in,
    make_table,
)

from lake.core.base.clock import SystemClock
from lake.core.base.settings import Settings
from lake.core.transaction.locks import local
from lake.core.transaction.locks.local import HeldLock, Owner, take, this_process
from lake.core.transaction.session import Session, open_session

COMMANDS = [
    ("compact", "db.t", "--rewrite-all"),
    ("expire", "db.t", "--older-than", "0s", "--unsafe-retention"),
]
# A compaction that has the lock and has not begun to write.
_WORKING = ("lake.core.engine.inline", "InlineEngine.run", "before")


def _build(folder: Path) -> None:
    made = make_table(folder / "warehouse")
    for number in range(3):
        made.append(pa.table({"id": pa.array([number], pa.int64()), "name": [f"n{number}"]}))


@pytest.fixture
def warehouse(built_once: BuiltOnce) -> Path:
    """The folder of a catalog with the table db.t: three files in three snapshots."""
    return built_once.folder("table", _build) / "warehouse"


@pytest.fixture
def table(warehouse: Path) -> Path:
    """The path of the table's lock."""
    return warehouse / "db" / "t" / "metadata" / "lake.lock"


@pytest.fixture
def held(table: Path) -> Iterator[HeldLock]:
    """The table's lock in another's hands."""
    lock = take(str(table), this_process("compact", "op-1"))
    assert isinstance(lock, HeldLock)
    yield lock
    if table.exists():
        lock.release()


class Watched:
    """A session that notes, at each commit, whether the lock is there."""

    def __init__(self, lock: Path) -> None:
        self.lock = lock
        self.seen: list[bool] = []

    def __call__(self, settings: Settings) -> Session:
        session = open_session(settings)
        handle = session.catalog.handle
        real = handle.commit_table

        def commit(*arguments: object) -> object:
            self.seen.append(self.lock.exists())
            return real(*arguments)  # type: ignore[arg-type]

        handle.commit_table = commit  # type: ignore[method-assign, assignment]
        return session


@pytest.mark.parametrize("command", COMMANDS)
def test_the_second_run_leaves_with_status_already_running(
    lake: CommandLine, table: Path, held: HeldLock, command: tuple[str, ...]
) -> None:
    before = files_below(lake.warehouse)
    document = lake.ok(*command)
    text = lake(*command)
    quiet = lake("-q", *command)

    assert (document["command"], document["status"]) == (command[0], "already-running")
    assert document["snapshot_ids"] == []
    running = document["result"]["running"]
    assert (running["command"], running["pid"]) == ("compact", os.getpid())
    assert document["base_snapshot_id"]
    assert (text.exit_code, quiet.exit_code) == (0, 0)
    assert "db.t: already running: lake compact on " in text.stdout + text.stderr
    assert f"\t{os.getpid()}\top-1\t" in text.stdout
    assert (quiet.stdout, quiet.stderr) == ("", "")
    assert files_below(lake.warehouse) == before


@pytest.mark.parametrize(
    "command",
    [
        ("drop", "db.t"),
        ("drop", "db.t", "--purge", "--yes"),
        ("rename", "db.t", "db.other"),
        ("alter", "db.t", "--add-column", "more long"),
        ("check", "db.t", "--repair", "totals", "--yes"),
        ("clean", "db.t", "--purge", "run"),
        ("clean", "db.t", "--restore", "run"),
        ("add-files", "db.t", "{table}/backfill/own.parquet"),
    ],
    ids=lambda command: " ".join(command[:3]),
)
def test_a_typed_command_that_finds_the_lock_held_ends_with_8(
    lake: CommandLine, table: Path, held: HeldLock, command: tuple[str, ...]
) -> None:
    folder = table.parent.parent
    (folder / "backfill").mkdir()
    rows = pa.table({"id": pa.array([9], pa.int64()), "name": ["own"]})
    pq.write_table(rows, folder / "backfill" / "own.parquet")
    command = tuple(word.format(table=folder) for word in command)
    before = files_below(lake.warehouse)

    result = lake("--json", *command)
    waited = lake("-q", *command, "--wait", "10ms")

    assert (result.exit_code, waited.exit_code) == (8, 8)
    assert result.json()["error"]["kind"] == "locked"
    assert "so nothing was done: command compact" in result.json()["error"]["message"]
    assert "--wait" in result.json()["error"]["hint"]
    assert files_below(lake.warehouse) == before


@pytest.mark.parametrize(
    "command",
    [
        ("manifests", "db.t"),
        ("clean", "db.t", "--quarantine"),
        ("clean", "db.t", "--purge-older-than", "1d"),
        ("expire-partitions", "db.t", "--older-than", "1d", "--strategy", "update-time"),
        ("deletes", "db.t", "--rewrite"),
    ],
    ids=lambda command: command[0],
)
def test_a_command_that_a_schedule_repeats_leaves_with_0(
    lake: CommandLine, table: Path, held: HeldLock, command: tuple[str, ...]
) -> None:
    assert lake.ok(*command)["status"] == "already-running"


def test_a_lock_that_is_held_for_longer_than_a_day_is_a_warning_also_when_quiet(
    lake: CommandLine, table: Path
) -> None:
    clock = FixedClock(SystemClock().now_ms() - 50 * 3_600_000)
    lock = take(str(table), this_process("compact", "op-1", clock))
    assert isinstance(lock, HeldLock)

    quiet = lake("-q", *COMMANDS[0])
    lock.release()

    assert (quiet.exit_code, quiet.stdout) == (0, "")
    assert "warning: another run has held the lock on db.t for 50h 00m, and " in quiet.stderr
    assert "operation_id op-1" in quiet.stderr


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_holds_the_lock_while_it_works_and_leaves_none(
    lake: CommandLine, table: Path, command: tuple[str, ...]
) -> None:
    watched = Watched(table)
    document = CommandLine(lake.warehouse, open_session=watched).ok(*command)

    assert document["status"] == "done"
    assert watched.seen == [True]
    assert not table.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_run_that_fails_leaves_no_lock(
    lake: CommandLine, table: Path, command: tuple[str, ...]
) -> None:
    for manifest_list in table.parent.glob("snap-*.avro"):
        manifest_list.write_bytes(b"none")

    assert lake(*command).exit_code == 7
    assert not table.exists()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_wait_that_runs_out_is_exit_code_8(
    lake: CommandLine, table: Path, held: HeldLock, command: tuple[str, ...]
) -> None:
    result = lake("--json", *command, "--wait", "100ms")

    assert result.exit_code == 8
    assert result.json()["error"]["kind"] == "locked"
    assert "op-1" in result.json()["error"]["message"]


def test_a_wait_is_as_long_as_it_was_asked_for(
    lake: CommandLine, table: Path, held: HeldLock
) -> None:
    slept = []

    class Clock(SystemClock):
        def sleep(self, seconds: float) -> None:
            slept.append(seconds)

        def monotonic(self) -> float:
            return sum(slept)

    def opened(settings: Settings) -> Session:
        session = open_session(settings)
        session.clock = Clock()
        return session

    waiting = CommandLine(lake.warehouse, open_session=opened)

    assert waiting("compact", "db.t", "--wait", "1200ms").exit_code == 8
    assert sum(slept) == pytest.approx(1.2)


@pytest.mark.parametrize("wrong", [("--retain-last", "0"), ("--older-than", "soon")])
def test_options_of_an_expiry_that_cannot_be_are_refused_before_the_wait(
    lake: CommandLine, table: Path, held: HeldLock, wrong: tuple[str, str]
) -> None:
    assert lake("expire", "db.t", *wrong).exit_code == 2


def test_a_wait_ends_with_the_other_run_and_sees_what_it_did(
    lake: CommandLine, table: Path, held: HeldLock
) -> None:
    waits = []

    class Clock(SystemClock):
        def sleep(self, seconds: float) -> None:
            waits.append(seconds)
            lake.ok("ingest", "db.t", str(_rows(lake.warehouse.parent, 3)))
            held.release()

    def opened(settings: Settings) -> Session:
        session = open_session(settings)
        session.clock = Clock()
        return session

    waiting = CommandLine(lake.warehouse, open_session=opened)
    document = waiting.ok(*COMMANDS[0], "--wait", "60s")

    assert len(waits) == 1
    assert document["status"] == "done"
    assert document["result"]["rewritten_files"] == 4


def test_a_run_that_waited_reads_the_tables_properties_after_the_wait(
    lake: CommandLine, table: Path, held: HeldLock
) -> None:
    size = max(path.stat().st_size for path in table.parent.parent.glob("data/*.parquet"))

    class Clock(SystemClock):
        def sleep(self, seconds: float) -> None:
            changed = lake.table()
            with changed.transaction() as change:
                change.set_properties({"write.target-file-size-bytes": str(2 * size)})
            held.release()

    def opened(settings: Settings) -> Session:
        session = open_session(settings)
        session.clock = Clock()
        return session

    waiting = CommandLine(lake.warehouse, open_session=opened)
    # Three files are not enough for a rewrite, unless together they are larger than the target.
    document = waiting.ok("compact", "db.t", "--wait", "60s")

    assert document["status"] == "done"
    assert document["result"]["rewritten_files"] == 3


@pytest.mark.parametrize("wrong", [("--min-input-files", "0"), ("--max-size", "1MB")])
def test_options_that_contradict_each_other_are_refused_before_the_wait(
    lake: CommandLine, table: Path, held: HeldLock, wrong: tuple[str, str]
) -> None:
    assert lake("compact", "db.t", *wrong).exit_code == 2


def test_a_run_sees_what_another_did_until_it_had_the_lock(
    lake: CommandLine, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken(path: str, me: Owner, clock: Any) -> HeldLock | Owner | None:
        monkeypatch.undo()
        lake.ok(*COMMANDS[0])
        return take(path, me, clock)

    monkeypatch.setattr(local, "take", taken)

    assert lake.ok(*COMMANDS[0])["result"]["rewritten_files"] == 1
    assert ids_in(lake.warehouse) == [0, 1, 2]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_dry_run_needs_no_lock(
    lake: CommandLine, table: Path, held: HeldLock, command: tuple[str, ...]
) -> None:
    assert lake.ok(*command, "--dry-run")["status"] == "dry-run"


def test_loading_and_reading_go_on_beside_a_maintenance_run(
    lake: CommandLine, table: Path, held: HeldLock
) -> None:
    loaded = lake.ok("ingest", "db.t", str(_rows(lake.warehouse.parent, 3)))
    scanned = lake.ok("scan", "db.t")

    assert loaded["status"] == "done"
    assert scanned["result"]["rows"] == 4
    assert lake.ok("snapshots", "db.t")["status"] == "done"
    assert lake.ok("replay", "db.t")["status"] == "nothing-to-do"


def _rows(folder: Path, first: int) -> Path:
    path = folder / f"{first}.parquet"
    pq.write_table(pa.table({"id": pa.array([first], pa.int64()), "name": [f"n{first}"]}), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_run_leaves_no_lock(
    lake: CommandLine, table: Path, number: signal.Signals
) -> None:
    before = files_below(lake.warehouse)

    ended = signalled(lake, number, _WORKING, "--json", *COMMANDS[0])

    assert ended.exit_code == 128 + number, ended
    assert files_below(lake.warehouse) == before


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_after_a_killed_run_the_next_one_takes_the_lock_over(
    lake: CommandLine, table: Path, command: tuple[str, ...]
) -> None:
    killed(lake, SENDING, "--json", *command)
    left = table.exists()
    again = lake.ok(*command)

    assert left
    assert again["status"] in {"done", "nothing-to-do"}
    assert ids_in(lake.warehouse) == [0, 1, 2]
    assert not table.exists()


@pytest.mark.slow
def test_of_processes_that_start_together_every_one_ends_well_and_the_rows_stay(
    lake: CommandLine, table: Path
) -> None:
    running = [lake.start("--json", *command) for command in COMMANDS * 2]
    documents = [json.loads(process.communicate(timeout=300)[0]) for process in running]

    assert {process.returncode for process in running} == {0}
    assert "done" in {document["status"] for document in documents}
    assert {document["status"] for document in documents} <= {
        "done",
        "nothing-to-do",
        "already-running",
    }
    assert ids_in(lake.warehouse) == [0, 1, 2]
    assert not table.exists()


@pytest.mark.parametrize("since_ms", [10**17, 10**20, -(10**15)])
def test_an_owner_from_beyond_all_dates_is_an_unknown_one(
    lake: CommandLine, table: Path, since_ms: int
) -> None:
    owner = replace(this_process("compact", "op-1"), since_ms=since_ms)
    table.write_text(json.dumps(asdict(owner)))

    assert lake.ok("compact", "db.t")["status"] == "already-running"
    assert "op-1" not in lake("compact", "db.t").stdout


def test_a_folder_that_cannot_be_written_does_without_a_lock(
    lake: CommandLine, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def refusing(path: object, *arguments: object, **named: object) -> int:
        if str(path).endswith("lake.lock"):
            raise PermissionError(13, "Permission denied")
        return real(path, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(os, "open", refusing)
    result = lake("--json", *COMMANDS[0])

    assert result.json()["status"] == "done"
    assert (result.stderr, result.json()["warnings"]) == ("", [])


def test_a_hadoop_catalog_takes_no_lock_for_a_version(tmp_path: Path) -> None:
    folders = CommandLine(tmp_path / "folders", catalog_type="hadoop")
    for first in (1, 2):
        folders.ok("ingest", "db.t", str(_rows(tmp_path, first)), "--create")
    path = tmp_path / "folders" / "db" / "t" / "metadata" / "lake.lock"
    lock = take(str(path), this_process("compact", "op-1"))
    assert isinstance(lock, HeldLock)
    beside = folders.ok("ingest", "db.t", str(_rows(tmp_path, 3)))
    listed = folders.ok("snapshots", "db.t")["result"]["snapshots"]
    lock.release()
    compacted = folders.ok(*COMMANDS[0])

    assert beside["status"] == "done"
    assert len(listed) == 3
    assert compacted["result"]["rewritten_files"] == 3
    assert not path.exists()
