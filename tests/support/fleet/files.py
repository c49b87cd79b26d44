"""Data files and delete files as programs without `lake` write them: Parquet with Iceberg's field ids, by PyArrow."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType

# Files have rows of one of these groups each, which are partitions by each of the transforms.
GROUPS = 3
BUCKETS = 4
_MOST_KEYS = 30_000
# All times are on days before this one, so that the fleet is the same on each day.
_LAST_DAY = dt.datetime(2026, 3, 1, 5, tzinfo=dt.UTC)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_PATH, _POS = 2147483546, 2147483545
# How Java names the fields of a partition, and the SQL of each.
TRANSFORMS: Mapping[str, str] = {
    "none": "",
    "identity": "part",
    "bucket": f"bucket({BUCKETS}, id)",
    "truncate": "truncate(1, part)",
    "year": "years(ts)",
    "month": "months(ts)",
    "day": "days(ts)",
    "hour": "hours(ts)",
}


@dataclass(frozen=True, kw_only=True)
class File:
    """A file that a program has written and not yet committed.

    Args:
        path: where it is, without a scheme.
        rows: the number of its rows.
        content: 0 for data, 1 for position deletes, 2 for equality deletes.
        partition: the texts of its partition values.
        data_file: the only data file that it deletes rows of.
    """

    path: str
    rows: int
    content: int = 0
    partition: Sequence[str] = ()
    data_file: str | None = None

    def request(self) -> dict[str, Any]:
        """Return it as the Java peer takes it."""
        size = Path(self.path).stat().st_size
        return {**vars(self), "path": f"file:{self.path}", "bytes": size}


@dataclass(frozen=True)
class FileWriter:
    """Writes files below the folder of a table.

    Args:
        folder: the folder of the table.
        transform: how the table is partitioned, a key of `TRANSFORMS`.
        has_ids: whether columns have the ids of Iceberg's fields.
    """

    folder: Path
    transform: str = "none"
    has_ids: bool = True

    def data(self, number: int, rows: int = 20) -> File:
        """Write the rows of one number, which are of its group; each number has keys of its own."""
        group = number % GROUPS
        path = self._write(rows_of(keys_of(number, rows), group))
        return File(path=path, rows=rows, partition=partition_of(self.transform, group))

    def positions(self, file: File, positions: Sequence[int]) -> File:
        """Write a position delete file of one data file."""
        schema = pa.schema(
            [_field("file_path", pa.string(), _PATH), _field("pos", pa.int64(), _POS)]
        )
        places = [f"file:{file.path}"] * len(positions)
        path = self._write(pa.table([places, list(positions)], schema=schema))
        return File(
            path=path,
            rows=len(positions),
            content=1,
            partition=file.partition,
            data_file=f"file:{file.path}",
        )

    def keys(self, ids: Sequence[int], partition: Sequence[str] = ()) -> File:
        """Write an equality delete file of the column `id`."""
        rows = pa.table([list(ids)], schema=pa.schema([_field("id", pa.int64(), 1)]))
        return File(path=self._write(rows), rows=len(ids), content=2, partition=partition)

    def _write(self, rows: pa.Table) -> str:
        path = self.folder / "data" / f"{uuid.uuid4()}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        if not self.has_ids:
            rows = pa.table(rows.columns, names=rows.column_names)
        pq.write_table(rows, path)
        return str(path)


def keys_of(number: int, rows: int = 20) -> list[int]:
    """Return the keys of the rows of one number: those whose bucket is that of the group."""
    return _keys(number % GROUPS)[number * rows : (number + 1) * rows]


@cache
def _keys(group: int) -> list[int]:
    bucket = BucketTransform(BUCKETS).transform(LongType())
    return [number for number in range(_MOST_KEYS) if bucket(number) == group]


def time_of(group: int) -> dt.datetime:
    """Return the time of all rows of a group; each has its own hour, day, month and year."""
    return _LAST_DAY.replace(year=_LAST_DAY.year - group)


def rows_of(ids: Sequence[int], group: int) -> pa.Table:
    """Return the rows with these keys, all of one group."""
    schema = pa.schema(
        [
            _field("id", pa.int64(), 1),
            _field("part", pa.string(), 2),
            _field("ts", pa.timestamp("us", "UTC"), 3),
            _field("amount", pa.float64(), 4),
        ]
    )
    count = len(ids)
    columns = [ids, [f"{'abc'[group]}{group}"] * count, [time_of(group)] * count]
    return pa.table([*columns, [number / 4 for number in ids]], schema=schema)


def partition_of(transform: str, group: int) -> list[str]:
    """Return the partition value of a group as Iceberg's API takes it."""
    time = time_of(group)
    return {
        "none": [],
        "identity": [f"{'abc'[group]}{group}"],
        "bucket": [str(group)],
        "truncate": ["abc"[group]],
        "year": [str(time.year - 1970)],
        "month": [str((time.year - 1970) * 12 + time.month - 1)],
        "day": [time.date().isoformat()],
        "hour": [str(int((time - _EPOCH).total_seconds()) // 3600)],
    }[transform]


def _field(name: str, kind: pa.DataType, number: int) -> pa.Field:
    # Deletes have no nulls; for rows it does not matter.
    return pa.field(name, kind, nullable=number < _POS, metadata={"PARQUET:field_id": str(number)})
