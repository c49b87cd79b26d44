"""Rows that a snapshot put in and took away, read from data files with the deletes before and after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import ExitStack, closing
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.changelog.row_diff import CHANGE_TYPES, DELETE, INSERT, Mask, match
from lake.core.changelog.row_spool import RowSpool
from lake.core.changelog.task_unit import CAME, CHANGED, LOST, WENT, Unit
from lake.core.deletes.apply import Deletes, EqualityGroups, read_rows
from lake.core.manifests.data_files import EQUALITY_DELETES
from lake.core.rows.reader import (
    FileDeletes,
    FileSlice,
    read_positions,
)
from lake.core.storage.storage import Storage

# Keys of which a commit changed several rows: nobody can tell which became which.
AMBIGUOUS = "ambiguous"


def changes_of(
    storage: Storage, unit: Unit, projection: Schema, noted: Counter[str]
) -> Iterator[pa.RecordBatch]:
    """Yield a unit's changes as rows of a change log.

    Args:
        storage: where the files lie.
        unit: what to read.
        projection: the columns to return; the last three are those of a change log.
        noted: counts what was noticed.
    """
    names = [item.name for item in projection.fields[:-3]]
    with closing(_changes(storage, unit, noted)) as changes:
        for rows, kinds in changes:
            if rows.num_rows:
                yield _dressed(rows.select(names), kinds, unit)


def _changes(
    storage: Storage, unit: Unit, noted: Counter[str]
) -> Generator[tuple[pa.RecordBatch, Any]]:
    """Yield rows, each with what happened to it."""
    if not unit.matched:
        for rows, came in _rows(storage, unit):
            yield rows, np.where(came, INSERT, DELETE)
        return
    spool = RowSpool(unit.key)
    with closing(spool):
        for rows, came in _rows(storage, unit):
            spool.add(rows, came)
        for rows, came in spool.parts():
            found = match(rows, came, unit.key)
            noted[AMBIGUOUS] += found.ambiguous
            yield rows.take(pa.array(found.rows)), found.kinds


def _dressed(rows: pa.RecordBatch, kinds: Any, unit: Unit) -> pa.RecordBatch:
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


def _rows(storage: Storage, unit: Unit) -> Iterator[tuple[pa.RecordBatch, Mask]]:
    """Yield the rows of all parts and whether each came."""
    with ExitStack() as kept:
        groups = {kind: _groups(storage, unit, kind, kept) for kind in ("before", "after", "added")}
        for part in unit.parts:
            mine, other = unit.with_deletes(part.deletes), unit.with_deletes(part.other)
            before = groups["after" if part.kind == CAME else "before"]
            deletes = Deletes(storage, mine, part.files, before)
            if part.kind in {CAME, WENT}:
                for batch in read_rows(storage, part.files, mine, deletes):
                    yield batch, np.full(batch.num_rows, part.kind == CAME)
            else:
                after = groups["added" if part.kind == LOST else "after"]
                theirs = Deletes(storage, other, part.files, after)
                both = _Differing(deletes, theirs, either=part.kind == CHANGED)
                for file in part.files:
                    for positions, batch in read_positions(storage, file, mine, both):
                        yield batch, both.came(positions)


def _groups(storage: Storage, unit: Unit, kind: str, kept: ExitStack) -> EqualityGroups:
    """Return the equality deletes of the parts together, because most parts have the same.

    Args:
        storage: where they lie.
        unit: the parts.
        kind: those ``before`` the commit, those ``after`` it, or those that it ``added``.
        kept: closes them at the end.
    """
    places = {
        "before": [place for part in unit.parts if part.kind != CAME for place in part.deletes],
        "added": [place for part in unit.parts if part.kind == LOST for place in part.other],
        "after": [
            place
            for part in unit.parts
            for place in (part.deletes if part.kind == CAME else part.other)
            if part.kind in {CAME, CHANGED}
        ],
    }
    found = unit.with_deletes(sorted(set(places[kind]))).deletes
    equality = [item for item in found if item.content == EQUALITY_DELETES]
    return kept.enter_context(closing(EqualityGroups(storage, equality, unit.settings)))


class _Differing:
    """Leaves the rows that are deleted on one side only.

    Args:
        mine: deletes of rows that may have gone.
        theirs: deletes that may have taken them.
        either: whether rows that only `mine` deletes are left too: those came.
    """

    def __init__(self, mine: Deletes, theirs: Deletes, *, either: bool) -> None:
        self._mine = mine
        self._theirs = theirs
        self.either = either
        self.start = 0
        self.kept: Mask = np.zeros(0, np.bool_)

    def of(self, file: FileSlice) -> FileDeletes:
        """Return what to do with a file's rows."""
        return _DifferingFile(self, self._mine.of(file), self._theirs.of(file))

    def chosen(self, start: int, mine: Mask, theirs: Mask) -> Mask:
        """Return which rows to leave, and remember which of them went."""
        self.start, self.kept = start, mine
        return mine != theirs if self.either else mine & ~theirs

    def came(self, positions: Any) -> Mask:
        """Tell of rows of the last batch, by their positions, which came."""
        came: Mask = ~self.kept[positions - self.start]
        return came


class _DifferingFile:
    def __init__(
        self, differing: _Differing, mine: FileDeletes | None, theirs: FileDeletes | None
    ) -> None:
        self._differing = differing
        self._sides = (mine, theirs)
        ids = [column for side in self._sides if side is not None for column in side.key_ids]
        self.key_ids = list(dict.fromkeys(ids))

    def keep(self, start: int, rows: int, keys: pa.RecordBatch) -> Mask | None:
        """Return which rows are deleted on one side only."""
        mine, theirs = (self._kept(side, start, rows, keys) for side in self._sides)
        return self._differing.chosen(start, mine, theirs)

    def leaves(self, start: int, rows: int) -> bool:
        """Return whether rows of a range may be deleted on one side only."""
        mine, theirs = self._sides
        deciding = (mine, theirs) if self._differing.either else (theirs,)
        if any(side is not None and side.key_ids for side in deciding):
            return True
        # What the other side's keys may delete makes it no more.
        keys = pa.RecordBatch.from_arrays([], names=[])
        gone = ~self._kept(theirs, start, rows, keys)
        if self._differing.either:
            gone = gone != ~self._kept(mine, start, rows, keys)
        return bool(gone.any())

    def _kept(self, side: FileDeletes | None, start: int, rows: int, keys: pa.RecordBatch) -> Mask:
        kept = None if side is None else side.keep(start, rows, keys)
        return np.ones(rows, np.bool_) if kept is None else kept
