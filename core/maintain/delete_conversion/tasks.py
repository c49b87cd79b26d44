"""Find the rows that delete files delete, and delete them by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from lake.core.base.plain import PlainData
from lake.core.data.deletes.apply import Deletes
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.deletes.writers import DeletedRows
from lake.core.data.deletes.written_positions import deleted_rows, write_positions
from lake.core.data.rows.reader import FileSlice, ReadSettings
from lake.core.data.rows.writer import WriteSettings
from lake.core.engine.tasks import TaskContext
from lake.core.table.manifests.data_files import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTask(PlainData):
    """Write the deleted rows of some data files as positions.

    Args:
        task: the task's number, part of file names.
        files: whole data files, in the order in which their positions are written.
        reading: the settings for reading them, with the deletes.
        compares_keys: whether equality deletes are applied, and positions stay in other delete files; otherwise
            all positions are written.
        format_version: the table's.
        granularity: whether a position delete file is for one data file, or for several of a partition.
        writing: the settings for writing delete files.
    """

    task: int
    files: Sequence[FileSlice]
    reading: ReadSettings
    compares_keys: bool
    format_version: int
    granularity: str
    writing: WriteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport(PlainData):
    """What a task wrote.

    Args:
        hit: the data files of which rows are deleted that no delete file that stays deletes by position.
        deletes: the new delete files.
        rows: the number of these rows.
    """

    hit: Sequence[str] = ()
    deletes: Sequence[DataFile] = ()
    rows: int = 0


def convert(task: ConvertTask, context: TaskContext) -> Iterator[ConvertReport]:
    """Write the positions of the deleted rows."""
    found: list[DeletedRows] = []
    rows = 0
    with closing(Deletes(context.storage, task.reading, task.files)) as deletes:
        # Keys are in the data files.
        each = deletes.each_opened if task.compares_keys else deletes.each_prepared
        for file in each(task.files):
            context.check_cancelled()
            positions, earlier = _rows_of(file, deletes, compares_keys=task.compares_keys)
            if added := len(positions.without(earlier)):
                rows += added
                found.append(deleted_rows(file, positions, earlier))
    if not found:
        yield ConvertReport()
        return
    written = write_positions(
        context,
        task.writing,
        found,
        task=task.task,
        format_version=task.format_version,
        granularity=task.granularity,
    )
    yield ConvertReport(hit=[item.path for item in found], deletes=written, rows=rows)


def _rows_of(
    file: FileSlice, deletes: Deletes, *, compares_keys: bool
) -> tuple[RowPositions, RowPositions]:
    """Return the deleted rows of a data file, and those that delete files which stay delete by position."""
    by_position = deletes.positions_of(file)
    if compares_keys:
        return deletes.all_positions_of(file), by_position
    return by_position, RowPositions()
