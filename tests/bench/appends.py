"""A table of many appends, for benchmarks: its metadata is written at once, because real commits take hours."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
from expire import History, rows_of
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC
from support.tables.iceberg_tables import SCHEMA, open_session, write_file

from lake.core.table.manifests.entries import entries_of
from lake.core.table.manifests.schemas import ADDED


def make_appends(warehouse: Path, ids: Iterable[Iterable[int]]) -> None:
    """Make ``db.t`` with one snapshot, one manifest and one data file for each set of ids.

    Each manifest list names the manifests of all earlier snapshots too, as after appends that merge none.
    """
    files = list(ids)
    history = History(warehouse, len(files), schema=SCHEMA, spec=UNPARTITIONED_PARTITION_SPEC)
    table = open_session(warehouse).table("db.t")
    manifests = []
    for number, numbers in enumerate(files):
        entries = entries_of(
            [write_file(table, numbers)],
            spec=table.spec,
            schema=SCHEMA,
            status=ADDED,
            snapshot_id=history.snapshot_id(number),
        )
        manifests.append(history.manifest_of(number, entries))
    rows: pa.Table = rows_of(manifests)
    total = 0
    for number, row in enumerate(manifests):
        added = row["added_rows_count"]
        total += added
        summary = {
            "operation": "append",
            "added-data-files": "1",
            "added-records": str(added),
            "total-data-files": str(number + 1),
            "total-records": str(total),
        }
        history.snapshot(number, rows.slice(0, number + 1), summary)
    history.finish()
