"""The runs that a branch contains: a second run with the same id changes nothing there.

`lake.core.table.snapshots.branch_notes` describes how a run is known after its snapshot expired.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.branch_notes import (
    NoteKind,
    changed_notes_in_expiry,
    history_of,
    joined,
    json_object,
    noted,
    with_sources,
)

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table

# Every snapshot of lake contains the id of its operation, and that of its run.
OPERATION_ID = "lake.operation-id"
RUN_ID = "lake.run-id"
# In the summary of a snapshot that a load commits: what was loaded, how, and by whom; for people.
SOURCE, COMMAND, USER = "lake.source", "lake.command", "lake.user"
# There too: identifies the files by their names, sizes and times, to notice that they are loaded again.
SOURCE_DIGEST = "lake.source-digest"
# In the summary of a snapshot that commits several runs: a JSON list of their ids. In the table's properties: notes.
RUN_IDS = "lake.run-ids"
# Written by earlier versions of lake at expiry: run id to expired-ms, or to [expired-ms, branch, …].
EXPIRED_RUN_IDS = "lake.expired-run-ids"
CARRIED_MS = 30 * 24 * 3_600_000
MAX_NOTED = 10_000


def run_summary(run_ids: Sequence[str]) -> dict[str, str]:
    """Return the summary keys of a snapshot that commits runs."""
    if len(run_ids) > 1:
        return {RUN_IDS: json.dumps(list(run_ids), ensure_ascii=False)}
    return {RUN_ID: run_ids[0]} if run_ids else {}


def run_ids_of(summary: Mapping[str, str]) -> list[str]:
    """Return the runs that a snapshot commits, by its summary, which any writer may have written."""
    own = [summary[RUN_ID]] if RUN_ID in summary else []
    try:
        several = json.loads(summary.get(RUN_IDS, "[]"))
    except (ValueError, RecursionError):
        return own
    listed = several if isinstance(several, list) else []
    return [*own, *(item for item in listed if isinstance(item, str))]


def _marks(summary: Mapping[str, str]) -> Sequence[tuple[str, tuple[Any, ...]]]:
    return [(run_id, ()) for run_id in run_ids_of(summary)]


def _shows(summary: Mapping[str, str], key: str, value: str) -> bool:
    return value in run_ids_of(summary) if key == RUN_ID else summary.get(key) == value


RUN_NOTES = NoteKind(RUN_IDS, _marks, MAX_NOTED, CARRIED_MS, lambda value: not value)


@dataclass(frozen=True, slots=True)
class CarriedRun:
    """A run in the property of earlier versions: when its snapshot expired, and the branches that contained it."""

    expired_ms: int
    branches: frozenset[str]


def find_on_branch(
    metadata: TableMetadata, branch: str, wanted: Mapping[str, str]
) -> Snapshot | None:
    """Return the newest snapshot in a branch's history whose summary contains all keys and values.

    A snapshot that was cherry-picked to the branch also counts as the original one. `RUN_ID` is also found in a
    snapshot that commits several runs.
    """
    if not wanted:
        return None
    known = ancestry.snapshots_by_id(metadata)
    for snapshot in history_of(metadata, branch):
        for one in with_sources(known, snapshot):
            summary = properties_of(one)
            if all(_shows(summary, key, value) for key, value in wanted.items()):
                return snapshot
    return None


def has_run(table: Table, branch: str, run_id: str, since_ms: int | None = None) -> bool:
    """Whether a run with this id is in a branch's history, even if its snapshot expired (after ``since_ms``)."""
    return (
        find_on_branch(table.metadata, branch, {RUN_ID: run_id}) is not None
        or bool(noted(RUN_NOTES, table, branch, run_id, since_ms))
        or _is_carried(table.metadata, branch, run_id, since_ms)
    )


def runs_noted_in_expiry(
    metadata: TableMetadata,
    expired: Collection[int],
    now_ms: int,
    *,
    removed_refs: Collection[str] = (),
) -> tuple[dict[str, str], list[str]]:
    """Return the properties to set and to remove in an expiry: see `changed_notes_in_expiry`."""
    found, removals = changed_notes_in_expiry(
        RUN_NOTES, metadata, expired, now_ms, removed_refs=removed_refs
    )
    before = _carried_runs(metadata)
    fresh = {key: run for key, run in before.items() if run.expired_ms > now_ms - CARRIED_MS}
    if fresh != before:
        rest = {key: [run.expired_ms, *sorted(run.branches)] for key, run in fresh.items()}
        found[EXPIRED_RUN_IDS] = json.dumps(rest)
    return found, removals


# The format of earlier versions


def _is_carried(metadata: TableMetadata, branch: str, run_id: str, since_ms: int | None) -> bool:
    carried = _carried_runs(metadata).get(run_id)
    if carried is None or (since_ms is not None and carried.expired_ms <= since_ms):
        return False
    return branch in joined(metadata, carried.branches)


def _carried_runs(metadata: TableMetadata) -> dict[str, CarriedRun]:
    found = json_object(metadata.properties.get(EXPIRED_RUN_IDS))
    runs = {key: _carried(value) for key, value in found.items()}
    return {key: run for key, run in runs.items() if run is not None}


def _carried(value: Any) -> CarriedRun | None:
    moment, *branches = value if isinstance(value, list) and value else [value, ancestry.MAIN]
    if not isinstance(moment, int):
        return None
    return CarriedRun(moment, frozenset(str(branch) for branch in branches))
