"""Time `lake clean --delete` against Iceberg Java's `remove_orphan_files`, whole processes in turn, on one table.

    python tests/bench/clean.py [--files 1000000] [--orphans 10000] [--rounds 3] [--no-java] [--folder DIR]
    python tests/bench/clean.py --s3 [--files 1000000] [--orphans 10000] [--latency-ms 30] [--rounds 3] [--no-java]
    python tests/bench/clean.py --inventory [--files 10000000] [--orphans 1000]

The table has one snapshot, and its files are in 100 folders. Before each run the same orphan files are planted; after
it, they must be gone and all others must be there. With ``--s3`` the files are in a bucket in the memory of this
process (`memory_store.py`), and every answer is late; Java lists the bucket by prefix, as it lists other file systems
through Hadoop, which has no client for S3 here. With ``--inventory`` the files do not exist, but an inventory in
Parquet contains them, and the orphan files are listed only. Memory is the most that the process ever held (VmHWM).
Targets: five times as fast as Java, and 1 GiB for 10 million files. Needs a JDK and Maven for the peer.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import yaml
from pyiceberg.catalog.sql import SqlCatalog

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]

from expire import History, files_left  # noqa: E402
from memory_store import BUCKET, MemoryStore  # noqa: E402
from shared import (  # noqa: E402
    java_command,
    lake_command,
    parser_of,
)
from turns import Run, run, take_turns  # noqa: E402
from wide_tables import make_wide  # noqa: E402

_OLD = 1_700_000_000
_FOLDERS = 100
_MANIFEST_FILES = 1000
_BATCH_FILES = 100_000
_BYTES = b"PAR1" * 25
_CALL = "CALL lake.system.remove_orphan_files({})"
_ARGUMENTS = "table => 'db.t', older_than => TIMESTAMP '2025-07-01 00:00:00'"
LOCATION = f"s3://{BUCKET}/db/t"


def plant(warehouse: Path, count: int) -> list[Path]:
    """Write orphan files of an old time beside the data files."""
    data = next((warehouse / "db").rglob("data"))
    folders = sorted(path for path in data.iterdir() if path.is_dir()) or [data]
    planted = [
        folders[number % len(folders)] / f"orphan-{number:06d}.parquet" for number in range(count)
    ]
    for path in planted:
        path.write_bytes(_BYTES)
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
        commands["java"] = java_command(warehouse, _CALL.format(_ARGUMENTS))
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


def on_s3(
    folder: Path, files: int, orphans: int, latency_ms: int, rounds: int, *, java: bool
) -> None:
    """Let the two take turns on files in a bucket whose server answers late."""
    warehouse = folder / "s3"
    with MemoryStore(latency_ms) as store:
        make_in_bucket(warehouse, files, store)
        expected = store.keys()
        folders = sorted({key.rpartition("/")[0] for key in expected if "/data/" in key})
        planted = [
            f"{folders[number % len(folders)]}/orphan-{number:06d}.parquet"
            for number in range(orphans)
        ]
        commands = {
            "lake": [sys.executable, "-m", "lake.cli", "--json", "clean", "db.t", "--delete"]
        }
        if java:
            call = _CALL.format(f"{_ARGUMENTS}, prefix_listing => true")
            commands["java"] = java_command(warehouse, call)

        def check(command: list[str]) -> Run:
            store.fill(planted, _BYTES, _OLD)
            store.forget()
            done = run(command)
            print(f"    {dict(store.asked)}, {store.worked:.1f} s of the server's processor")
            lost, left = expected - store.keys(), store.keys() - expected
            if lost or left:
                raise SystemExit(f"{command}: {len(lost)} files are lost, {len(left)} orphans left")
            return done

        turns = {name: partial(check, command) for name, command in commands.items()}
        take_turns(rounds, turns, **({"ratio": 5} if java else {}))


def make_in_bucket(warehouse: Path, files: int, store: MemoryStore) -> None:
    """Make the table in a bucket, its catalog in a folder, and the configuration of lake and of the peer."""
    shutil.rmtree(warehouse, ignore_errors=True)
    manifests = -(-files // _MANIFEST_FILES)
    history = make_wide(warehouse, files, manifests, folders=_FOLDERS, location=LOCATION)
    root = f"s3://{BUCKET}/"
    store.fill(
        (history.data_file(number).removeprefix(root) for number in range(files)), _BYTES, _OLD
    )
    serve(warehouse, store)


def serve(warehouse: Path, store: MemoryStore) -> None:
    """Put the metadata of a made table into a bucket, and let the catalog and both programs find it there."""
    root = f"s3://{BUCKET}/"
    # The metadata file before the newest one is the empty table's, which nothing references.
    *_, newest = sorted((warehouse / "db/t/metadata").glob("*.metadata.json"))
    for path in [newest, *newest.parent.glob("*.avro")]:
        store.put(f"{LOCATION}/metadata/{path.name}".removeprefix(root), path.read_bytes(), _OLD)
    address = f"sqlite:///{warehouse}/catalog.db"
    properties = {"warehouse": root.rstrip("/"), **store.properties}
    catalog = SqlCatalog("lake", uri=address, **properties)
    catalog.drop_table("db.t")
    catalog.register_table("db.t", f"{LOCATION}/metadata/{newest.name}")
    configured = {"catalog": {"lake": {"type": "sql", "uri": address, **properties}}}
    (warehouse / ".pyiceberg.yaml").write_text(yaml.safe_dump(configured))
    os.environ["PYICEBERG_HOME"] = str(warehouse)
    os.environ["LAKE_PEER_STORAGE"] = json.dumps(properties)


def main() -> None:
    """Make the table, unless it exists already, and measure."""
    parser = parser_of(__doc__, latency_ms=30)
    parser.add_argument("--files", type=int)
    parser.add_argument("--orphans", type=int)
    parser.add_argument("--s3", action="store_true")
    parser.add_argument("--inventory", action="store_true")
    chosen = parser.parse_args()
    folder = chosen.folder
    folder.mkdir(parents=True, exist_ok=True)
    if chosen.s3:
        files, orphans = chosen.files or 1_000_000, chosen.orphans or 10_000
        java = not chosen.no_java
        on_s3(folder, files, orphans, chosen.latency_ms, chosen.rounds, java=java)
    elif chosen.inventory:
        inventory(folder, chosen.files or 10_000_000, chosen.orphans or 1_000, chosen.rounds)
    else:
        files, orphans = chosen.files or 1_000_000, chosen.orphans or 10_000
        compare(folder, files, orphans, chosen.rounds, java=not chosen.no_java)


if __name__ == "__main__":
    main()
