"""Describe what a follower would read next; no data is read."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import replace

from lake.core.base.outcome import Outcome, Status
from lake.core.io.storage.state_folder import StateFolder
from lake.core.read.continuous.discovery import Common, Discovery, discover
from lake.core.read.continuous.facts import NextFacts
from lake.core.read.continuous.handover.state import StateStore
from lake.core.read.continuous.options import FollowOptions
from lake.core.read.continuous.position import Position
from lake.core.read.scan.changing_keys import ChangingKeys
from lake.core.read.scan.execute import skipped_message
from lake.core.read.scan.facts import ScanFacts
from lake.core.spec.types.arrow_schema import schema_from_plain
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry
from lake.core.transaction.session import Session


def describe(session: Session, identifier: str, options: FollowOptions) -> Outcome:
    """Return the next discovery as an outcome.

    Raises:
        GapError: history that was not read does not exist any more.
        CorruptFileError: the state is damaged.
    """
    state = None
    if options.state is not None:
        folder = StateFolder.at(options.state, clock=session.clock, ids=session.ids)
        state = StateStore(folder).load()
    table = session.table(identifier)
    saved = None if state is None or state.position is None else state.position.position
    pinned = None if state is None or state.pinned is None else schema_from_plain(state.pinned)
    keys = None if options.prune_with is None else ChangingKeys(session, options.prune_with)
    with closing(keys) if keys else nullcontext():
        common = Common(pinned=pinned, keys=keys)
        start, found = _next(table, saved, options, common, session.clock.now_ms())
    head = ancestry.branch_head(table.metadata, options.branch)
    plan = None if found is None else found.plan
    read = ScanFacts() if plan is None else plan.facts()
    return Outcome(
        status=Status.NOTHING_TO_DO if plan is None else Status.DONE,
        base_snapshot_id=head.snapshot_id if head else None,
        plan=NextFacts(
            strategy=options.first.strategy if saved is None else None,
            position=start,
            head=str(head.snapshot_id) if head else None,
            snapshots=0 if found is None else len(found.snapshots),
            files=read.files,
            splits=read.splits,
            bytes=read.bytes,
            records=read.records,
            skipped_snapshots=0 if found is None else len(found.skipped),
            gap=None if found is None else found.gap,
            pruning=read.pruning,
        ),
        warnings=_warnings(found),
    )


def _next(
    table: Table,
    saved: Position | None,
    options: FollowOptions,
    common: Common,
    now_ms: int,
) -> tuple[Position | None, Discovery | None]:
    """Return the saved or the starting position, and the first discovery that reads rows, or else the last one."""
    start = position = saved
    found: Discovery | None = None
    while True:
        later = discover(table, position, options, now_ms=now_ms, common=common)
        if later is None:
            return start, found
        if found is not None:
            later = replace(
                later,
                gap=later.gap or found.gap,
                snapshots=found.snapshots + later.snapshots,
                skipped=found.skipped + later.skipped,
            )
        found, position = later, later.end
        start = start or position
        if found.plan is not None or found.reached_target:
            return start, found


def _warnings(found: Discovery | None) -> list[str]:
    keys = None if found is None else found.keys
    return [*skipped_warning(found), *(keys.warnings if keys else ())]


def skipped_warning(found: Discovery | None) -> list[str]:
    """Return a warning about the snapshots that an append scan does not show, if there are any."""
    if found is None or not found.skipped:
        return []
    return [skipped_message([(item.snapshot_id, item.operation) for item in found.skipped])]
