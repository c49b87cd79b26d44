"""Save a discovery and its splits before a row is read."""

from __future__ import annotations

from collections.abc import Iterator

from lake.core.base.interrupts import uninterrupted
from lake.core.read.continuous.discovery import Discovery
from lake.core.read.continuous.handover.keys_file import save_keys
from lake.core.read.continuous.handover.splits_file import SplitsHeader, write_splits
from lake.core.read.continuous.handover.state import RING, Pending, SavedPosition
from lake.core.read.continuous.handover.work import WorkItem
from lake.core.read.continuous.run import Run


def save_discovery(run: Run, discovery: Discovery) -> bool:
    """Save a discovery with its splits; return whether it continues the saved position, and so was saved."""
    if discovery.start != run.position:  # check: start-of-discovery
        run.done.discarded_discoveries += 1
        run.session.warn(
            f"a discovery was dropped: it starts at {discovery.start}, and the state is at {run.position}"
        )
        return False
    state = run.state
    number = state.discovery + 1
    generation = state.generation + discovery.replaces
    pending, late = _write_splits(run, discovery, number, generation)
    # Rows that replace all earlier ones make those that still wait superfluous.
    earlier = () if discovery.replaces else state.pending
    totals = state.totals.model_copy(
        update={
            "gaps": state.totals.gaps + (discovery.gap is not None),
            "skipped_snapshots": state.totals.skipped_snapshots + len(discovery.skipped),
            "late_splits": state.totals.late_splits + late,
        }
    )
    with uninterrupted():
        run.save(
            state.changed(
                position=SavedPosition.of(discovery.end),
                pending=(*earlier, *([pending] if pending else ())),
                reader=None if discovery.replaces else state.reader,
                discovery=number if pending else state.discovery,
                history=(*state.history, pending.count)[-RING:] if pending else state.history,
                ordinal=discovery.next_ordinal,
                generation=generation,
                planning_failures=0,
                totals=totals,
            )
        )
        _count(run, discovery, late)
    if discovery.replaces:
        run.store.sweep(run.state)
    return True


def _count(run: Run, discovery: Discovery, late: int) -> None:
    found, done = run.found, run.done
    found.snapshots += len(discovery.snapshots)
    found.skipped_snapshots += len(discovery.skipped)
    done.skipped_snapshots = found.skipped_snapshots
    done.late_splits += late
    if discovery.gap is not None:
        done.gaps.append(discovery.gap)
    if discovery.plan is not None:
        plan = discovery.plan.facts()
        found.files += plan.files
        found.splits += plan.splits
        found.bytes += plan.bytes
        found.records += plan.records
        if plan.pruning is not None:
            found.pruning = plan.pruning.after(found.pruning)


def _write_splits(
    run: Run, discovery: Discovery, number: int, generation: int
) -> tuple[Pending | None, int]:
    """Write the splits of a discovery; return it as pending, and the number of its late splits."""
    header = discovery.header
    if header is None:
        return None, 0
    late = 0

    def counted() -> Iterator[WorkItem]:
        nonlocal late
        watermark = run.state.watermark_ms
        for item in discovery.work():
            late += None not in (watermark, item.least) and item.least <= watermark  # type: ignore[operator]
            yield item

    gap, keys = discovery.gap, discovery.keys
    shared = SplitsHeader(
        state_id=run.state.state_id,
        discovery=number,
        kind=discovery.kind,
        start=None if discovery.start is None else SavedPosition.of(discovery.start),
        end=SavedPosition.of(discovery.end),
        generation=generation,
        replaces=discovery.replaces,
        snapshots=tuple(map(str, discovery.snapshots)),
        skipped=tuple((str(item.snapshot_id), item.operation) for item in discovery.skipped),
        gap=None if gap is None else gap.document(),
        records=discovery.records,
        schema_id=discovery.schema.schema_id,
        reading=header.to_plain(),
        keys=None if keys is None else save_keys(run.store.folder, keys),
    )
    return write_splits(run.store.folder, shared, counted()), late
