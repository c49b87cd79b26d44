"""Time `lake replay --checkpoint` on many pending checkpoints, whole processes, by way of committing them.

    python tests/bench/replay.py [--checkpoints 200] [--files 50] [--format-version 2] [--folder DIR] [--java]

Each checkpoint of a row delta has as many files, a part of them equality and position deletes. The files are
there, with the lengths that their entries say, but hold no rows: a replay reads none.
"""

from __future__ import annotations

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from pyiceberg.partitioning import PartitionField, PartitionSpec  # noqa: E402
from pyiceberg.schema import Schema  # noqa: E402
from pyiceberg.transforms import IdentityTransform  # noqa: E402
from pyiceberg.types import LongType, NestedField  # noqa: E402
from support.peers import java_peer  # noqa: E402
from support.tables.iceberg_tables import make_table, open_session  # noqa: E402
from support.tables.replay_plans import take_checkpoint, write_manifest  # noqa: E402

from lake.core.table.catalogs import pyiceberg_patches  # noqa: E402
from lake.core.table.catalogs.catalog import Table  # noqa: E402
from lake.core.table.flink.state import FLINK_SINK, ICEBERG_SINK  # noqa: E402
from lake.core.table.manifests.data_files import DATA, EQUALITY_DELETES, POSITION_DELETES, DataFile  # noqa: E402

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
    pyiceberg_patches.apply()
    make_table(warehouse, schema=SCHEMA, spec=SPEC, format_version=str(version))
    table = open_session(warehouse).table("db.t")
    Path(table.data_location.removeprefix("file://")).mkdir(parents=True)
    counter = 0
    named: dict[int, list[tuple[str, int]]] = {}
    for number in range(1, checkpoints + 1):
        made = [_file(table, number, index, WAYS[way][1]) for index in range(files)]
        for deletes in (False, True):
            part = [file for file in made if (file.content != DATA) == deletes]
            if part:
                counter += 1
                path = write_manifest(table, part, checkpoint_id=number, counter=counter)
                named.setdefault(number, []).append((path, int(deletes)))
    take_checkpoint(warehouse, WAYS[way][0], named)


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


def replay(warehouse: Path) -> tuple[float, dict[str, Any]]:
    """Commit the pending checkpoints in a separate process; return its seconds and its document."""
    arguments = ["--warehouse", str(warehouse), "--json", "replay", "db.t"]
    arguments += ["--checkpoint", str(warehouse), "--quiet-time", "0s"]
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "lake.cli", *arguments],
        check=False,
        stdout=subprocess.PIPE,
        text=True,
    )
    if done.returncode:
        sys.exit(done.stdout)
    seconds = time.perf_counter() - started
    report: dict[str, Any] = json.loads(done.stdout)
    return seconds, report


def by_java(warehouse: Path, way: str, checkpoints: int, files: int) -> float:
    """Return the seconds that Iceberg Java spends in the same commits, on an empty table of the same kind.

    Making its files' descriptions does not count, nor that Java starts.
    """
    spark = java_peer.session(str(warehouse))
    try:
        iceberg = spark._jvm.org.apache.iceberg
        table = iceberg.spark.Spark3Util.loadIcebergTable(spark._jsparkSession, "lake.db.t")
        batches = [
            [
                _java_file(spark, iceberg, table, index, WAYS[way][1], number)
                for index in range(files)
            ]
            for number in range(checkpoints)
        ]
        if way == "FlinkSink appends":
            batches = [[file for batch in batches for file in batch]]
        spent = 0.0
        for batch in batches:
            commit = table.newRowDelta() if way == "row deltas" else table.newAppend()
            add = commit.addRows if way == "row deltas" else commit.appendFile
            for file in batch:
                (add if file.content().id() == DATA else commit.addDeletes)(file)
            started = time.perf_counter()
            commit.commit()
            spent += time.perf_counter() - started
        return spent
    finally:
        spark.stop()


def _java_file(
    spark: Any, iceberg: Any, table: Any, index: int, shares: tuple[int, int, int], number: int
) -> Any:
    place = index % 10
    if place < shares[0]:
        builder = iceberg.DataFiles.builder(table.spec())
    else:
        builder = iceberg.FileMetadata.deleteFileBuilder(table.spec())
        ids = spark.sparkContext._gateway.new_array(spark._jvm.int, 1)
        ids[0] = 1
        is_equality = place < shares[0] + shares[1]
        builder = builder.ofEqualityDeletes(ids) if is_equality else builder.ofPositionDeletes()
    return (
        builder.withPath(f"{table.location()}/data/{number:05d}-{index:05d}.parquet")
        .withFormat("PARQUET")
        .withPartitionPath(f"c2={index % PARTITIONS}")
        .withRecordCount(1000)
        .withFileSizeInBytes(len(BYTES))
        .build()
    )


def main() -> None:
    """Print the seconds of each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoints", type=int, default=200)
    parser.add_argument("--files", type=int, default=50)
    parser.add_argument("--format-version", type=int, default=2)
    parser.add_argument("--folder", type=Path, default=None)
    parser.add_argument(
        "--java", action="store_true", help="time Iceberg Java beside it (version 2)"
    )
    options = parser.parse_args()
    for way in WAYS:
        with tempfile.TemporaryDirectory(dir=options.folder) as folder:
            make(Path(folder), way, options.checkpoints, options.files, options.format_version)
            seconds, report = replay(Path(folder))
        print(
            f"{way}: {seconds:.2f} s, {len(report['snapshot_ids'])} snapshots, {report['result']}"
        )
        if options.java:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                make_table(Path(folder), schema=SCHEMA, spec=SPEC)
                spent = by_java(Path(folder), way, options.checkpoints, options.files)
            print(f"  Iceberg Java, in its commits alone: {spent:.2f} s")


if __name__ == "__main__":
    main()
