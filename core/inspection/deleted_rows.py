"""Count the rows that each delete file deletes, by reading it and the compared columns of the data files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lake.core.deletes.apply import Deletes
from lake.core.deletes.row_positions import RowPositions
from lake.core.engine.tasks import Task, TaskContext
from lake.core.errors import LakeError
from lake.core.manifests.data_files import EQUALITY_DELETES, DeleteFile
from lake.core.plain import PlainData
from lake.core.progress import Meter, showing
from lake.core.rows.live_slices import slices_at
from lake.core.rows.reader import FileSlice, ReadSettings
from lake.core.snapshots.delete_scopes import PUFFIN

if TYPE_CHECKING:
    from lake.core.session import Session
    from lake.core.snapshots.live_files import LiveFiles

# The path and, for a deletion vector, the offset of a delete file.
Key = tuple[str, int | None]
_TASK_FILES = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class CountTask(PlainData):
    """Count the rows of some data files that delete files delete.

    Args:
        task: the task's number.
        files: whole data files.
        reading: the settings for reading them, with all deletes that may apply to them.
    """

    task: int
    files: Sequence[FileSlice]
    reading: ReadSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class CountReport(PlainData):
    """The numbers of rows that the deletes of a task delete, in their order."""

    task: int
    rows: Sequence[int]


def count_deleted(task: CountTask, context: TaskContext) -> Iterator[CountReport]:
    """Count the deleted rows of the task's files for each of its deletes alone."""
    deletes = task.reading.deletes
    with_vector = {item.referenced_data_file for item in deletes if item.format == PUFFIN}
    counts = []
    for item in deletes:
        context.check_cancelled()
        # A vector replaces all other position deletes of its data file.
        either = item.format == PUFFIN or item.content == EQUALITY_DELETES
        files = [file for file in task.files if either or file.path not in with_vector]
        reading = replace(task.reading, deletes=(item,))
        with closing(Deletes(context.storage, reading, files)) as own:
            counts.append(sum(_within(own.all_positions_of(file), file) for file in files))
    yield CountReport(task=task.task, rows=counts)


def _within(positions: RowPositions, file: FileSlice) -> int:
    """Return the number of positions that are rows of a file."""
    if positions.last < file.record_count:
        return len(positions)
    return int(np.count_nonzero(positions.to_numpy() < file.record_count))


def deleted_rows(session: Session, found: LiveFiles) -> dict[Key, int]:
    """Return the number of rows that each delete file of a snapshot deletes; those without an entry delete none.

    A row that several delete files delete counts for each of them.

    Args:
        session: the session whose engine reads the files.
        found: the live files, with all columns of their entries.

    Raises:
        CorruptFileError: a file contradicts its format or the table's metadata.
        RefusedError: the format of a file is not known.
    """
    masks = [found.pairs[spec_id].touched() for spec_id in found.by_spec]
    numbers = np.flatnonzero(np.concatenate([np.zeros(0, np.bool_), *masks]))
    files = slices_at(found, numbers)
    tasks: list[Task[CountTask]] = []
    deletes: list[tuple[DeleteFile, ...]] = []
    for start in range(0, len(files), _TASK_FILES):
        part = files[start : start + _TASK_FILES]
        own = found.deletes_of(numbers[start : start + _TASK_FILES])
        reading = ReadSettings.of(found.table, projection=found.table.schema, deletes=own)
        payload = CountTask(task=len(tasks), files=part, reading=reading)
        tasks.append(Task(payload, sum(file.size_bytes for file in part)))
        deletes.append(own)
    counts: dict[Key, int] = {}
    if not tasks:
        return counts
    meter = Meter("counting the deleted rows", inputs=[task.input_bytes for task in tasks])
    engine = session.engine(sum(task.input_bytes for task in tasks))
    results = engine.run(tasks, count_deleted, storage=found.table.storage, meter=meter)
    reported = 0
    for result in showing(session.progress, meter, results):
        report = result.value
        reported += 1
        for item, rows in zip(deletes[report.task], report.rows, strict=True):
            key = (item.path, item.content_offset)
            counts[key] = counts.get(key, 0) + rows
    if reported != len(tasks):
        raise LakeError(f"the engine lost {len(tasks) - reported} tasks")
    return counts
