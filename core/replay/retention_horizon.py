"""How far back the retained snapshots of a branch reach."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def retained_since(metadata: TableMetadata, branch: str) -> int | None:
    """Return the moment (ms since 1970) from which on all of a branch's snapshots are retained; None for ever.

    Raises:
        NotFoundError: there is no such branch.
    """
    head = ancestry.branch_head(metadata, branch)
    if head is None:
        return None
    *_, oldest = ancestry.ancestors(metadata, head.snapshot_id)
    return None if ancestry.is_first(metadata, oldest) else oldest.timestamp_ms
