"""Rows that a snapshot put in and took away, read from data files with the deletes before and after it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from pyiceberg.schema import Schema

from lake.core.changes.matching import (
    CHANGE_TYPES,
    DELETE,
    INSERT,
    Mask,
    match,
)
from lake.core.changes.spool import RowSpool
from lake.core.deletes.apply import Deletes, read_rows
from lake.core.rows.reader import (
    FileDeletes,
    FileSlice,
    ReadSettings,
    read_positions,
)
from lake.core.table.storage import Storage

# Keys of which a commit changed several rows: nobody can tell which became which.
AMBIGUOUS = "ambiguous"
CAME, WENT, LOST, CHANGED = "came", "went", "lost", "changed"


@dataclass(frozen=True, slots=True)
class Part:
    """Pieces of data files that are read together.

    Args:
        kind: ``came`` and ``went`` are all rows that the settings' deletes leave; ``lost`` are those of them that
            the other deletes hit; ``changed`` are the rows that are deleted by one of both only, of which those
            that the settings' deletes leave went and the others came.
        files: the pieces.
        settings: how they are read.
        other: delete files as in other settings; None where there are no others.
    """

    kind: str
    files: Sequence[FileSlice]
    settings: ReadSettings
    other: ReadSettings | None = None

    @property
    def bytes(self) -> int:
        """Bytes of the pieces."""
        return sum(item.length or item.size_bytes - item.start for item in self.files)

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "kind": self.kind,
            "files": [item.to_plain() for item in self.files],
            "settings": self.settings.to_plain(),
            "other": None if self.other is None else self.other.to_plain(),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Part:
        """Rebuild from `to_plain`'s values."""
        other = plain["other"]
        return cls(
            plain["kind"],
            [FileSlice.from_plain(item) for item in plain["files"]],
            ReadSettings.from_plain(plain["settings"]),
            None if other is None else ReadSettings.from_plain(other),
        )


@dataclass(frozen=True, slots=True)
class Unit:
    """What is told together: a whole commit, or a part of one that only put rows in or only took some away.

    Args:
        parts: what to read.
        ordinal: the commit's place among those told.
        snapshot_id: the commit.
        key: columns by which updates are told.
        matched: whether rows both went and came, so that they must be compared.
    """

    parts: Sequence[Part]
    ordinal: int
    snapshot_id: int
    key: tuple[str, ...]
    matched: bool

    @property
    def bytes(self) -> int:
        """Bytes of what is read."""
        return sum(part.bytes for part in self.parts)

    def to_plain(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "parts": [part.to_plain() for part in self.parts],
            "ordinal": self.ordinal,
            "snapshot_id": str(self.snapshot_id),
            "key": list(self.key),
            "matched": self.matched,
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Unit:
        """Rebuild from `to_plain`'s values."""
        return cls(
            [Part.from_plain(part) for part in plain["parts"]],
            plain["ordinal"],
            int(plain["snapshot_id"]),
            tuple(plain["key"]),
            plain["matched"],
        )


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
    for part in unit.parts:
        if part.kind in {CAME, WENT}:
            with closing(Deletes(storage, part.settings, part.files)) as deletes:
                for batch in read_rows(storage, part.files, part.settings, deletes):
                    yield batch, np.full(batch.num_rows, part.kind == CAME)
        else:
            yield from _differences(storage, part)


def _differences(storage: Storage, part: Part) -> Iterator[tuple[pa.RecordBatch, Mask]]:
    """Yield the rows that one side's deletes hit and the other's do not."""
    if part.other is None:
        raise ValueError("rows with one set of deletes have no differences")
    with (
        closing(Deletes(storage, part.settings, part.files)) as mine,
        closing(Deletes(storage, part.other, part.files)) as theirs,
    ):
        both = _Differing(mine, theirs, either=part.kind == CHANGED)
        for file in part.files:
            for positions, batch in read_positions(storage, file, part.settings, both):
                yield batch, both.came(positions)


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
        self._either = either
        self.start = 0
        self.kept: Mask = np.zeros(0, np.bool_)

    def of(self, file: FileSlice) -> FileDeletes:
        """Return what to do with a file's rows."""
        return _DifferingFile(self, self._mine.of(file), self._theirs.of(file))

    def chosen(self, start: int, mine: Mask, theirs: Mask) -> Mask:
        """Return which rows to leave, and remember which of them went."""
        self.start, self.kept = start, mine
        return mine != theirs if self._either else mine & ~theirs

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

    def _kept(self, side: FileDeletes | None, start: int, rows: int, keys: pa.RecordBatch) -> Mask:
        kept = None if side is None else side.keep(start, rows, keys)
        return np.ones(rows, np.bool_) if kept is None else kept
