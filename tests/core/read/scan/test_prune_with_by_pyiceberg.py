"""`lake scan --prune-with` beside PyIceberg: both keep the same files for the same values of one column."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from pyiceberg.expressions import In
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import pyiceberg_table
from support.tables.pruned_tables import COLUMNS, Pruned, literal_of, load_table, value_of

_SPECS = (
    None,
    "truncate(10, i), bucket(3, s)",
    "bucket(4, i), truncate(1, s)",
    "month(d), bucket(2, n)",
    "hour(t), truncate(50, m)",
    "year(t), n, bucket(5, m)",
)
_SETS, _LOADS = 4, 2


@pytest.mark.parametrize("spec", _SPECS, ids=str)
def test_the_files_for_some_keys_are_those_that_pyiceberg_plans(
    tmp_path: Path, spec: str | None
) -> None:
    chance = random.Random(str(spec))
    warehouse = tmp_path / "w"
    load_table(CommandLine(warehouse, engine="inline"), tmp_path, spec, chance, loads=_LOADS)
    lake = Pruned(warehouse, tmp_path)
    table = pyiceberg_table(warehouse)
    kept = set()
    for column in [*COLUMNS] * _SETS:
        values = sorted({value_of(column, chance) for _ in range(chance.choice([1, 1, 2, 5]))})
        ours = lake.files_with(column, values)
        condition = In(column, [literal_of(value) for value in values])
        theirs = sorted(
            task.file.file_path for task in table.scan(row_filter=condition).plan_files()
        )
        assert ours == theirs, (column, values)
        kept.add(len(ours))

    assert len(kept) > 1
