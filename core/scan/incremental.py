"""Which snapshots an incremental append scan reads: a pure function of metadata.

Source: Iceberg's BaseIncrementalScan and BaseIncrementalAppendScan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.errors import BadInputError, NotFoundError
from lake.core.snapshots import ancestry

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


@dataclass(frozen=True, slots=True)
class Span:
    """The snapshots between two, whatever they did.

    Args:
        end: the newest snapshot, inclusive; None for an empty table.
        snapshots: newest first.
        truncated: no start was given and the history does not reach the table's beginning.
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
    """Choose the snapshots after ``start`` up to ``end`` that append; see `plan_span`."""
    span = plan_span(metadata, start=start, inclusive=inclusive, end=end, branch=branch)
    appends = tuple(item for item in span.snapshots if operation_of(item) == "append")
    skipped = tuple(item for item in span.snapshots if operation_of(item) != "append")
    return Increment(span.end, appends, skipped, span.truncated)


def plan_span(
    metadata: TableMetadata,
    *,
    start: str | None,
    inclusive: bool,
    end: str | None,
    branch: str = ancestry.MAIN,
) -> Span:
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
        return Span(None)
    start_id = None if start is None else ancestry.resolve_id(metadata, start, branch=branch)
    if start_id == last.snapshot_id and not inclusive:
        # A reader that is up to date asks exactly this.
        return Span(last)
    chosen, truncated = _after(metadata, last, start_id, inclusive=inclusive)
    return Span(last, tuple(chosen), truncated)


def operation_of(snapshot: Snapshot) -> str:
    """Return what a snapshot did; old writers of version 1 did not say."""
    return str(snapshot.summary.operation.value) if snapshot.summary else "unknown"


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
    """Return the snapshots after a start, newest first, and whether older ones may be missing."""
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
        hint = "it was rolled back, lies on another branch, or comes after the end"
    elif missing is None:
        hint = "the table's history is whole and never had it"
    elif inclusive and missing == start_id:
        hint = "it has expired: without --inclusive, what came after it can still be read"
    else:
        hint = (
            f"what came between {start_id} and {missing} has expired (the oldest snapshot kept is "
            f"{oldest.snapshot_id}) and cannot be told: read the whole table instead"
        )
    kind, relation = ("inclusive", "an") if inclusive else ("exclusive", "a parent")
    return BadInputError(
        f"starting snapshot ({kind}) {start_id} is not {relation} ancestor of "
        f"end snapshot {last.snapshot_id}",
        hint=hint,
    )
