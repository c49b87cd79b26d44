"""The programs that committed snapshots, by what they write into summaries."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from lake.core.table.flink.commits import job_commit

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

# What writers call themselves, and the name that is shown for a writer that only has such an id.
_NAME, _IDS = "engine-name", {"spark.app.id": "Spark", "trino_query_id": "Trino"}
_SHOWN_WRITERS = 3


def writer_of(snapshot: Snapshot) -> str:
    """Return the name of the program that committed a snapshot; ``not named`` if it did not say."""
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    if name := summary.get(_NAME):
        return f"{name} {summary.get('engine-version') or ''}".rstrip()
    if job_commit(snapshot):
        return "Flink"
    return next((name for key, name in _IDS.items() if key in summary), "not named")


def commits_by_writer(snapshots: Iterable[Snapshot]) -> str:
    """Return the writers of snapshots, those with the most commits first: ``Flink job 5f3a… (3 commits)``."""
    counts = Counter(_with_job(snapshot) for snapshot in snapshots)
    shown = [
        f"{name} ({count:,} commit{'s' * (count != 1)})"
        for name, count in counts.most_common(_SHOWN_WRITERS)
    ]
    more = len(counts) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")


def _with_job(snapshot: Snapshot) -> str:
    job = job_commit(snapshot)
    name = writer_of(snapshot)
    name = "a writer without a name" if name == "not named" else name
    return f"{name} job {job.job_id}" if job else name
