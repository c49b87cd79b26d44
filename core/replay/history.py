"""How far back the retained snapshots of a branch reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.table import lineage

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


def retained_since(metadata: TableMetadata, branch: str) -> int | None:
    """Return the moment (ms since 1970) from which on all of a branch's snapshots are retained; None for ever.

    Raises:
        NotFoundError: there is no such branch.
    """
    head = lineage.branch_head(metadata, branch)
    if head is None:
        return None
    *_, oldest = lineage.ancestors(metadata, head.snapshot_id)
    return None if _is_first(metadata, oldest) else oldest.timestamp_ms


def _is_first(metadata: TableMetadata, snapshot: Snapshot) -> bool:
    """Whether a table had no snapshot before one.

    That it has no parent is not enough: PyIceberg's expiry takes the parent from the oldest that it keeps. Whatever
    else tells of earlier snapshots counts as well; in format version 1, without sequence numbers, that is less.
    """
    if snapshot.parent_snapshot_id is not None:
        return False
    number = snapshot.sequence_number or 0
    earlier = sum((item.sequence_number or 0) < number for item in metadata.snapshots)
    if earlier < number - 1:
        return False
    retained = lineage.snapshots_by_id(metadata)
    if any(entry.snapshot_id not in retained for entry in metadata.snapshot_log):
        return False
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    took_over = any(
        summary.get(f"total-{kind}", added) != added
        for kind in ("data-files", "delete-files")
        for added in (summary.get(f"added-{kind}", "0"),)
    )
    return not took_over and not any(
        f"deleted-{kind}" in summary for kind in ("data-files", "records")
    )
