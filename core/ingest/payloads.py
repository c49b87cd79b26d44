"""What the tasks of a load are given: pieces of the source to read, and how their rows are written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.expressions.filters import PlainFilter
from lake.core.plain import PlainData
from lake.core.rows.reader import FileSlice, ReadSettings
from lake.core.rows.writer import WriteSettings
from lake.core.sources.discovery import Source


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceUnit(PlainData):
    """A file to load, or a piece of one: either `source`, or `file` where the source is another table.

    `place` is the unit's place among all units of the source.
    """

    input_bytes: int
    place: int = 0
    source: Source | None = None
    file: FileSlice | None = None

    @property
    def path(self) -> str:
        """The file's path."""
        found = self.source or self.file
        return found.path if found else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTask(PlainData):
    """Read units and write, send or sample their rows.

    Args:
        task: its number, part of the names of files.
        write: how rows are written.
        units: what is read.
        reading: how units of another table are read.
        must_match: a filter that all rows match.
        reducers: how many reducers there are to send rows to.
        bounds: where ranges of sort keys are cut; empty to send rows by partition.
        sampled: how many keys are sampled.
    """

    task: int
    write: WriteSettings
    units: Sequence[SourceUnit]
    reading: ReadSettings | None = None
    must_match: PlainFilter | None = None
    reducers: int = 0
    bounds: Sequence[str] = ()
    sampled: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveTask(PlainData):
    """Write the rows that were sent to one reducer; `keyed` rows carry their sort keys."""

    task: int
    write: WriteSettings
    keyed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepTask(PlainData):
    """Write the rows of `file` that `remove` does not match."""

    task: int
    write: WriteSettings
    file: FileSlice
    reading: ReadSettings
    remove: PlainFilter
