"""Change logs drawn at random, with the rows that they leave, and as files."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

Row = dict[str, Any]
COLUMNS = pa.schema(
    [("op", pa.string()), ("id", pa.int64()), ("part", pa.string()), ("value", pa.int64())]
)


class Model:
    """A table as a dictionary of rows by key, and logs of random changes to it."""

    def __init__(self, key: Sequence[str], seed: int) -> None:
        self.key = key
        self.rows: dict[tuple[Any, ...], Row] = {}
        self._random = random.Random(seed)

    def upserts(self, count: int) -> list[Row]:
        """Change rows at random; return the log, in which deleted rows have only a key."""
        return [self._upsert() for _ in range(count)]

    def _upsert(self) -> Row:
        row = self._row()
        key = tuple(row[name] for name in self.key)
        kind = self._random.choice(["+I", "+U", "+U", "-U", "-D"])
        if kind == "-D":
            self.rows.pop(key, None)
            return {"op": kind, **{name: row[name] if name in self.key else None for name in row}}
        if kind != "-U":
            self.rows[key] = row
        return {"op": kind, **row}

    def retractions(self, count: int) -> list[Row]:
        """Change rows at random; return the log, which contains every old row."""
        log = []
        for _ in range(count):
            row = self._row()
            key = tuple(row[name] for name in self.key)
            old = self.rows.pop(key, None)
            if old is None:
                log.append({"op": "+I", **row})
            elif self._random.random() < 0.3:
                log.append({"op": "-D", **old})
                continue
            else:
                log += [{"op": "-U", **old}, {"op": "+U", **row}]
            self.rows[key] = row
        return log

    def _row(self) -> Row:
        return {
            "id": self._random.randrange(40),
            "part": self._random.choice(["x", "y z", "é"]),
            "value": self._random.randrange(1000),
        }


def write_log(path: Path, log: Sequence[Row]) -> Path:
    """Write a log as a file of the format that its name has."""
    rows = pa.Table.from_pylist(list(log), COLUMNS)
    if path.suffix == ".csv":
        pacsv.write_csv(rows, path)
    else:
        pq.write_table(rows, path)
    return path


def shown(rows: Sequence[Row]) -> list[str]:
    """Return rows in a form and an order in which they can be compared."""
    return sorted(repr(sorted(row.items())) for row in rows)
