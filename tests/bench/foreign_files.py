"""Tables of many files as each writer of manifests leaves them; their files exist in metadata only.

A table has 15 columns, seven of them texts, with random bounds, and is partitioned by day. Its writer appends the
files in some commits and then deletes those of one day, which writes every manifest again. PyIceberg writes an
Avro block for each entry; Iceberg Java fills blocks of some KiB, and merges manifests.
"""

from __future__ import annotations

import datetime
import shutil
import subprocess
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyspark
from manifests import SPEC, entries, pairs
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType, TimestampType
from support.peers.flink_peer import classpath
from support.peers.java_peer import jars
from support.tables.iceberg_tables import make_table, open_session, pyiceberg_catalog

from lake.core.table.manifests.schemas import ENTRY_COLUMNS
from lake.core.transaction.commit.commit import CommitRequest, commit_snapshot
from lake.core.transaction.commit.operations import AppendFiles, EntryTable, OverwriteFiles

WRITERS = ("lake", "pyiceberg", "spark", "flink")
NUMBERS, COLUMNS = 8, 15
SCHEMA = Schema(
    NestedField(1, "ts", TimestampType(), required=False),
    *(NestedField(i, f"n{i}", LongType(), required=False) for i in range(2, NUMBERS + 1)),
    *(NestedField(i, f"s{i}", StringType(), required=False) for i in range(NUMBERS + 1, 16)),
)
TABLE, _SOURCE = "db.t", "db.source"
_FIRST_DAY, _DAYS = 19_000, 400
_DELETED_DAY = 19_200
_DAY_US = 86_400_000_000
# Iceberg Java shortens the bounds of texts to this number of characters.
_TEXT = 16
_PER_COMMIT, _PER_CHECKPOINT = 10_000, 200


def make(warehouse: Path, writer: str, files: int) -> None:
    """Let a writer make ``db.t`` with the given number of files, less those of a day."""
    _MAKERS[writer](warehouse, files)


def _by_lake(warehouse: Path, files: int) -> None:
    commit = _append(warehouse, TABLE, files)
    gone = [path for path, day in commit if day == _DELETED_DAY]
    session = open_session(warehouse)
    table = session.table(TABLE)
    snapshot = table.metadata.current_snapshot()
    assert snapshot is not None
    operation = OverwriteFiles(added=[], removed_paths=gone, base_snapshot_id=snapshot.snapshot_id)
    commit_snapshot(session, table, operation, CommitRequest(operation_id=str(uuid.uuid4())))


def _by_pyiceberg(warehouse: Path, files: int) -> None:
    table = make_table(warehouse, TABLE, SCHEMA, SPEC)
    for part in _parts(table.location(), files):
        with table.transaction() as change, change.update_snapshot().fast_append() as append:
            for row in part.to_pylist():
                append.append_data_file(_pyiceberg_file(row))
    table.delete(" and ".join(f"ts {sign} '{time}'" for sign, time in _deleted()))


def _by_java(warehouse: Path, files: int, per_commit: int, writer: str, jars: str) -> None:
    """Copy the files of a table of lake's by Iceberg Java's own commits."""
    # Files outside of a table's own folder would outlive it.
    location = make_table(warehouse, TABLE, SCHEMA, SPEC).location()
    _append(warehouse, _SOURCE, files, location)
    bounds = [time for _, time in _deleted()]
    program = str(Path(__file__).parent / "CopyFiles.java")
    command = ["java", "-Xmx4g", "-cp", jars, program]
    options = [str(warehouse), _SOURCE, TABLE, str(per_commit), writer, *bounds]
    subprocess.run([*command, *options], check=True, capture_output=True)
    pyiceberg_catalog(warehouse).drop_table(_SOURCE)
    shutil.rmtree(warehouse / "db" / "source")


def _by_spark(warehouse: Path, files: int) -> None:
    spark = Path(pyspark.__file__).parent / "jars" / "*"
    _by_java(warehouse, files, _PER_COMMIT, "spark", f"{jars().replace(',', ':')}:{spark}")


def _by_flink(warehouse: Path, files: int) -> None:
    _by_java(warehouse, files, _PER_CHECKPOINT, "flink", classpath())


_MAKERS: dict[str, Callable[[Path, int], None]] = {
    "lake": _by_lake,
    "pyiceberg": _by_pyiceberg,
    "spark": _by_spark,
    "flink": _by_flink,
}


def _deleted() -> list[tuple[str, str]]:
    epoch = datetime.date(1970, 1, 1)
    days = (epoch + datetime.timedelta(_DELETED_DAY + n) for n in (0, 1))
    return [(sign, f"{day}T00:00:00") for sign, day in zip((">=", "<"), days, strict=True)]


def _append(
    warehouse: Path, name: str, files: int, location: str | None = None
) -> list[tuple[str, int]]:
    """Make a table by lake's commits, with files below a location; return their paths and days."""
    table = make_table(warehouse, name, SCHEMA, SPEC)
    made = []
    for part in _parts(location or table.location(), files):
        session = open_session(warehouse)
        operation = AppendFiles(added=[EntryTable(0, part)])
        commit_snapshot(
            session, session.table(name), operation, CommitRequest(operation_id=str(uuid.uuid4()))
        )
        days = part["partition"].combine_chunks().field("1000").cast(pa.int32())
        made += zip(part["file_path"].to_pylist(), days.to_pylist(), strict=True)
    return made


def _parts(location: str, files: int) -> Iterator[pa.Table]:
    """Yield entries of as many files as a commit adds."""
    for begin in range(0, files, _PER_COMMIT):
        rows = min(_PER_COMMIT, files - begin)
        random = np.random.default_rng(begin)
        days = random.integers(_FIRST_DAY, _FIRST_DAY + _DAYS, rows)
        keys = pa.array(np.tile(np.arange(1, COLUMNS + 1), rows), pa.int32())
        offsets = pa.array(np.arange(0, rows * COLUMNS + 1, COLUMNS), pa.int32())
        lower, upper = (
            pairs(offsets, keys, pa.array(_bounds(random, days, end), pa.binary()))
            for end in (0, 1)
        )
        paths = [
            f"{location}/data/ts_day={day}/{begin + n:08d}-{uuid.UUID(int=begin + n)}.parquet"
            for n, day in enumerate(days.tolist())
        ]
        given = {
            "file_path": pa.array(paths),
            "partition": pa.StructArray.from_arrays(
                [pa.array(days, pa.int32()).cast(pa.date32())], ["1000"]
            ),
            # Of a file with NULLs PyIceberg would read which of its rows are of the deleted day.
            "null_value_counts": pairs(
                offsets, keys, pa.repeat(pa.scalar(0, pa.int64()), len(keys))
            ),
            "lower_bounds": lower,
            "upper_bounds": upper,
        }
        plain = entries(rows)
        yield pa.table({name: given.get(name, plain[name]) for name in ENTRY_COLUMNS})


def _bounds(random: Any, days: Any, end: int) -> list[bytes]:
    """Return lower or upper bounds of all columns of all files, file by file."""
    rows = len(days)
    times = days * _DAY_US + end * (_DAY_US // 2) + random.integers(0, _DAY_US // 2, rows)
    numbers = random.integers(0, 1 << 40, (rows, NUMBERS - 1)) + (end << 40)
    texts = random.integers(ord("a"), ord("n"), (rows, COLUMNS - NUMBERS, _TEXT), np.uint8)
    texts[:, :, 0] = ord("nz"[end]) if end else ord("a")
    made: list[bytes] = []
    for time, some, words in zip(times, numbers, texts, strict=True):
        packed = np.concatenate(([time], some)).astype("<i8").tobytes()
        made += [packed[at : at + 8] for at in range(0, len(packed), 8)]
        made += [word.tobytes() for word in words]
    return made


def _pyiceberg_file(row: dict[str, Any]) -> DataFile:
    (day,) = row["partition"].values()
    figures = ("column_sizes", "value_counts", "null_value_counts", "nan_value_counts")
    return DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=row["file_path"],
        file_format=FileFormat.PARQUET,
        partition=Record((day - datetime.date(1970, 1, 1)).days),
        record_count=row["record_count"],
        file_size_in_bytes=row["file_size_in_bytes"],
        sort_order_id=None,
        spec_id=0,
        equality_ids=None,
        key_metadata=None,
        split_offsets=row["split_offsets"],
        **{
            name: {pair["key"]: pair["value"] for pair in row[name]}
            for name in (*figures, "lower_bounds", "upper_bounds")
        },
    )
