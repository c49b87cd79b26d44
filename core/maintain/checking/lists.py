"""Whether the rows of manifest lists agree with snapshots."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.arrow import one_array
from lake.core.maintain.checking.findings import Finding
from lake.core.table.manifests.data_files import DATA
from lake.core.table.metadata.summaries import properties_of

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot


def list_findings(snapshot: Snapshot, rows: pa.Table) -> Iterator[Finding]:
    """Compare a snapshot with the rows that its list adds to the list before it.

    Args:
        snapshot: the snapshot.
        rows: `MANIFEST_COLUMNS`; the snapshot's own manifests are among them.
    """
    data = pc.equal(rows["content"], DATA)
    if snapshot.first_row_id is not None:
        lacking = rows.filter(pc.and_(data, pc.is_null(rows["first_row_id"])))
        for path in lacking["manifest_path"].to_pylist():
            yield Finding("N003", path, "its list gives its files no row ids")
    own = rows.filter(pc.and_(data, pc.equal(rows["added_snapshot_id"], snapshot.snapshot_id)))
    summary = properties_of(snapshot)
    for key, column in (
        ("added-data-files", "added_files_count"),
        ("deleted-data-files", "deleted_files_count"),
    ):
        text = summary.get(key)
        counts = own[column]
        if text is None or not text.isdigit() or counts.null_count:
            continue
        count = pc.sum(counts).as_py() or 0
        if int(text) != count:
            message = f"{key} is {text}, the manifests of the snapshot contain {count}"
            yield Finding("T002", f"snapshot {snapshot.snapshot_id}", message)


def row_findings(numbers: pa.Table, manifests: pa.Table) -> Iterator[Finding]:
    """Compare the sequence numbers of distinct manifests with those of the snapshots that added them.

    Args:
        numbers: the sequence numbers of the snapshots (`entries.numbers_of`).
        manifests: rows of manifest lists (`MANIFEST_COLUMNS`).
    """
    at = pc.index_in(one_array(manifests["added_snapshot_id"]), value_set=numbers["snapshot_id"])
    expected = one_array(numbers["number"]).take(at)
    declared = one_array(manifests["sequence_number"])
    bad = pc.fill_null(pc.not_equal(declared, expected), fill_value=False)
    for index in np.flatnonzero(bad.to_numpy(zero_copy_only=False)).tolist():
        text = (
            f"its list has the sequence number {declared[index]}, the snapshot that added it "
            f"{expected[index]}"
        )
        yield Finding("L007", manifests["manifest_path"][index].as_py(), text)
