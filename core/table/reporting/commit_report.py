"""The report about a commit, as Iceberg's REST specification names it: `CommitReport` of `ReportMetricsRequest`.

It contains names, ids and numbers only. Source: https://iceberg.apache.org/rest-catalog-spec/, and Iceberg Java's
CommitReportParser, CommitMetricsResult and SnapshotSummary, whose counters come from the snapshot's summary too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lake.core.base.units import natural_number
from lake.core.table.reporting.metrics import counter, duration

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

_TYPE = "commit-report"
# The counters of a report by the keys of a summary, where the names differ.
_RENAMED: Mapping[str, str] = {
    "deleted-data-files": "removed-data-files",
    "added-position-delete-files": "added-positional-delete-files",
    "removed-position-delete-files": "removed-positional-delete-files",
    "deleted-records": "removed-records",
    "added-files-size": "added-files-size-bytes",
    "removed-files-size": "removed-files-size-bytes",
    "total-files-size": "total-files-size-bytes",
    "added-position-deletes": "added-positional-deletes",
    "removed-position-deletes": "removed-positional-deletes",
    "total-position-deletes": "total-positional-deletes",
    "entries-processed": "manifest-entries-processed",
}
_SAME = (
    *("added-data-files", "total-data-files", "added-delete-files", "removed-delete-files"),
    *("added-equality-delete-files", "removed-equality-delete-files", "total-delete-files"),
    *("added-dvs", "removed-dvs", "added-records", "total-records", "added-equality-deletes"),
    *("removed-equality-deletes", "total-equality-deletes"),
    *("manifests-created", "manifests-replaced", "manifests-kept"),
)


def commit_report(
    name: str, snapshot: Snapshot, seconds: float, attempts: int, marks: Mapping[str, str]
) -> dict[str, Any]:
    """Return the report about a snapshot, as it becomes JSON.

    Args:
        name: the name of the table, with that of its catalog.
        snapshot: the snapshot.
        seconds: how long the commit took, all attempts together.
        attempts: the number of attempts.
        marks: names and versions of the software that made it.
    """
    summary = snapshot.summary
    counts = summary.additional_properties if summary else {}
    metrics: dict[str, Any] = {
        "total-duration": duration(seconds),
        "attempts": counter("attempts", attempts),
    }
    for key in (*_SAME, *_RENAMED):
        value = natural_number(counts.get(key) or "")
        if value is not None:
            measure = _RENAMED.get(key, key)
            metrics[measure] = counter(measure, value)
    return {
        "report-type": _TYPE,
        "table-name": name,
        "snapshot-id": snapshot.snapshot_id,
        "sequence-number": snapshot.sequence_number or 0,
        "operation": summary.operation.value if summary else "append",
        "metrics": metrics,
        "metadata": dict(marks),
    }
