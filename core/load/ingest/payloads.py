"""The payloads and reports of a load's tasks: the pieces of the source to read, and the files that were written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Self

from lake.core.base.plain import PlainData
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.data.rows.writer import WriteSettings
from lake.core.data.sources.discovery import Source
from lake.core.load.ingest.rejects import RejectReport, RejectSettings
from lake.core.spec.expressions.filters import PlainFilter
from lake.core.table.manifests.data_files import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceUnit(PlainData):
    """A file to load, or a piece of one: `source`, or `file` if the source is another table.

    `place` is the unit's index among all units of the source.
    """

    input_bytes: int
    place: int = 0
    source: Source | None = None
    file: FileSlice | None = None

    @property
    def path(self) -> str:
        """The file's path."""
        source = self.source or self.file
        return source.path if source else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceTask(PlainData):
    """Read units and write, send or sample their rows.

    Args:
        task: the task's number, part of file names.
        write: the settings for writing.
        units: the units to read.
        reading: the settings for reading units of another table.
        must_match: a filter that all rows must match.
        reducers: the number of reducers to send rows to.
        bounds: the bounds between the ranges of sort keys; empty to send rows by partition.
        parts: how many ranges each reducer writes.
        sampled: the number of keys to sample.
        rejects: how rows that cannot be loaded are set aside; if None, the first of them is an error.
    """

    task: int
    write: WriteSettings
    units: Sequence[SourceUnit]
    reading: ReadSettings | None = None
    must_match: PlainFilter | None = None
    reducers: int = 0
    bounds: Sequence[bytes] = ()
    parts: int = 1
    sampled: int = 0
    rejects: RejectSettings | None = None

    def counting(self) -> Self:
        """Return the task for reading rows again: those that cannot be loaded are only counted."""
        return replace(self, rejects=None if self.rejects is None else self.rejects.unrecorded())


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveTask(PlainData):
    """Write the rows that were sent to one reducer; `keyed` rows contain their sort keys."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteReport(PlainData):
    """What a task wrote, and the number of source rows that it read; a task may report several times.

    Args:
        files: the new data files; in the last report only.
        rows_read: the number of source rows read since the last report.
        rejects: those of them that were set aside.
    """

    files: Sequence[DataFile] = ()
    rows_read: int = 0
    rejects: Sequence[RejectReport] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SendReport(PlainData):
    """The number of source rows that a task read, and those of them that it set aside instead of sending them."""

    rows_read: int
    rejects: Sequence[RejectReport] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class KeepReport(PlainData):
    """The rows of a file that an overwrite keeps.

    Args:
        files: new data files with these rows.
        untouched: True if all rows are kept, and nothing was written.
        removed_rows: the number of rows that the overwrite removes.
        dropped: the number of rows that were deleted before.
    """

    files: Sequence[DataFile] = ()
    untouched: bool = False
    removed_rows: int = 0
    dropped: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionsReport(PlainData):
    """The distinct partitions of a task's rows: for each, the values in Iceberg's binary single-value form."""

    partitions: Sequence[tuple[bytes | None, ...]]
