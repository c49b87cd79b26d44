"""Notes of what a branch contains: marks of its snapshots that outlive them.

A snapshot's summary contains a mark, such as the id of a run, which is valid while the snapshot is in the branch's
history. Any engine may expire that snapshot, so each commit to a branch also notes the marks in the branch's history
in a table property of that branch. Only commits that require the branch's head write the property (and expiry,
which requires all heads), so no writer overwrites another's notes.

A note remains valid after its snapshot left the branch's retained history, although a tag may retain it, unless the
snapshot was rolled back: then the branch's oldest retained snapshot is not newer than it, an earlier commit found
that, or logged metadata files show that it is not an ancestor of this oldest one.

A commit that finds a snapshot rolled back notes that, too. The branch may later be set to a descendant of that
snapshot, which a tag retains: then its oldest snapshot is newer than the noted one and older than that commit. So a
mark may have several notes. The newest valid one is in the property that earlier versions read, the others are in
another one.

Of a mark whose values grow, such as the number of an epoch, the newest one of a branch counts. If a branch is set
back, that is an older one, whose snapshot may have expired: what counts at the oldest snapshots that are retained is
noted too, and that there was a mark which was rolled back.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import LakeError
from lake.core.base.units import whole_number
from lake.core.table.metadata.files import read_metadata
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table

_MAX_ID_LENGTH = 64
# Snapshot id, sequence number, expired-ms.
_NUMBERS = 3
# Of the property with the further notes, and what part of the limit is theirs.
_FURTHER, _PART = "-further", 10
# The summary key of a cherry-picked snapshot for the id of the original one.
PICKED_FROM = "source-snapshot-id"


@dataclass(frozen=True, slots=True)
class Note:
    """A mark that a commit to a branch noted.

    Args:
        snapshot_id: the snapshot of the branch that has the mark.
        sequence_number: the snapshot's; 0 in format version 1.
        expired_ms: when the snapshot was first found to be expired, in ms since 1970; None while it is retained.
        value: what the mark says besides its id; JSON-ready.
        left_at: the sequence number that the next commit had when a commit found that the snapshot was rolled back;
            None if none found that.
    """

    snapshot_id: int
    sequence_number: int
    expired_ms: int | None = None
    value: tuple[Any, ...] = ()
    left_at: int | None = None


@dataclass(frozen=True, slots=True)
class NoteKind:
    """A kind of mark, and the table property of its notes.

    Args:
        property_name: the property, a JSON object of id to ``[snapshot id, sequence number, expired-ms, *value]``
            without what is missing at the end. For a branch other than main, a dot and the branch's name are
            appended. The property of the further notes has ``-further`` before the dot: a JSON object of
            ``id@snapshot id`` to ``[snapshot id, sequence number, expired-ms, left-at, *value]``.
        marks: returns the id and the value of each of a snapshot's marks by its summary.
        limit: the largest number of notes of a branch; of further ones, a tenth of it.
        kept_ms: how long a note is kept after its snapshot expired; None for as long as the limit allows, and if the
            values of a mark grow.
        is_value: whether the value of a note is valid.
    """

    property_name: str
    marks: Callable[[Mapping[str, str]], Sequence[tuple[str, tuple[Any, ...]]]]
    limit: int
    kept_ms: int | None
    is_value: Callable[[Sequence[Any]], bool]

    def property_of(self, branch: str, kind: str = "") -> str:
        """Return the property of a branch's notes."""
        name = f"{self.property_name}{kind}"
        return name if branch == ancestry.MAIN else f"{name}.{branch}"

    def branches(self, metadata: TableMetadata) -> list[str]:
        """Return the branches, including removed ones, that have notes."""
        starts = [f"{self.property_name}{kind}." for kind in ("", _FURTHER)]
        named = [
            key.removeprefix(start)
            for start in starts
            for key in metadata.properties
            if key.startswith(start)
        ]
        return list(dict.fromkeys([ancestry.MAIN, *named]))

    def notes(self, metadata: TableMetadata, branch: str) -> dict[str, Note]:
        """Return a branch's notes by id, without the further ones; empty if the property is not valid."""
        found = json_object(metadata.properties.get(self.property_of(branch)))
        notes = {key: self._note(value) for key, value in found.items()}
        return {key: note for key, note in notes.items() if note is not None}

    def all_notes(self, metadata: TableMetadata, branch: str) -> list[tuple[str, Note]]:
        """Return the id and the note of each note of a branch, the further ones last."""
        further = self._further(metadata, branch)[0]
        return [*self.notes(metadata, branch).items(), *further]

    def _further(
        self, metadata: TableMetadata, branch: str
    ) -> tuple[list[tuple[str, Note]], dict[str, Any]]:
        """Return a branch's further notes, and what a later version may have written beside them."""
        notes, others = [], {}
        found = json_object(metadata.properties.get(self.property_of(branch, _FURTHER)))
        for key, value in found.items():
            is_whole = isinstance(value, list) and len(value) > _NUMBERS
            left_at = value[_NUMBERS] if is_whole else ""
            note = self._note([*value[:_NUMBERS], *value[_NUMBERS + 1 :]]) if is_whole else None
            if note is not None and (left_at is None or type(left_at) is int):
                name = key.removesuffix(f"@{note.snapshot_id}")
                notes.append((name, replace(note, left_at=left_at)))
            else:
                others[key] = value
        return notes, others

    def changes(
        self, metadata: TableMetadata, branch: str, notes: Sequence[tuple[str, Note]]
    ) -> dict[str, str]:
        """Return the properties to set so that a branch has these notes; those that were rolled back count least."""
        first: dict[str, Note] = {}
        more: list[tuple[str, Note]] = []
        for key, note in sorted(notes, key=lambda item: _age(item[1])):
            if key in first or note.left_at is not None:
                more.append((key, note))
            else:
                first[key] = note
        first = dict([*first.items()][: self.limit])
        more = more[: self.limit // _PART]
        further, others = self._further(metadata, branch)
        found = {}
        if first != self.notes(metadata, branch):
            plain = {key: _plain(note) for key, note in reversed(first.items())}
            found[self.property_of(branch)] = json.dumps(plain)
        if _by_snapshot(more) != _by_snapshot(further):
            rest = {
                f"{key}@{note.snapshot_id}": [*_numbers(note), note.left_at, *note.value]
                for key, note in more
            }
            kept = dict([*rest.items(), *others.items()][: self.limit // _PART])
            found[self.property_of(branch, _FURTHER)] = json.dumps(kept)
        return found

    def _note(self, value: Any) -> Note | None:
        if not isinstance(value, list) or len(value) < _NUMBERS - 1:
            return None
        snapshot_id, number, expired_ms, *rest = value if value[_NUMBERS - 1 :] else [*value, None]
        if type(snapshot_id) is not int or type(number) is not int:
            return None
        if not (expired_ms is None or type(expired_ms) is int) or not self.is_value(rest):
            return None
        return Note(snapshot_id, number, expired_ms, tuple(rest))

    @property
    def grows(self) -> bool:
        """Whether the values of a mark grow, so that the newest one counts."""
        return self.kept_ms is None

    def since_ms(self, now_ms: int) -> int | None:
        """Return the time before which a note is too old; None for no such time."""
        return None if self.kept_ms is None else now_ms - self.kept_ms


class Marks:
    """The marks of one kind that the snapshots of a table have.

    A snapshot has those in its summary, and those of the snapshots from which it was cherry-picked. One of these may
    have expired, so what a commit to a branch noted of a retained snapshot is one of its marks, too.

    If there are notes, `held` has the ids of the snapshots whose marks were asked for, and of their sources.
    """

    def __init__(self, kind: NoteKind, metadata: TableMetadata) -> None:
        self._kind = kind
        self._known = ancestry.snapshots_by_id(metadata)
        self._noted: dict[int, list[tuple[str, tuple[Any, ...]]]] = {}
        self.held: set[int] = set()
        for branch in kind.branches(metadata):
            for key, note in kind.all_notes(metadata, branch):
                self._noted.setdefault(note.snapshot_id, []).append((key, note.value))

    def of(self, snapshot: Snapshot) -> Iterator[tuple[str, tuple[Any, ...]]]:
        """Yield the id and the value of each mark of a snapshot; a noted id may be that of `key_of`."""
        for one in with_sources(self._known, snapshot):
            yield from self._kind.marks(properties_of(one))
        for number in change_ids(self._known, snapshot) if self._noted else ():
            self.held.add(number)
            yield from self._noted.get(number, ())


def changed_notes(
    kind: NoteKind,
    metadata: TableMetadata,
    branch: str,
    now_ms: int,
    *,
    added: Sequence[Snapshot] = (),
    expired: Collection[int] = (),
) -> dict[str, str]:
    """Return the properties to set in a commit to a branch, so that they note the marks in its history.

    Args:
        kind: the kind of marks.
        metadata: the table's before the commit.
        branch: the branch whose head the commit requires.
        now_ms: the time in ms since 1970.
        added: the snapshots that the commit adds to the branch, oldest first.
        expired: the snapshots that the commit removes.

    Returns:
        An empty mapping if the notes do not change.
    """
    history = [*reversed(added), *history_of(metadata, branch)]
    expired_ids = frozenset(expired)
    known = ancestry.snapshots_by_id(metadata)
    marks = Marks(kind, metadata)
    newest: dict[str, Note] = {}
    passed: list[tuple[str, Note]] = []
    for snapshot in reversed(history):
        for name, value in marks.of(snapshot):
            number, key = snapshot.snapshot_id, key_of(name)
            if key in newest and newest[key].expired_ms is not None:
                passed.append((key, newest[key]))
            expired_ms = now_ms if number in expired_ids else None
            newest[key] = Note(number, snapshot.sequence_number or 0, expired_ms, value)
    after = [*newest.items()]
    since, next_number = kind.since_ms(now_ms), getattr(metadata, "last_sequence_number", 0) + 1
    before = [*_inherited(kind, metadata, branch), *kind.all_notes(metadata, branch)]
    others = [
        (key, note)
        for key, note in before
        if note.snapshot_id not in marks.held and not _is_old(note, since)
    ]
    # Of the snapshots that a branch may be set to.
    outside = sorted(
        snapshot.sequence_number or 0
        for number, snapshot in (known.items() if others else ())
        if number not in marks.held and number not in expired_ids
    )
    for key, note in _one_of_each(others):
        gone = replace(note, expired_ms=note.expired_ms or now_ms, left_at=None)
        is_retained = note.snapshot_id in known and note.snapshot_id not in expired_ids
        left = replace(note if is_retained else gone, left_at=note.left_at or next_number)
        is_held = may_be_held(note, known, history, since)
        if is_held and key not in newest:
            after.append((key, gone))
        elif is_held and kind.grows:
            passed.append((key, gone))
        elif (kind.grows and key not in newest) or _may_be_needed(left, outside):
            after.append((key, left))
    if kind.grows and passed:
        oldest = _oldest_of_all(known, expired_ids)
        counting = _newest_before([*passed, *newest.items()], oldest, marks)
        after += [(key, note) for key, note in counting if note is not newest[key]]
    return kind.changes(metadata, branch, after)


def _oldest_of_all(known: Mapping[int, Snapshot], expired: frozenset[int]) -> Sequence[Snapshot]:
    """Return the retained snapshots whose parents are not."""
    retained = known.keys() - expired
    return [
        one
        for number, one in known.items()
        if number in retained and one.parent_snapshot_id not in retained
    ]


def _newest_before(
    notes: Sequence[tuple[str, Note]], oldest: Sequence[Snapshot], marks: Marks
) -> Iterable[tuple[str, Note]]:
    """Return the notes that count at one of the oldest snapshots, which do not have a mark of that id."""
    ordered = sorted(notes, key=lambda item: item[1].sequence_number)
    found: list[tuple[str, Note]] = []
    for snapshot in oldest:
        own = {key_of(name) for name, _ in marks.of(snapshot)}
        number = snapshot.sequence_number or 0
        newest = {key: note for key, note in ordered if note.sequence_number < number}
        found += [item for item in newest.items() if item[0] not in own]
    return [(key, note) for (key, _), note in _by_snapshot(found).items()]


def _one_of_each(notes: Iterable[tuple[str, Note]]) -> Iterable[tuple[str, Note]]:
    """Return one note for each mark and snapshot: the last that is not known to be rolled back."""
    ordered = sorted(notes, key=lambda item: item[1].left_at is None)
    return [(key, note) for (key, _), note in _by_snapshot(ordered).items()]


def _by_snapshot(notes: Iterable[tuple[str, Note]]) -> dict[tuple[str, int], Note]:
    return {(key, note.snapshot_id): note for key, note in notes}


def _may_be_needed(left: Note, outside: Sequence[int]) -> bool:
    """Whether a branch may be set to a descendant of a snapshot that was rolled back; no in format version 1.

    Args:
        left: the note.
        outside: the sequence numbers of the retained snapshots that are not in the branch's history, in order.
    """
    at = bisect_left(outside, left.left_at or 0)
    return at > 0 and outside[at - 1] >= max(left.sequence_number, 1)


def changed_notes_in_expiry(
    kind: NoteKind,
    metadata: TableMetadata,
    expired: Collection[int],
    now_ms: int,
    *,
    removed_refs: Collection[str] = (),
) -> tuple[dict[str, str], list[str]]:
    """Return the properties to set and to remove in an expiry, which requires the heads of all branches.

    Args:
        kind: the kind of marks.
        metadata: the table's before the commit.
        expired: the snapshots that the commit removes.
        now_ms: the time in ms since 1970.
        removed_refs: the branches and tags that the commit removes.
    """
    found: dict[str, str] = {}
    branches = [name for name in _branches(metadata) if name not in removed_refs]
    for branch in branches:
        found |= changed_notes(kind, metadata, branch, now_ms, expired=expired)
    removals = []
    for branch in set(kind.branches(metadata)).difference(branches):
        kept = _notes_of_former(kind, metadata, branch, now_ms)
        after = {**metadata.properties, **(changes := kind.changes(metadata, branch, kept))}
        for name in (kind.property_of(branch), kind.property_of(branch, _FURTHER)):
            if name in after and not json_object(after[name]):
                removals.append(name)
            elif name in changes:
                found[name] = changes[name]
    return found, sorted(removals)


def _notes_of_former(
    kind: NoteKind, metadata: TableMetadata, branch: str, now_ms: int
) -> list[tuple[str, Note]]:
    """Return the notes of a removed branch that may still show marks that were merged to another one."""
    known, since = ancestry.snapshots_by_id(metadata), kind.since_ms(now_ms)
    return [
        (key, replace(note, expired_ms=note.expired_ms or now_ms))
        for key, note in kind.all_notes(metadata, branch)
        if note.snapshot_id not in known and not _is_old(note, since)
    ]


def noted(
    kind: NoteKind, table: Table, branch: str, name: str, since_ms: int | None = None
) -> list[Note]:
    """Return the notes that show a mark in a branch's history, of this branch first.

    Args:
        kind: the kind of mark.
        table: the table.
        branch: the branch.
        name: the mark's id.
        since_ms: notes of snapshots that expired before this time do not count.
    """
    metadata, wanted = table.metadata, key_of(name)
    notes = [
        (one, note)
        for one in dict.fromkeys((branch, *kind.branches(metadata)))
        for key, note in kind.all_notes(metadata, one)
        if key == wanted
    ]
    if not notes:
        return []
    known, history = ancestry.snapshots_by_id(metadata), list(history_of(metadata, branch))
    held = {number for snapshot in history for number in change_ids(known, snapshot)}
    return [
        note
        for one, note in notes
        if note.snapshot_id in held
        or (may_be_held(note, known, history, since_ms) and _was_held(table, branch, one, note))
    ]


def find_mark(
    kind: NoteKind, metadata: TableMetadata, branch: str, name: str
) -> tuple[Snapshot, tuple[Any, ...]] | None:
    """Return the newest snapshot of a branch's retained history that has a mark, and the mark's value."""
    marks = Marks(kind, metadata)
    for snapshot in history_of(metadata, branch):
        for one, value in marks.of(snapshot):
            if key_of(one) == key_of(name):
                return snapshot, value
    return None


def newest_value(kind: NoteKind, table: Table, branch: str, name: str) -> tuple[Any, ...] | None:
    """Return the value of a mark whose values grow, even if its snapshot expired; None if there is none."""
    found = find_mark(kind, table.metadata, branch, name)
    if found is not None:
        return found[1]
    values = [note.value for note in noted(kind, table, branch, name)]
    return max(values, key=lambda value: value[0], default=None)


def _was_held(table: Table, branch: str, noted: str, note: Note) -> bool:
    """Whether a branch's history contained a snapshot that a commit to a branch noted, before a part of it expired.

    If unknown, the answer is yes for the branch itself: a load that is not repeated is reported, whereas
    duplicate rows are not noticed.
    """
    *_, oldest = history_of(table.metadata, branch)
    found = _descends(table, oldest, note)
    if found is not None:
        return found
    return noted == branch or branch in joined(table.metadata, frozenset({noted}))


def _descends(table: Table, oldest: Snapshot, note: Note) -> bool | None:
    """Whether the expired ancestors of a snapshot contain that of a note; None if the metadata log does not show it.

    A branch may have been moved since, so the metadata is searched for ancestors, not for branches.
    """
    log = [entry.metadata_file for entry in table.metadata.metadata_log]
    while (first := _first_with(table, log, oldest.snapshot_id)) is not None:
        place, metadata = first
        history = list(ancestry.ancestors(metadata, oldest.snapshot_id))
        if any(item.snapshot_id == note.snapshot_id for item in history):
            return True
        if not _is_cut(note, ancestry.snapshots_by_id(metadata), history):
            return False
        # The ancestors of the oldest of these had expired when the newest of these was committed.
        oldest, log = history[-1], log[:place]
    # The commit of the oldest one is seen if the metadata before it is; some expiries remove parent ids later.
    is_seen = bool(log) and _readable(table, log[-1]) is not None
    return False if is_seen and oldest.parent_snapshot_id is None else None


def _first_with(
    table: Table, log: Sequence[str], snapshot_id: int
) -> tuple[int, TableMetadata] | None:
    """Return the first metadata with a snapshot, which has most ancestors, and its place; None if there is none.

    Args:
        table: the table.
        log: the metadata files, the oldest first; from the commit of the snapshot on, they have it.
        snapshot_id: the snapshot.
    """
    found, low, high = None, 0, len(log)
    while low < high:
        middle = (low + high) // 2
        metadata = _readable(table, log[middle])
        # Old metadata files may have been deleted, the oldest first.
        if metadata is not None and metadata.snapshot_by_id(snapshot_id) is not None:
            found, high = (middle, metadata), middle
        else:
            low = middle + 1
    return found


def _readable(table: Table, place: str) -> TableMetadata | None:
    try:
        return read_metadata(table.storage, place)
    except (LakeError, ValueError):
        return None


def _inherited(kind: NoteKind, metadata: TableMetadata, branch: str) -> Iterator[tuple[str, Note]]:
    """Yield the notes of other branches whose retained history ends at the same snapshot."""
    for name in kind.branches(metadata):
        if name != branch and branch in joined(metadata, frozenset({name})):
            yield from kind.all_notes(metadata, name)


def may_be_held(
    note: Note,
    known: Mapping[int, Snapshot],
    history: Sequence[Snapshot],
    since_ms: int | None,
) -> bool:
    """Whether a note's snapshot, which is not in a branch's retained history, may be older than it.

    A tag or another branch may retain the snapshot.
    """
    return bool(history) and not _is_old(note, since_ms) and _is_cut(note, known, history)


def _is_old(note: Note, since_ms: int | None) -> bool:
    return since_ms is not None and note.expired_ms is not None and note.expired_ms <= since_ms


def _is_cut(note: Note, known: Mapping[int, Snapshot], history: Sequence[Snapshot]) -> bool:
    """Whether a branch's retained history is newer than a note's snapshot."""
    oldest, snapshot = history[-1], known.get(note.snapshot_id)
    if oldest.sequence_number:
        if note.left_at is not None and note.left_at <= oldest.sequence_number:  # check: left-runs
            return False
        return note.sequence_number < oldest.sequence_number  # check: rolled-back-runs
    # Version 1 does not have sequence numbers.
    is_newer = snapshot is None or snapshot.timestamp_ms < oldest.timestamp_ms
    return is_newer and note.left_at is None


def _age(note: Note) -> tuple[bool, int, int]:
    """Return the sort key that orders notes from the newest to the oldest; those that were rolled back are last."""
    return note.left_at is not None, -(note.expired_ms or 2**63), -note.sequence_number


def key_of(name: str) -> str:
    """Return the id of a mark as notes contain it: a long one as its digest."""
    if len(name) <= _MAX_ID_LENGTH:
        return name
    return f"sha256:{hashlib.sha256(name.encode()).hexdigest()[:32]}"


def _numbers(note: Note) -> list[Any]:
    return [note.snapshot_id, note.sequence_number, note.expired_ms]


def _plain(note: Note) -> list[Any]:
    plain = [*_numbers(note), *note.value]
    return plain[: _NUMBERS - 1] if plain[_NUMBERS - 1 :] == [None] else plain


def json_object(text: str | None) -> dict[str, Any]:
    """Return the JSON object in a property; an empty one for any other text."""
    try:
        found = json.loads(text or "{}")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


# Histories


def _branches(metadata: TableMetadata) -> list[str]:
    named = [
        name
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == "branch" and not ancestry.is_consumer(name)
    ]
    return list(dict.fromkeys([ancestry.MAIN, *named]))


def history_of(metadata: TableMetadata, branch: str) -> Iterator[Snapshot]:
    """Yield a branch's retained history, newest first; nothing if there is no such branch."""
    ref = metadata.refs.get(branch)
    head = ref.snapshot_id if ref else None
    if branch == ancestry.MAIN and ref is None:
        head = metadata.current_snapshot_id
    return ancestry.ancestors(metadata, head)


def with_sources(known: Mapping[int, Snapshot], snapshot: Snapshot) -> Iterator[Snapshot]:
    """Yield a snapshot, the retained one from which it was cherry-picked, the one from which that was, and so on."""
    seen: set[int] = set()
    one: Snapshot | None = snapshot
    while one is not None and one.snapshot_id not in seen:
        seen.add(one.snapshot_id)
        yield one
        one = known.get(_source_id(one) or 0)


def change_ids(known: Mapping[int, Snapshot], snapshot: Snapshot) -> set[int]:
    """Return the ids of the snapshots that contain one change: `with_sources`, and the last one's source."""
    chain = list(with_sources(known, snapshot))
    return {*(one.snapshot_id for one in chain), *filter(None, (_source_id(chain[-1]),))}


def _source_id(snapshot: Snapshot) -> int | None:
    summary = properties_of(snapshot)
    return whole_number(summary.get(PICKED_FROM, ""))


def joined(metadata: TableMetadata, branches: frozenset[str]) -> frozenset[str]:
    """Add the branches that were created from these since: their histories end at the same snapshot."""
    if branches == {ancestry.MAIN} and len(metadata.refs) <= 1:
        return branches
    oldest = {name: _oldest(metadata, name) for name in _branches(metadata)}
    ends = {oldest[name] for name in branches if name in oldest} - {None}
    return branches | {name for name, end in oldest.items() if end in ends}


def _oldest(metadata: TableMetadata, branch: str) -> int | None:
    """Return the oldest retained snapshot of a branch whose parent is not retained; None if there is none."""
    oldest = None
    for snapshot in history_of(metadata, branch):
        oldest = snapshot
    cut = oldest is not None and oldest.parent_snapshot_id is not None
    return oldest.snapshot_id if oldest is not None and cut else None
