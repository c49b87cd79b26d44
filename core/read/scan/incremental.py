"""Select the snapshots that an incremental append scan reads, from metadata alone.

Source: Iceberg's BaseIncrementalScan and BaseIncrementalAppendScan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.base.errors import BadInputError, NotFoundError
from lake.core.base.options import Option
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


@dataclass(frozen=True, slots=True)
class Increment:
    """The append snapshots between two snapshots.

    Args:
        end: the newest snapshot, inclusive; None for an empty table.
        appends: snapshots whose files are read, in this order; `plan_increment` returns the newest first.
        skipped: snapshots of other operations, which an append scan does not read.
        truncated: whether no start was given and the history does not go back to the first snapshot.
    """

    end: Snapshot | None
    appends: tuple[Snapshot, ...]
    skipped: tuple[Snapshot, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SnapshotRange:
    """The snapshots between two snapshots, of all operations.

    Args:
        end: the newest snapshot, inclusive; None for an empty table.
        snapshots: newest first.
        truncated: whether no start was given and the history does not go back to the first snapshot.
    """

    end: Snapshot | None
    snapshots: tuple[Snapshot, ...] = ()
    truncated: bool = False


def plan_increment(
    metadata: TableMetadata,
    *,
    start: str | None,
    inclusive: bool,
    end: str | None,
    branch: str = ancestry.MAIN,
) -> Increment:
    """Select the appends after ``start`` up to ``end``; see `plan_range`."""
    selected = plan_range(metadata, start=start, inclusive=inclusive, end=end, branch=branch)
    appends = tuple(item for item in selected.snapshots if ancestry.operation_of(item) == "append")
    skipped = tuple(item for item in selected.snapshots if ancestry.operation_of(item) != "append")
    return Increment(selected.end, appends, skipped, selected.truncated)


def plan_range(
    metadata: TableMetadata,
    *,
    start: str | None,
    inclusive: bool,
    end: str | None,
    branch: str = ancestry.MAIN,
) -> SnapshotRange:
    """Select the snapshots after ``start`` up to ``end``.

    An exclusive start may have expired, if a retained ancestor of the end has it as its parent.

    Raises:
        BadInputError: the start is not an ancestor of the end.
        NotFoundError: a name does not refer to a snapshot.
    """
    last = _end(metadata, end, branch)
    if last is None:
        if start is not None:
            raise NotFoundError("the table has no snapshots")
        return SnapshotRange(None)
    start_id = None if start is None else ancestry.resolve_id(metadata, start, branch=branch)
    if start_id == last.snapshot_id and not inclusive:
        # A reader that is up to date starts at the end.
        return SnapshotRange(last)
    chosen, truncated = _after(metadata, last, start_id, inclusive=inclusive)
    return SnapshotRange(last, tuple(chosen), truncated)


def _end(metadata: TableMetadata, end: str | None, branch: str) -> Snapshot | None:
    head = ancestry.branch_head(metadata, branch)
    if end is None:
        return head
    last = ancestry.resolve(metadata, end, branch=branch)
    on_branch = head is not None and ancestry.is_ancestor(
        metadata, last.snapshot_id, head.snapshot_id
    )
    if branch != ancestry.MAIN and not on_branch:
        raise BadInputError(
            f"end snapshot {last.snapshot_id} is not a valid snapshot on the branch {branch}"
        )
    return last


def _after(
    metadata: TableMetadata, last: Snapshot, start_id: int | None, *, inclusive: bool
) -> tuple[list[Snapshot], bool]:
    """Return the snapshots after a start, newest first, and whether older ones may have expired."""
    chosen: list[Snapshot] = []
    for snapshot in ancestry.ancestors(metadata, last.snapshot_id):
        chosen.append(snapshot)
        first = snapshot.snapshot_id if inclusive else snapshot.parent_snapshot_id
        if start_id is not None and first == start_id:
            return chosen, False
    if start_id is not None:
        raise _no_ancestor(metadata, start_id, last, chosen[-1], inclusive=inclusive)
    return chosen, not ancestry.is_first(metadata, chosen[-1])


def _no_ancestor(
    metadata: TableMetadata, start_id: int, last: Snapshot, oldest: Snapshot, *, inclusive: bool
) -> BadInputError:
    known = metadata.snapshot_by_id(start_id) is not None
    missing = oldest.parent_snapshot_id
    if known:
        hint = "it was rolled back, is on another branch, or is newer than the end"
    elif missing is None:
        hint = "the table's history is complete and does not contain it"
    elif inclusive and missing == start_id:
        hint = f"it has expired: omit {Option.INCLUSIVE} to read the snapshots after it"
    else:
        hint = (
            f"the snapshots between {start_id} and {missing} have expired (the oldest snapshot is "
            f"{oldest.snapshot_id}): read the whole table instead"
        )
    kind, relation = ("inclusive", "an") if inclusive else ("exclusive", "a parent")
    return BadInputError(
        f"starting snapshot ({kind}) {start_id} is not {relation} ancestor of "
        f"end snapshot {last.snapshot_id}",
        hint=hint,
    )
