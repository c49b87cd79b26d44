"""A command that is stopped leaves nothing half-done: no file, no snapshot, no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from command_line import CommandLine
from table_support import files_below

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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["ctrl-c", "sigterm"])
@pytest.mark.parametrize("engine", ["inline", "spark"])
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
