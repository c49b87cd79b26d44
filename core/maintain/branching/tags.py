"""List, set, move and drop tags; keep the state of a branch at the end of each hour, day, week or month."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from lake.core.base.errors import (
    InvalidRequestError,
    NotFoundError,
    RefusedError,
)
from lake.core.base.facts import NoFacts
from lake.core.base.options import Option
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.base.units import format_duration, iso_time
from lake.core.maintain.branching.facts import TagsFacts
from lake.core.table.catalogs.catalog import Table
from lake.core.table.refs.facts import TagFacts
from lake.core.table.refs.periods import Calendar, Period
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.refs import TAG, RefChange, commit_refs

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.transaction.session import Session

_MOST_NEW = 1000
_DAY_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class TagChanges:
    """The tags to set and to drop.

    Args:
        table: the table that the plan was made for.
        branch: the branch whose snapshots are tagged.
        wanted: the snapshot of each tag to set, by name.
        moved: the snapshot to which each of them refers now; those that do not exist yet are not contained.
        dropped: the snapshot of each tag to drop.
        retain_ms: the age of a snapshot at which expiry may drop its new tag; None for the table's property.
    """

    table: Table
    branch: str = ancestry.MAIN
    wanted: Mapping[str, int] = field(default_factory=dict)
    moved: Mapping[str, int] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    retain_ms: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether all tags are as requested."""
        return not (self.wanted or self.dropped)


@dataclass(frozen=True, slots=True, kw_only=True)
class PeriodTags:
    """The tags of periods to keep.

    Args:
        calendar: the periods.
        delay_ms: a period is tagged this long after its end, because its last rows are committed late.
        keep: how many of these tags are kept, the newest; None for all.
        backfill: whether all missing ones are set, not only the newest.
    """

    calendar: Calendar
    delay_ms: int = 0
    keep: int | None = None
    backfill: bool = False

    def __post_init__(self) -> None:
        if self.keep is not None and self.keep < 1:
            raise InvalidRequestError(f"{Option.KEEP} must be positive, not {self.keep}")


def plan_tag(
    table: Table, name: str, *, at: str | None, branch: str, retain_ms: int | None, move: bool
) -> TagChanges:
    """Plan to set one tag.

    Raises:
        NotFoundError: there is no such snapshot or branch.
        RefusedError: the tag refers to another snapshot, or the name is the name of a branch.
    """
    check_name(name, TAG)
    metadata = table.metadata
    if at is not None:
        snapshot: Snapshot | None = ancestry.resolve(metadata, at, branch=branch)
    else:
        snapshot = ancestry.branch_head(metadata, branch)
    if snapshot is None:
        raise NotFoundError(f"branch {branch} of {table.identifier} has no snapshots")
    wanted = {name: snapshot.snapshot_id}
    return plan_tags(table, wanted, branch=branch, retain_ms=retain_ms, move=move)


def plan_period_tags(
    table: Table,
    options: PeriodTags,
    *,
    branch: str,
    retain_ms: int | None,
    now_ms: int,
    move: bool,
) -> TagChanges:
    """Plan to tag the newest snapshot that was committed before the end of each period.

    Raises:
        NotFoundError: there is no such branch.
        RefusedError: a tag refers to another snapshot, or there would be too many new tags.
    """
    metadata, calendar = table.metadata, options.calendar
    history = list(ancestry.ancestors(metadata, ancestry.head_id(metadata, branch)))
    wanted: dict[str, int] = {}
    for period, snapshot in _ends(history, options, now_ms):
        check_name(period.name, TAG)
        # An hour that the clock repeats has one name; the later one counts.
        if period.name in wanted:
            continue
        if options.keep is not None and len(wanted) >= options.keep:
            break
        wanted[period.name] = snapshot.snapshot_id
        if not options.backfill:
            break
    # A tag that exists is history, and is not set again by a backfill.
    known = {name: ref.snapshot_id for name, ref in metadata.refs.items() if name in wanted}
    if options.backfill and not move:
        wanted = {name: item for name, item in wanted.items() if name not in known}
    if len(wanted) > _MOST_NEW:
        raise RefusedError(
            f"{len(wanted)} tags would be new",
            hint=f"add {Option.KEEP} with the number of tags to keep",
        )
    changes = plan_tags(table, wanted, branch=branch, retain_ms=retain_ms, move=move)
    if options.keep is None:
        return changes
    own = {
        name: ref.snapshot_id
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == TAG and calendar.is_own(name)
    }
    # Names of periods need not sort in the order of time.
    times = {item.snapshot_id: item.timestamp_ms for item in metadata.snapshots}
    every = sorted(
        {**own, **changes.wanted}.items(), key=lambda item: (times.get(item[1], 0), item[0])
    )
    surplus = dict(every[: max(len(every) - options.keep, 0)])
    return TagChanges(
        table=table,
        branch=branch,
        wanted={key: item for key, item in changes.wanted.items() if key not in surplus},
        moved=changes.moved,
        dropped={key: item for key, item in surplus.items() if key in own},
        retain_ms=retain_ms,
    )


def _ends(
    history: Sequence[Snapshot], options: PeriodTags, now_ms: int
) -> list[tuple[Period, Snapshot]]:
    """Return ended periods, the newest first, each with the newest snapshot before its end."""
    if not history:
        return []
    found: list[tuple[Period, Snapshot]] = []
    place = 0
    for period in options.calendar.ended(now_ms - options.delay_ms, history[-1].timestamp_ms):
        while place < len(history) and history[place].timestamp_ms >= period.end_ms:
            place += 1
        if place == len(history):
            break
        found.append((period, history[place]))
        if not options.backfill or len(found) > 2 * _MOST_NEW:
            break
    return found


def plan_drop(table: Table, name: str) -> TagChanges:
    """Plan to drop a tag.

    Raises:
        NotFoundError: there is no such tag.
        RefusedError: the name is the name of a branch.
    """
    ref = table.metadata.refs.get(name)
    if ref is None:
        raise NotFoundError(f"{table.identifier} has no tag named {name}", hint=_known(table))
    if ref.snapshot_ref_type != TAG:
        raise RefusedError(f"{name} is a branch of {table.identifier}, not a tag")
    return TagChanges(table=table, dropped={name: ref.snapshot_id})


def plan_tags(
    table: Table,
    wanted: Mapping[str, int],
    *,
    branch: str,
    retain_ms: int | None,
    move: bool = False,
) -> TagChanges:
    """Plan to set tags, given the snapshot of each.

    Raises:
        RefusedError: a tag refers to another snapshot, or a name is the name of a branch.
    """
    refs, new, moved = table.metadata.refs, {}, {}
    for name, snapshot_id in wanted.items():
        ref = refs.get(name)
        if ref is None:
            new[name] = snapshot_id
        elif ref.snapshot_ref_type != TAG:
            raise RefusedError(f"{name} is a branch of {table.identifier}, not a tag")
        elif ref.snapshot_id == snapshot_id:
            if retain_ms not in {None, ref.max_ref_age_ms}:
                new[name] = moved[name] = snapshot_id
        else:
            if not move:
                raise RefusedError(
                    f"tag {name} refers to snapshot {ref.snapshot_id}, not to {snapshot_id}",
                    hint=f"add {Option.MOVE} to move it",
                )
            new[name], moved[name] = snapshot_id, ref.snapshot_id
    return TagChanges(table=table, branch=branch, wanted=new, moved=moved, retain_ms=retain_ms)


def execute(session: Session, changes: TagChanges, *, dry_run: bool) -> Outcome:
    """Set and drop the tags in one commit.

    Raises:
        CommitConflictError: a snapshot has expired, or a tag was changed meanwhile; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """
    if changes.is_empty:
        return _outcome(changes, Status.NOTHING_TO_DO)
    if dry_run:
        return _outcome(changes, Status.DRY_RUN)
    after = commit_refs(session, changes.table, _ref_changes(changes))
    return _outcome(changes, Status.DONE, after)


def _ref_changes(changes: TagChanges) -> list[RefChange]:
    refs = changes.table.metadata.refs
    found = []
    for name, snapshot_id in changes.wanted.items():
        ref = refs.get(name)
        kept_ms = ref.max_ref_age_ms if ref else None
        found.append(
            RefChange(
                name=name,
                kind=TAG,
                before=changes.moved.get(name),
                after=snapshot_id,
                max_ref_age_ms=kept_ms if changes.retain_ms is None else changes.retain_ms,
            )
        )
    dropped = changes.dropped.items()
    return found + [
        RefChange(name=name, kind=TAG, before=item, after=None) for name, item in dropped
    ]


def list_tags(table: Table) -> Outcome:
    """Return a table's tags, the newest snapshot first."""
    return _outcome(TagChanges(table=table), Status.DONE)


def _outcome(changes: TagChanges, status: Status, after: Table | None = None) -> Outcome:
    table = after or changes.table
    rows = _rows(table.metadata)
    names = TagsFacts(created=sorted(changes.wanted), removed=sorted(changes.dropped))
    columns = ["tag", "snapshot_id", "committed_at", "retain"]
    return Outcome(
        status=status,
        base_snapshot_id=ancestry.head_id(table.metadata, changes.branch),
        plan=names if status is not Status.DONE or after else NoFacts(),
        result=replace(names if after else TagsFacts(), tags=rows),
        details=[
            Detail(
                "tags",
                columns,
                [
                    [row.name, row.snapshot_id, row.created, retention_text(row.max_ref_age_ms)]
                    for row in rows
                ],
            )
        ]
        if changes.is_empty and status is Status.DONE
        else [],
    )


def _rows(metadata: TableMetadata) -> list[TagFacts]:
    known = ancestry.snapshots_by_id(metadata)
    found = [
        (known.get(ref.snapshot_id), name, ref)
        for name, ref in metadata.refs.items()
        if ref.snapshot_ref_type == TAG
    ]
    found.sort(key=lambda item: (-(item[0].timestamp_ms if item[0] else 0), item[1]))
    return [
        TagFacts(
            name=name,
            snapshot_id=str(ref.snapshot_id),
            created=iso_time(snapshot.timestamp_ms) if snapshot else None,
            max_ref_age_ms=ref.max_ref_age_ms,
        )
        for snapshot, name, ref in found
    ]


def retention_text(max_age_ms: int | None) -> str | None:
    """Return the age at which expiry drops a ref, for people; None for the table's property."""
    if max_age_ms is None:
        return None
    days, rest = divmod(max_age_ms, _DAY_MS)
    return format_duration(max_age_ms / 1000) if rest else f"{days}d"


def _known(table: Table) -> str:
    tags = [name for name, ref in table.metadata.refs.items() if ref.snapshot_ref_type == TAG]
    return f"its tags: {', '.join(sorted(tags)[:20]) or 'none'}"


def check_name(name: str, kind: str) -> None:
    """Refuse names of new branches and tags that other options could not refer to.

    Raises:
        InvalidRequestError: the name is empty, begins with ``@``, contains only digits, or is that of a consumer or a
            run.
    """
    if not name.strip() or name.startswith("@") or name.isdigit() or not name.isprintable():
        raise InvalidRequestError(
            f"not a name of a {kind}: {name!r}", hint="names of digits only are ids of snapshots"
        )
    if name == ancestry.MAIN or ancestry.is_consumer(name):
        raise InvalidRequestError(f"{name} is the name of a branch")
    if ancestry.is_run(name):
        raise InvalidRequestError(f"{name} is the name of a tag of a run of lake")
