"""A change plan as what tasks read: whole commits, or parts of commits that changed rows in one direction only."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from lake.core.changelog.plan import ChangelogPlan, Step
from lake.core.changelog.task_unit import CAME, CHANGED, LOST, WENT, Part, Unit
from lake.core.manifests.data_files import DeleteFile
from lake.core.scan.plan import Split


def units_of(plan: ChangelogPlan) -> Iterator[Unit]:
    """Yield what is read, oldest commit first."""
    for step in plan.steps:
        numbered = _Numbered()
        parts = _parts(step, numbered)
        # Rows that went and rows that came are compared, so that what was only moved is no change.
        for group in [list(parts)] if step.mixed else ([part] for part in parts):
            if group:
                settings = step.touched.reading(numbered.files)
                yield Unit(
                    settings, group, step.ordinal, step.snapshot_id, plan.key, matched=step.mixed
                )
            numbered.clear()


class _Numbered:
    """Delete files, each once, by the order in which they were met."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, int | None], tuple[int, DeleteFile]] = {}

    @property
    def files(self) -> list[DeleteFile]:
        """All of them."""
        return [file for _, file in self._found.values()]

    def clear(self) -> None:
        """Begin anew."""
        self._found.clear()

    def places(self, files: Iterable[DeleteFile]) -> tuple[int, ...]:
        """Return where files are among all."""
        return tuple(
            self._found.setdefault((file.path, file.content_offset), (len(self._found), file))[0]
            for file in files
        )


def _parts(step: Step, numbered: _Numbered) -> Iterator[Part]:
    for kind, side in ((WENT, step.deletes), (CAME, step.inserts)):
        for split in side.reads():
            yield Part(kind, split.slices, numbered.places(split.deletes))
    for split in step.touched.reads():
        before = numbered.places(step.before.deletes_of(split.numbers))
        part = _touched(split, before, numbered.places(split.deletes))
        if part is not None:
            yield part


def _touched(split: Split, before: Sequence[int], after: Sequence[int]) -> Part | None:
    """Return what reads rows of files whose deletes are others now; None if they are the same after all."""
    added = set(after) - set(before)
    if set(before) <= set(after):
        # Nothing was taken back: the new deletes alone tell which rows were lost.
        return Part(LOST, split.slices, tuple(before), tuple(sorted(added))) if added else None
    return Part(CHANGED, split.slices, tuple(before), tuple(after))
