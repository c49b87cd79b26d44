"""Which runs a branch has already taken in: a second run with the same id changes nothing there.

A snapshot carries its run's id. When the snapshot expires, the table's property carries the id on, with the
branches in whose history it was.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lake.core.table import lineage
from lake.core.units import whole_number

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

# Every snapshot of lake names the operation that made it, and the run it was a part of.
OPERATION_ID = "lake.operation-id"
RUN_ID = "lake.run-id"
EXPIRED_RUN_IDS = "lake.expired-run-ids"
CARRIED_MS = 30 * 24 * 3_600_000
MAX_CARRIED = 10_000
# A cherry-picked snapshot names the one whose rows it brings.
_PICKED_FROM = "source-snapshot-id"


@dataclass(frozen=True, slots=True)
class CarriedRun:
    """A run whose snapshot expired: when, in ms since 1970, and in which branches' history it was."""

    expired_ms: int
    branches: frozenset[str]


def find_on_branch(
    metadata: TableMetadata, branch: str, wanted: Mapping[str, str]
) -> Snapshot | None:
    """Return the newest snapshot in a branch's history whose summary holds all keys and values.

    A snapshot that was cherry-picked to the branch counts as the one that it was picked from.
    """
    if not wanted:
        return None
    known = lineage.snapshots_by_id(metadata)
    for snapshot in _history(metadata, branch):
        for one in (snapshot, _picked_from(known, snapshot)):
            summary = one.summary.additional_properties if one and one.summary else {}
            if all(summary.get(key) == value for key, value in wanted.items()):
                return snapshot
    return None


def has_run(metadata: TableMetadata, branch: str, run_id: str, since_ms: int | None = None) -> bool:
    """Whether a run of this id has landed on a branch, though its snapshot expired (at ``since_ms`` or later)."""
    if find_on_branch(metadata, branch, {RUN_ID: run_id}) is not None:
        return True
    carried = expired_run_ids(metadata).get(run_id)
    if carried is None or (since_ms is not None and carried.expired_ms <= since_ms):
        return False
    return branch in _joined(metadata, carried.branches)


def expired_run_ids(metadata: TableMetadata) -> dict[str, CarriedRun]:
    """Return the expired runs that the table's property tells of; none if it is unreadable."""
    try:
        told = json.loads(metadata.properties.get(EXPIRED_RUN_IDS, "{}"))
    except (ValueError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    runs = {str(key): _carried(value) for key, value in told.items()}
    return {key: run for key, run in runs.items() if run is not None}


def carried_run_ids(metadata: TableMetadata, expired: Collection[int], now_ms: int) -> str | None:
    """Return the property's next value when snapshots expire; None if it need not change."""
    before = expired_run_ids(metadata)
    carried = {
        run: CarriedRun(item.expired_ms, _joined(metadata, item.branches))
        for run, item in before.items()
        if item.expired_ms > now_ms - CARRIED_MS
    }
    gone = frozenset(expired)
    leaving = {
        snapshot.snapshot_id: snapshot.summary.additional_properties[RUN_ID]
        for snapshot in metadata.snapshots
        if snapshot.snapshot_id in gone
        and snapshot.summary
        and RUN_ID in snapshot.summary.additional_properties
    }
    for branch in _branches(metadata) if leaving else ():
        for snapshot_id in _held(metadata, branch) & leaving.keys():
            run = leaving[snapshot_id]
            known = carried[run].branches if run in carried else frozenset()
            carried[run] = CarriedRun(now_ms, known | {branch})
    if carried == before:
        return None
    newest = sorted(carried.items(), key=lambda item: item[1].expired_ms)[-MAX_CARRIED:]
    return json.dumps({run: _plain(item) for run, item in newest})


def _carried(value: Any) -> CarriedRun | None:
    moment, *branches = value if isinstance(value, list) and value else [value, lineage.MAIN]
    if not isinstance(moment, int):
        return None
    return CarriedRun(moment, frozenset(str(branch) for branch in branches))


def _plain(run: CarriedRun) -> Any:
    # Nearly all runs are main's.
    if run.branches == {lineage.MAIN}:
        return run.expired_ms
    return [run.expired_ms, *sorted(run.branches)]


def _branches(metadata: TableMetadata) -> list[str]:
    named = [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type == "branch"]
    return list(dict.fromkeys([lineage.MAIN, *named]))


def _history(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    ref = metadata.refs.get(branch)
    head = ref.snapshot_id if ref else None
    if branch == lineage.MAIN and ref is None:
        head = metadata.current_snapshot_id
    return lineage.ancestors(metadata, head)


def _held(metadata: TableMetadata, branch: str) -> set[int]:
    """Return the snapshots whose rows came to a branch."""
    found: set[int] = set()
    known = lineage.snapshots_by_id(metadata)
    for snapshot in _history(metadata, branch):
        source = _picked_from(known, snapshot)
        found |= {snapshot.snapshot_id} | ({source.snapshot_id} if source else set())
    return found


def _picked_from(known: Mapping[int, Snapshot], snapshot: Snapshot) -> Snapshot | None:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    named = summary.get(_PICKED_FROM, "")
    number = whole_number(named)
    return None if number is None else known.get(number)


def _joined(metadata: TableMetadata, branches: frozenset[str]) -> frozenset[str]:
    """Add the branches that were made of these since: their histories end at the same snapshot."""
    if branches == {lineage.MAIN} and len(metadata.refs) <= 1:
        return branches
    oldest = {name: _oldest(metadata, name) for name in _branches(metadata)}
    ends = {oldest[name] for name in branches if name in oldest} - {None}
    return branches | {name for name, end in oldest.items() if end in ends}


def _oldest(metadata: TableMetadata, branch: str) -> int | None:
    """Return the oldest retained snapshot of a branch whose parent is gone; None if nothing is."""
    oldest = None
    for snapshot in _history(metadata, branch):
        oldest = snapshot
    cut = oldest is not None and oldest.parent_snapshot_id is not None
    return oldest.snapshot_id if oldest is not None and cut else None
