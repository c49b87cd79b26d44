"""Divide a change log into tasks: whole commits, or parts of commits that only add or only remove rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lake.core.read.changelog.plan import ChangelogPlan, SnapshotChanges
from lake.core.read.changelog.task_unit import (
    ADDED,
    CHANGED,
    NEWLY_DELETED,
    REMOVED,
    ChangeUnit,
    Part,
)
from lake.core.read.scan.plan import Split
from lake.core.table.manifests.data_files import DeleteFile


def units_of(plan: ChangelogPlan) -> Iterator[ChangeUnit]:
    """Yield the units, oldest commit first."""
    for step in plan.steps:
        numbering = _DeleteFileIndices()
        parts = _parts(step, numbering)
        # Removed and added rows are compared, because a row that was only moved is not a change.
        for group in [list(parts)] if step.mixed else ([part] for part in parts):
            if group:
                settings = step.touched.reading(numbering.files)
                yield ChangeUnit(
                    settings, group, step.ordinal, step.snapshot_id, plan.key, matched=step.mixed
                )
            numbering.clear()


class _DeleteFileIndices:
    """Assigns indices to distinct delete files in order of first use."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None], tuple[int, DeleteFile]] = {}

    @property
    def files(self) -> list[DeleteFile]:
        """All delete files, by index."""
        return [file for _, file in self._found.values()]

    def clear(self) -> None:
        """Remove all files."""
        self._found.clear()

    def indices(self, files: Iterable[DeleteFile]) -> tuple[int, ...]:
        """Return the indices of files; new files are added."""
        return tuple(
            self._found.setdefault((file.path, file.content_offset), (len(self._found), file))[0]
            for file in files
        )


def _parts(step: SnapshotChanges, numbering: _DeleteFileIndices) -> Iterator[Part]:
    for kind, side in ((REMOVED, step.deletes), (ADDED, step.inserts)):
        for split in side.reads():
            yield Part(kind, split.slices, numbering.indices(split.deletes))
    for split in step.touched.reads():
        before = numbering.indices(step.before.deletes_of(split.numbers))
        part = _touched(split, before, numbering.indices(split.deletes))
        if part is not None:
            yield part


def _touched(split: Split, before: Sequence[int], after: Sequence[int]) -> Part | None:
    """Return a part for files whose deletes changed; None if the deletes are the same."""
    added = set(after) - set(before)
    if set(before) <= set(after):
        # No delete was removed, so the new deletes alone determine the removed rows.
        return (
            Part(NEWLY_DELETED, split.slices, tuple(before), tuple(sorted(added)))
            if added
            else None
        )
    return Part(CHANGED, split.slices, tuple(before), tuple(after))
