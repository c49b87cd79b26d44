"""Machines that have run out of something, and what a command of cron's meets on them."""

from __future__ import annotations

import errno
import gc
import json
import os
import resource
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from sqlite3 import dbapi2
from typing import Any
from unittest.mock import patch

import pytest
from support.cli.command_line import CommandLine, Result

from lake.core.io.avro import decode
from lake.core.table.catalogs import catalog, sql

OLD = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
NOBODY = 65534


@contextmanager
def limited(what: int, most: int) -> Iterator[None]:
    """Let the system give no more of something."""
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


@contextmanager
def unprivileged() -> Iterator[None]:
    """Be a user to whom permissions apply."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@contextmanager
def read_only(*folders: Path) -> Iterator[None]:
    """Make folders, and all below them, read-only."""
    every = [path for folder in folders for path in (folder, *folder.rglob("*"))]
    modes = [path.stat().st_mode for path in every]
    for path in every:
        path.chmod(0o555 if path.is_dir() else 0o444)
    try:
        with unprivileged():
            yield
    finally:
        for path, mode in zip(every, modes, strict=True):
            path.chmod(mode)


@pytest.fixture
def table(lake: CommandLine, tmp_path: Path) -> Path:
    """Make a table with two snapshots, one of them of files that nothing else needs; return its folder."""
    for number in range(2):
        source = tmp_path / f"{number}.csv"
        source.write_text(f"id,name\n{number},a\n")
        lake.ok("ingest", "db.t", source, "--create", "--overwrite")
    for path in (tmp_path, *tmp_path.parents):
        if path.owner() == "root" and path != Path("/") and path.stat().st_uid == os.geteuid():
            path.chmod(path.stat().st_mode | 0o055)
    return lake.warehouse / "db" / "t"


def files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def check(result: Result, code: int, *words: str) -> None:
    """Check that a result is a typed error in one document that says certain words."""
    assert result.exit_code == code, result
    assert "Traceback" not in result.stderr
    assert result.json()["error"]["kind"] not in {"defect", "engine"}
    for word in words:
        assert word in result.json()["error"]["message"], result


COMMANDS = [
    ("ingest", "db.t", "{source}"),
    ("ingest", "db.t", "{source}", "--upsert", "--key", "id"),
    ("ingest", "db.t", "{source}", "--stage", "--run-id", "r"),
    ("compact", "db.t", "--rewrite-all"),
    OLD,
]
NAMES = ["ingest", "upsert", "stage", "compact", "expire"]


def words(tmp_path: Path, command: tuple[str, ...]) -> list[str]:
    source = tmp_path / "source.csv"
    source.write_text("id,name\n1,b\n7,c\n")
    return [word.format(source=source) for word in command]


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_files_that_may_not_grow_change_nothing_and_leave_nothing(
    lake: CommandLine, table: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    before = files(table)
    with limited(resource.RLIMIT_FSIZE, 300):
        result = lake("--json", *words(tmp_path, command))

    # The catalog's own file may not grow either: then the outcome of the commit is unknown at first.
    if result.exit_code != 5:
        check(result, 7, os.strerror(errno.EFBIG).lower())
    assert files(table) == before
    assert lake("--json", *words(tmp_path, command)).exit_code == 0


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_a_metadata_file_that_cannot_be_written_commits_nothing(
    lake: CommandLine, tmp_path: Path, command: tuple[str, ...]
) -> None:
    for number in range(2):
        source = tmp_path / f"{number}.csv"
        source.write_text(f"id,name\n{number},a\n")
        # Metadata larger than all other files together.
        note = f"note={'x' * 200_000}"
        lake.ok("ingest", "db.t", source, "--create", "--overwrite", "--property", note)
    before = files(lake.warehouse)
    arguments = words(tmp_path, command)
    with limited(resource.RLIMIT_FSIZE, 100_000):
        result = lake("--json", *arguments)

    if "--stage" in arguments:
        assert result.exit_code == 0
        return
    check(result, 7, os.strerror(errno.EFBIG).lower())
    assert files(lake.warehouse) == before
    assert lake("--json", *arguments).exit_code == 0


@pytest.mark.parametrize("command", COMMANDS, ids=NAMES)
def test_a_table_that_may_only_be_read_is_left_as_it_is(
    lake: CommandLine, table: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    before = files(table)
    arguments = words(tmp_path, command)
    with read_only(table):
        assert lake.ok("scan", "db.t")["result"]["rows"] == 1
        result = lake("--json", *arguments)

    check(result, 9, "no permission")
    assert files(table) == before
    assert lake("--json", *arguments).exit_code == 0


def test_a_catalog_that_may_only_be_read_takes_no_commit_and_loses_no_file(
    lake: CommandLine, table: Path, tmp_path: Path
) -> None:
    arguments = words(tmp_path, COMMANDS[0])
    with read_only(lake.warehouse):
        result = lake("--json", *arguments)

    check(result, 9)
    assert lake.ok(*arguments)["status"] == "done"


def test_a_run_without_open_files_left_reports_the_limit(lake: CommandLine, table: Path) -> None:
    lake.ok("scan", "db.t")
    taken: list[int] = []
    # What earlier runs have not closed yet would come free in the middle of this one.
    gc.collect()
    with limited(resource.RLIMIT_NOFILE, max(map(int, os.listdir("/proc/self/fd"))) + 1):
        try:
            with suppress(OSError):
                while True:
                    taken.append(os.open(os.devnull, os.O_RDONLY))
            result = lake("--json", "scan", "db.t")
        finally:
            for number in taken:
                os.close(number)

    check(result, 7)


@contextmanager
def held(database: Path) -> Iterator[None]:
    """Hold a SQLite database as another process would."""
    holder = sqlite3.connect(database, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    try:
        yield
    finally:
        holder.rollback()
        holder.close()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_database_that_another_process_holds_is_waited_for_once(
    lake: CommandLine, table: Path, tmp_path: Path, command: tuple[str, ...]
) -> None:
    before = files(table)
    waits = []
    connect = sqlite3.connect

    def noted(*arguments: Any, **options: Any) -> sqlite3.Connection:
        waits.append(options["timeout"])
        return connect(*arguments, **options)

    database = lake.warehouse / "catalog.db"
    with held(database), patch.object(sql, "_SQLITE_WAIT_SECONDS", 0.1):
        # SQLAlchemy takes the function from the other module.
        with patch.object(sqlite3, "connect", noted), patch.object(dbapi2, "connect", noted):
            result = lake("--json", *words(tmp_path, command))

    check(result, 10, f"the database {database} is locked by another process")
    assert waits == [0.1]
    assert files(table) == before


def test_a_database_that_is_locked_during_the_commit_changes_nothing(
    lake: CommandLine, table: Path, tmp_path: Path
) -> None:
    before = files(table)
    send = catalog.Table.send

    def locked(*arguments: Any) -> Any:
        with held(lake.warehouse / "catalog.db"):
            return send(*arguments)

    with patch.object(sql, "_SQLITE_WAIT_SECONDS", 0.1):
        with patch.object(catalog.Table, "send", locked):
            result = lake("--json", *words(tmp_path, COMMANDS[1]))

    check(result, 10, "catalog.db is locked by another process")
    assert files(table) == before
    lake.ok(*words(tmp_path, COMMANDS[1]))


@pytest.mark.parametrize(
    "catalog_of",
    [
        {"type": "rest", "uri": "http://127.0.0.1:{port}/api"},
        {"type": "sql", "uri": "postgresql+psycopg2://lake:secret@127.0.0.1:{port}/iceberg"},
    ],
)
def test_a_server_that_refuses_the_connection_is_named_with_its_port(
    lake: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, catalog_of: dict[str, str]
) -> None:
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for key, value in catalog_of.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__AWAY__{key.upper()}", value.format(port=port))

    done = subprocess.run(
        [sys.executable, "-m", "lake.cli", "--json", "--catalog", "away", "snapshots", "db.t"],
        check=False,
        capture_output=True,
        text=True,
    )

    error = json.loads(done.stdout)["error"]
    assert (done.returncode, error["kind"]) == (10, "timed-out")
    assert "127.0.0.1" in error["message"]
    assert f"port {port}" in error["message"]
    assert "refused" in error["message"]
    assert "secret" not in done.stdout + done.stderr


def test_a_missing_folder_for_temporary_files_is_reported_as_such(
    lake: CommandLine, table: Path, tmp_path: Path
) -> None:
    def none() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    # The decoder of large manifests reads a temporary file.
    with (
        patch.object(decode, "_FEW_BYTES", -1),
        patch.object(tempfile, "gettempdir", none),
        patch.object(tempfile, "_gettempdir", none),
    ):
        result = lake("--json", *words(tmp_path, COMMANDS[1]))

    check(result, 7, "temporary directory")


def test_a_clock_that_is_decades_behind_expires_nothing(lake: CommandLine, table: Path) -> None:
    before = files(table)
    early = 1_000_000_000_000
    with patch("lake.core.base.clock.SystemClock.now_ms", lambda _: early):
        done = lake.ok("expire", "db.t", "--older-than", "1d", "--retain-last", "1")

    assert done["status"] == "nothing-to-do"
    assert files(table) == before


@pytest.mark.parametrize(
    "line",
    [
        ("rename", "db.t", "db.u"),
        ("drop", "db.t"),
        ("tag", "db.t", "x"),
        ("create", "db.new", "id long"),
        ("ingest", "db.t", "{source}"),
    ],
    ids=" ".join,
)
def test_a_database_that_may_only_be_read_is_named(
    lake: CommandLine, table: Path, tmp_path: Path, line: tuple[str, ...]
) -> None:
    for path in (table.parent, *table.parent.rglob("*")):
        path.chmod(0o777)
    database = lake.warehouse / "catalog.db"
    arguments = words(tmp_path, line)
    lake.warehouse.chmod(0o755)
    database.chmod(0o444)
    before = files(lake.warehouse)
    with unprivileged():
        result = lake("--json", *arguments)

    check(result, 9, "no permission", "catalog.db")
    assert files(lake.warehouse) == before
