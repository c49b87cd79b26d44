"""Write rows to data files in a table's sort order, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.data.rows.prefetch import prefetch
from lake.core.data.rows.writer import (
    TableWriter,
    TransactionalWriter,
    WriteSettings,
    open_writer,
)
from lake.core.data.sorting.external_sort import RowSorter, with_keys, without_keys
from lake.core.engine.tasks import TaskContext
from lake.core.table.manifests.data_files import DataFile

if TYPE_CHECKING:
    from pyiceberg.schema import Schema

    from lake.core.data.sorting.sort_keys import RowOrder

_AHEAD_BYTES = 16 * 1024 * 1024


class OrderedWriter(TransactionalWriter):
    """Collects all rows, and writes them in order when it is closed. Use it as a context manager."""

    def __init__(
        self,
        writer: TableWriter,
        order: RowOrder,
        schema: Schema,
        check_cancelled: Callable[[], None],
    ) -> None:
        self._writer = writer
        self._order = order
        self._schema = schema
        self._go_on = check_cancelled
        self._sorter = RowSorter(check_cancelled=check_cancelled)

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows."""
        if batch.num_rows:
            self._sorter.add(with_keys(batch, self._order, self._schema))

    def write_keyed(self, batch: pa.RecordBatch) -> None:
        """Add rows with their sort keys as the last column."""
        self._sorter.add(batch)

    def close(self) -> list[DataFile]:
        """Sort and write all rows; return the files."""
        # Another thread merges while this one encodes, so two cores work on one output file.
        with closing(prefetch(self._sorter.ordered(), _AHEAD_BYTES)) as batches:
            for batch in batches:
                self._go_on()
                self._writer.write(without_keys(batch))
        self._sorter.close()
        self.closed = True
        return self._writer.close()

    def abort(self) -> None:
        """Remove all written files and buffered rows."""
        self._sorter.close()
        self._writer.abort()


def open_ordered_writer(
    context: TaskContext, settings: WriteSettings, *, task: int, copies: bool = False
) -> TableWriter | OrderedWriter:
    """Return a task's writer of data files, which sorts rows if the settings have an order; see `open_writer`."""
    writer = open_writer(
        context.storage, settings, task=task, attempt=context.attempt, copies=copies
    )
    if settings.order is None:
        return writer
    return OrderedWriter(writer, settings.order, settings.schema, context.check_cancelled)
