"""Find the rows of data files that a filter selects, and delete them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from operator import itemgetter

import numpy as np
import pyarrow as pa

from lake.core.base.errors import LakeError
from lake.core.base.plain import PlainData
from lake.core.data.deletes.apply import Deletes
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.deletes.written_positions import found_rows, write_positions
from lake.core.data.rows.reader import FileSlice, ReadSettings, read_positions
from lake.core.data.rows.sorted_writer import open_ordered_writer
from lake.core.data.rows.writer import WriteSettings
from lake.core.engine.tasks import TaskContext
from lake.core.maintain.row_deletion.options import POSITION
from lake.core.spec.properties.table_properties import COPY_ON_WRITE
from lake.core.table.manifests.data_files import DataFile

# The mode of a task that counts rows and writes nothing.
COUNT = "count"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionTask(PlainData):
    """Find the matching rows of data files, and delete them.

    Args:
        task: the task's number, part of file names.
        files: whole data files.
        reading: the settings for reading the filter's columns, with the filter and the deletes.
        mode: how rows are deleted; `COUNT` to count them only.
        format_version: the table's.
        writing: the settings for writing.
        copying: with copy-on-write, the settings for reading all columns of all rows.
    """

    task: int
    files: Sequence[FileSlice]
    reading: ReadSettings
    mode: str
    format_version: int
    writing: WriteSettings
    copying: ReadSettings | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionReport(PlainData):
    """What a task found and wrote.

    Args:
        rows: for each data file, the number of its rows that match and were not deleted before.
        left: with copy-on-write, for each data file with such rows, in their order, the number of its other rows.
        kept: new data files with these other rows.
        deletes: new delete files.
    """

    rows: Sequence[int]
    left: Sequence[int] = ()
    kept: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()


def delete_rows(task: DeletionTask, context: TaskContext) -> Iterator[DeletionReport]:
    """Find the matching rows of data files, and delete them; see `DeletionTask`."""
    written: list[DataFile] = []
    with closing(Deletes(context.storage, task.reading, task.files)) as deletes:
        found = _find(task, deletes, context)
        hit = [number for number, positions in enumerate(found) if len(positions)]
        rows = [len(positions) for positions in found]
        if hit and task.mode == POSITION:
            written = write_positions(
                context,
                task.writing,
                found_rows(deletes, [(task.files[number], found[number]) for number in hit]),
                task=task.task,
                format_version=task.format_version,
            )
    if not hit or task.mode != COPY_ON_WRITE:
        yield DeletionReport(rows=rows, deletes=written)
        return
    kept, left = _copy(task, [(task.files[number], found[number]) for number in hit], context)
    yield DeletionReport(rows=rows, left=left, kept=kept)


def _find(task: DeletionTask, deletes: Deletes, context: TaskContext) -> list[RowPositions]:
    """Return for each data file the positions of the rows that match."""
    found = []
    done, total = 0, max(sum(file.record_count for file in task.files), 1)
    for file in deletes.each_opened(task.files):
        context.check_cancelled()
        positions = RowPositions()
        for matching, _ in read_positions(context.storage, file, task.reading, deletes):
            context.check_cancelled()
            positions.add(matching)
        found.append(positions)
        done += file.record_count
        context.report(done, done / total)
    return found


def _copy(
    task: DeletionTask, hit: Sequence[tuple[FileSlice, RowPositions]], context: TaskContext
) -> tuple[list[DataFile], list[int]]:
    """Write the other rows of the files that contain matching rows.

    Returns:
        The new files, and for each old file the number of its rows in them.
    """
    reading, left = task.copying, []
    if reading is None:
        raise ValueError("copy-on-write needs the settings for reading all columns")
    files = [file for file, _ in hit]
    with (
        open_ordered_writer(context, task.writing, task=task.task) as writer,
        closing(Deletes(context.storage, reading, files)) as deletes,
    ):
        for file, matching in deletes.each_opened(hit, itemgetter(0)):
            removed, read, dropped = matching.to_numpy(), 0, deletes.dropped
            kept = 0
            for positions, batch in read_positions(context.storage, file, reading, deletes):
                context.check_cancelled()
                stays = np.isin(positions, removed, invert=True)
                read += batch.num_rows
                kept += int(np.count_nonzero(stays))
                writer.write(batch.filter(pa.array(stays)))
            _check_rows(file, read, deletes.dropped - dropped)
            if read - kept != len(matching):
                raise LakeError(
                    f"{len(matching)} rows of {file.path} must be deleted, but {read - kept} were left out: "
                    "nothing was committed"
                )
            left.append(kept)
        written = writer.close()
    if sum(item.record_count for item in written) != sum(left):
        raise LakeError(
            f"{sum(left)} rows must be kept, but {sum(item.record_count for item in written)} were written: "
            "nothing was committed"
        )
    return written, left


def _check_rows(file: FileSlice, read: int, dropped: int) -> None:
    """Refuse to replace a file if the rows that were read, and those deleted before, are not all of its rows."""
    if read + dropped != file.record_count:
        raise LakeError(
            f"{file.path} has {file.record_count} rows, but {read} were read and {dropped} are deleted: nothing was "
            "committed"
        )
