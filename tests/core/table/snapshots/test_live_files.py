"""What of the statistics of live files is read to pair them with deletes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.cli.command_line import CommandLine
from support.tables.iceberg_tables import open_session

from lake.core.read.scan.plan import ScanOptions, plan_scan
from lake.core.table.snapshots.pruning import FILTER_COLUMNS


def rows(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), "part": ["a"] * len(ids), "value": ids})


@pytest.mark.parametrize(
    ("deletes", "compared"), [(None, None), ("position", None), ("equality", {1})]
)
def test_only_bounds_of_columns_that_equality_deletes_compare_are_kept(
    lake: CommandLine, tmp_path: Path, deletes: str | None, compared: set[int] | None
) -> None:
    source = tmp_path / "rows.parquet"

    def ingest(*ids: int, options: tuple[str, ...] = ()) -> None:
        pq.write_table(rows(*ids), source)
        lake.ok("ingest", "db.t", source, *options)

    ingest(1, 2, options=("--create",))
    ingest(10, 11)
    if deletes is not None:
        ingest(2, options=("--upsert", "--key", "id", "--deletes", deletes))

    options = ScanOptions(split_size=1, split_open_cost=0)
    plan = plan_scan(open_session(lake.warehouse).table("db.t"), options)

    (entries,) = plan.found.by_spec.values()
    if compared is None:
        assert not set(FILTER_COLUMNS) & set(entries.column_names)
    else:
        kept: list[Any] = entries["lower_bounds"].to_pylist()
        assert {key for pairs in kept for key, _ in map(dict.values, pairs)} == compared
    # Each file is a split, and the bounds of the second one exclude the key.
    deleted = [len(split.deletes) for split in plan.reads()]
    assert len(deleted) == (2 if deletes is None else 3)
    assert sum(deleted) == (deletes is not None)
