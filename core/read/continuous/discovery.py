"""Find what a follower reads next: one discovery after another, from metadata and manifests. Nothing is written."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from pyiceberg.schema import Schema

from lake.core.base.choices import NonAppend, OnGap, Order
from lake.core.base.errors import CorruptFileError, RefusedError
from lake.core.base.options import Option
from lake.core.read.changelog.manifest_diff import UnknownParentError
from lake.core.read.changelog.plan import ChangelogPlan, plan_changes
from lake.core.read.continuous.handover.work import WorkHeader, WorkItem, header_of, items_of
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.order import WatermarkColumn, ordered, watermark_column
from lake.core.read.continuous.position import (
    Gap,
    GapError,
    GapKind,
    Position,
    Started,
    after_gap,
    position_at,
    starting_position,
    unseen,
)
from lake.core.read.continuous.schemas import schema_of
from lake.core.read.scan.incremental import Increment, SnapshotRange
from lake.core.read.scan.plan import ScanOptions, ScanPlan, plan_appends, plan_snapshot
from lake.core.spec.properties.table_properties import IGNORE_TOTALS
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.completeness import has_only_own_manifests, read_list

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.read.scan.changing_keys import ChangingKeys
    from lake.core.read.scan.scan_keys import ScanKeys

Kind = Literal["table", "append", "changes"]
_APPEND, _REPLACE = "append", "replace"


@dataclass(frozen=True, slots=True, kw_only=True)
class Skipped:
    """A snapshot that an append scan does not show, and its operation; "unknown" if it has none."""

    snapshot_id: int
    operation: str


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """What a follower reads next.

    Args:
        kind: ``table`` for all rows of a snapshot, ``append`` for appended rows, ``changes`` for row changes.
        start: the saved position that this was planned from; take it only if that is still the position.
        end: the position after it.
        snapshots: the snapshots that are read or passed, oldest first.
        skipped: those of them that an append scan does not show.
        gap: what was not read in front of them; None if nothing is missing.
        replaces: whether the rows replace all rows that were read before.
        plan: what to read; None for nothing.
        reached_target: whether nothing that was there is left; if false, the next discovery follows at once.
        schema: the schema that rows are read with.
        next_ordinal: the ordinal of the next commit in a change log.
        ordinal: the ordinal of the first commit in this one.
        watermark: the column of the watermark.
    """

    kind: Kind
    start: Position | None
    end: Position
    schema: Schema
    snapshots: tuple[int, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    gap: Gap | None = None
    replaces: bool = False
    plan: ScanPlan | ChangelogPlan | None = None
    reached_target: bool = True
    ordinal: int = 0
    next_ordinal: int = 0
    watermark: WatermarkColumn | None = None

    @property
    def header(self) -> WorkHeader | None:
        """What all items of work share; None if there is nothing to read."""
        return None if self.plan is None else header_of(self.kind, self.plan)

    @property
    def keys(self) -> ScanKeys | None:
        """The keys that rows must have; None for all rows."""
        return None if self.plan is None else self.plan.keys

    @property
    def records(self) -> int | None:
        """The rows of the files by metadata, including deleted ones, if all of them are read; else None."""
        plan = self.plan
        counted = isinstance(plan, ScanPlan) and not plan.chooses_rows
        return plan.records if plan is not None and counted else None

    def work(self) -> Iterator[WorkItem]:
        """Yield what to read, in the order in which it is handed over."""
        if self.plan is not None:
            yield from items_of(self.plan, ordinal=self.ordinal, watermark=self.watermark)


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What the discoveries of a follow have in common.

    Args:
        pinned: the schema of the start, if rows keep it.
        ordinal: the ordinal of the next commit in a change log.
        keys: the keys of the rows that are wanted; None for all rows.
    """

    pinned: Schema | None = None
    ordinal: int = 0
    keys: ChangingKeys | None = None


_NOTHING = Common()


def discover(
    table: Table,
    saved: Position | None,
    options: FollowOptions,
    *,
    now_ms: int,
    target: int | None = None,
    common: Common = _NOTHING,
) -> Discovery | None:
    """Find what follows a saved position.

    Args:
        table: the table, as it is now.
        saved: the saved position; None if there is none yet: then the discovery starts as the options say.
        options: the options.
        now_ms: the time now.
        target: do not go beyond this snapshot of the branch; None for the head.
        common: what this discovery has in common with those before it.

    Returns:
        None if there is nothing new.

    Raises:
        GapError: history that was not read does not exist any more.
        RefusedError: the next snapshot is not an append, and the options refuse it; or the order needs sequence
            numbers, which the table does not have.
        NotFoundError: the branch or a column does not exist any more.
        BadInputError: the filter, the order or the schema cannot be used with the table as it is now.
        CorruptFileError: a manifest does not match its manifest list.
    """
    return Discoverer(table, saved, options, common).next(now_ms, target)


def scan_again(
    table: Table,
    saved: Position,
    options: FollowOptions,
    gap: Gap,
    common: Common = _NOTHING,
) -> Discovery:
    """Read the whole table because of a gap; the rows replace those that were read before."""
    return Discoverer(table, saved, options, common).whole(gap)


class Discoverer:
    """Plans what a follower reads, from the table as it is now."""

    def __init__(
        self,
        table: Table,
        saved: Position | None,
        options: FollowOptions,
        common: Common,
    ) -> None:
        self._keys = common.keys
        self._table = table
        self._metadata = table.metadata
        self._saved = saved
        self._options = options
        self._ordinal = common.ordinal
        self._schema = schema_of(table, options, common.pinned)
        self._scan = _scan_options(table, options)
        self._watermark = watermark_column(self._schema, options)
        self._head = ancestry.branch_head(table.metadata, options.branch)
        if options.order is Order.SEQUENCE and table.metadata.format_version == 1:
            raise RefusedError(
                f"{Option.ORDER} sequence needs sequence numbers, which tables of format version 1 do not have"
            )

    def next(self, now_ms: int, target: int | None) -> Discovery | None:
        """Plan what follows the saved position; see `discover`."""
        if self._saved is None:
            return self._first(now_ms, target)
        if self._head is not None and self._head.snapshot_id == self._saved.snapshot_id:
            return None
        found = unseen(self._metadata, self._head, self._saved, is_first=self.is_first)
        if isinstance(found, Gap):
            return self._after_gap(found, target)
        found = self._up_to(found, target)
        return self.planned(found, target) if found else None

    def _first(self, now_ms: int, target: int | None) -> Discovery:
        started = starting_position(
            self._metadata,
            self._options.branch,
            self._options.first,
            now_ms=now_ms,
            is_first=self.is_first,
        )
        if isinstance(started, Gap):
            return self._after_gap(started, target)
        if started.scanned is not None:
            return self.scanned(started.scanned)
        if started.first is not None:
            return self.planned(self._since(started.first), target)
        return self._only_moved(started)

    def _only_moved(self, started: Started) -> Discovery:
        head = None if self._head is None else self._head.snapshot_id
        return replace(
            self._discovery(started.position),
            reached_target=started.position.snapshot_id == head,
        )

    def _since(self, first: Snapshot) -> list[Snapshot]:
        found = []
        for snapshot in ancestry.ancestors(
            self._metadata, None if self._head is None else self._head.snapshot_id
        ):
            found.append(snapshot)
            if snapshot.snapshot_id == first.snapshot_id:
                break
        return found[::-1]

    def _after_gap(self, gap: Gap, target: int | None) -> Discovery:
        if self._options.on_gap is OnGap.FAIL:
            raise GapError(gap, self._table.identifier, self._options.branch)
        if self._options.on_gap is OnGap.TABLE:
            return self.whole(gap)
        position, found = after_gap(self._metadata, self._head, gap)
        gap = replace(gap, resumed_at=position)
        if not found:
            return replace(self._discovery(position), gap=gap)
        return self.planned(self._up_to(found, target) or found, target, gap)

    def whole(self, gap: Gap) -> Discovery:
        """Read the whole table because of a gap."""
        if self._head is None:
            end = Position.EMPTY
            gap = replace(gap, resumed_at=end)
            return replace(self._discovery(end), kind="table", gap=gap, replaces=True)
        gap = replace(gap, resumed_at=position_at(self._head))
        return replace(self.scanned(self._head), gap=gap, replaces=True)

    def _up_to(self, found: list[Snapshot], target: int | None) -> list[Snapshot]:
        """Cut snapshots behind the target; if the branch does not contain it any more, the head is the target."""
        for index, snapshot in enumerate(found):
            if snapshot.snapshot_id == target:
                return found[: index + 1]
        passed = target is not None and ancestry.is_ancestor(
            self._metadata, target, self._head.snapshot_id if self._head else None
        )
        return [] if passed else found

    # Plans

    def scanned(self, snapshot: Snapshot) -> Discovery:
        """Plan to read all rows of a snapshot."""
        plan = plan_snapshot(
            self._table,
            self._scan,
            snapshot,
            schema=self._schema,
            with_bounds=self._watermark is not None,
            keys=self._present_keys(),
        )
        return replace(self._discovery(position_at(snapshot), (snapshot,), plan), kind="table")

    def planned(
        self, found: Sequence[Snapshot], target: int | None = None, gap: Gap | None = None
    ) -> Discovery:
        """Plan to read snapshots, oldest first, as many as one discovery may have."""
        chosen = found[: self._options.max_planning_snapshots]
        if self._options.changes:
            return self._changes(found, chosen, target, gap)
        skipped = [
            item for item in chosen if ancestry.operation_of(item) not in {_APPEND, _REPLACE}
        ]
        if skipped and self._options.non_append is NonAppend.FAIL:
            chosen = chosen[: chosen.index(skipped[0])]
            if not chosen:
                raise self._not_an_append(skipped[0])
            skipped = []
        # Oldest first: rows are handed over in the order in which they were appended.
        appends = tuple(item for item in chosen if ancestry.operation_of(item) == _APPEND)
        plan = None
        if appends:
            plan = plan_appends(
                self._table,
                self._scan,
                Increment(chosen[-1], appends, ()),
                schema=self._schema,
                with_bounds=self._watermark is not None,
                keys=self._present_keys(),
            )
        passed = (
            Skipped(snapshot_id=item.snapshot_id, operation=ancestry.operation_of(item))
            for item in skipped
        )
        return replace(
            self._discovery(position_at(chosen[-1]), chosen, plan),
            skipped=tuple(passed),
            gap=gap,
            reached_target=len(chosen) == len(found),
        )

    def _changes(
        self,
        found: Sequence[Snapshot],
        chosen: Sequence[Snapshot],
        target: int | None,
        gap: Gap | None,
    ) -> Discovery:
        selected = SnapshotRange(chosen[-1], tuple(reversed(chosen)))
        try:
            plan = plan_changes(
                self._table,
                self._scan,
                selected,
                self._options.key,
                schema=self._schema,
                keys=self._present_keys(),
            )
        except UnknownParentError:
            return self._without_parent(found, target)
        return replace(
            self._discovery(position_at(chosen[-1]), chosen, plan),
            gap=gap,
            reached_target=len(chosen) == len(found),
        )

    def _without_parent(self, found: Sequence[Snapshot], target: int | None) -> Discovery:
        """Go on if the rows that the first of some snapshots deleted are not known."""
        head = self._head.snapshot_id if self._head else None
        position = Position.EMPTY if self._saved is None else self._saved
        gap = Gap(GapKind.PARENT_EXPIRED, position, found[0].snapshot_id, head)
        if self._options.on_gap is not OnGap.SKIP:
            return self._after_gap(gap, target)
        behind = position_at(found[0])
        gap = replace(gap, resumed_at=behind)
        if len(found) == 1:
            return replace(self._discovery(behind), gap=gap)
        return self.planned(found[1:], target, gap)

    def _discovery(
        self,
        end: Position,
        snapshots: Sequence[Snapshot] = (),
        plan: ScanPlan | ChangelogPlan | None = None,
    ) -> Discovery:
        ordinals = 0
        if isinstance(plan, ScanPlan):
            _refuse_doubts(plan)
            plan = ordered(plan, self._options.order, self._watermark) if plan.pieces else None
        elif plan is not None:
            ordinals = plan.snapshots
            plan = plan if plan.steps else None
        return Discovery(
            kind="changes" if self._options.changes else "append",
            start=self._saved,
            end=end,
            schema=self._schema,
            snapshots=tuple(item.snapshot_id for item in snapshots),
            plan=plan,
            ordinal=self._ordinal,
            next_ordinal=self._ordinal + ordinals,
            watermark=self._watermark,
        )

    def _present_keys(self) -> ScanKeys | None:
        return None if self._keys is None else self._keys.at_present(self._table, self._schema)

    def _not_an_append(self, snapshot: Snapshot) -> RefusedError:
        return RefusedError(
            f"the next snapshot of {self._table.identifier}, {snapshot.snapshot_id}, is not an append "
            f"({ancestry.operation_of(snapshot)})",
            hint=f"{Option.NON_APPEND} skip passes it; {Option.CHANGES} reads its changes",
        )

    def is_first(self, snapshot: Snapshot) -> bool:
        """Whether a snapshot is the first one that the table ever had: both its metadata and its list say so."""
        if not ancestry.is_first(self._metadata, snapshot):
            return False
        manifests = read_list(self._table.storage, self._metadata, snapshot)
        return has_only_own_manifests(snapshot, manifests)


def _refuse_doubts(plan: ScanPlan) -> None:
    """Refuse to read files of which some may be missing: no later discovery would read their rows."""
    for doubt in plan.found.doubts:
        raise CorruptFileError(
            doubt,
            hint="restore the file from a backup; if it is complete and the summary is wrong, set the table's "
            f"property {IGNORE_TOTALS.name}=true",
        )


def _scan_options(table: Table, options: FollowOptions) -> ScanOptions:
    if options.order is not Order.SEQUENCE:
        return options.scan
    # A piece that weighs as much as a split is packed alone.
    return replace(options.scan, split_open_cost=options.scan.splits(table.properties).size)
