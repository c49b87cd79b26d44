"""The runs that a branch contains: a second run with the same id changes nothing there.

A snapshot's summary contains the id of its run, which is valid while the snapshot is in the branch's history. Any
engine may expire that snapshot, so each commit to a branch also notes the runs in the branch's history in a table
property of that branch. Only commits that require the branch's head write the property (and expiry, which requires
all heads), so no writer overwrites another's notes.

A note remains valid after its snapshot was removed from the metadata, unless the snapshot was rolled back: then the
branch's oldest retained snapshot is not newer than it, an earlier commit found it retained outside the branch's
history and removed the note, or the newest logged metadata file with the snapshot has it outside that history.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lake.core.errors import LakeError
from lake.core.metadata.files import read_metadata
from lake.core.snapshots import ancestry
from lake.core.units import whole_number

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.catalogs.catalog import Table

# Every snapshot of lake contains the id of its operation, and that of its run.
OPERATION_ID = "lake.operation-id"
RUN_ID = "lake.run-id"
# A JSON object of run id to [snapshot id, sequence number] or [snapshot id, sequence number, expired-ms]. For a
# branch other than main, a dot and the branch's name are appended.
RUN_IDS = "lake.run-ids"
# Written by earlier versions of lake at expiry: run id to expired-ms, or to [expired-ms, branch, …].
EXPIRED_RUN_IDS = "lake.expired-run-ids"
CARRIED_MS = 30 * 24 * 3_600_000
MAX_NOTED = 10_000
_MAX_ID_LENGTH = 64
# The summary key of a cherry-picked snapshot for the id of the original one.
_PICKED_FROM = "source-snapshot-id"


@dataclass(frozen=True, slots=True)
class NotedRun:
    """A run that a commit to a branch noted.

    Args:
        snapshot_id: the snapshot of the branch that contains the run's rows.
        sequence_number: the snapshot's; 0 in format version 1.
        expired_ms: when the snapshot was first found to be expired, in ms since 1970; None while it is retained.
    """

    snapshot_id: int
    sequence_number: int
    expired_ms: int | None = None


@dataclass(frozen=True, slots=True)
class CarriedRun:
    """A run in the property of earlier versions: when its snapshot expired, and the branches that contained it."""

    expired_ms: int
    branches: frozenset[str]


def find_on_branch(
    metadata: TableMetadata, branch: str, wanted: Mapping[str, str]
) -> Snapshot | None:
    """Return the newest snapshot in a branch's history whose summary contains all keys and values.

    A snapshot that was cherry-picked to the branch also counts as the original one.
    """
    if not wanted:
        return None
    known = ancestry.snapshots_by_id(metadata)
    for snapshot in _history(metadata, branch):
        for one in (snapshot, _picked_from(known, snapshot)):
            summary = one.summary.additional_properties if one and one.summary else {}
            if all(summary.get(key) == value for key, value in wanted.items()):
                return snapshot
    return None


def has_run(table: Table, branch: str, run_id: str, since_ms: int | None = None) -> bool:
    """Whether a run with this id is in a branch's history, even if its snapshot expired (after ``since_ms``)."""
    return (
        find_on_branch(table.metadata, branch, {RUN_ID: run_id}) is not None
        or _is_noted(table, branch, run_id, since_ms)
        or _is_carried(table.metadata, branch, run_id, since_ms)
    )


def noted_runs(
    metadata: TableMetadata,
    branch: str,
    now_ms: int,
    *,
    added: Sequence[Snapshot] = (),
    expired: Collection[int] = (),
) -> dict[str, str]:
    """Return the properties to set in a commit to a branch, so that they note the runs in its history.

    Args:
        metadata: the table's before the commit.
        branch: the branch whose head the commit requires.
        now_ms: the time in ms since 1970.
        added: the snapshots that the commit adds to the branch, oldest first.
        expired: the snapshots that the commit removes.

    Returns:
        An empty mapping if the notes do not change.
    """
    before = _notes(metadata, branch)
    history = [*reversed(added), *_history(metadata, branch)]
    expired_ids = frozenset(expired)
    after: dict[str, NotedRun] = {}
    known = ancestry.snapshots_by_id(metadata)
    for snapshot in reversed(history):
        for run_id in _runs_of(known, snapshot):
            number = snapshot.snapshot_id
            expired_ms = now_ms if number in expired_ids else None
            after[_key(run_id)] = NotedRun(number, snapshot.sequence_number or 0, expired_ms)
    for key, note in {**_inherited(metadata, branch), **before}.items():
        if key not in after and _may_be_held(note, known, history, now_ms - CARRIED_MS):
            after[key] = note if note.expired_ms is not None else replace(note, expired_ms=now_ms)
    newest = sorted(after.items(), key=lambda item: _age(item[1]))[:MAX_NOTED]
    if dict(newest) == before:
        return {}
    return {_property_of(branch): _text(dict(reversed(newest)))}


def noted_in_expiry(
    metadata: TableMetadata,
    expired: Collection[int],
    now_ms: int,
    *,
    removed_refs: Collection[str] = (),
) -> tuple[dict[str, str], list[str]]:
    """Return the properties to set and to remove in an expiry, which requires the heads of all branches.

    Args:
        metadata: the table's before the commit.
        expired: the snapshots that the commit removes.
        now_ms: the time in ms since 1970.
        removed_refs: the branches and tags that the commit removes.
    """
    found: dict[str, str] = {}
    branches = [name for name in _branches(metadata) if name not in removed_refs]
    for branch in branches:
        found |= noted_runs(metadata, branch, now_ms, expired=expired)
    removals = []
    for branch in set(_noted_branches(metadata)).difference(branches):
        kept = _notes_of_former(metadata, branch, now_ms)
        if not kept:
            removals.append(_property_of(branch))
        elif kept != _notes(metadata, branch):
            found[_property_of(branch)] = _text(kept)
    before = _carried_runs(metadata)
    fresh = {key: run for key, run in before.items() if run.expired_ms > now_ms - CARRIED_MS}
    if fresh != before:
        rest = {key: [run.expired_ms, *sorted(run.branches)] for key, run in fresh.items()}
        found[EXPIRED_RUN_IDS] = json.dumps(rest)
    return found, sorted(removals)


def _notes_of_former(metadata: TableMetadata, branch: str, now_ms: int) -> dict[str, NotedRun]:
    """Return the notes of a removed branch that may still show runs that were merged to another one."""
    known = ancestry.snapshots_by_id(metadata)
    return {
        key: replace(note, expired_ms=now_ms if note.expired_ms is None else note.expired_ms)
        for key, note in _notes(metadata, branch).items()
        if note.snapshot_id not in known and (note.expired_ms or now_ms) > now_ms - CARRIED_MS
    }


def _is_noted(table: Table, branch: str, run_id: str, since_ms: int | None) -> bool:
    metadata, key = table.metadata, _key(run_id)
    notes = {
        name: note
        for name in _noted_branches(metadata)
        if (note := _notes(metadata, name).get(key)) is not None
    }
    if not notes:
        return False
    known, history = ancestry.snapshots_by_id(metadata), list(_history(metadata, branch))
    picked = {_source_id(snapshot) for snapshot in history}
    return any(
        note.snapshot_id in picked
        or (_may_be_held(note, known, history, since_ms) and _was_held(table, branch, name, note))
        for name, note in notes.items()
    )


def _was_held(table: Table, branch: str, noted: str, note: NotedRun) -> bool:
    """Whether a branch's history contained an expired snapshot that a commit to a branch noted.

    If unknown, the answer is yes for the branch itself: a run that is not loaded again is reported, whereas
    duplicate rows are not noticed.
    """
    same = noted == branch or branch in _joined(table.metadata, frozenset({noted}))
    before = _before_expiry(table, note)
    if before is None:
        return same
    histories = (_history(before, name) for name in {branch, *([noted] if same else [])})
    return any(item.snapshot_id == note.snapshot_id for history in histories for item in history)


def _before_expiry(table: Table, note: NotedRun) -> TableMetadata | None:
    """Return the newest metadata in the log that has a note's snapshot; None if it is not found."""
    log = table.metadata.metadata_log
    found, low, high = None, 0, len(log)
    # Without sequence numbers (version 1), metadata cannot be ordered relative to the snapshot.
    while note.sequence_number and low < high:
        middle = (low + high) // 2
        try:
            metadata = read_metadata(table.storage, log[middle].metadata_file)
        except (LakeError, ValueError):
            # Old metadata files may have been deleted, the oldest first.
            low = middle + 1
            continue
        if metadata.snapshot_by_id(note.snapshot_id) is not None:
            found, low = metadata, middle + 1
        elif getattr(metadata, "last_sequence_number", 0) < note.sequence_number:
            low = middle + 1
        else:
            high = middle
    return found


def _inherited(metadata: TableMetadata, branch: str) -> dict[str, NotedRun]:
    """Return the notes of other branches whose retained history ends at the same snapshot."""
    found: dict[str, NotedRun] = {}
    for name in _noted_branches(metadata):
        if name != branch and branch in _joined(metadata, frozenset({name})):
            found |= _notes(metadata, name)
    return found


def _may_be_held(
    note: NotedRun,
    known: Mapping[int, Snapshot],
    history: Sequence[Snapshot],
    since_ms: int | None,
) -> bool:
    """Whether a note's snapshot, which is not in a branch's retained history, may be older than it."""
    if note.snapshot_id in known or not history:
        return False
    if since_ms is not None and note.expired_ms is not None and note.expired_ms <= since_ms:
        return False
    oldest = history[-1].sequence_number or 0
    # Version 1 does not have sequence numbers.
    return not oldest or note.sequence_number < oldest


def _age(note: NotedRun) -> tuple[int, int]:
    """Return the sort key that orders notes from the newest to the oldest."""
    return -(note.expired_ms or 2**63), -note.sequence_number


def _runs_of(known: Mapping[int, Snapshot], snapshot: Snapshot) -> Iterator[str]:
    for one in (snapshot, _picked_from(known, snapshot)):
        summary = one.summary.additional_properties if one and one.summary else {}
        if RUN_ID in summary:
            yield summary[RUN_ID]


def _key(run_id: str) -> str:
    if len(run_id) <= _MAX_ID_LENGTH:
        return run_id
    return f"sha256:{hashlib.sha256(run_id.encode()).hexdigest()[:32]}"


def _property_of(branch: str) -> str:
    return RUN_IDS if branch == ancestry.MAIN else f"{RUN_IDS}.{branch}"


def _noted_branches(metadata: TableMetadata) -> list[str]:
    """Return the branches, including removed ones, that have notes."""
    start = f"{RUN_IDS}."
    named = [key.removeprefix(start) for key in metadata.properties if key.startswith(start)]
    return [ancestry.MAIN, *named]


def _notes(metadata: TableMetadata, branch: str) -> dict[str, NotedRun]:
    """Return a branch's notes by run; empty if the property is not valid."""
    found = _json_object(metadata.properties.get(_property_of(branch)))
    notes = {key: _note(value) for key, value in found.items()}
    return {key: note for key, note in notes.items() if note is not None}


def _note(value: Any) -> NotedRun | None:
    if not isinstance(value, list) or not all(type(item) is int for item in value):
        return None
    return NotedRun(*value) if len(value) in {2, 3} else None


def _text(notes: Mapping[str, NotedRun]) -> str:
    return json.dumps({key: _plain(note) for key, note in notes.items()})


def _plain(note: NotedRun) -> list[int]:
    plain = [note.snapshot_id, note.sequence_number]
    return plain if note.expired_ms is None else [*plain, note.expired_ms]


def _json_object(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# The format of earlier versions


def _is_carried(metadata: TableMetadata, branch: str, run_id: str, since_ms: int | None) -> bool:
    carried = _carried_runs(metadata).get(run_id)
    if carried is None or (since_ms is not None and carried.expired_ms <= since_ms):
        return False
    return branch in _joined(metadata, carried.branches)


def _carried_runs(metadata: TableMetadata) -> dict[str, CarriedRun]:
    found = _json_object(metadata.properties.get(EXPIRED_RUN_IDS))
    runs = {key: _carried(value) for key, value in found.items()}
    return {key: run for key, run in runs.items() if run is not None}


def _carried(value: Any) -> CarriedRun | None:
    moment, *branches = value if isinstance(value, list) and value else [value, ancestry.MAIN]
    if not isinstance(moment, int):
        return None
    return CarriedRun(moment, frozenset(str(branch) for branch in branches))


# Histories


def _branches(metadata: TableMetadata) -> list[str]:
    named = [name for name, ref in metadata.refs.items() if ref.snapshot_ref_type == "branch"]
    return list(dict.fromkeys([ancestry.MAIN, *named]))


def _history(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    ref = metadata.refs.get(branch)
    head = ref.snapshot_id if ref else None
    if branch == ancestry.MAIN and ref is None:
        head = metadata.current_snapshot_id
    return ancestry.ancestors(metadata, head)


def _picked_from(known: Mapping[int, Snapshot], snapshot: Snapshot) -> Snapshot | None:
    number = _source_id(snapshot)
    return None if number is None else known.get(number)


def _source_id(snapshot: Snapshot) -> int | None:
    summary = snapshot.summary.additional_properties if snapshot.summary else {}
    return whole_number(summary.get(_PICKED_FROM, ""))


def _joined(metadata: TableMetadata, branches: frozenset[str]) -> frozenset[str]:
    """Add the branches that were created from these since: their histories end at the same snapshot."""
    if branches == {ancestry.MAIN} and len(metadata.refs) <= 1:
        return branches
    oldest = {name: _oldest(metadata, name) for name in _branches(metadata)}
    ends = {oldest[name] for name in branches if name in oldest} - {None}
    return branches | {name for name, end in oldest.items() if end in ends}


def _oldest(metadata: TableMetadata, branch: str) -> int | None:
    """Return the oldest retained snapshot of a branch whose parent is not retained; None if there is none."""
    oldest = None
    for snapshot in _history(metadata, branch):
        oldest = snapshot
    cut = oldest is not None and oldest.parent_snapshot_id is not None
    return oldest.snapshot_id if oldest is not None and cut else None
