"""How many manifest entries a second are written and read, one thread, 15 columns of statistics.

Run by hand: ``python tests/bench/manifests.py [entries] [--small]``. ``--small`` cuts the entries
into manifests of ten.
"""

from __future__ import annotations

import argparse
import os
import struct
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table.metadata import TableMetadataV2
from pyiceberg.transforms import DayTransform
from pyiceberg.types import LongType, NestedField, TimestampType

from lake.core.io.storage.storage import Storage
from lake.core.table.manifests.api import (
    ENTRY_COLUMNS,
    MANIFEST_COLUMNS,
    ManifestContext,
    describe_manifest,
    encode_manifest,
    read_manifests,
)

COLUMNS = 15
SCHEMA = Schema(
    NestedField(1, "ts", TimestampType(), required=False),
    *(NestedField(i, f"c{i}", LongType(), required=False) for i in range(2, COLUMNS + 1)),
)
SPEC = PartitionSpec(PartitionField(1, 1000, DayTransform(), "ts_day"), spec_id=0)
PLANNING = ("status", "sequence_number", "content", "file_path", "partition", "record_count")


def pairs(offsets: pa.Array, keys: pa.Array, values: pa.Array) -> pa.Array:
    """Return the pairs of keys and values that entries hold of columns."""
    items = pa.StructArray.from_arrays([keys, values], ["key", "value"])
    return pa.ListArray.from_arrays(offsets, items)


def entries(rows: int) -> pa.Table:
    """Return entries as a streaming writer leaves them."""
    random = np.random.default_rng(7)
    offsets = pa.array(np.arange(0, rows * COLUMNS + 1, COLUMNS), pa.int32())
    keys = pa.array(np.tile(np.arange(1, COLUMNS + 1), rows), pa.int32())

    records = random.integers(50_000, 80_000, rows)
    # Half of the columns are ids that grow from file to file, the others codes from a small range.
    codes = np.tile(np.arange(COLUMNS) % 2 == 0, rows)
    starts = np.repeat(np.cumsum(records), COLUMNS)

    def counts(numbers: Any) -> pa.Array:
        return pairs(offsets, keys, pa.array(numbers, pa.int64()))

    def bounds(numbers: Any) -> pa.Array:
        packed = [struct.pack("<q", n) for n in numbers.tolist()]
        return pairs(offsets, keys, pa.array(packed, pa.binary()))

    sizes = np.tile(random.integers(10**4, 10**6, COLUMNS), rows)
    sizes += random.integers(-5_000, 5_000, rows * COLUMNS)
    nulls = np.where(
        random.random(rows * COLUMNS) < 0.8, 0, random.integers(0, 500, rows * COLUMNS)
    )
    low = np.where(codes, random.integers(0, 5, rows * COLUMNS), starts)
    high = np.where(codes, 95 + low, starts + np.repeat(records, COLUMNS) - 1)
    days = pa.array(random.integers(19_000, 19_400, rows), pa.int32()).cast(pa.date32())
    path = "s3://warehouse/db/events/data/ts_day=2024-02-27/{:05d}-0-ed4e43f1-d645-46b3-91d3-{:012x}.parquet"
    tails = random.integers(0, 2**48, rows).tolist()
    given = {
        "status": pa.repeat(pa.scalar(1, pa.int32()), rows),
        "snapshot_id": pa.repeat(pa.scalar(6649489650362675529, pa.int64()), rows),
        "content": pa.repeat(pa.scalar(0, pa.int32()), rows),
        "file_path": pa.array([path.format(n % 64, tail) for n, tail in enumerate(tails)]),
        "file_format": pa.repeat(pa.scalar("PARQUET"), rows),
        "partition": pa.StructArray.from_arrays([days], ["1000"]),
        "record_count": pa.array(records),
        "file_size_in_bytes": pa.array(sizes.reshape(rows, COLUMNS).sum(axis=1)),
        "column_sizes": counts(sizes),
        "value_counts": counts(np.repeat(records, COLUMNS)),
        "null_value_counts": counts(nulls),
        "nan_value_counts": pa.array([[]] * rows, ENTRY_COLUMNS["nan_value_counts"]),
        "lower_bounds": bounds(low),
        "upper_bounds": bounds(high),
        "split_offsets": pa.array([[4]] * rows, pa.list_(pa.int64())),
        "sort_order_id": pa.repeat(pa.scalar(0, pa.int32()), rows),
    }
    return pa.table(
        {name: given.get(name, pa.nulls(rows, kind)) for name, kind in ENTRY_COLUMNS.items()}
    )


@contextmanager
def timed(what: str, rows: int) -> Iterator[None]:
    start, cpu = time.perf_counter(), time.process_time()
    yield
    seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
    print(f"{what:32} {rows / seconds:12,.0f} entries/s  {seconds:6.2f} s  {cpu:6.2f} s CPU")


def write(table: pa.Table, folder: Path, size: int) -> pa.Table:
    """Write manifests of ``size`` entries; return their rows in the list."""
    rows = []
    for number, start in enumerate(range(0, table.num_rows, size)):
        part, path = table.slice(start, size), folder / f"m{size}-{number}.avro"
        context = ManifestContext(format_version=2, spec=SPEC, schema=SCHEMA, content=0)
        data = encode_manifest(part, context)
        path.write_bytes(data)
        rows.append(
            describe_manifest(
                part,
                context,
                location=str(path),
                length=len(data),
                sequence_number=1,
                added_snapshot_id=1,
            )
        )
    return pa.Table.from_pylist(rows, pa.schema(list(MANIFEST_COLUMNS.items())))


def read_with_fastavro(manifests: pa.Table) -> None:
    for path in manifests["manifest_path"].to_pylist():
        with Path(path).open("rb") as source:
            for _ in fastavro.reader(source):
                pass


def read_with_pyiceberg(manifests: pa.Table) -> None:
    io = PyArrowFileIO()
    for row in manifests.to_pylist():
        del row["first_row_id"]
        row["content"] = ManifestContent(row["content"])
        ManifestFile.from_args(**row).fetch_manifest_entry(io)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("entries", type=int, nargs="?", default=100_000)
    parser.add_argument("--small", action="store_true")
    arguments = parser.parse_args()
    rows = arguments.entries
    table = entries(rows)
    metadata = TableMetadataV2(
        location="/tmp/none",
        last_column_id=COLUMNS,
        schemas=[SCHEMA],
        partition_specs=[SPEC],
        last_partition_id=1000,
    )
    storage = Storage()
    with tempfile.TemporaryDirectory() as folder:
        with timed("write", rows):
            manifests = write(table, Path(folder), 10 if arguments.small else rows)
        size = sum(file.stat().st_size for file in os.scandir(folder))
        print(f"{manifests.num_rows} manifests, {size / rows:.0f} bytes an entry")

        def ours(**options: Any) -> Callable[[pa.Table], Any]:
            return lambda rows: read_manifests(storage, rows, metadata, **options)

        ours(threads=1)(manifests.slice(0, 1))
        readers: dict[str, Callable[[pa.Table], Any]] = {
            "read": ours(threads=1),
            "read, two threads": ours(threads=2),
            "read without statistics": ours(threads=1, columns=PLANNING),
            "fastavro": read_with_fastavro,
            "pyiceberg": read_with_pyiceberg,
        }
        for name, read in readers.items():
            with timed(name, rows):
                read(manifests)


if __name__ == "__main__":
    main()
