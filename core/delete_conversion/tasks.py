"""Find the rows that equality deletes delete, reading the compared columns only, and delete them by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass

from lake.core.deletes.apply import Deletes
from lake.core.deletes.writers import DeletedRows, open_position_writer
from lake.core.engine.tasks import TaskContext
from lake.core.manifests.data_files import DataFile
from lake.core.plain import PlainData
from lake.core.rows.reader import FileSlice, ReadSettings
from lake.core.rows.writer import WriteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertTask(PlainData):
    """Convert the equality deletes of some data files.

    Args:
        task: the task's number, part of file names.
        files: whole data files.
        reading: the settings for reading them, with all deletes that may apply to them.
        format_version: the table's.
        writing: the settings for writing delete files.
    """

    task: int
    files: Sequence[FileSlice]
    reading: ReadSettings
    format_version: int
    writing: WriteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertReport(PlainData):
    """What a task wrote.

    Args:
        hit: the data files of which equality deletes delete rows that no position delete did.
        deletes: the new delete files.
        rows: the number of these rows.
    """

    hit: Sequence[str] = ()
    deletes: Sequence[DataFile] = ()
    rows: int = 0


def convert(task: ConvertTask, context: TaskContext) -> Iterator[ConvertReport]:
    """Write the positions of the rows that equality deletes delete."""
    found: list[DeletedRows] = []
    rows = 0
    with closing(Deletes(context.storage, task.reading, task.files)) as deletes:
        for file in task.files:
            context.check_cancelled()
            positions, earlier = deletes.all_positions_of(file), deletes.positions_of(file)
            if added := len(positions.without(earlier)):
                rows += added
                found.append(
                    DeletedRows(
                        path=file.path,
                        spec_id=file.spec_id,
                        partition=file.partition,
                        positions=positions,
                        earlier=earlier,
                    )
                )
    if not found:
        yield ConvertReport()
        return
    names = task.writing.file_names(task=task.task, attempt=context.attempt)
    with open_position_writer(
        context.storage, task.writing, format_version=task.format_version, names=names
    ) as writer:
        for item in found:
            context.check_cancelled()
            writer.add(item)
        written = writer.close()
    yield ConvertReport(hit=[item.path for item in found], deletes=written, rows=rows)
