"""Why a cleaning keeps files, for people and for scripts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from lake.core.base.outcome import Explanation
from lake.core.base.units import iso_time
from lake.core.maintain.orphans.facts import KeptFilesFacts
from lake.core.maintain.orphans.kept_files import KeepReason

if TYPE_CHECKING:
    from lake.core.maintain.orphans.plan import CleaningPlan

_REACHABLE = "reachable"
_RULES: Mapping[str, str] = {
    _REACHABLE: "the metadata of the table names it",
    KeepReason.CHECKPOINT: "an uncommitted checkpoint or staged run needs it",
    KeepReason.LAKE: "a lock, claim or journal of lake",
    KeepReason.METADATA: "a metadata file that may become the current one, or a version hint",
    KeepReason.OTHER_TABLE: "it is in the folder of another table",
    KeepReason.OUTSIDE: "it is in a folder to which the table does not write",
    KeepReason.FOREIGN: "its name is not that of a file of the table",
    KeepReason.HIDDEN: "its name or its folder begins with . or _, as in .lake-trash",
    KeepReason.EXCLUDED: "it matches a pattern of exclude",
    KeepReason.PREFIX_MISMATCH: "a referenced file has its path with another scheme or authority",
    KeepReason.YOUNG: "it is younger than older-than",
    KeepReason.NO_TIME: "the store does not know when it was written",
    KeepReason.GONE: "the inventory names it, and it is not there",
}


def left_alone(plan: CleaningPlan) -> list[KeptFilesFacts]:
    """Return how many files are kept, by the reason; the most frequent come first."""
    files = plan.unreferenced
    kept = files.filter(pc.is_valid(files["reason"]))
    found = kept.group_by("reason").aggregate([("path", "count"), ("bytes", "sum")])
    counted = [
        KeptFilesFacts(reason=reason, files=count, bytes=size or 0)
        for reason, count, size in zip(
            *(found[name].to_pylist() for name in ("reason", "path_count", "bytes_sum")),
            strict=True,
        )
    ]
    if plan.referenced:
        counted.append(KeptFilesFacts(reason=_REACHABLE, files=plan.referenced, bytes=None))
    return sorted(counted, key=lambda item: (-item.files, item.reason))


def explained(plan: CleaningPlan) -> Explanation:
    """Return why files are kept; those that the table references are counted only."""
    return Explanation(
        noun="files",
        columns=("reason", "rule", "files", "bytes"),
        groups=[
            (kept.reason, _RULES.get(kept.reason), kept.files, kept.bytes)
            for kept in left_alone(plan)
        ],
        item_columns=("reason", "file", "kind", "bytes", "modified_at"),
        items=lambda: _files(plan),
    )


def _files(plan: CleaningPlan) -> Iterator[tuple[Any, ...]]:
    files = plan.unreferenced
    kept = files.filter(pc.is_valid(files["reason"]))
    for batch in kept.to_batches(max_chunksize=1000):
        for row in batch.to_pylist():
            time = None if row["modified_ms"] is None else iso_time(row["modified_ms"])
            yield row["reason"], row["path"], row["kind"], row["bytes"], time
