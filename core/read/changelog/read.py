"""Read the rows that a snapshot added and removed, from data files with the deletes before and after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.base.arrow import Mask
from lake.core.data.deletes.apply import Deletes, EqualityGroups, read_rows
from lake.core.data.rows.reader import (
    FileDeletes,
    FileSlice,
    read_positions,
)
from lake.core.io.storage.opened_ahead import each_opened
from lake.core.io.storage.storage import Storage
from lake.core.read.changelog.row_diff import CHANGE_TYPES, DELETE, INSERT, match
from lake.core.read.changelog.row_spool import RowSpool
from lake.core.read.changelog.task_unit import ADDED, CHANGED, NEWLY_DELETED, REMOVED, ChangeUnit
from lake.core.table.manifests.data_files import EQUALITY_DELETES

# Counts the keys of which a commit changed several rows, so that they cannot be paired.
AMBIGUOUS = "ambiguous"


def changes_of(
    storage: Storage,
    unit: ChangeUnit,
    projection: Schema,
    noted: Counter[str],
    *,
    whole: bool = True,
) -> Iterator[pa.RecordBatch]:
    """Yield a unit's changes as rows of a change log.

    Args:
        storage: the storage of the files.
        unit: the unit to read.
        projection: the columns to return; the last three are those of a change log.
        noted: counts ambiguous keys.
        whole: whether all changes are taken, so that deletes are read before their files' rows are.
    """
    names = [item.name for item in projection.fields[:-3]]
    with closing(_changes(storage, unit, noted, whole=whole)) as changes:
        for rows, kinds in changes:
            if rows.num_rows:
                yield _with_change_columns(rows.select(names), kinds, unit)


def _changes(
    storage: Storage, unit: ChangeUnit, noted: Counter[str], *, whole: bool
) -> Generator[tuple[pa.RecordBatch, Any]]:
    """Yield rows, each with its kind of change."""
    if not unit.matched:
        for rows, added in _rows(storage, unit, whole=whole):
            yield rows, np.where(added, INSERT, DELETE)
        return
    spool = RowSpool(unit.key)
    with closing(spool):
        for rows, added in _rows(storage, unit, whole=True):
            spool.add(rows, added)
        for rows, added in spool.parts():
            found = match(rows, added, unit.key)
            noted[AMBIGUOUS] += found.ambiguous
            yield rows.take(pa.array(found.rows)), found.kinds


def _with_change_columns(rows: pa.RecordBatch, kinds: Any, unit: ChangeUnit) -> pa.RecordBatch:
    types = pa.DictionaryArray.from_arrays(pa.array(kinds, pa.int8()), list(CHANGE_TYPES))
    columns = {
        "_change_type": types.dictionary_decode(),
        "_change_ordinal": pa.repeat(pa.scalar(unit.ordinal, pa.int32()), rows.num_rows),
        "_commit_snapshot_id": pa.repeat(pa.scalar(unit.snapshot_id, pa.int64()), rows.num_rows),
    }
    for name, column in columns.items():
        rows = rows.append_column(name, column)
    return rows


# Reading


def _rows(
    storage: Storage, unit: ChangeUnit, *, whole: bool
) -> Iterator[tuple[pa.RecordBatch, Mask]]:
    """Yield the rows of all parts and whether each was added."""
    with ExitStack() as kept:
        groups = {kind: _groups(storage, unit, kind, kept) for kind in ("before", "after", "added")}
        for part in unit.parts:
            settings, other = unit.with_deletes(part.deletes), unit.with_deletes(part.other)
            before = groups["after" if part.kind == ADDED else "before"]
            deletes = Deletes(storage, settings, part.files, before)
            if part.kind in {ADDED, REMOVED}:
                for batch in read_rows(storage, part.files, settings, deletes, whole=whole):
                    yield batch, np.full(batch.num_rows, part.kind == ADDED)
            else:
                after = groups["added" if part.kind == NEWLY_DELETED else "after"]
                other_deletes = Deletes(storage, other, part.files, after)
                both = _Differing(deletes, other_deletes, either=part.kind == CHANGED)
                for file in each_opened(
                    storage, part.files, before=both.prepare if whole else None
                ):
                    for positions, batch in read_positions(storage, file, settings, both):
                        yield batch, both.added(positions)


def _groups(storage: Storage, unit: ChangeUnit, kind: str, kept: ExitStack) -> EqualityGroups:
    """Return the equality deletes of all parts together, because most parts have the same.

    Args:
        storage: the storage of the delete files.
        unit: the unit with the parts.
        kind: ``before`` or ``after`` for the deletes before or after the commit, ``added`` for new ones.
        kept: closes them at the end.
    """
    indices = {
        "before": [index for part in unit.parts if part.kind != ADDED for index in part.deletes],
        "added": [
            index for part in unit.parts if part.kind == NEWLY_DELETED for index in part.other
        ],
        "after": [
            index
            for part in unit.parts
            for index in (part.deletes if part.kind == ADDED else part.other)
            if part.kind in {ADDED, CHANGED}
        ],
    }
    found = unit.with_deletes(sorted(set(indices[kind]))).deletes
    equality = [item for item in found if item.content == EQUALITY_DELETES]
    return kept.enter_context(closing(EqualityGroups(storage, equality, unit.settings)))


class _Differing:
    """Selects the rows that are deleted on one side only.

    Args:
        before: the deletes before the commit.
        after: the deletes after the commit.
        either: whether to select the rows that only `before` deletes too, which were added.
    """

    def __init__(self, before: Deletes, after: Deletes, *, either: bool) -> None:
        self._before = before
        self._after = after
        self.either = either
        self.start = 0
        self.kept: Mask = np.zeros(0, np.bool_)

    def prepare(self, file: FileSlice) -> None:
        """Read in a thread what deletes rows of a file by position."""
        self._before.prepare(file)
        self._after.prepare(file)

    def of(self, file: FileSlice) -> FileDeletes:
        """Return the selection of a file's rows."""
        return _DifferingFile(self, self._before.of(file), self._after.of(file))

    def chosen(self, start: int, before: Mask, after: Mask) -> Mask:
        """Return which rows to select, and remember which of them were live before the commit."""
        self.start, self.kept = start, before
        return before != after if self.either else before & ~after

    def added(self, positions: Any) -> Mask:
        """Return which rows of the last batch, by their positions, were added."""
        added: Mask = ~self.kept[positions - self.start]
        return added


class _DifferingFile:
    def __init__(
        self, differing: _Differing, before: FileDeletes | None, after: FileDeletes | None
    ) -> None:
        self._differing = differing
        self._sides = (before, after)
        ids = [column for side in self._sides if side is not None for column in side.key_ids]
        self.key_ids = list(dict.fromkeys(ids))

    def keep(self, start: int, rows: int, keys: pa.RecordBatch) -> Mask | None:
        """Return which rows are deleted on one side only."""
        before, after = (self._kept(side, start, rows, keys) for side in self._sides)
        return self._differing.chosen(start, before, after)

    def leaves(self, start: int, rows: int) -> bool:
        """Return whether rows of a range may be deleted on one side only."""
        before, after = self._sides
        deciding = (before, after) if self._differing.either else (after,)
        if any(side is not None and side.key_ids for side in deciding):
            return True
        # Keys of the other side can only reduce the selection.
        keys = pa.RecordBatch.from_arrays([], names=[])
        deleted = ~self._kept(after, start, rows, keys)
        if self._differing.either:
            deleted = deleted != ~self._kept(before, start, rows, keys)
        return bool(deleted.any())

    def _kept(self, side: FileDeletes | None, start: int, rows: int, keys: pa.RecordBatch) -> Mask:
        kept = None if side is None else side.keep(start, rows, keys)
        return np.ones(rows, np.bool_) if kept is None else kept
