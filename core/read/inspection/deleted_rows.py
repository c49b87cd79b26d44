"""Count the rows that each delete file deletes, by reading it and the compared columns of the data files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lake.core.base.plain import PlainData
from lake.core.base.progress import Meter, showing
from lake.core.data.deletes.apply import Deletes, Group, grouped
from lake.core.data.deletes.equality import MEMORY_BYTES
from lake.core.data.deletes.equality_counts import EqualityCounts, load_keys
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.rows.live_slices import parts_by_rows, slices_at
from lake.core.data.rows.reader import FileSlice, ReadSettings, read_keys
from lake.core.engine.tasks import Task, TaskContext
from lake.core.table.manifests.data_files import EQUALITY_DELETES, DeleteFile
from lake.core.table.snapshots.delete_scopes import PUFFIN

if TYPE_CHECKING:
    from lake.core.table.snapshots.live_files import LiveFiles
    from lake.core.transaction.session import Session

# The path and, for a deletion vector, the offset of a delete file.
Key = tuple[str, int | None]
# While the keys of some delete files are counted with, those of others are read.
_LOADED_BYTES = MEMORY_BYTES // 2


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
    counts = _equality_counts(task, context)
    with_vector = {item.referenced_data_file for item in deletes if item.format == PUFFIN}
    for item in deletes:
        if item not in counts:
            # A vector replaces all other position deletes of its data file.
            files = [
                file for file in task.files if item.format == PUFFIN or file.path not in with_vector
            ]
            counts[item] = _counted_alone(task, context, item, files)
    yield CountReport(task=task.task, rows=[counts[item] for item in deletes])


def _counted_alone(
    task: CountTask, context: TaskContext, item: DeleteFile, files: Sequence[FileSlice]
) -> int:
    context.check_cancelled()
    reading = replace(task.reading, deletes=(item,))
    with closing(Deletes(context.storage, reading, files)) as own:
        return sum(_within(own.all_positions_of(file), file) for file in files)


def _equality_counts(task: CountTask, context: TaskContext) -> dict[DeleteFile, int]:
    """Count the rows that each equality delete file deletes.

    The keys of a data file are read once for as many delete files as fit in memory.
    """
    equality = [item for item in task.reading.deletes if item.content == EQUALITY_DELETES]
    counts: dict[DeleteFile, int] = {}
    waiting: list[tuple[Group, EqualityCounts]] = []
    used = 0
    for group, items in grouped(equality, task.reading).items():
        for loaded in load_keys(
            context.storage, items, group[1], task.reading, memory_bytes=_LOADED_BYTES
        ):
            if isinstance(loaded, DeleteFile):
                counts[loaded] = _counted_alone(task, context, loaded, task.files)
                continue
            if waiting and used + loaded.needed_bytes > _LOADED_BYTES:
                counts |= _counted(task, context, waiting)
                waiting, used = [], 0
            used += loaded.needed_bytes
            waiting.append((group, EqualityCounts(loaded)))
    return counts | _counted(task, context, waiting)


def _counted(
    task: CountTask, context: TaskContext, groups: Sequence[tuple[Group, EqualityCounts]]
) -> dict[DeleteFile, int]:
    """Read the compared columns of each data file once."""
    for file in task.files:
        context.check_cancelled()
        own = [
            (ids, counter)
            for (scope, ids), counter in groups
            if scope in {None, (file.spec_id, file.partition)}
            and file.sequence_number < counter.latest
        ]
        columns = list(dict.fromkeys(column for ids, _ in own for column in ids))
        if columns:
            for _, keys in read_keys(context.storage, file, task.reading, columns):
                for ids, counter in own:
                    counter.add(keys.select([str(column) for column in ids]), file.sequence_number)
    return {
        item: int(rows)
        for _, counter in groups
        for item, rows in zip(counter.files, counter.rows, strict=True)
    }


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
    counts: dict[Key, int] = {}
    if not files:
        return counts
    engine = session.engine(sum(file.size_bytes for file in files))
    tasks: list[Task[CountTask]] = []
    deletes: list[tuple[DeleteFile, ...]] = []
    for places in parts_by_rows(files, engine.parallelism):
        own = found.deletes_of(numbers[places])
        reading = ReadSettings.of(found.table, projection=found.table.schema, deletes=own)
        payload = CountTask(task=len(tasks), files=files[places], reading=reading)
        tasks.append(Task(payload, sum(file.size_bytes for file in files[places])))
        deletes.append(own)
    meter = Meter("counting the deleted rows", inputs=[task.input_bytes for task in tasks])
    results = engine.run(tasks, count_deleted, storage=found.table.storage, meter=meter)
    for result in showing(session.progress, meter, results):
        report = result.value
        for item, rows in zip(deletes[report.task], report.rows, strict=True):
            key = (item.path, item.content_offset)
            counts[key] = counts.get(key, 0) + rows
    return counts
