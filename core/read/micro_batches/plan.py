"""Plan batches: where the next one ends, and what is between the ends of a batch, again whenever that is asked.

The same ends give the same rows: a batch is planned from the snapshots between them, of which each keeps its own list
of manifests, and not from what the branch is now.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lake.core.base.choices import NonAppend, OnGap, SchemaMode
from lake.core.base.errors import RefusedError
from lake.core.base.units import natural_number
from lake.core.read.changelog.plan import ChangelogPlan
from lake.core.read.continuous.discovery import Common, Discoverer, Discovery
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.position import Gap, GapError, GapKind, Position, unseen
from lake.core.read.micro_batches.limits import Limits
from lake.core.read.micro_batches.offsets import Offset, Origin
from lake.core.read.scan.incremental import Increment
from lake.core.read.scan.plan import ScanPlan, planned
from lake.core.table.catalogs.catalog import Table
from lake.core.table.metadata.summaries import properties_of
from lake.core.table.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.schema import Schema
    from pyiceberg.table.snapshots import Snapshot

_UNBOUNDED = (1 << 63) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A part of a batch.

    Args:
        plan: what to read.
        ordinal: of a change log, the ordinal of its first commit.
        inserted_by: the snapshot whose rows a scan adds to a change log; None for a scan alone, or a change log.
    """

    plan: ScanPlan | ChangelogPlan
    ordinal: int = 0
    inserted_by: int | None = None


@dataclass(frozen=True, slots=True)
class Batch:
    """What follows an offset.

    Args:
        end: where the batch ends; the offset itself if there is nothing new.
        reads: what is read; None if it must be planned from the ends.
    """

    end: Offset
    reads: Sequence[Read] | None = None


class BatchPlanner:
    """Plans batches of a table, as it is now."""

    def __init__(self, table: Table, options: FollowOptions, schema: Schema) -> None:
        self._table = table
        self._metadata = table.metadata
        self._uuid = str(table.metadata.table_uuid)
        self._options = replace(options, schema=SchemaMode.PIN)
        # What was chosen once is read, whatever the options choose now.
        self._again = replace(
            self._options,
            non_append=NonAppend.SKIP,
            on_gap=OnGap.FAIL,
            max_planning_snapshots=_UNBOUNDED,
        )
        self._schema = schema
        self._known = ancestry.snapshots_by_id(table.metadata)
        self._head = ancestry.branch_head(table.metadata, options.branch)

    # The next batch

    def next(
        self, start: Offset, limits: Limits, *, now_ms: int, target: int | None = None
    ) -> Batch:
        """Return the batch that follows an offset.

        Args:
            start: the offset; `Offset.START` starts as the options say.
            limits: the most of the batch.
            now_ms: the time now.
            target: do not go beyond this snapshot of the branch; None for the head.

        Raises:
            GapError: history that was not read does not exist any more.
            RefusedError: the offset is one of another table; or the next snapshot is not an append, and the options
                refuse it.
            NotFoundError: the branch or a column does not exist any more.
            CorruptFileError: a manifest does not match its manifest list.
        """
        self._check_table(start)
        gap = self._lost_rest(start)
        rest = None if gap else self._rest(start)
        if rest is not None:
            return Batch(self._cut(start, rest, limits, scan_all=start.scan_all))
        found = self._found(start, gap, limits, now_ms, target)
        if found is None:
            return Batch(start)
        origin = self._origin(start, found)
        if found.kind == "table" and found.plan is not None and limits.any_of_files:
            (snapshot,) = (self._known[item] for item in found.snapshots)
            return Batch(self._cut(start, snapshot, limits, scan_all=True, origin=origin))
        if found.kind != "table" and found.plan is not None and limits.any_of_files:
            return self._within(start, found, limits, origin)
        return self._whole(found, origin)

    def _found(
        self, start: Offset, gap: Gap | None, limits: Limits, now_ms: int, target: int | None
    ) -> Discovery | None:
        most = limits.snapshots or _UNBOUNDED
        options = replace(self._options, max_planning_snapshots=most)
        saved = None if start.is_start else start.place
        discoverer = self._discoverer(options, start.ordinal, saved)
        if gap is not None and options.on_gap is OnGap.TABLE:
            return discoverer.whole(gap)
        found = discoverer.next(now_ms, target)
        if gap is not None and found is not None and found.gap is None:
            return replace(found, gap=replace(gap, resumed_at=start.place))
        if saved is None and found is not None and not found.snapshots and not found.reached_target:
            # Only where to start is known so far.
            discoverer = self._discoverer(options, start.ordinal, found.end)
            return discoverer.next(now_ms, target) or found
        return found

    def _lost_rest(self, start: Offset) -> Gap | None:
        """Return the gap of files that the last batch left, if their snapshot has expired."""
        whole = start.complete or start.snapshot_id is None or self._head is None
        if whole or start.snapshot_id in self._known:
            return None
        *_, oldest = ancestry.ancestors(
            self._metadata, self._head.snapshot_id if self._head else None
        )
        head = self._head.snapshot_id if self._head else None
        gap = Gap(GapKind.EXPIRED, start.place, oldest.snapshot_id, head)
        if self._options.on_gap is OnGap.FAIL:
            raise GapError(gap, self._table.identifier, self._options.branch)
        return gap

    def _rest(self, start: Offset) -> Snapshot | None:
        """Return the snapshot of which a batch read only some files; None if there is none in the branch."""
        snapshot = self._known.get(start.snapshot_id or 0)
        head = None if self._head is None else self._head.snapshot_id
        if start.complete or snapshot is None:
            return None
        if not ancestry.is_ancestor(self._metadata, snapshot.snapshot_id, head):
            return None
        files = self._sizes(snapshot, scan_all=start.scan_all).num_rows
        return snapshot if start.position < files else None

    def _cut(
        self,
        start: Offset,
        snapshot: Snapshot,
        limits: Limits,
        *,
        scan_all: bool,
        origin: Origin | None = None,
    ) -> Offset:
        """Return the end of a batch within the files of a snapshot."""
        sizes = self._sizes(snapshot, scan_all=scan_all)
        continued = start.snapshot_id == snapshot.snapshot_id and origin is None
        first = start.position if continued else 0
        read = first + max(limits.fitting(sizes.slice(first)), 1)
        if read >= sizes.num_rows:
            counted = int(self._options.changes)
            return self._end(snapshot.snapshot_id, start.ordinal + counted, origin)
        return Offset(
            snapshot_id=snapshot.snapshot_id,
            position=read,
            scan_all=scan_all,
            table=self._uuid,
            ordinal=start.ordinal,
            origin=origin,
        )

    def _within(
        self, start: Offset, found: Discovery, limits: Limits, origin: Origin | None
    ) -> Batch:
        """Return as many of the snapshots as are within the limits; at least one file of the first one with files."""
        snapshots = [self._known[item] for item in found.snapshots]
        sizes = self._sizes_of(snapshots)
        fitting = limits.fitting(sizes)
        if fitting == len(snapshots):
            return self._whole(found, origin)
        if not pc.sum(sizes["files"].slice(0, fitting)).as_py():
            if not self._options.changes:
                end = self._cut(start, snapshots[fitting], limits, scan_all=False, origin=origin)
                return Batch(end)
            fitting += 1
        chosen = self._discoverer(self._again, start.ordinal).planned(snapshots[:fitting])
        return self._whole(chosen, origin)

    def _whole(self, found: Discovery, origin: Origin | None) -> Batch:
        counted = int(found.kind == "table" and self._options.changes)
        end = self._end(found.end.snapshot_id, found.next_ordinal + counted, origin)
        return Batch(end, _reads(found, changes=self._options.changes))

    def _end(self, snapshot_id: int | None, ordinal: int, origin: Origin | None) -> Offset:
        """Return the offset behind a snapshot."""
        snapshot = self._known.get(snapshot_id or 0)
        added = "" if snapshot is None else properties_of(snapshot).get("added-data-files", "")
        return Offset(
            snapshot_id=snapshot_id,
            position=-1 if snapshot_id is None else natural_number(added) or 0,
            complete=True,
            table=self._uuid,
            ordinal=ordinal,
            origin=origin,
        )

    @staticmethod
    def _origin(start: Offset, found: Discovery) -> Origin | None:
        if not start.is_start and found.gap is None:
            return None
        gap = None if found.gap is None else found.gap.kind
        if found.kind == "table" and found.snapshots:
            return Origin(scan=found.end.snapshot_id, gap=gap)
        if found.snapshots:
            return Origin(first=found.snapshots[0], gap=gap)
        return Origin(after=found.end.snapshot_id, gap=gap)

    # A batch between two offsets

    def between(self, start: Offset, end: Offset) -> Sequence[Read]:
        """Return what a batch reads.

        Raises:
            GapError: some of it does not exist any more.
            RefusedError: an offset is one of another table, or does not say where its batch starts.
            NotFoundError: the branch or a column does not exist any more.
            CorruptFileError: a manifest does not match its manifest list.
        """
        self._check_table(start)
        self._check_table(end)
        if end.snapshot_id is None or start.is_at(end):
            return ()
        origin = end.origin
        if origin is None and start.is_start:
            raise RefusedError(
                "another stream began the first batch of this checkpoint, and it does not say where",
                hint="let that stream end the batch, or start with a new checkpoint",
            )
        if origin is not None and origin.gap is None and not start.is_start:
            raise RefusedError(
                f"the batch that ends with snapshot {end.snapshot_id} is the first one of a stream, but has to "
                f"follow snapshot {start.snapshot_id}"
            )
        last = self._retained(end.snapshot_id, start, end)
        if origin is not None and origin.scan is not None:
            whole = end.complete or not end.scan_all
            snapshot = self._retained(origin.scan, start, end)
            return self._part(snapshot, 0, None if whole else end.position, start, scan_all=True)
        return self._after(start, end, last)

    def _after(self, start: Offset, end: Offset, last: Snapshot) -> Sequence[Read]:
        """Return the rest of the snapshot of the start, and the snapshots behind it up to the last one."""
        reads: list[Read] = []
        origin, until = end.origin, None if end.complete else end.position
        if origin is None and not start.complete and start.snapshot_id is not None:
            snapshot = self._retained(start.snapshot_id, start, end)
            own = until if snapshot is last else None
            reads += self._part(snapshot, start.position, own, start, scan_all=start.scan_all)
            if snapshot is last:
                return reads
        snapshots = self._between(start, end, last)
        if until is not None:
            snapshots = snapshots[:-1]
        if snapshots:
            found = self._discoverer(self._again, start.ordinal).planned(snapshots)
            reads += _reads(found, changes=self._options.changes)
        if until is not None:
            reads += self._part(last, 0, until, start, scan_all=False)
        return reads

    def _between(self, start: Offset, end: Offset, last: Snapshot) -> list[Snapshot]:
        origin = end.origin
        if origin is not None and origin.first is not None:
            found: list[Snapshot] = []
            for snapshot in ancestry.ancestors(self._metadata, last.snapshot_id):
                found.append(snapshot)
                if snapshot.snapshot_id == origin.first:
                    return found[::-1]
            raise self._expired(start, end)
        place = start.place if origin is None else Position(origin.after)
        is_first = self._discoverer(self._again, 0).is_first
        seen = unseen(self._metadata, last, place, is_first=is_first)
        if isinstance(seen, Gap):
            raise GapError(seen, self._table.identifier, self._options.branch)
        return seen

    def _part(
        self, snapshot: Snapshot, first: int, end: int | None, start: Offset, *, scan_all: bool
    ) -> Sequence[Read]:
        """Return the files of a snapshot from one to another, in the order of its manifests."""
        plan = self._one(snapshot, self._again, scan_all=scan_all)
        if plan is None:
            return ()
        if first or end is not None:
            files = self._one(snapshot, self._unfiltered, scan_all=scan_all)
            plan = _only(plan, files.found.paths[first:end] if files else [])
        if not plan.pieces:
            return ()
        inserted_by = snapshot.snapshot_id if self._options.changes else None
        if inserted_by is not None and not scan_all:
            raise RefusedError(
                f"a batch without changes read some of the files of snapshot {inserted_by}, and a change log has "
                "whole snapshots",
                hint="let a stream without changes read the others",
            )
        return (Read(plan=plan, ordinal=start.ordinal, inserted_by=inserted_by),)

    # Snapshots

    @property
    def _unfiltered(self) -> FollowOptions:
        return replace(self._again, scan=replace(self._again.scan, where=None))

    def _one(
        self, snapshot: Snapshot, options: FollowOptions, *, scan_all: bool
    ) -> ScanPlan | None:
        discoverer = self._discoverer(replace(options, changes=False, key=()), 0)
        found = discoverer.scanned(snapshot) if scan_all else discoverer.planned([snapshot])
        return found.plan if isinstance(found.plan, ScanPlan) else None

    def _sizes(self, snapshot: Snapshot, *, scan_all: bool) -> pa.Table:
        """Return the files, rows and bytes of each file of a snapshot."""
        plan = self._one(snapshot, self._unfiltered, scan_all=scan_all)
        return _sizes([] if plan is None else [plan]).drop_columns("snapshot_id")

    def _sizes_of(self, snapshots: Sequence[Snapshot]) -> pa.Table:
        """Return the files, rows and bytes of what some snapshots changed."""
        plan = self._discoverer(self._unfiltered, 0).planned(snapshots).plan
        if isinstance(plan, ChangelogPlan):
            parts = [
                _sizes(step.parts).set_column(
                    0, "snapshot_id", pa.array([step.snapshot_id] * count)
                )
                for step in plan.steps
                if (count := sum(part.found.count for part in step.parts))
            ]
            sizes = pa.concat_tables([_sizes([]), *parts])
        else:
            sizes = _sizes([] if plan is None else [plan])
        named = pa.table({"snapshot_id": pa.array([s.snapshot_id for s in snapshots], pa.int64())})
        names = ("files", "rows", "bytes")
        sums = sizes.group_by("snapshot_id").aggregate([(name, "sum") for name in names])
        by_id = {row["snapshot_id"]: row for row in sums.to_pylist()}
        for name in names:
            column = [by_id.get(s.snapshot_id, {}).get(f"{name}_sum", 0) for s in snapshots]
            named = named.append_column(name, pa.array(column, pa.int64()))
        return named

    def _discoverer(
        self, options: FollowOptions, ordinal: int, saved: Position | None = None
    ) -> Discoverer:
        common = Common(pinned=self._schema, ordinal=ordinal)
        return Discoverer(self._table, saved, options, common)

    def _retained(self, number: int, start: Offset, end: Offset) -> Snapshot:
        found = self._known.get(number)
        if found is None:
            raise self._expired(start, end)
        return found

    def _expired(self, start: Offset, end: Offset) -> RefusedError:
        return RefusedError(
            f"a batch of {self._table.identifier} was planned and not finished, and snapshots between {start.place} "
            f"and {end.place} have expired since",
            hint="its rows cannot be read again: see whether the target has it (lake snapshots shows batches), and "
            "start with a new checkpoint from a snapshot (from-snapshot), or all rows are read again",
        )

    def _check_table(self, offset: Offset) -> None:
        if offset.table not in (None, self._uuid):
            raise RefusedError(
                f"the checkpoint is of a table with the UUID {offset.table}, and {self._table.identifier} has the "
                f"UUID {self._uuid}",
                hint="the table was created again: start with a new checkpoint",
            )


def _reads(found: Discovery, *, changes: bool) -> Sequence[Read]:
    if found.plan is None:
        return ()
    is_scan = found.kind == "table" and changes
    inserted_by = found.end.snapshot_id if is_scan else None
    return (Read(plan=found.plan, ordinal=found.ordinal, inserted_by=inserted_by),)


def _sizes(plans: Sequence[ScanPlan]) -> pa.Table:
    """Return the snapshot, the files, that is 1, the rows and the bytes of each file of plans."""
    names = ["snapshot_id", "record_count", "file_size_in_bytes"]
    found = [entries.select(names) for plan in plans for entries in plan.found.by_spec.values()]
    schema = pa.schema([(name, pa.int64()) for name in names])
    files = pa.concat_tables([schema.empty_table(), *(one.cast(schema) for one in found)])
    ones = pa.array(np.ones(files.num_rows, np.int64))
    named = files.rename_columns(["snapshot_id", "rows", "bytes"])
    return named.add_column(1, "files", ones)


def _only(plan: ScanPlan, paths: Sequence[str]) -> ScanPlan:
    """Return a plan to read only some of its files."""
    chosen = pa.array(paths, pa.string())
    by_spec = {
        spec_id: entries.filter(pc.is_in(entries["file_path"].cast(pa.string()), value_set=chosen))
        for spec_id, entries in plan.found.by_spec.items()
    }
    found = replace(plan.found, by_spec=by_spec)
    increment = Increment(plan.snapshot, (), ())
    return planned(plan.table, plan.options, increment, found, plan.condition, plan.projection)
