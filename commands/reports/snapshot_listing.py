"""List a table's snapshots as rows to print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.commands.reports.facts import SnapshotFacts
from lake.core.base.units import iso_time, natural_number
from lake.core.table.flink.commits import CHECKPOINT_ID, JOB_ID
from lake.core.table.metadata.summaries import some_properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.run_ids import COMMAND, OPERATION_ID, RUN_ID, SOURCE, USER
from lake.core.table.snapshots.streams import EPOCH_ID, QUERY_ID, QueryEpoch

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_NAMES = frozenset(
    {
        *("added-data-files", "deleted-data-files", "added-records", "deleted-records"),
        *(JOB_ID, CHECKPOINT_ID, QUERY_ID, EPOCH_ID),
        *(OPERATION_ID, SOURCE, COMMAND, RUN_ID, USER),
    }
)


def list_snapshots(
    metadata: TableMetadata,
    *,
    branch: str = ancestry.MAIN,
    everything: bool = False,
    limit: int | None = None,
) -> list[SnapshotFacts]:
    """Return a branch's snapshots, newest first; with ``everything``, all snapshots of the table.

    Raises:
        NotFoundError: the branch does not exist.
    """
    head = ancestry.branch_head(metadata, branch)
    if everything:
        chosen = sorted(metadata.snapshots, key=lambda item: item.timestamp_ms, reverse=True)
    else:
        chosen = list(ancestry.ancestors(metadata, head.snapshot_id if head else None))
    refs: dict[int, list[str]] = {}
    for name in sorted(metadata.refs):
        refs.setdefault(metadata.refs[name].snapshot_id, []).append(name)
    return [_describe(item, refs.get(item.snapshot_id, [])) for item in chosen[:limit]]


def _describe(snapshot: Snapshot, refs: list[str]) -> SnapshotFacts:
    summary = some_properties_of(snapshot, _NAMES)
    parent = snapshot.parent_snapshot_id
    epoch = QueryEpoch.of_summary(summary)
    return SnapshotFacts(
        snapshot_id=str(snapshot.snapshot_id),
        parent_id=None if parent is None else str(parent),
        committed_at=iso_time(snapshot.timestamp_ms),
        operation=snapshot.summary.operation.value if snapshot.summary else None,
        added_files=_count(summary.get("added-data-files")),
        removed_files=_count(summary.get("deleted-data-files")),
        added_rows=_count(summary.get("added-records")),
        removed_rows=_count(summary.get("deleted-records")),
        refs=refs,
        job_id=summary.get(JOB_ID),
        checkpoint_id=summary.get(CHECKPOINT_ID),
        query_id=epoch.query if epoch else None,
        epoch_id=epoch.number if epoch else None,
        operation_id=summary.get(OPERATION_ID),
        source=summary.get(SOURCE),
        command=summary.get(COMMAND),
        run_id=summary.get(RUN_ID),
        user=summary.get(USER),
    )


def _count(text: str | None) -> int | None:
    # Writers omit counters that are zero.
    if text is None:
        return 0
    return natural_number(text)
