"""Time `lake clean --delete` against Iceberg Java's `remove_orphan_files`, whole processes in turn, on one table.

    python tests/bench/clean.py [--files 1000000] [--orphans 10000] [--rounds 3] [--no-java] [--folder DIR]
    python tests/bench/clean.py --s3 [--orphans 10000] [--latency-ms 30]
    python tests/bench/clean.py --inventory [--files 10000000] [--orphans 1000]

The table has one snapshot, and its files are in 100 folders. Before each run the same orphan files are planted; after
it, they must be gone and all others must be there. With ``--s3`` the orphan files are in a bucket, and every request
takes some time longer; the peer does not take part, as it lacks Iceberg's jar for S3. With ``--inventory`` the files
do not exist, but an inventory in Parquet contains them, and the orphan files are listed only. Memory is the most
that the process ever held (VmHWM). Targets: five times as fast as Java, and 1 GiB for 10 million files. Needs a JDK
and Maven for the peer, and moto for S3.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from expire import History, files_left  # noqa: E402
from support.faults.faulty_proxy import Answer, Asked, Proxy  # noqa: E402
from support.servers.s3_server import S3  # noqa: E402
from turns import Run, java_command, lake_command, run, take_turns  # noqa: E402
from wide_tables import make_wide  # noqa: E402

_OLD = 1_700_000_000
_FOLDERS = 100
_MANIFEST_FILES = 1000
_BATCH_FILES = 100_000
_CALL = (
    "CALL lake.system.remove_orphan_files(table => 'db.t', "
    "older_than => TIMESTAMP '2025-07-01 00:00:00')"
)


def plant(warehouse: Path, count: int) -> list[Path]:
    """Write orphan files of an old time beside the data files."""
    data = next((warehouse / "db").rglob("data"))
    folders = sorted(path for path in data.iterdir() if path.is_dir()) or [data]
    planted = [
        folders[number % len(folders)] / f"orphan-{number:06d}.parquet" for number in range(count)
    ]
    for path in planted:
        path.write_bytes(b"PAR1" * 25)
        os.utime(path, (_OLD, _OLD))
    return planted


def clean(command: list[str], warehouse: Path, orphans: int, expected: int) -> Run:
    """Plant orphan files, run a command, and check what it left."""
    planted = plant(warehouse, orphans)
    done = run(command)
    left = sum(path.exists() for path in planted)
    if left or files_left(warehouse) != expected:
        raise SystemExit(
            f"{command}: {left} orphan files are left, and {files_left(warehouse)} files in all"
        )
    return done


def compare(folder: Path, files: int, orphans: int, rounds: int, *, java: bool) -> None:
    """Let the two take turns on local files."""
    warehouse = folder / f"warehouse-{files}"
    if not warehouse.exists():
        manifests = -(-files // _MANIFEST_FILES)
        make_wide(warehouse, files, manifests, folders=_FOLDERS, is_real=True)
    expected = files_left(warehouse)
    commands = {"lake": lake_command(warehouse, "clean", "db.t", "--delete")}
    if java:
        commands["java"] = java_command(warehouse, _CALL)
    turns = {
        name: partial(clean, command, warehouse, orphans, expected)
        for name, command in commands.items()
    }
    take_turns(rounds, turns, **({"ratio": 5} if java else {}))


def write_inventory(history: History, files: int, orphans: list[Path], target: Path) -> None:
    """Write an inventory of a table's files and of orphan files."""
    schema = pa.schema(
        [("path", pa.string()), ("size", pa.int64()), ("last_modified", pa.timestamp("ms", "UTC"))]
    )
    with pq.ParquetWriter(target, schema, compression="zstd") as writer:
        for first in range(0, files, _BATCH_FILES):
            some = range(first, min(first + _BATCH_FILES, files))
            paths = [history.data_file(number) for number in some]
            if not first:
                paths += [f"file://{path}" for path in orphans]
            sizes, times = [100] * len(paths), [_OLD * 1000] * len(paths)
            writer.write_batch(pa.record_batch([paths, sizes, times], schema=schema))


def inventory(folder: Path, files: int, orphans: int, rounds: int) -> None:
    """List the orphan files of an inventory."""
    warehouse, listed = folder / f"inventory-{files}", folder / f"inventory-{files}.parquet"
    if not listed.exists():
        manifests = -(-files // (10 * _MANIFEST_FILES))
        history = make_wide(warehouse, files, manifests, folders=_FOLDERS, has_metrics=False)
        write_inventory(history, files, plant(warehouse, orphans), listed)
    command = lake_command(warehouse, "clean", "db.t", "--inventory", str(listed))

    def check() -> Run:
        done = run(command)
        plan = json.loads(done.output)["plan"]
        if plan["orphans"] != orphans:
            raise SystemExit(f"{plan['orphans']} orphan files were found")
        print(f"    {plan}")
        return done

    take_turns(rounds, {"lake": check}, peak=1024)


def on_s3(folder: Path, orphans: int, latency_ms: int, rounds: int) -> None:
    """Delete orphan files of a table in a bucket whose server answers late."""
    server = S3("key", "secret")
    asked: Counter[str] = Counter()
    late = False

    def delay(request: Asked, answer: Answer) -> Answer:
        if late:
            asked[request.method] += 1
            time.sleep(latency_ms / 1000)
        return answer

    with Proxy(server.endpoint) as proxy:
        proxy.changes.append(delay)
        bucket = server.bucket()
        properties = {
            "type": "sql",
            "uri": f"sqlite:///{folder}/s3-catalog.db",
            "warehouse": f"s3://{bucket}/tables",
            **server.properties(proxy.uri),
        }
        (folder / "s3-catalog.db").unlink(missing_ok=True)
        (folder / ".pyiceberg.yaml").write_text(yaml.safe_dump({"catalog": {"bench": properties}}))
        os.environ["PYICEBERG_HOME"] = str(folder)
        start = [sys.executable, "-m", "lake.cli", "--json"]
        rows = folder / "rows.csv"
        rows.write_text("id\n1\n")
        run([*start, "ingest", "db.t", str(rows), "--create"])
        files = server.files()
        data = f"{bucket}/tables/db/t/data"

        def put(number: int) -> None:
            with files.open_output_stream(
                f"{data}/p={number % 100}/orphan-{number:06d}.parquet"
            ) as sink:
                sink.write(b"PAR1" * 25)

        def check() -> Run:
            nonlocal late
            with ThreadPoolExecutor(8) as pool:
                list(pool.map(put, range(orphans)))
            time.sleep(2)
            asked.clear()
            late = True
            limits = ("--older-than", "1s", "--unsafe-retention", "--max-share", "100%")
            done = run([*start, "clean", "db.t", "--delete", *limits])
            late = False
            result: dict[str, Any] = json.loads(done.output)["result"]
            if result["deleted"] != orphans:
                raise SystemExit(f"{result}")
            print(f"    requests: {dict(asked)}")
            return done

        take_turns(rounds, {"lake": check})
    server.end()


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int)
    parser.add_argument("--orphans", type=int)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--latency-ms", type=int, default=30)
    parser.add_argument("--inventory", action="store_true")
    parser.add_argument("--no-java", action="store_true")
    parser.add_argument("--folder", help="where to work; the table made there is used again")
    chosen = parser.parse_args()
    folder = Path(chosen.folder or tempfile.mkdtemp(prefix="lake-bench-")).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if chosen.s3:
        on_s3(folder, chosen.orphans or 10_000, chosen.latency_ms, chosen.rounds)
    elif chosen.inventory:
        inventory(folder, chosen.files or 10_000_000, chosen.orphans or 1_000, chosen.rounds)
    else:
        files, orphans = chosen.files or 1_000_000, chosen.orphans or 10_000
        compare(folder, files, orphans, chosen.rounds, java=not chosen.no_java)


if __name__ == "__main__":
    main()
