"""What the metadata file alone shows: how many snapshots there are, how old they are, and how the table grows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lake.core.base.errors import InvalidRequestError, RefusedError
from lake.core.base.units import natural_number
from lake.core.maintain.expiration.retention import (
    RetentionOptions,
    check_retention,
    plan_retention,
)
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """The snapshots of a table.

    Args:
        metadata_bytes: the size of the metadata file; None if it is not known.
        snapshots: their number.
        expired: how many of them an expiration removes; None if `refused` says why none can be.
        rewritten_ms: the time of the newest retained ``replace`` of the main branch; None if there is none.
        oldest_ms: the time of the oldest one, in ms since 1970; None without snapshots.
        growth_bytes: the bytes that the last day added to the data and delete files; None if it is not known.
        refused: why no snapshot can expire: the table forbids it, or a property has a value that is not allowed.
    """

    metadata_bytes: int | None
    snapshots: int
    expired: int | None
    rewritten_ms: int | None = None
    oldest_ms: int | None = None
    growth_bytes: int | None = None
    refused: str | None = None

    @property
    def removed_bytes(self) -> int:
        """The share of the expired snapshots in the metadata file, as if all were equally long."""
        return (self.metadata_bytes or 0) * (self.expired or 0) // max(self.snapshots, 1)


def history_of(
    metadata: TableMetadata,
    metadata_bytes: int | None,
    now_ms: int,
    options: RetentionOptions | None = None,
) -> History:
    """Return the history of a table.

    Args:
        metadata: the table's metadata.
        metadata_bytes: the size of the metadata file; None if it is not known.
        now_ms: the time, in ms since 1970.
        options: of the expiration that is counted; None for the table's own retention.

    Raises:
        CorruptFileError: a ref points to a snapshot that the table does not have.
    """
    expired: int | None = None
    refused: str | None = None
    options = options or RetentionOptions()
    try:
        check_retention(metadata, options, now_ms)
        expired = len(plan_retention(metadata, options, now_ms).expired)
    except (RefusedError, InvalidRequestError) as error:
        refused = error.message
    return History(
        metadata_bytes=metadata_bytes,
        snapshots=len(metadata.snapshots),
        expired=expired,
        rewritten_ms=_rewritten(metadata),
        oldest_ms=min((item.timestamp_ms for item in metadata.snapshots), default=None),
        growth_bytes=_growth(metadata, now_ms - _DAY_MS),
        refused=refused,
    )


def _rewritten(metadata: TableMetadata) -> int | None:
    """Return the time of the last rewrite: programs that maintain tables commit these."""
    found = ancestry.ancestors(metadata, metadata.current_snapshot_id)
    times = (item.timestamp_ms for item in found if ancestry.operation_of(item) == "replace")
    return next(times, None)


def _growth(metadata: TableMetadata, since_ms: int) -> int | None:
    head = metadata.current_snapshot()
    if head is None:
        return 0
    before: Snapshot | None = None
    for snapshot in ancestry.ancestors(metadata, head.snapshot_id):
        before = snapshot
        if snapshot.timestamp_ms < since_ms:
            break
    assert before is not None  # noqa: S101 - a head is its own ancestor
    now, then = _bytes(head), _bytes(before)
    if before.timestamp_ms >= since_ms:
        # Older snapshots have expired, unless it is the first one.
        then = 0 if ancestry.is_first(metadata, before) else None
    return None if now is None or then is None else now - then


def _bytes(snapshot: Snapshot) -> int | None:
    summary = properties_of(snapshot)
    return natural_number(summary.get("total-files-size") or "")
