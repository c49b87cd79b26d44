"""A change plan as what tasks read: whole commits, or parts of commits that changed rows in one direction only."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from lake.core.changes.plan import ChangePlan, Step
from lake.core.changes.reading import CAME, CHANGED, LOST, WENT, Part, Unit
from lake.core.scan.plan import ScanPlan, Split
from lake.core.table.files import DeleteFile


def units_of(plan: ChangePlan) -> Iterator[Unit]:
    """Yield what is read, oldest commit first."""
    for step in plan.steps:
        parts = _parts(step)
        # Rows that went and rows that came are compared, so that what was only moved is no change.
        groups = [list(parts)] if step.mixed else ([part] for part in parts)
        for group in groups:
            if group:
                yield Unit(group, step.ordinal, step.snapshot_id, plan.key, step.mixed)


def _parts(step: Step) -> Iterator[Part]:
    for kind, side in ((WENT, step.deletes), (CAME, step.inserts)):
        for split in side.reads():
            yield Part(kind, split.slices, side.reading(split.deletes))
    for split in step.touched.reads():
        part = _touched(step, split)
        if part is not None:
            yield part


def _touched(step: Step, split: Split) -> Part | None:
    """Return what reads rows of files whose deletes are others now; None if they are the same after all."""
    before, after = step.before.deletes_of(split.numbers), split.deletes
    known = {_identity(item) for item in before}
    added = [item for item in after if _identity(item) not in known]
    if len(added) == len(after) - len(before):
        # Nothing was taken back: the new deletes alone tell which rows were lost.
        return _part(LOST, step.touched, split, before, added) if added else None
    return _part(CHANGED, step.touched, split, before, list(after))


def _part(
    kind: str,
    plan: ScanPlan,
    split: Split,
    before: tuple[DeleteFile, ...],
    other: list[DeleteFile],
) -> Part:
    both = plan.reading([*before, *other])
    mine, theirs = replace(both, deletes=before), replace(both, deletes=tuple(other))
    return Part(kind, split.slices, mine, theirs)


def _identity(file: DeleteFile) -> tuple[str, int | None]:
    return file.path, file.content_offset
