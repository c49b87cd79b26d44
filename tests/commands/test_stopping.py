"""A command that is stopped leaves nothing half-done: no file, no snapshot, no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import files_below, ids_in, inject

from lake.core.base.errors import TimedOutError
from lake.core.base.settings import Settings
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.selection import open_catalog
from lake.core.transaction.session import Session

ROWS = 2_000_000


def children_of(process_id: int) -> list[str]:
    """Return the command lines of a process's group that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if int(fields[3]) == process_id and fields[0] != "Z":
            found.append(line)
    return found


@pytest.mark.parametrize(
    ("engine", "number"),
    [
        ("inline", signal.SIGINT),
        pytest.param("inline", signal.SIGTERM, marks=pytest.mark.slow),
        ("spark", signal.SIGINT),
        pytest.param("spark", signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_ingest_leaves_the_table_and_its_folder_as_they_were(
    warehouse: Path, tmp_path: Path, engine: str, number: signal.Signals
) -> None:
    lake = CommandLine(warehouse)
    small, large = tmp_path / "small.parquet", tmp_path / "large.parquet"
    pq.write_table(pa.table({"id": pa.array([1], pa.int64()), "x": [0.5]}), small)
    lake.ok("ingest", "db.t", small, "--create")
    random = np.random.default_rng(1)
    for part in range(4):
        rows = pa.table({"id": np.arange(ROWS), "x": random.random(ROWS)})
        pq.write_table(rows, tmp_path / f"large{part}.parquet", compression="none")
    large = tmp_path / "large*.parquet"
    before = files_below(warehouse)
    command = [sys.executable, "-m", "lake.cli", "--warehouse", str(warehouse), "--engine", engine]
    # Small files, so that some are finished when the signal comes.
    command += ["ingest", "db.t", str(large), "--target-size", "1MB"]

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        deadline = time.monotonic() + 300
        while len(files_below(warehouse) - before) < 2:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=300)

    assert process.returncode == 128 + number, errors
    assert "stopped" in errors
    assert files_below(warehouse) == before
    assert children_of(process.pid) == []
    assert lake.ok("scan", "db.t")["plan"]["records"] == 1


def stopped_in_its_commit(lake: CommandLine, number: int, error: Exception | None) -> CommandLine:
    """Return a command line of which each command gets a signal while the catalog takes its first commit."""

    def signalled(commit: Callable[[], Any]) -> Any:
        answer = commit()
        os.kill(os.getpid(), number)
        if error is not None:
            raise error
        return answer

    def opened(settings: Settings) -> Session:
        session = Session(settings=settings, catalog=open_catalog(settings))
        inject(session, [signalled])
        return session

    return CommandLine(lake.warehouse, open_session=opened)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
def test_a_stop_that_comes_while_a_commit_lands_is_too_late(
    warehouse: Path, tmp_path: Path, number: int
) -> None:
    lake, source = CommandLine(warehouse), tmp_path / "a.csv"
    source.write_text("id\n1\n")
    lost = ConnectionError("no answer")
    late, unsure = (stopped_in_its_commit(lake, number, error) for error in (None, lost))

    late.ok("ingest", "db.t", source, "--create")
    late.ok("ingest", "db.t", source)
    unsure.ok("ingest", "db.t", source)
    late.ok("compact", "db.t", "--rewrite-all", "--option", "min-input-files=2")
    late.ok("ingest", "db.t", source, "--upsert", "--key", "id", "--repair-duplicates")
    assert ids_in(warehouse) == [1]

    # There is more to do after the commit: that waits for the next run.
    old = ("expire", "db.t", "--older-than", "0s", "--unsafe-retention")
    assert late(*old).exit_code == 128 + number
    assert any("lake-journal" in name for name in files_below(warehouse))
    assert lake.ok(*old)["result"]["data_files"] > 0
    assert not any("lake-journal" in name for name in files_below(warehouse))
    assert ids_in(warehouse) == [1]
    assert late("compact", "db.t", "--rewrite-all", "--remove-dangling-deletes").exit_code in {
        0,
        128 + number,
    }
    assert ids_in(warehouse) == [1]


def test_a_stop_that_comes_while_a_commit_is_lost_leaves_it_unknown(
    warehouse: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, source = CommandLine(warehouse), tmp_path / "a.csv"
    source.write_text("id\n1\n")
    quick = ("--property", "commit.status-check.num-retries=0")
    lake.ok("ingest", "db.t", source, "--create", *quick)
    lost = stopped_in_its_commit(lake, signal.SIGTERM, ConnectionError("no answer"))
    with monkeypatch.context() as patched:
        patched.setattr(Table, "refreshed", unreadable)
        assert lost("ingest", "db.t", source).exit_code == 5

    assert ids_in(warehouse) == [1, 1]


def unreadable(_table: Table) -> Table:
    raise TimedOutError("no answer")
