"""List a branch's partitions with their sizes and last changes; wait until some of them are idle."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from lake.core.base.errors import TimedOutError
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.progress import Meter, shown
from lake.core.base.units import format_duration, iso_time
from lake.core.maintain.partitions.ages import COLUMNS
from lake.core.maintain.partitions.facts import PartitionFacts, PartitionsResult
from lake.core.spec.expressions.filters import bind_filter
from lake.core.spec.expressions.parser import parse_filter
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.live_files import LiveFiles, live_files
from lake.core.table.snapshots.partition_activity import (
    PartitionActivity,
    activity_of,
)
from lake.core.table.snapshots.partition_names import partition_names
from lake.core.table.snapshots.pruning import FILTER_COLUMNS

if TYPE_CHECKING:
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_LOOK_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionOptions:
    """What to list.

    Args:
        branch: the branch.
        where: row filter; partitions without a file that may match are left out.
        idle: a partition is idle if nothing changed it for this many ms; None if that is not asked.
    """

    branch: str = ancestry.MAIN
    where: str | None = None
    idle: int | None = None


def list_partitions(session: Session, table: Table, options: PartitionOptions) -> Outcome:
    """Return the partitions that contain data files, by spec and in the order of their names.

    Raises:
        NotFoundError: there is no such branch or column.
        BadInputError: the filter is not valid.
        CorruptFileError: a manifest does not match its list.
    """
    head = ancestry.branch_head(table.metadata, options.branch)
    rows: list[PartitionFacts] = []
    if head is not None:
        condition = None
        if options.where is not None:
            condition = bind_filter(parse_filter(options.where), table.schema)
        columns = COLUMNS if condition is None else (*COLUMNS, *FILTER_COLUMNS)
        found = live_files(table, head, condition, columns=columns)
        activity = activity_of(found)
        now_ms = session.clock.now_ms()
        for spec_id in sorted(found.by_spec):
            rows += _rows(found, spec_id, activity[spec_id], now_ms, options.idle)
    asked = options.idle is not None
    return Outcome(
        status=Status.DONE,
        base_snapshot_id=head.snapshot_id if head else None,
        result=PartitionsResult(partitions=rows),
        details=[_table(rows, with_idle=asked)],
    )


def wait_until_idle(
    session: Session, table: Table, options: PartitionOptions, *, timeout_ms: int
) -> Outcome:
    """Wait until a partition exists and all listed ones are idle.

    Raises:
        TimedOutError: a partition is still changing, or there is none, after `timeout_ms`.
    """
    until = session.clock.monotonic() + timeout_ms / 1000
    with shown(session.progress, Meter("waiting for idle partitions")):
        while True:
            outcome = list_partitions(session, table, options)
            rows = PartitionsResult.of(outcome.result).partitions
            busy = [row.partition for row in rows if not row.idle]
            if rows and not busy:
                return outcome
            remaining = until - session.clock.monotonic()
            if remaining <= 0:
                break
            session.clock.sleep(min(remaining, _LOOK_SECONDS))
            table = table.refreshed()
    waited = format_duration(timeout_ms / 1000)
    if not rows:
        raise TimedOutError(f"no partition of {table.identifier} matches after {waited}")
    more = f" and {len(busy) - 1} more" if len(busy) > 1 else ""
    raise TimedOutError(
        f"after {waited}, {busy[0] or table.identifier}{more} changed in the last "
        f"{format_duration((options.idle or 0) / 1000)}"
    )


def _rows(
    found: LiveFiles,
    spec_id: int,
    activity: PartitionActivity,
    now_ms: int,
    idle_ms: int | None,
) -> list[PartitionFacts]:
    entries, codes, count = found.by_spec[spec_id], activity.codes, len(activity.first)
    least, most = (_sums(codes, bounds, count) for bounds in found.row_bounds(spec_id))
    files = np.bincount(codes, minlength=count)
    sizes = _sums(codes, entries["file_size_in_bytes"].to_numpy(), count)
    named = partition_names(entries, spec_id, found.table.metadata)
    rows = []
    for place, first in enumerate(activity.first.tolist()):
        last_change, idle = _change(activity, place, now_ms, idle_ms)
        rows.append(
            PartitionFacts(
                partition=named.names[named.codes[first]],
                spec_id=spec_id,
                files=int(files[place]),
                # Delete files may delete the same row twice.
                rows=int(least[place]) if least[place] == most[place] else None,
                rows_at_most=int(most[place]),
                bytes=int(sizes[place]),
                delete_files=int(activity.delete_files[place]),
                last_change=last_change,
                idle=idle,
            )
        )
    return sorted(rows, key=lambda row: row.partition)


def _change(
    activity: PartitionActivity, place: int, now_ms: int, idle_ms: int | None
) -> tuple[str | None, bool | None]:
    """Return the last change of a partition, and whether the partition is idle.

    If it is not known, because all files were rewritten or their snapshots have expired, the partition
    counts as changed when that happened: a caller that waits for its end must not begin too early.
    """
    changed_ms = int(activity.changed_ms[place])
    known = changed_ms >= 0
    latest = changed_ms if known else int(activity.changed_by_ms[place])
    idle = None if idle_ms is None else now_ms - latest >= idle_ms
    return iso_time(changed_ms) if known else None, idle


def _sums(codes: Any, values: Any, count: int) -> Any:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, values.astype(np.int64))
    return sums


def _table(rows: Sequence[PartitionFacts], *, with_idle: bool) -> Detail:
    columns = ["partition", "files", "rows", "size_bytes", "delete_files", "last_change"]
    return Detail(
        "partitions",
        [*columns, *(["idle"] if with_idle else [])],
        [
            [
                row.partition or "(not partitioned)",
                row.files,
                f"{row.rows_at_most:,} or less" if row.rows is None else row.rows,
                row.bytes,
                row.delete_files,
                row.last_change,
                *([row.idle] if with_idle else []),
            ]
            for row in rows
        ],
    )
