"""Decide which snapshots and refs expire, from metadata, options and the current time.

Source: Iceberg's RemoveSnapshots. A snapshot is kept as long as a rule keeps it; each rule is a `KeepReason`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from lake.core.base.errors import (
    BadInputError,
    InvalidRequestError,
    RefusedError,
)
from lake.core.base.options import Option
from lake.core.base.units import format_age
from lake.core.maintain.expiration.flink_retention import HeldBranch, held_branches
from lake.core.spec.properties.table_properties import (
    COMMITTING,
    GC_ENABLED,
    MAX_REF_AGE_MS,
    MAX_SNAPSHOT_AGE_MS,
    MIN_SNAPSHOTS,
    check,
)
from lake.core.table.refs import consumers
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef
    from pyiceberg.table.snapshots import Snapshot

FLOOR_MS = 24 * 3_600_000
_MINUTE_MS = 60_000
KEEP_CHECKPOINTS_MS = 7 * 24 * 3_600_000


class KeepReason(StrEnum):
    """Why a snapshot is kept."""

    REFERENCED = "referenced"  # a kept branch or tag points at it
    RUN = "run"  # only the tag of a run that works on it points at it
    RECENT = "recent"  # younger than the maximum age of its branch
    LAST_N = "last-n"  # among the newest snapshots that its branch must keep
    UNREFERENCED_RECENT = (
        "unreferenced-recent"  # on no branch, but younger than the table's maximum age
    )
    OTHER_BRANCH = "other-branch"  # only snapshots of one branch were to expire
    NOT_NAMED = "not-named"  # only named snapshots were to expire
    CHECKPOINT = "checkpoint"  # a Flink job's restore visits it on the way to its last commit
    CONSUMER = "consumer"  # a reader of the table has not read it yet


class Keeper(NamedTuple):
    """What keeps a snapshot: a branch, tag, consumer or job, and the rule that it follows; both may be empty."""

    name: str
    rule: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionOptions:
    """The options of an expiration.

    Args:
        older_than: expire snapshots older than this time (ms since 1970); None for the table's property.
        retain_last: keep at least this many snapshots of each branch; None for the table's property.
        snapshot_ids: snapshots to expire even if a rule would keep them.
        unsafe_retention: allow `older_than` to be less than 24 hours ago.
        branch: expire snapshots of this branch only, and no refs; None for the whole table. Snapshots that
            other branches share are kept as long as the table's properties keep them there.
        keep_checkpoints: how long after its last commit a Flink job can be restored; 0 to keep nothing.
    """

    older_than: int | None = None
    retain_last: int | None = None
    snapshot_ids: tuple[int, ...] = ()
    unsafe_retention: bool = False
    branch: str | None = None
    keep_checkpoints: int = KEEP_CHECKPOINTS_MS

    def __post_init__(self) -> None:
        if self.retain_last is not None and self.retain_last < 1:
            raise InvalidRequestError(
                f"{Option.RETAIN_LAST} must be at least 1, not {self.retain_last}"
            )

    @property
    def only_named(self) -> bool:
        """Whether only the named snapshots are to expire."""
        return bool(self.snapshot_ids) and self.older_than is None and self.retain_last is None


@dataclass(frozen=True, slots=True)
class Retention:
    """The snapshots and refs to remove, and the reasons why the others are kept.

    Args:
        expired: the snapshots to expire.
        removed_refs: the branches and tags to remove.
        kept: the snapshots to keep, with the reason.
        held: the branches on which Flink jobs may be restored; snapshots that they need are kept.
        max_age_ms: younger snapshots are kept, unless they were named.
        keepers: what keeps the snapshots to keep.
    """

    expired: tuple[int, ...]
    removed_refs: tuple[str, ...]
    kept: Mapping[int, KeepReason] = field(default_factory=dict)
    held: tuple[HeldBranch, ...] = ()
    max_age_ms: int = 0
    keepers: Mapping[int, Keeper] = field(default_factory=dict)


def check_retention(metadata: TableMetadata, options: RetentionOptions, now_ms: int) -> None:
    """Check the safety rules.

    Raises:
        RefusedError: garbage collection is off for the table, or the given time is less than 24 hours ago.
        InvalidRequestError: a property of the table has a value that is not allowed.
    """
    check(metadata.properties, COMMITTING)
    if not GC_ENABLED.of(metadata.properties):  # check: gc-enabled
        raise RefusedError(
            "cannot expire snapshots: gc.enabled is false, deleting files may corrupt other tables"
        )
    check_floor(options, now_ms)


def check_floor(options: RetentionOptions, now_ms: int) -> None:
    """Check that the given time is old enough.

    Raises:
        RefusedError: it is less than 24 hours ago.
    """
    older_than = options.older_than
    # check: retention-floor
    if older_than is not None and older_than > now_ms - FLOOR_MS and not options.unsafe_retention:
        raise RefusedError(
            f"{Option.OLDER_THAN} is less than 24 hours ago: readers and writers may still use those snapshots",
            hint=f"choose an older time, or add {Option.UNSAFE_RETENTION} if no reader or writer is active",
        )


def plan_retention(metadata: TableMetadata, options: RetentionOptions, now_ms: int) -> Retention:
    """Decide which snapshots and refs expire.

    Raises:
        CorruptFileError: a ref points to a snapshot that the table does not have.
        RefusedError: a named snapshot is the head of a retained ref, or a Flink job needs it.
    """
    ancestry.check_refs(metadata)
    limits = _Limits.of(metadata, options, now_ms)
    held = _held(metadata, options, now_ms)
    refs = {name: ref for name, ref in metadata.refs.items() if _stays(metadata, name, ref, limits)}
    refs |= {
        item.branch: metadata.refs[item.branch] for item in held if item.branch in metadata.refs
    }
    if options.only_named or options.branch is not None:
        refs = dict(metadata.refs)
    removed_refs = tuple(sorted(metadata.refs.keys() - refs.keys()))
    named = frozenset(options.snapshot_ids)
    _refuse_heads(named, refs)
    _refuse_held(named, held)
    unread = _unread(metadata, refs)
    _refuse_unread(named, unread)
    kept: dict[int, KeepReason] = {}
    keepers: dict[int, Keeper] = {}
    if options.only_named:
        kept = {item.snapshot_id: KeepReason.NOT_NAMED for item in metadata.snapshots}
    else:
        others = replace(options, older_than=None, retain_last=None)
        elsewhere = limits if options.branch is None else _Limits.of(metadata, others, now_ms)
        limits_of = {name: limits if name == options.branch else elsewhere for name in refs}
        _keep_by_rule(metadata, refs, limits_of, limits, kept, keepers)
    if options.branch is not None:
        _keep_others(metadata, options.branch, named, kept)
    for item in held:
        _keep(kept, item.path, KeepReason.CHECKPOINT)
        _name_jobs(item, kept, keepers)
    for name, ids in unread.items():
        for snapshot_id in _keep(kept, ids, KeepReason.CONSUMER):
            keepers[snapshot_id] = Keeper(f"consumer {name}", "")
    for snapshot_id in named:
        kept.pop(snapshot_id, None)
    if metadata.current_snapshot_id is not None:
        # Metadata may lack a ref for main.
        kept.setdefault(metadata.current_snapshot_id, KeepReason.REFERENCED)
    expired = [item.snapshot_id for item in metadata.snapshots if item.snapshot_id not in kept]
    return Retention(tuple(expired), removed_refs, kept, held, now_ms - limits.oldest_ms, keepers)


def _keep(kept: dict[int, KeepReason], ids: Iterable[int], reason: KeepReason) -> list[int]:
    """Keep snapshots for a reason; return those that no other reason keeps."""
    new = [snapshot_id for snapshot_id in ids if snapshot_id not in kept]
    kept.update(dict.fromkeys(new, reason))
    return new


def _name_jobs(
    held: HeldBranch, kept: Mapping[int, KeepReason], keepers: dict[int, Keeper]
) -> None:
    """Note the Flink job for which each snapshot is kept: the first whose restore visits it."""
    steps = [(item.steps, item.commit) for item in held.checkpoints]
    for place, snapshot_id in enumerate(held.path):
        if kept[snapshot_id] is KeepReason.CHECKPOINT and snapshot_id not in keepers:
            commit = next(commit for count, commit in steps if count > place)
            rule = f"needed to find checkpoint {commit.checkpoint_id} on {held.branch}"
            keepers[snapshot_id] = Keeper(f"Flink job {commit.job_id}", rule)


def _keep_others(
    metadata: TableMetadata,
    branch: str,
    named: frozenset[int],
    kept: dict[int, KeepReason],
) -> None:
    """Keep the snapshots that are not in a branch's history.

    Raises:
        BadInputError: the user named one of them.
    """
    head = ancestry.branch_head(metadata, branch)
    path = ancestry.ancestors(metadata, head.snapshot_id if head else None)
    own = {item.snapshot_id for item in path}
    for snapshot in metadata.snapshots:
        if snapshot.snapshot_id not in own:
            kept.setdefault(snapshot.snapshot_id, KeepReason.OTHER_BRANCH)
            if snapshot.snapshot_id in named:
                raise BadInputError(f"snapshot {snapshot.snapshot_id} is not on branch {branch}")


def _held(
    metadata: TableMetadata, options: RetentionOptions, now_ms: int
) -> tuple[HeldBranch, ...]:
    if options.keep_checkpoints == 0:
        return ()
    return tuple(held_branches(metadata, now_ms - options.keep_checkpoints))


@dataclass(frozen=True, slots=True)
class _Limits:
    now_ms: int
    oldest_ms: int
    keep: int
    ref_age_ms: int
    age_rule: str
    count_rule: str

    @classmethod
    def of(cls, metadata: TableMetadata, options: RetentionOptions, now_ms: int) -> _Limits:
        properties = metadata.properties
        asked, keep = options.older_than, options.retain_last
        return cls(
            now_ms=now_ms,
            # Snapshots committed during the run are kept, whatever the options are.
            oldest_ms=now_ms - MAX_SNAPSHOT_AGE_MS.of(properties)
            if asked is None
            else min(asked, now_ms),
            keep=MIN_SNAPSHOTS.of(properties) if keep is None else keep,
            ref_age_ms=MAX_REF_AGE_MS.of(properties),
            age_rule=MAX_SNAPSHOT_AGE_MS.name if asked is None else "older-than",
            count_rule=MIN_SNAPSHOTS.name if keep is None else "retain-last",
        )


def _stays(metadata: TableMetadata, name: str, ref: SnapshotRef, limits: _Limits) -> bool:
    snapshot = metadata.snapshot_by_id(ref.snapshot_id)
    if name == ancestry.MAIN or snapshot is None:
        return True
    age = limits.now_ms - snapshot.timestamp_ms
    return age <= (ref.max_ref_age_ms or limits.ref_age_ms)


def _refuse_heads(named: frozenset[int], refs: Mapping[str, SnapshotRef]) -> None:
    for snapshot_id in sorted(named):
        heads = sorted(name for name, ref in refs.items() if ref.snapshot_id == snapshot_id)
        if heads:
            raise RefusedError(
                f"cannot expire {snapshot_id}: still referenced by {', '.join(heads)}"
            )


def _refuse_held(named: frozenset[int], held: tuple[HeldBranch, ...]) -> None:
    for item in held:
        for snapshot_id in sorted(named.intersection(item.path)):
            # The first checkpoint whose restore visits the snapshot.
            steps = item.path.index(snapshot_id) + 1
            commit = next(held.commit for held in item.checkpoints if held.steps >= steps)
            raise RefusedError(
                f"cannot expire {snapshot_id}: Flink job {commit.job_id} needs it to find checkpoint "
                f"{commit.checkpoint_id}, which it committed to {item.branch}",
                hint=f"add {Option.KEEP_CHECKPOINTS} 0s if the job will not be restored",
            )


def _unread(metadata: TableMetadata, refs: Mapping[str, SnapshotRef]) -> dict[str, set[int]]:
    """Return the snapshots that consumers need, by the name of the consumer.

    These are the snapshots that the consumer's ref keeps, and those that branches have added since.
    """
    branches = consumers.histories(metadata, refs)
    found: dict[str, set[int]] = {}
    for item in consumers.find_consumers(metadata):
        if consumers.ref_of(item.name) not in refs:
            continue
        # check: snapshots-ahead-of-consumer
        needed = {snapshot.snapshot_id for snapshot in (*item.needed, *item.ahead)}
        for history in branches.values():
            newer = consumers.after(history, item.head.snapshot_id)
            if len(newer) < len(history):
                needed.update(snapshot.snapshot_id for snapshot in newer)
        found[item.name] = needed
    return found


def _refuse_unread(named: frozenset[int], unread: Mapping[str, set[int]]) -> None:
    for name, needed in unread.items():
        for snapshot_id in sorted(named & needed):
            raise RefusedError(
                f"cannot expire {snapshot_id}: consumer {name} needs it",
                hint=f"if its reader has ended, remove it: {Option.DROPPED_CONSUMER} {name}",
            )


def _moments(chain: Sequence[Snapshot]) -> list[int]:
    """Return the earliest possible time of each snapshot of a history, newest first.

    A writer's clock may be slow, but a snapshot is not older than its parent.
    """
    return list(accumulate((item.timestamp_ms for item in reversed(chain)), max))[::-1]


def _keep_by_rule(
    metadata: TableMetadata,
    refs: Mapping[str, SnapshotRef],
    limits_of: Mapping[str, _Limits],
    of_table: _Limits,
    kept: dict[int, KeepReason],
    keepers: dict[int, Keeper],
) -> None:
    reachable: set[int] = set()
    for name, ref in refs.items():
        limits, chain = limits_of[name], list(ancestry.ancestors(metadata, ref.snapshot_id))
        if ancestry.is_consumer(name) and ref.snapshot_ref_type == "branch":
            # What a rollback left only in this history is judged by its age, as without the reader.
            continue
        if ancestry.is_run(name):
            if ref.snapshot_id not in kept:
                kept[ref.snapshot_id] = KeepReason.RUN
                keepers[ref.snapshot_id] = Keeper(f"tag {name}", _ref_rule(name, ref))
        else:
            named = f"{ref.snapshot_ref_type} {name}"
            before = keepers.get(ref.snapshot_id)
            if before is not None and kept[ref.snapshot_id] is KeepReason.REFERENCED:
                named = f"{before.name}, {named}"
            kept[ref.snapshot_id] = KeepReason.REFERENCED
            keepers[ref.snapshot_id] = Keeper(named, _ref_rule(name, ref))
        if ref.snapshot_ref_type != "branch":
            reachable.add(ref.snapshot_id)
            continue
        reachable.update(item.snapshot_id for item in chain)
        oldest = (
            limits.now_ms - ref.max_snapshot_age_ms if ref.max_snapshot_age_ms else limits.oldest_ms
        )
        keep = ref.min_snapshots_to_keep or limits.keep
        young, newest = _branch_rules(name, ref, limits)
        for count, (snapshot, moment) in enumerate(zip(chain, _moments(chain), strict=True)):
            recent = moment >= oldest
            if count >= keep and not recent:
                break
            if snapshot.snapshot_id not in kept:
                kept[snapshot.snapshot_id] = KeepReason.RECENT if recent else KeepReason.LAST_N
                keepers[snapshot.snapshot_id] = young if recent else newest
    stray = Keeper("", _age_rule(of_table.now_ms - of_table.oldest_ms, of_table.age_rule))
    for snapshot in metadata.snapshots:
        if (
            snapshot.snapshot_id not in reachable
            and snapshot.timestamp_ms >= of_table.oldest_ms
            and snapshot.snapshot_id not in kept
        ):
            kept[snapshot.snapshot_id] = KeepReason.UNREFERENCED_RECENT
            keepers[snapshot.snapshot_id] = stray


def _branch_rules(name: str, ref: SnapshotRef, limits: _Limits) -> tuple[Keeper, Keeper]:
    """Return what keeps the young snapshots of a branch, and its newest ones."""
    own_age, own_count = ref.max_snapshot_age_ms, ref.min_snapshots_to_keep
    age = own_age or limits.now_ms - limits.oldest_ms
    age_rule = "max-snapshot-age-ms of the branch" if own_age else limits.age_rule
    count_rule = "min-snapshots-to-keep of the branch" if own_count else limits.count_rule
    named = f"branch {name}"
    return (
        Keeper(named, _age_rule(age, age_rule)),
        Keeper(named, f"among the newest {own_count or limits.keep:,} ({count_rule})"),
    )


def rounded_age(age_ms: int) -> int:
    """Return an age in whole minutes, or seconds: a time was given to the minute or second."""
    unit = 1000 if age_ms < _MINUTE_MS else _MINUTE_MS
    return age_ms // unit * unit


def _age_rule(age_ms: int, source: str) -> str:
    return f"younger than {format_age(rounded_age(age_ms))} ({source})"


def _ref_rule(name: str, ref: SnapshotRef) -> str:
    """Return how long a branch or tag stays."""
    if name == ancestry.MAIN or ref.max_ref_age_ms is None:
        return ""
    return f"stays for {format_age(ref.max_ref_age_ms)} (its max-ref-age-ms)"
