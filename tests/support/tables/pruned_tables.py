"""Tables of many types and partition transforms, and the files that `lake scan --prune-with` keeps of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from lake.core.read.scan.partner_keys import KeyOptions, partner_keys
from lake.core.read.scan.plan import ScanOptions, plan_scan
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import open_session

# Values before and after 1970, and at its beginning.
COLUMNS = {
    "i": pa.int64(),
    "n": pa.int32(),
    "s": pa.string(),
    "d": pa.date32(),
    "t": pa.timestamp("us"),
    "m": pa.decimal128(9, 2),
}
ROWS = 6


def value_of(column: str, chance: random.Random) -> Any:
    """Return a value of a column at random."""
    number = chance.randrange(-40, 40)
    values: dict[str, Any] = {
        "i": number,
        "n": number % 7 - 3,
        "s": f"{'abcé'[number % 4]}{number}",
        "d": date(1970, 1, 1) + timedelta(days=number),
        "t": datetime(1970, 1, 1) + timedelta(minutes=number * 47, microseconds=number),
        "m": Decimal(number * 37) / 100,
    }
    return values[column]


def literal_of(value: Any) -> Any:
    """Return a value as the literals of PyIceberg and of Iceberg Java accept it."""
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal):
        return f"{value:.2f}"
    return value.isoformat() if isinstance(value, date) else value


def load_table(
    lake: CommandLine, folder: Path, spec: str | None, chance: random.Random, *, loads: int
) -> None:
    """Make ``db.t`` by some loads of small files, some columns of which are NULL."""
    for number in range(loads):
        empty = {name for name in COLUMNS if chance.random() < 0.1}
        rows = {
            name: pa.array(
                [
                    None if name in empty or chance.random() < 0.1 else value_of(name, chance)
                    for _ in range(ROWS)
                ],
                kind,
            )
            for name, kind in COLUMNS.items()
        }
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table(rows), path)
        partitioned = () if spec is None else ("--partition-by", spec)
        lake.ok("ingest", "db.t", path, *(() if number else ("--create", *partitioned)))


class Pruned:
    """``db.t`` of a warehouse, and the data files that lake keeps of it."""

    def __init__(self, warehouse: Path, folder: Path) -> None:
        self._session, self._keys = open_session(warehouse), folder / "keys.parquet"
        self._table = self._session.table("db.t")

    def files_with(self, column: str, values: Sequence[Any]) -> list[str]:
        """Return those that are kept for the values of a column."""
        pq.write_table(pa.table({"key": pa.array(values, COLUMNS[column])}), self._keys)
        options = KeyOptions(prune_with=str(self._keys), on=[(column, "key")], prune_limit=0)
        schema = self._table.schema
        with partner_keys(self._session, self._table, schema, options) as found:
            plan = plan_scan(self._table, ScanOptions(), found)
        entries = plan.found.by_spec.values()
        return sorted(path for each in entries for path in each["file_path"].to_pylist())
