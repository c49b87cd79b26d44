"""The time since when all snapshots of a branch are retained."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def retained_since(metadata: TableMetadata, branch: str) -> int | None:
    """Return the time (ms since 1970) since when all snapshots of a branch are retained; None if all are.

    Raises:
        NotFoundError: the branch does not exist.
    """
    head = ancestry.branch_head(metadata, branch)
    if head is None:
        return None
    *_, oldest = ancestry.ancestors(metadata, head.snapshot_id)
    return None if ancestry.is_first(metadata, oldest) else oldest.timestamp_ms
