"""`lake scan --prune-with` beside Iceberg Java: both keep the same files for the same values of one column."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from support.cli.command_line import CommandLine
from support.peers.java_peer import JavaPeer
from support.tables.pruned_tables import COLUMNS, Pruned, literal_of, load_table, value_of

pytestmark = pytest.mark.java

_SPECS = (
    None,
    "i",
    "bucket(4, i)",
    "truncate(10, i), bucket(3, s)",
    "truncate(1, s)",
    "d",
    "month(d)",
    "day(t)",
    "hour(t), bucket(2, n)",
    "year(t), n",
    "bucket(5, m), bucket(3, t)",
    "truncate(50, m), bucket(3, d)",
)
_SETS, _LOADS = 8, 4


@pytest.mark.parametrize("spec", _SPECS, ids=str)
def test_the_files_for_some_keys_are_those_that_java_plans(
    java: JavaPeer, tmp_path: Path, spec: str | None
) -> None:
    chance = random.Random(str(spec))
    warehouse = tmp_path / "w"
    load_table(CommandLine(warehouse, engine="inline"), tmp_path, spec, chance, loads=_LOADS)
    lake = Pruned(warehouse, tmp_path)
    kept = set()
    for column in COLUMNS:
        sets = [
            sorted({value_of(column, chance) for _ in range(chance.choice([1, 1, 2, 5]))})
            for _ in range(_SETS)
        ]
        ours = [lake.files_with(column, values) for values in sets]
        asked = [[literal_of(value) for value in values] for values in sets]
        assert ours == java.files_with(warehouse, "db.t", column, asked), (column, sets)
        kept |= {len(files) for files in ours}

    assert len(kept) > 1
