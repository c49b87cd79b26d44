"""`lake scan --prune-with` beside PyIceberg: both keep the same files for the same values of one column."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import In
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import open_session, pyiceberg_catalog

from lake.core.scan.partner_keys import KeyOptions, partner_keys
from lake.core.scan.plan import ScanOptions, plan_scan

# Values before and after 1970, and at its beginning.
_COLUMNS = {
    "i": pa.int64(),
    "n": pa.int32(),
    "s": pa.string(),
    "d": pa.date32(),
    "t": pa.timestamp("us"),
    "m": pa.decimal128(9, 2),
}
_SPECS = (
    None,
    "truncate(10, i), bucket(3, s)",
    "bucket(4, i), truncate(1, s)",
    "month(d), bucket(2, n)",
    "hour(t), truncate(50, m)",
    "year(t), n, bucket(5, m)",
)
_SETS, _LOADS, _ROWS = 4, 2, 6


def value_of(column: str, chance: random.Random) -> Any:
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
    """Return a value as literals accept it."""
    if isinstance(value, int):
        return value
    if isinstance(value, Decimal):
        return f"{value:.2f}"
    return value.isoformat() if isinstance(value, date) else value


def loaded(lake: CommandLine, folder: Path, spec: str | None, chance: random.Random) -> None:
    """Make ``db.t`` with small files, some columns of which are NULL."""
    for number in range(_LOADS):
        empty = {name for name in _COLUMNS if chance.random() < 0.1}
        rows = {
            name: pa.array(
                [
                    None if name in empty or chance.random() < 0.1 else value_of(name, chance)
                    for _ in range(_ROWS)
                ],
                kind,
            )
            for name, kind in _COLUMNS.items()
        }
        path = folder / f"{number}.parquet"
        pq.write_table(pa.table(rows), path)
        partitioned = () if spec is None else ("--partition-by", spec)
        lake.ok("ingest", "db.t", path, *(() if number else ("--create", *partitioned)))


def files_with(warehouse: Path, folder: Path, column: str, values: Sequence[Any]) -> list[str]:
    """Return the data files that lake keeps for the values of a column."""
    keys = folder / "keys.parquet"
    pq.write_table(pa.table({"key": pa.array(values, _COLUMNS[column])}), keys)
    session = open_session(warehouse)
    table = session.table("db.t")
    options = KeyOptions(source=str(keys), on=[(column, "key")], limit_bytes=0)
    with partner_keys(session, table, table.schema, options) as found:
        plan = plan_scan(table, ScanOptions(), found)
    return sorted(
        path for entries in plan.found.by_spec.values() for path in entries["file_path"].to_pylist()
    )


@pytest.mark.parametrize("spec", _SPECS, ids=str)
def test_the_files_for_some_keys_are_those_that_pyiceberg_plans(
    tmp_path: Path, spec: str | None
) -> None:
    chance = random.Random(str(spec))
    warehouse = tmp_path / "w"
    loaded(CommandLine(warehouse, engine="inline"), tmp_path, spec, chance)
    table = pyiceberg_catalog(warehouse).load_table("db.t")
    kept = set()
    for column in [*_COLUMNS] * _SETS:
        values = sorted({value_of(column, chance) for _ in range(chance.choice([1, 1, 2, 5]))})
        ours = files_with(warehouse, tmp_path, column, values)
        condition = In(column, [literal_of(value) for value in values])
        theirs = sorted(
            task.file.file_path for task in table.scan(row_filter=condition).plan_files()
        )
        assert ours == theirs, (column, values)
        kept.add(len(ours))

    assert len(kept) > 1
