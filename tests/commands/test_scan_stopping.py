"""A scan that is stopped leaves no file behind, neither its own nor half of the output."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from support.tables.iceberg_tables import files_below, make_table

FILES, ROWS = 8, 500_000


@pytest.mark.parametrize(
    ("engine", "name", "number"),
    [
        pytest.param("inline", "rows.json", signal.SIGINT, marks=pytest.mark.slow),
        ("inline", "rows", signal.SIGTERM),
        ("spark", "rows.json", signal.SIGTERM),
        pytest.param("spark", "rows", signal.SIGINT, marks=pytest.mark.slow),
    ],
)
def test_a_stopped_scan_leaves_nothing(
    warehouse: Path, tmp_path: Path, engine: str, name: str, number: signal.Signals
) -> None:
    table = make_table(warehouse)
    ids = np.random.default_rng(1).integers(0, 2**60, ROWS)
    for _ in range(FILES):
        table.append(pa.table({"id": ids, "name": pa.array(ids).cast(pa.string())}))
    folder, before = tmp_path / "out", files_below(warehouse)
    folder.mkdir()
    command = [
        sys.executable, "-m", "lake.cli", "--warehouse", str(warehouse), "--engine", engine,
        "scan", "db.t", "--output", str(folder / name), "--output-format", "json",
        "--split-open-cost", "128MB",
    ]  # fmt: skip

    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + 300
        while not any(path.is_file() and path.stat().st_size for path in folder.rglob("*")):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline
            time.sleep(0.005)
        os.kill(process.pid, number)
        _, errors = process.communicate(timeout=300)

    assert process.returncode == 128 + number, errors
    assert "stopped" in errors
    assert "Traceback" not in errors
    assert list(folder.iterdir()) == []
    assert files_below(warehouse) == before
