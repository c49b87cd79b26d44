"""Equality deletes that do not fit in a task's memory: peak memory and seconds of the process that applies them.

    python tests/bench/equality_deletes.py [--keys 25000000] [--rows 10000000] [--text] [--folder DIR]

25,000,000 integer keys are 200 MB. A fresh process reads the table's files as a task does; it prints the rows
that were left, its seconds, and its resident memory, interpreter and libraries included: before and at its
peak.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))

from lake.core.data.deletes.apply import Deletes, read_rows  # noqa: E402
from lake.core.data.rows.reader import FileSlice, ReadSettings, slices_of  # noqa: E402
from lake.core.io.storage.storage import Storage  # noqa: E402
from lake.core.table.manifests.data_files import EQUALITY_DELETES, DataFile  # noqa: E402

_FILE_ROWS = 1_000_000


def schema(*, text: bool) -> Schema:
    """Return the table's schema."""
    kind = StringType() if text else LongType()
    return Schema(
        NestedField(1, "id", kind, required=False),
        NestedField(2, "value", LongType(), required=False),
    )


def make(warehouse: Path, keys: int, rows: int, *, text: bool) -> None:
    """Make ``db.t``, and delete a tenth of its rows by keys, most of which no row has."""
    from support.tables.iceberg_tables import make_table, open_session

    from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
    from lake.core.transaction.commit.operations import AppendFiles, RowDelta

    make_table(warehouse, schema=schema(text=text), format_version="2")
    session = open_session(warehouse)
    table = session.table("db.t")
    rng = np.random.default_rng(1)
    data = [_file(table, np.arange(at, at + _FILE_ROWS), text) for at in range(0, rows, _FILE_ROWS)]
    table = commit_snapshot(
        session, table, AppendFiles(added=data), CommitRequest(operation_id=str(uuid.uuid4()))
    ).table
    # Every tenth key is a row's, in no order.
    wanted = rng.permutation(keys) * 10
    wanted[wanted >= rows] += 10**12
    deletes = [
        _file(
            table, wanted[at : at + _FILE_ROWS], text, content=EQUALITY_DELETES, equality_ids=(1,)
        )
        for at in range(0, keys, _FILE_ROWS)
    ]
    commit_snapshot(
        session,
        table,
        RowDelta(added=(), deletes=deletes, validates=False),
        CommitRequest(operation_id=str(uuid.uuid4())),
    )


def _file(table: Any, ids: Any, text: bool, **described: Any) -> DataFile:
    column = pa.array(ids, pa.int64())
    rows = pa.table({"id": column.cast(pa.string()) if text else column})
    if not described:
        rows = rows.append_column("value", column)
    numbered = [
        item.with_metadata({"PARQUET:field_id": str(number)})
        for number, item in enumerate(rows.schema, 1)
    ]
    path = f"{table.data_location}/{uuid.uuid4()}.parquet"
    local = Path(path.removeprefix("file://"))
    local.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(rows.cast(pa.schema(numbered)), local, compression="zstd")
    return DataFile(
        path=path, spec_id=0, record_count=len(ids), size_bytes=local.stat().st_size, **described
    )


def plan(warehouse: Path, target: Path) -> None:
    """Write the description of one task that reads the whole table."""
    from support.tables.iceberg_tables import open_session

    from lake.core.table.snapshots.live_files import live_files

    table = open_session(warehouse).table("db.t")
    head = table.metadata.current_snapshot()
    if head is None:
        raise SystemExit("the table is empty")
    found = live_files(table, head)
    files = slices_of(found.by_spec[0], spec=table.spec, schema=table.schema)
    settings = ReadSettings.of(table, deletes=found.deletes_of(np.arange(found.count)))
    payload = {"files": [file.to_plain() for file in files], "reading": settings.to_plain()}
    target.write_text(json.dumps(payload))


def apply(source: Path) -> dict[str, Any]:
    """Read all rows as a task does; return what it took."""
    payload = json.loads(source.read_text())
    files = [FileSlice.from_plain(file) for file in payload["files"]]
    settings = ReadSettings.from_plain(payload["reading"])
    before = _memory("VmRSS")
    started, rows = time.perf_counter(), 0
    with closing(Deletes(Storage({}), settings, files)) as deletes:
        for batch in read_rows(Storage({}), files, settings, deletes):
            rows += batch.num_rows
    return {
        "rows": rows,
        "seconds": round(time.perf_counter() - started, 2),
        "before_mib": before,
        "peak_mib": _memory("VmHWM"),
    }


def _memory(name: str) -> int:
    # The peak that getrusage reports begins with the parent's.
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(name)).split()[1]) // 1024


def main() -> None:
    """Make the table, then apply its deletes in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--keys", type=int, default=25_000_000)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--text", action="store_true")
    parser.add_argument("--folder", help="where to work; the table made there is used again")
    parser.add_argument("--apply", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.apply:
        print(json.dumps(apply(Path(arguments.apply))))
        return
    folder = Path(arguments.folder or tempfile.mkdtemp(prefix="lake-bench-"))
    kind = "text" if arguments.text else "integer"
    warehouse = folder / f"equality-{kind}-{arguments.keys}-{arguments.rows}"
    if not warehouse.exists():
        make(warehouse, arguments.keys, arguments.rows, text=arguments.text)
    payload = folder / "task.json"
    plan(warehouse, payload)
    command = [sys.executable, __file__, "--apply", str(payload)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    result = json.loads(done.stdout)
    expected = arguments.rows - len(range(0, min(arguments.rows, 10 * arguments.keys), 10))
    print(json.dumps({**result, "expected_rows": expected}))


if __name__ == "__main__":
    main()
