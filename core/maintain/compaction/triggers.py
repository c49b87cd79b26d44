"""The condition of a compaction: counts of what was committed since the last one, read from snapshot summaries.

Only table metadata is read, so cron may ask every minute. Names and their meaning follow Flink's TableMaintenance
(``TriggerEvaluator``), which counts what arrived since the last trigger. Here the last compaction is the newest
``replace`` snapshot of the branch, no matter which program committed it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from lake.core.base.options import Option
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import natural_number
from lake.core.maintain.compaction.facts import CompactionFacts
from lake.core.maintain.compaction.grouping import (
    BUSY,
    CURRENT,
    FEW_FILES,
    MORE_FILES,
    MORE_PARTITIONS,
    ONLY_FILE,
    RIGHT_SIZE,
)
from lake.core.spec.expressions.conditions import (
    BYTES,
    COUNT,
    MILLISECONDS,
    AtLeast,
    Condition,
    Value,
    parse_condition,
)
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


# The summary's key for each name that counts what snapshots added.
_ADDED = {
    "files": "added-data-files",
    "rows": "added-records",
    "bytes": "added-files-size",
    "position-deletes": "added-position-deletes",
    "equality-deletes": "added-equality-deletes",
}
# Why files are left alone, before their number.
_ALONE = {
    BUSY: "in partitions that changed too recently",
    CURRENT: "of the current spec and order",
    RIGHT_SIZE: "of the right size",
    ONLY_FILE: "the only one to rewrite in its partition",
    FEW_FILES: "too few in their partition",
    MORE_FILES: "would become more files",
    MORE_PARTITIONS: "would become more files in the partitions of the table's spec",
}
QUANTITIES = {
    "commits": COUNT,
    **dict.fromkeys(_ADDED, COUNT),
    "bytes": BYTES,
    "age": MILLISECONDS,
}


def parse_trigger(when: str, *, option: Option = Option.WHEN) -> Condition:
    """Return the condition of a text; bytes are sizes, the age is a duration.

    Raises:
        InvalidRequestError: it is not a condition.
    """
    example = "files >= 1000 or bytes >= 10GB or age >= 1h"
    return parse_condition(when, QUANTITIES, option=option, example=example)


def since_compaction(metadata: TableMetadata, *, branch: str, now_ms: int) -> dict[str, Value]:
    """Count what a branch received since its last compaction.

    If the snapshots up to the last compaction have expired, the counts are lower bounds, and the age is infinite.

    Raises:
        NotFoundError: there is no such branch.
    """
    head = ancestry.branch_head(metadata, branch)
    arrived: list[Snapshot] = []
    begins_ms: int | None = None
    for snapshot in ancestry.ancestors(metadata, head.snapshot_id if head else None):
        if ancestry.operation_of(snapshot) == "replace":
            begins_ms = snapshot.timestamp_ms
            break
        arrived.append(snapshot)
    if begins_ms is None and arrived and ancestry.is_first(metadata, arrived[-1]):
        begins_ms = arrived[-1].timestamp_ms
    counts = {
        "commits": len(arrived),
        **{
            name: sum(_added(snapshot, key) for snapshot in arrived) for name, key in _ADDED.items()
        },
    }
    if begins_ms is not None:
        return {**counts, "age": max(0, now_ms - begins_ms)}
    if not arrived:
        return {**counts, "age": 0}
    return {**{name: AtLeast(count) for name, count in counts.items()}, "age": math.inf}


def why_nothing_was_compacted(outcome: Outcome) -> str | None:
    """Return why the compaction after a commit rewrote nothing; None if it was not due, or rewrote something."""
    plan = outcome.plan
    if outcome.status is not Status.NOTHING_TO_DO or not isinstance(plan, CompactionFacts):
        return None
    if plan.groups:
        return None
    alone = [f"{_ALONE[name]}: {item.files:,}" for name, item in plan.left_alone.items()]
    files = f"data files: {plan.total_data_files:,}" + (f" ({', '.join(alone)})" if alone else "")
    return f"{Option.THEN_COMPACT} is true, but nothing was compacted; {files}"


def _added(snapshot: Snapshot, key: str) -> int:
    """Return a count of a summary; 0 if it is missing or not a number, as other writers' may be."""
    properties = properties_of(snapshot)
    return natural_number(properties.get(key, "0")) or 0
