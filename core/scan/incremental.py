"""Which snapshots an incremental append scan reads: a pure function of metadata.

Source: Iceberg's BaseIncrementalScan and BaseIncrementalAppendScan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.errors import BadInputError, NotFoundError
from lake.core.table import lineage

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class Increment:
    """What was committed between two snapshots.

    Args:
        end: the newest snapshot, inclusive; None for an empty table.
        appends: snapshots whose files are read, newest first.
        skipped: snapshots of other operations, whose changes an append scan does not show.
        truncated: no start was given and the history does not reach the table's beginning.
    """

    end: Snapshot | None
    appends: tuple[Snapshot, ...]
    skipped: tuple[Snapshot, ...]
    truncated: bool = False


def plan_increment(
    metadata: TableMetadata,
    *,
    start: str | None,
    inclusive: bool,
    end: str | None,
    branch: str = lineage.MAIN,
) -> Increment:
    """Choose the snapshots after ``start`` up to ``end``.

    An exclusive start need not exist any more: it is enough that a retained ancestor of the end has it as
    its parent.

    Raises:
        BadInputError: the start is no ancestor of the end; both are named.
        NotFoundError: a name means nothing.
    """
    last = _end(metadata, end, branch)
    if last is None:
        if start is not None:
            raise NotFoundError("the table has no snapshot, so there is nothing after the start")
        return Increment(None, (), ())
    start_id = None if start is None else _start(metadata, start, last, branch, inclusive=inclusive)
    if start_id is not None and start_id == last.snapshot_id and not inclusive:
        # A reader that is up to date asks exactly this.
        return Increment(last, (), ())
    chosen, truncated = _after(metadata, last, start_id, inclusive=inclusive)
    appends = tuple(item for item in chosen if _operation(item) == "append")
    skipped = tuple(item for item in chosen if _operation(item) != "append")
    return Increment(last, appends, skipped, truncated)


def _end(metadata: TableMetadata, end: str | None, branch: str) -> Snapshot | None:
    head = lineage.branch_head(metadata, branch)
    if end is None:
        return head
    last = lineage.resolve(metadata, end, branch=branch)
    on_branch = head is not None and lineage.is_ancestor(
        metadata, last.snapshot_id, head.snapshot_id
    )
    if branch != lineage.MAIN and not on_branch:
        raise BadInputError(
            f"end snapshot {last.snapshot_id} is not a valid snapshot on the branch {branch}"
        )
    return last


def _start(
    metadata: TableMetadata,
    start: str,
    last: Snapshot,
    branch: str,
    *,
    inclusive: bool,
) -> int:
    start_id = lineage.resolve_id(metadata, start, branch=branch)
    if inclusive:
        lineage.resolve(metadata, str(start_id))
        if not lineage.is_ancestor(metadata, start_id, last.snapshot_id):
            raise BadInputError(
                f"starting snapshot (inclusive) {start_id} is not an ancestor of "
                f"end snapshot {last.snapshot_id}"
            )
    return start_id


def _after(
    metadata: TableMetadata,
    last: Snapshot,
    start_id: int | None,
    *,
    inclusive: bool,
) -> tuple[list[Snapshot], bool]:
    chosen: list[Snapshot] = []
    for snapshot in lineage.ancestors(metadata, last.snapshot_id):
        if snapshot.snapshot_id == start_id and not inclusive:
            return chosen, False
        chosen.append(snapshot)
        if snapshot.snapshot_id == start_id or (
            start_id is not None and snapshot.parent_snapshot_id == start_id and not inclusive
        ):
            return chosen, False
    if start_id is not None:
        raise BadInputError(
            f"starting snapshot (exclusive) {start_id} is not a parent ancestor of "
            f"end snapshot {last.snapshot_id}",
            hint="it was rolled back, lies on another branch, or it and its child have expired; "
            "what came between cannot be told: read the whole table instead",
        )
    return chosen, bool(chosen) and chosen[-1].parent_snapshot_id is not None


def _operation(snapshot: Snapshot) -> str:
    return snapshot.summary.operation.value if snapshot.summary else "append"
