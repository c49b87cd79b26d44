"""The position of a follower in a table's history, and the gaps in front of it, from metadata alone.

Source: FLIP-27's Iceberg source (ContinuousSplitPlannerImpl, StreamingStartingStrategy). All strategies walk the
chosen branch; upstream walks main.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Self

from lake.core.base.errors import BadInputError, InvalidRequestError, NotFoundError
from lake.core.base.facts import Facts, hidden
from lake.core.base.options import Option
from lake.core.base.units import format_time, whole_number
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

# Whether a snapshot is the first one that its table ever had.
IsFirst = Callable[["Snapshot"], bool]


@dataclass(frozen=True, slots=True)
class Position(Facts):
    """The last snapshot that was discovered."""

    snapshot_id: int | None
    """The snapshot; null before the first one of the table."""
    timestamp_ms: int | None = None
    """Its time; null if it is not known."""

    EMPTY: ClassVar[Position]

    def values(self) -> dict[str, Any]:
        """Return JSON-ready values; the id is text, because JSON readers round large numbers."""
        return {
            "snapshot_id": None if self.snapshot_id is None else str(self.snapshot_id),
            "timestamp_ms": self.timestamp_ms,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Rebuild from `document`'s values.

        Raises:
            ValueError: the values are not a position.
        """
        text, moment = plain.get("snapshot_id"), plain.get("timestamp_ms")
        number = whole_number(text) if isinstance(text, str) else None
        if (text is not None and number is None) or type(moment) not in (int, type(None)):
            raise ValueError(f"not a position: {plain!r}")
        return cls(number, moment)

    def __str__(self) -> str:
        return "the beginning" if self.snapshot_id is None else f"snapshot {self.snapshot_id}"


Position.EMPTY = Position(None)


def position_at(snapshot: Snapshot) -> Position:
    """Return the position behind a snapshot."""
    return Position(snapshot.snapshot_id, snapshot.timestamp_ms)


def position_before(metadata: TableMetadata, snapshot: Snapshot) -> Position:
    """Return the position behind a snapshot's parent, which may have expired."""
    if snapshot.parent_snapshot_id is None:
        return Position.EMPTY
    parent = metadata.snapshot_by_id(snapshot.parent_snapshot_id)
    return Position(snapshot.parent_snapshot_id) if parent is None else position_at(parent)


class GapKind(StrEnum):
    """Why the history behind a position is not known.

    ``expired``: no retained snapshot follows the position. ``rolled-back``: the position is retained, but is not an
    ancestor of the head. ``truncated``: the history must be complete from its beginning, and is not. ``emptied``: the
    table has no snapshot any more. ``files-gone``: a file that was planned is missing. ``parent-expired``: the rows
    that a snapshot deleted cannot be determined without its parent.
    """

    EXPIRED = "expired"
    ROLLED_BACK = "rolled-back"
    TRUNCATED = "truncated"
    EMPTIED = "emptied"
    FILES_GONE = "files-gone"
    PARENT_EXPIRED = "parent-expired"


@dataclass(frozen=True, slots=True)
class Gap(Facts):
    """A part of a table's history that a follower did not read and that cannot be read any more."""

    kind: GapKind
    """`expired`, `rolled-back`, `truncated`, `emptied`, `files-gone` or `parent-expired`."""
    position: Position
    """Where the follower was."""
    oldest_retained: int | None = None
    """The oldest snapshot of the branch that is retained; null if there is none."""
    head: int | None = None
    """The newest snapshot of the branch."""
    resumed_at: Position | None = None
    """Where the follower went on; null if it did not."""

    def values(self) -> dict[str, Any]:
        """Return JSON-ready values, as results and epochs show them."""
        return {
            "kind": self.kind.value,
            "position": self.position.document(),
            "oldest_retained": _text(self.oldest_retained),
            "head": _text(self.head),
            "resumed_at": None if self.resumed_at is None else self.resumed_at.document(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Self:
        """Rebuild from `document`'s values.

        Raises:
            ValueError: the values are not a gap.
        """
        resumed = plain.get("resumed_at")
        return cls(
            GapKind(plain["kind"]),
            Position.from_plain(plain["position"]),
            None if plain["oldest_retained"] is None else int(plain["oldest_retained"]),
            None if plain["head"] is None else int(plain["head"]),
            None if resumed is None else Position.from_plain(resumed),
        )


@dataclass(frozen=True, slots=True)
class Lag(Facts):
    """What is between a position and the head of a branch; the last field is why the follower cannot go on."""

    snapshots: int | None
    """Snapshots after the position; null, as the rows, if some of them have expired."""
    rows: int | None
    """Rows that the appends among them added, by their summaries."""
    ms: int | None
    """Milliseconds between the position's snapshot and the head; null if the time of the position is not known."""
    gap: Gap | None = hidden()


def effect_of_skipping(gap: Gap, done: str) -> str:
    """Return what is wrong with the rows of a follower that went on behind a gap.

    Args:
        gap: the gap, with the position at which the follower went on.
        done: what the follower does with rows, as a participle: ``handed over``.
    """
    missing = "rows of expired snapshots are missing"
    if gap.kind is GapKind.PARENT_EXPIRED:
        return f"the changes of snapshot {gap.oldest_retained} are missing"
    if gap.kind is GapKind.EMPTIED:
        return f"too many rows were {done}: the branch has no snapshots any more"
    if gap.kind is not GapKind.ROLLED_BACK:
        return missing
    too_many = f"too many rows were {done}: those of snapshots that were rolled back"
    # Only a position that has expired, or that is before the first snapshot, has no time.
    resumed = gap.resumed_at
    has_expired = resumed is not None and resumed != Position.EMPTY and resumed.timestamp_ms is None
    return f"{too_many}; {missing}" if has_expired else too_many


class GapError(BadInputError):
    """Snapshots or files that a follower has not read do not exist any more; the position did not change."""

    kind = "gap"

    def __init__(self, gap: Gap, table: str, branch: str) -> None:
        super().__init__(_message(gap, table, branch), hint=_hint(gap))
        self.gap = gap
        self.result = gap


_REASONS: Mapping[GapKind, str] = {
    GapKind.EXPIRED: "no retained snapshot follows {position}",
    GapKind.ROLLED_BACK: "{position} is not in the history of branch {branch}",
    GapKind.TRUNCATED: "the first snapshots of branch {branch} have expired, and were not read",
    GapKind.EMPTIED: "branch {branch} has no snapshots, but the follower is at {position}",
    GapKind.FILES_GONE: "files that were planned and not read yet do not exist any more",
    GapKind.PARENT_EXPIRED: "the parent of snapshot {oldest} has expired, so the rows that this snapshot "
    "deleted are not known",
}


def _message(gap: Gap, table: str, branch: str) -> str:
    reason = _REASONS[gap.kind].format(
        position=gap.position, branch=branch, oldest=gap.oldest_retained
    )
    known = [
        f"{name} {number}"
        for name, number in (("oldest snapshot", gap.oldest_retained), ("head", gap.head))
        if number is not None
    ]
    return f"gap in {table}: {reason}" + (f" ({', '.join(known)})" if known else "")


def _hint(gap: Gap) -> str:
    again = f"{Option.ON_GAP} table reads the whole table again"
    if gap.kind is GapKind.FILES_GONE:
        return again
    return f"{Option.ON_GAP} skip goes on with the snapshots that are left; {again}"


class Strategy(StrEnum):
    """Where a follower without a saved position starts."""

    TABLE = "table"
    LATEST = "latest"
    LATEST_EXCLUSIVE = "latest-exclusive"
    EARLIEST = "earliest"
    SNAPSHOT = "snapshot"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """Where to start; see `lake.core.read.continuous.options.FollowOptions` for the strategies.

    Args:
        strategy: the strategy.
        snapshot: the snapshot of the strategy ``snapshot``: its id, a tag, a branch, or ``@`` and a time.
        inclusive: whether to read what that snapshot appended, too.
        time_ms: the time of the strategy ``time``.
    """

    strategy: Strategy
    snapshot: str | None = None
    inclusive: bool = False
    time_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """A starting position.

    Args:
        position: the position.
        scanned: the snapshot of which all rows are read first; None to read none.
        first: the first snapshot to read, if it has no parent and yet is not the first one of the table, so that no
            position is in front of it.
    """

    position: Position
    scanned: Snapshot | None = None
    first: Snapshot | None = None


def starting_position(
    metadata: TableMetadata, branch: str, start: Start, *, now_ms: int, is_first: IsFirst
) -> Started | Gap:
    """Return where a follower starts, or the gap in front of it.

    Args:
        metadata: the table's metadata.
        branch: the branch to follow.
        start: the strategy.
        now_ms: the time now.
        is_first: whether a snapshot is the first one that the table ever had.

    Raises:
        NotFoundError: the branch or the snapshot does not exist.
        BadInputError: the inclusive snapshot is not in the history of the branch.
        InvalidRequestError: the time is in the future.
    """
    if start.time_ms is not None and start.time_ms > now_ms:
        raise InvalidRequestError(
            f"{Option.START_AT} is in the future: {format_time(start.time_ms)}"
        )
    head = ancestry.branch_head(metadata, branch)
    if start.strategy is Strategy.SNAPSHOT:
        return _at_snapshot(metadata, branch, head, start, is_first)
    if head is None:
        return Started(Position.EMPTY)
    if start.strategy is Strategy.TABLE:
        return Started(position_at(head), scanned=head)
    if start.strategy is Strategy.LATEST_EXCLUSIVE:
        return Started(position_at(head))
    if start.strategy is Strategy.LATEST:
        return _from(metadata, head, is_first)
    if start.strategy is Strategy.EARLIEST:
        return _from(metadata, _oldest(metadata, head), is_first)
    return _at_time(metadata, head, start.time_ms or 0, is_first)


def _at_snapshot(
    metadata: TableMetadata, branch: str, head: Snapshot | None, start: Start, is_first: IsFirst
) -> Started | Gap:
    name = start.snapshot or ""
    if head is None:
        raise NotFoundError(f"there is no snapshot {name}: the table has no snapshots")
    if start.inclusive:
        chosen = ancestry.resolve(metadata, name, branch=branch)
        if not ancestry.is_ancestor(metadata, chosen.snapshot_id, head.snapshot_id):
            raise BadInputError(
                f"snapshot {chosen.snapshot_id} is not in the history of branch {branch}",
                hint="`lake snapshots` shows the history of a branch",
            )
        return _from(metadata, chosen, is_first)
    number = ancestry.resolve_id(metadata, name, branch=branch)
    retained = metadata.snapshot_by_id(number)
    position = Position(number) if retained is None else position_at(retained)
    found = unseen(metadata, head, position, is_first=is_first)
    return found if isinstance(found, Gap) else Started(position)


def _at_time(
    metadata: TableMetadata, head: Snapshot, time_ms: int, is_first: IsFirst
) -> Started | Gap:
    """Start with the oldest snapshot of that time or later.

    Several snapshots may have one time, which is in milliseconds: the oldest of them is taken.
    """
    first: Snapshot | None = None
    for snapshot in ancestry.ancestors(metadata, head.snapshot_id):
        if snapshot.timestamp_ms < time_ms:
            return Started(position_at(head) if first is None else position_at(snapshot))
        first = snapshot
    oldest = _oldest(metadata, head)
    if oldest.timestamp_ms > time_ms and not is_first(oldest):
        return _gap(GapKind.TRUNCATED, Position.EMPTY, oldest, head)
    return _from(metadata, oldest, is_first)


def _from(metadata: TableMetadata, snapshot: Snapshot, is_first: IsFirst) -> Started:
    """Start with what a snapshot itself added."""
    position = position_before(metadata, snapshot)
    forgotten = position == Position.EMPTY and not is_first(snapshot)
    return Started(position, first=snapshot if forgotten else None)


def _oldest(metadata: TableMetadata, head: Snapshot) -> Snapshot:
    *_, oldest = ancestry.ancestors(metadata, head.snapshot_id)
    return oldest


def unseen(
    metadata: TableMetadata, head: Snapshot | None, position: Position, *, is_first: IsFirst
) -> list[Snapshot] | Gap:
    """Return the snapshots after a position up to a head, oldest first, or the gap that is between them.

    The snapshot of the position may have expired, if a retained one has it as its parent.
    """
    if head is None:
        empty = position.snapshot_id is None
        return [] if empty else _gap(GapKind.EMPTIED, position, None, None)
    found: list[Snapshot] = []
    for snapshot in ancestry.ancestors(metadata, head.snapshot_id):
        if snapshot.snapshot_id == position.snapshot_id:
            return found[::-1]
        found.append(snapshot)
        parent = snapshot.parent_snapshot_id
        if parent is not None and parent == position.snapshot_id:
            return found[::-1]
    oldest = found[-1]
    if position.snapshot_id is None:
        whole = is_first(oldest)
        return found[::-1] if whole else _gap(GapKind.TRUNCATED, position, oldest, head)
    retained = metadata.snapshot_by_id(position.snapshot_id) is not None
    return _gap(GapKind.ROLLED_BACK if retained else GapKind.EXPIRED, position, oldest, head)


def after_gap(
    metadata: TableMetadata, head: Snapshot | None, gap: Gap
) -> tuple[Position, list[Snapshot]]:
    """Return where a follower goes on if it skips a gap, and the snapshots that it reads, oldest first.

    After a rollback this is behind the newest ancestor that the position and the head share; else it is in front of
    the oldest retained snapshot.
    """
    if head is None:
        return Position.EMPTY, []
    found = list(ancestry.ancestors(metadata, head.snapshot_id))
    if gap.kind is GapKind.ROLLED_BACK:
        known = {item.snapshot_id for item in _ancestors(metadata, gap.position)}
        for index, snapshot in enumerate(found):
            if snapshot.snapshot_id in known:
                return position_at(snapshot), found[:index][::-1]
    return position_before(metadata, found[-1]), found[::-1]


def _ancestors(metadata: TableMetadata, position: Position) -> Iterator[Snapshot]:
    return ancestry.ancestors(metadata, position.snapshot_id)


def _gap(kind: GapKind, position: Position, oldest: Snapshot | None, head: Snapshot | None) -> Gap:
    return Gap(
        kind,
        position,
        None if oldest is None else oldest.snapshot_id,
        None if head is None else head.snapshot_id,
    )


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
