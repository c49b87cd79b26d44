"""Time `lake scan` of one table without deletes and with a tenth of its rows deleted, whole processes in turn.

    python tests/bench/scan_deletes.py [--rows 10000000] [--rounds 3] [--folder DIR]

Each kind of delete has a table of its own over the same data files.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import numpy as np  # noqa: E402
import pyarrow as pa  # noqa: E402
import pyarrow.parquet as pq  # noqa: E402
from delete_support import commit_deletes, equality_file, position_file, vectors  # noqa: E402
from table_support import open_session  # noqa: E402

from lake.core.table.catalog import Table  # noqa: E402
from lake.core.table.commit import commit_snapshot  # noqa: E402
from lake.core.table.files import DataFile  # noqa: E402
from lake.core.table.live import live_files  # noqa: E402
from lake.core.table.operations import AppendFiles  # noqa: E402

FILES = 20
DELETED = 0.1
EQUALITY_FILES = 10
Positions = Sequence[np.ndarray]


def lake(warehouse: Path, *arguments: object) -> list[str]:
    return [
        *(sys.executable, "-m", "lake.cli", "--warehouse", str(warehouse), "--json"),
        *("--engine", "inline", *map(str, arguments)),
    ]


def make(warehouse: Path, rows: int) -> None:
    """Make the tables: ids in random order, so that every delete file has keys of every data file."""
    random = np.random.default_rng(0)
    order = random.permutation(rows)
    for number, ids in enumerate(np.array_split(order, FILES)):
        columns = {
            "id": ids,
            "customer": np.char.add("customer-", (ids % 1000).astype(str)),
            "price": random.random(len(ids)),
            "quantity": (ids % 50).astype(np.int32),
            "note": np.char.add("note ", (ids * 7919 % 10**9).astype(str)),
        }
        source = warehouse.parent / "rows.parquet"
        pq.write_table(pa.table(columns), source)
        create = ["--create"] if number == 0 else []
        subprocess.run(
            lake(warehouse, "ingest", "db.plain", source, *create), check=True, capture_output=True
        )
    plain = open_session(warehouse).table("db.plain")
    snapshot = plain.metadata.current_snapshot()
    assert snapshot is not None
    files = live_files(plain, snapshot).files()
    gone = [
        np.sort(random.choice(file.record_count, int(DELETED * file.record_count), replace=False))
        for file in files
    ]
    makers: dict[str, Callable[[Table, Sequence[DataFile], Positions], list[DataFile]]] = {
        "position": by_position,
        "vector": by_vector,
        "equality": by_key,
        "equality of two columns": by_two_keys,
    }
    for name, deletes in makers.items():
        table = copied(warehouse, name.replace(" ", "_"), files, "3" if name == "vector" else "2")
        commit_deletes(table, *deletes(table, files, gone))


def copied(warehouse: Path, name: str, files: Sequence[DataFile], version: str) -> Table:
    """Make a table of the same files."""
    session = open_session(warehouse)
    plain = session.table("db.plain")
    properties = {"format-version": version}
    order = plain.metadata.sort_order()
    table = session.catalog.stage(f"db.{name}", plain.schema, plain.spec, order, properties)
    added = AppendFiles(added=files)
    return commit_snapshot(session, table, added, operation_id=str(uuid.uuid4())).table


def by_position(table: Table, files: Sequence[DataFile], gone: Positions) -> list[DataFile]:
    return [
        position_file(table, [(file.path, int(at)) for at in positions])
        for file, positions in zip(files, gone, strict=True)
    ]


def by_vector(table: Table, files: Sequence[DataFile], gone: Positions) -> list[DataFile]:
    return vectors(
        table, {file.path: positions for file, positions in zip(files, gone, strict=True)}
    )


def by_key(table: Table, files: Sequence[DataFile], gone: Positions) -> list[DataFile]:
    return keys_of(table, files, gone, ["id"])


def by_two_keys(table: Table, files: Sequence[DataFile], gone: Positions) -> list[DataFile]:
    return keys_of(table, files, gone, ["customer", "id"])


def keys_of(
    table: Table, files: Sequence[DataFile], gone: Positions, names: Sequence[str]
) -> list[DataFile]:
    found = pa.concat_tables(
        pq.read_table(file.path.removeprefix("file://"), columns=list(names)).take(positions)
        for file, positions in zip(files, gone, strict=True)
    )
    order = np.random.default_rng(1).permutation(found.num_rows)
    return [
        equality_file(table, found.take(part).to_pylist(), names)
        for part in np.array_split(order, EQUALITY_FILES)
    ]


def main() -> None:
    """Make the tables, then read them in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=chosen.folder) as temporary:
        warehouse = Path(temporary).resolve() / "warehouse"
        make(warehouse, chosen.rows)
        kinds = ["plain", "position", "vector", "equality", "equality of two columns"]
        times: dict[str, list[float]] = {kind: [] for kind in kinds}
        for _ in range(chosen.rounds):
            for kind in kinds:
                output = warehouse.parent / "output"
                shutil.rmtree(output, ignore_errors=True)
                name = f"db.{kind.replace(' ', '_')}"
                started = time.perf_counter()
                done = subprocess.run(
                    lake(warehouse, "scan", name, "--output", output),
                    capture_output=True,
                    text=True,
                    check=True,
                )
                times[kind].append(time.perf_counter() - started)
                left = chosen.rows if kind == "plain" else round(chosen.rows * (1 - DELETED))
                assert json.loads(done.stdout)["result"]["rows"] == left, (kind, done.stdout)
        plain = statistics.median(times["plain"])
        for kind, values in times.items():
            median = statistics.median(values)
            shown = ", ".join(f"{value:.2f}" for value in values)
            print(f"{kind}: median {median:.2f} s of {shown}; {median / plain:.2f} times plain")


if __name__ == "__main__":
    main()
