"""Snapshot names, and the snapshots between two others: pure functions of table metadata."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from itertools import islice, pairwise
from typing import TYPE_CHECKING

from lake.core.base.errors import BadInputError, CorruptFileError, NotFoundError
from lake.core.base.units import format_time, natural_number, parse_time_ms
from lake.core.table.metadata.summaries import properties_of

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

MAIN = "main"
# Branches that record what a reader has not read yet; see `lake.core.table.refs.consumers`.
CONSUMER_PREFIX = "lake-consumer-"
# Tags that keep the snapshot that a run of lake works on; see `lake.core.transaction.locks.base_tag`.
RUN_PREFIX = "lake-run-"
# In the summary of a snapshot that was restored: the sequence number at which its files were added.
ADDED_AT = "lake.added-at-sequence-number"
_ID = re.compile(r"-?[0-9]{1,19}")
_PREFIX = re.compile(r"-?[0-9]{6,19}")
_PARENT = re.compile(r"(.+)~([0-9]{0,9})")
_LISTED_IDS = 10


def is_consumer(branch: str) -> bool:
    """Whether a branch records the progress of a reader, and receives no commits."""
    return branch.startswith(CONSUMER_PREFIX)


def is_run(tag: str) -> bool:
    """Whether a tag keeps the snapshot that a run of lake works on."""
    return tag.startswith(RUN_PREFIX)


def snapshots_by_id(metadata: TableMetadata) -> dict[int, Snapshot]:
    """Return the retained snapshots by id."""
    return {snapshot.snapshot_id: snapshot for snapshot in metadata.snapshots}


def has_every_snapshot_since(before: TableMetadata, after: TableMetadata) -> bool:
    """Whether a later state of a table contains every snapshot that was added to it since an earlier one.

    Each added snapshot takes the next sequence number. Version 1 does not have them: there, no snapshot of the
    earlier state may be missing, and no parent of an added one.

    Source: https://iceberg.apache.org/spec/#sequence-numbers.
    """
    if before.format_version == 1:
        known, earlier = snapshots_by_id(after).keys(), snapshots_by_id(before).keys()
        added = [item for item in after.snapshots if item.snapshot_id not in earlier]
        return earlier <= known and {item.parent_snapshot_id for item in added} <= {None, *known}
    first, last = (getattr(item, "last_sequence_number", 0) for item in (before, after))
    retained = [item for item in after.snapshots if (item.sequence_number or 0) > first]
    return len(retained) == last - first


def moves_of_main(before: TableMetadata, now: TableMetadata) -> Iterator[tuple[int, int]]:
    """Yield from which snapshot to which main was moved since an earlier state, as its log shows it.

    Writers add to the log at its end. An expiry removes entries, so a move that is missing may have been made.
    """
    start, log = before.snapshot_log[-1:], now.snapshot_log
    since = [at for at, entry in enumerate(log) if [entry] == start]
    later = log[since[-1] :] if since else []  # check: moves-since-refusal
    return pairwise(entry.snapshot_id for entry in later)


def check_refs(metadata: TableMetadata) -> None:
    """Check that each branch and tag points to a snapshot of the table.

    Raises:
        CorruptFileError: one does not, so it is not known which files its snapshots need.
    """
    known = snapshots_by_id(metadata)
    for name, ref in sorted(metadata.refs.items()):
        if ref.snapshot_id not in known:
            raise CorruptFileError(
                f"{name} points to snapshot {ref.snapshot_id}, which the table does not have",
                hint="`lake check` describes the damage and what mends it",
            )


def is_restored(snapshot: Snapshot) -> bool:
    """Whether an expired snapshot was added again, with a greater sequence number than its files have."""
    return added_at(snapshot) != (snapshot.sequence_number or 0)


def added_at(snapshot: Snapshot) -> int:
    """Return the sequence number at which a snapshot's files were added: its own, unless it was restored."""
    own = snapshot.sequence_number or 0
    text = properties_of(snapshot).get(ADDED_AT, "")
    number = natural_number(text)
    return own if number is None else min(own, number)


def operation_of(snapshot: Snapshot) -> str:
    """Return a snapshot's operation; "unknown" for old writers of version 1."""
    return str(snapshot.summary.operation.value) if snapshot.summary else "unknown"


def branch_head(metadata: TableMetadata, branch: str) -> Snapshot | None:
    """Return a branch's newest snapshot; None for ``main`` of an empty table.

    Raises:
        NotFoundError: there is no such branch, or it refers to a snapshot that the table lacks.
        BadInputError: the name is the name of a tag.
    """
    ref = metadata.refs.get(branch)
    if ref is None:
        if branch == MAIN and metadata.current_snapshot_id is None:
            return None
        if branch == MAIN:
            return _required(metadata, metadata.current_snapshot_id or 0, "main")
        raise NotFoundError(f"no branch named {branch}", hint=_known_refs(metadata))
    if ref.snapshot_ref_type != "branch":
        raise BadInputError(
            f"{branch} is a tag, not a branch: tags cannot be targets for producing snapshots"
        )
    return _required(metadata, ref.snapshot_id, branch)


def head_id(metadata: TableMetadata, branch: str) -> int | None:
    """Return the id of a branch's newest snapshot; see `branch_head`."""
    head = branch_head(metadata, branch)
    return head.snapshot_id if head else None


def resolve(metadata: TableMetadata, name: str, *, branch: str = MAIN) -> Snapshot:
    """Return the snapshot for a tag, branch, id, prefix of an id or ``@TIME`` (the branch's snapshot at that time).

    ``NAME~N`` is the N-th parent of the snapshot that NAME is, as in git; ``NAME~`` is the first.
    A prefix has 6 digits or more; reports write it with an ellipsis. A tag or branch precedes an id, and an id
    precedes a prefix.

    Raises:
        NotFoundError: no snapshot has that name, or fewer of its parents are retained.
        BadInputError: several snapshot ids begin with the prefix.
        InvalidRequestError: the time is not valid.
    """
    if name.startswith("@"):
        return _at(metadata, parse_time_ms(name[1:]), name, branch)
    ref = metadata.refs.get(name)
    if ref is not None:
        return _required(metadata, ref.snapshot_id, name)
    found = _id_by_prefix(
        name.removesuffix("…"), {snapshot.snapshot_id for snapshot in metadata.snapshots}
    )
    if found is not None:
        return _required(metadata, found, name)
    if parent := _PARENT.fullmatch(name):
        return _parent(metadata, parent[1], int(parent[2] or 1), branch)
    raise NotFoundError(f"no snapshot, tag or branch named {name}", hint=_known_refs(metadata))


def _parent(metadata: TableMetadata, name: str, number: int, branch: str) -> Snapshot:
    """Return the N-th parent of a snapshot.

    Raises:
        NotFoundError: fewer parents are retained.
    """
    start = resolve(metadata, name, branch=branch)
    history = islice(ancestors(metadata, start.snapshot_id), number + 1)
    found = dict(enumerate(history))
    if number not in found:
        raise NotFoundError(
            f"the table retains {len(found) - 1:,} parents of {name}, so {name}~{number} does not exist",
            hint="`lake snapshots` lists the snapshots of a branch",
        )
    return found[number]


def resolve_id(metadata: TableMetadata, name: str, *, branch: str = MAIN) -> int:
    """Return the snapshot id for a name; see `resolve`.

    A number is returned even if that snapshot is not retained. A prefix may also belong to the id of a parent that is
    not retained.
    """
    if name in metadata.refs or not _ID.fullmatch(name):
        return resolve(metadata, name, branch=branch).snapshot_id
    lineage = ((item.snapshot_id, item.parent_snapshot_id) for item in metadata.snapshots)
    found = _id_by_prefix(
        name, {number for pair in lineage for number in pair if number is not None}
    )
    return int(name) if found is None else found


def _id_by_prefix(text: str, ids: Collection[int]) -> int | None:
    """Return the id that a text writes or is the unique prefix of; None if there is no such id.

    Raises:
        BadInputError: several ids begin with the text.
    """
    if not _ID.fullmatch(text):
        return None
    if int(text) in ids:
        return int(text)
    if not _PREFIX.fullmatch(text):
        return None
    matches = sorted(number for number in ids if str(number).startswith(text))
    if len(matches) > 1:
        listed = ", ".join(map(str, matches[:_LISTED_IDS]))
        more = len(matches) - _LISTED_IDS
        raise BadInputError(
            f"{len(matches)} snapshot ids begin with {text}: {listed}"
            + (f" and {more} more" if more > 0 else ""),
            hint="write more digits",
        )
    return matches[0] if matches else None


def ancestors(metadata: TableMetadata, snapshot_id: int | None) -> Iterator[Snapshot]:
    """Yield a snapshot and its retained ancestors, newest first.

    Raises:
        BadInputError: the parents form a cycle.
    """
    unseen = snapshots_by_id(metadata)
    while snapshot_id is not None and (snapshot := unseen.pop(snapshot_id, None)):
        yield snapshot
        snapshot_id = snapshot.parent_snapshot_id
    if snapshot_id is not None and metadata.snapshot_by_id(snapshot_id) is not None:
        raise BadInputError(f"the ancestry of snapshot {snapshot_id} is a cycle")


def reachable(metadata: TableMetadata, starts: Iterable[int]) -> set[int]:
    """Return the ids of some snapshots and of their retained ancestors; each snapshot is visited once.

    Parents may form a cycle.
    """
    known = snapshots_by_id(metadata)
    seen: set[int] = set()
    for start in starts:
        snapshot_id: int | None = start
        while snapshot_id is not None and snapshot_id not in seen and snapshot_id in known:
            seen.add(snapshot_id)
            snapshot_id = known[snapshot_id].parent_snapshot_id
    return seen


def is_ancestor(metadata: TableMetadata, ancestor_id: int, snapshot_id: int | None) -> bool:
    """Whether a snapshot is another one or one of its retained ancestors."""
    return any(item.snapshot_id == ancestor_id for item in ancestors(metadata, snapshot_id))


def require_descent(older: Snapshot, newer: Snapshot) -> None:
    """Check that a snapshot can have another one in its history: each commit has a larger sequence number.

    Format version 1 does not have sequence numbers.

    Raises:
        CorruptFileError: the older snapshot was committed later.
    """
    first, second = added_at(older), added_at(newer)
    if first and second and first >= second:
        raise CorruptFileError(
            f"snapshot {newer.snapshot_id} has snapshot {older.snapshot_id} as its parent or ancestor, which has a "
            f"larger sequence number: {first}, not less than {second}"
        )


def is_first(metadata: TableMetadata, snapshot: Snapshot) -> bool:
    """Whether the table had no snapshot before the given one in its history, as far as metadata shows.

    A missing parent id does not prove it: PyIceberg's expiry removes the parent id of the oldest snapshot that it
    keeps, and `lake.core.maintain.expiration.ref_recovery` restores snapshots without one. Other evidence of earlier
    snapshots is used as well; format version 1, which does not have sequence numbers, has less of it.
    """
    if snapshot.parent_snapshot_id is not None:
        return False
    number = snapshot.sequence_number or 0
    earlier = sum((item.sequence_number or 0) < number for item in metadata.snapshots)
    if earlier < number - 1:
        return False
    retained = snapshots_by_id(metadata)
    if any(entry.snapshot_id not in retained for entry in metadata.snapshot_log):
        return False
    summary = properties_of(snapshot)
    took_over = any(
        summary.get(f"total-{kind}", added) != added
        for kind in ("data-files", "delete-files")
        for added in (summary.get(f"added-{kind}", "0"),)
    )
    return not took_over and not any(
        f"deleted-{kind}" in summary for kind in ("data-files", "records")
    )


def since(
    metadata: TableMetadata, head_id: int | None, start_id: int | None
) -> tuple[list[Snapshot], bool]:
    """Return the snapshots after ``start_id`` up to a head, newest first, and whether they are complete.

    They are complete if the oldest one's parent is the start or, for a start of None, if nothing preceded
    the oldest (see `is_first`). Source: Iceberg's MergingSnapshotProducer.validationHistory.
    """
    between: list[Snapshot] = []
    for snapshot in ancestors(metadata, head_id):
        if snapshot.snapshot_id == start_id:
            return between, True
        between.append(snapshot)
    if not between:
        return between, head_id is None
    if start_id is None:
        return between, is_first(metadata, between[-1])
    return between, between[-1].parent_snapshot_id == start_id


def _at(metadata: TableMetadata, time_ms: int, name: str, branch: str) -> Snapshot:
    if branch == MAIN:
        # The log records the current snapshot of main, also across rollbacks, which parent ids do not show.
        for entry in reversed(metadata.snapshot_log):
            if entry.timestamp_ms <= time_ms:
                return _required(metadata, entry.snapshot_id, name)
    head = branch_head(metadata, branch)
    for snapshot in ancestors(metadata, head.snapshot_id if head else None):
        if branch != MAIN and snapshot.timestamp_ms <= time_ms:
            return snapshot
    oldest = min((item.timestamp_ms for item in metadata.snapshots), default=None)
    message = f"the table has no snapshot as old as {name[1:]}"
    if oldest is None:
        raise NotFoundError(message)
    raise NotFoundError(
        f"{message}: the oldest is from {format_time(oldest)}", hint="give that time or a later one"
    )


def _required(metadata: TableMetadata, snapshot_id: int, name: str) -> Snapshot:
    found = metadata.snapshot_by_id(snapshot_id)
    if found is None:
        raise NotFoundError(
            f"{name} refers to snapshot {snapshot_id}, which the table no longer has"
        )
    return found


def _known_refs(metadata: TableMetadata) -> str:
    names = sorted(metadata.refs)
    return (
        f"the table's refs: {', '.join(names[:20]) or 'none'}; `lake snapshots` lists its snapshots"
    )
