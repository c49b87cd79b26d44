"""Time the replay of many pending checkpoints, in a process of its own for each way of committing them.

    python tests/bench/replay.py [--checkpoints 200] [--files 50] [--format-version 2] [--folder DIR]

Each checkpoint of a row delta has as many files, a part of them equality and position deletes. The files are
there, with the lengths that their entries say, but hold no rows: a replay reads none.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from pyiceberg.partitioning import PartitionField, PartitionSpec  # noqa: E402
from pyiceberg.schema import Schema  # noqa: E402
from pyiceberg.transforms import IdentityTransform  # noqa: E402
from pyiceberg.types import LongType, NestedField  # noqa: E402
from replay_support import checkpoint, plan, temporary_manifest, write_manifest  # noqa: E402
from table_support import make_table, open_session  # noqa: E402

from lake.core.checkpoints.state import FLINK_SINK, ICEBERG_SINK  # noqa: E402
from lake.core.replay.execute import execute  # noqa: E402
from lake.core.table.catalog import Table  # noqa: E402
from lake.core.table.files import DATA, EQUALITY_DELETES, POSITION_DELETES, DataFile  # noqa: E402
from lake.core.table.version3 import allow_writing  # noqa: E402

COLUMNS = 10
SCHEMA = Schema(
    *(NestedField(n, f"c{n}", LongType(), required=False) for n in range(1, COLUMNS + 1))
)
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "c2"))
PARTITIONS = 5
BYTES = b"0" * 1000
# name: sink, and of ten files how many are data, equality deletes and position deletes
WAYS = {
    "FlinkSink appends": (FLINK_SINK, (10, 0, 0)),
    "IcebergSink appends": (ICEBERG_SINK, (10, 0, 0)),
    "row deltas": (FLINK_SINK, (4, 4, 2)),
}


def make(warehouse: Path, way: str, checkpoints: int, files: int, version: int) -> None:
    """Make a table with pending checkpoints."""
    allow_writing()
    make_table(warehouse, schema=SCHEMA, spec=SPEC, format_version=str(version))
    table = open_session(warehouse).table("db.t")
    Path(table.data_location.removeprefix("file://")).mkdir(parents=True)
    counter = 0
    for number in range(1, checkpoints + 1):
        made = [_file(table, number, index, WAYS[way][1]) for index in range(files)]
        for deletes in (False, True):
            part = [file for file in made if (file.content != DATA) == deletes]
            if part:
                counter += 1
                write_manifest(table, part, checkpoint_id=number, counter=counter)


def _file(table: Table, number: int, index: int, shares: tuple[int, int, int]) -> DataFile:
    place = index % 10
    content = DATA if place < shares[0] else EQUALITY_DELETES
    if place >= shares[0] + shares[1]:
        content = POSITION_DELETES
    vector = content == POSITION_DELETES and table.metadata.format_version > 2
    path = f"{table.data_location}/{index:05d}-0-{uuid.uuid4()}-{number:05d}.parquet"
    Path(path.removeprefix("file://")).write_bytes(BYTES)
    ids = range(1, COLUMNS + 1)
    low, high = struct.pack("<q", number * 1000), struct.pack("<q", number * 1000 + 999)
    return DataFile(
        path=path,
        content=content,
        spec_id=0,
        partition=(struct.pack("<q", index % PARTITIONS),),
        record_count=1000,
        size_bytes=len(BYTES),
        column_sizes=dict.fromkeys(ids, 60),
        value_counts=dict.fromkeys(ids, 1000),
        null_value_counts=dict.fromkeys(ids, 0),
        lower_bounds=dict.fromkeys(ids, low),
        upper_bounds=dict.fromkeys(ids, high),
        split_offsets=(4,),
        equality_ids=(1,) if content == EQUALITY_DELETES else None,
        format="PUFFIN" if vector else "PARQUET",
        referenced_data_file=f"{table.data_location}/{number}-{index}" if vector else None,
        content_offset=4 if vector else None,
        content_size_bytes=40 if vector else None,
    )


def replay(warehouse: Path, way: str) -> None:
    """Commit what lies there."""
    session = open_session(warehouse)
    table = session.table("db.t")
    started = time.perf_counter()
    folder = Path(table.metadata_folder.removeprefix("file://"))
    groups: dict[int, list[Path]] = {}
    for path in sorted(folder.glob("a*-b*-*.avro")):
        groups.setdefault(int(path.name.split("-")[4]), []).append(path)
    found = [
        checkpoint(number, [temporary_manifest(table, path) for path in groups[number]])
        for number in sorted(groups)
    ]
    read = time.perf_counter()
    outcome = execute(session, plan(table, found, sink=WAYS[way][0]))
    done = time.perf_counter()
    print(f"  read {read - started:.2f} s, commit {done - read:.2f} s: {dict(outcome.result)}")


def main() -> None:
    """Print the seconds of each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=200)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--format-version", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument("--commit", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.commit:
        replay(options.folder, options.commit)
        return
    for way in WAYS:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            make(Path(folder), way, options.checkpoints, options.files, options.format_version)
            started = time.perf_counter()
            command = [sys.executable, __file__, "--folder", folder, "--commit", way]
            shown = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            print(f"{way}: {time.perf_counter() - started:.2f} s\n{shown}", end="")


if __name__ == "__main__":
    main()
