"""What tasks do after they found the rows to delete: write their positions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from lake.core.data.deletes.apply import Deletes
from lake.core.data.deletes.row_positions import RowPositions
from lake.core.data.deletes.writers import DeletedRows, open_position_writer
from lake.core.data.rows.reader import FileSlice
from lake.core.data.rows.writer import WriteSettings
from lake.core.engine.tasks import TaskContext
from lake.core.spec.properties.table_properties import FILE
from lake.core.table.manifests.data_files import DataFile


def deleted_rows(file: FileSlice, positions: RowPositions, earlier: RowPositions) -> DeletedRows:
    """Return rows of a whole data file to be deleted; the last argument is `DeletedRows.earlier`."""
    return DeletedRows(
        path=file.path,
        spec_id=file.spec_id,
        partition=file.partition,
        positions=positions,
        earlier=earlier,
    )


def found_rows(
    deletes: Deletes, found: Sequence[tuple[FileSlice, RowPositions]]
) -> Iterator[DeletedRows]:
    """Yield the found rows of each file, with those that the table's deletes already delete."""
    for file, positions in deletes.each_prepared(found, itemgetter(0)):
        # check: earlier-positions-in-vector
        yield deleted_rows(file, positions, deletes.positions_of(file))


def write_positions(
    context: TaskContext,
    settings: WriteSettings,
    deleted: Iterable[DeletedRows],
    *,
    task: int,
    format_version: int,
    granularity: str = FILE,
) -> list[DataFile]:
    """Write the deletes of rows; deletion vectors also contain the rows deleted before.

    Args:
        context: of the running task.
        settings: the table's.
        deleted: the rows of each data file.
        task: the task's number, part of the files' names.
        format_version: the table's.
        granularity: whether a position delete file is for one data file, or for several of a partition.

    Returns:
        The new delete files.

    Raises:
        StoppedError: the batch has ended early; the files are removed.
        RefusedError: the format version does not support deletes.
    """
    names = settings.file_names(task=task, attempt=context.attempt)
    with open_position_writer(
        context.storage,
        settings,
        format_version=format_version,
        names=names,
        granularity=granularity,
    ) as writer:
        for rows in deleted:
            context.check_cancelled()
            writer.add(rows)
        return writer.close()
