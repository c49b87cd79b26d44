"""Write rows to data files in a table's sort order, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from itertools import groupby
from operator import itemgetter
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

# While one row group is encoded, the rows of the next are sorted.
_AHEAD_BYTES = 128 * 1024 * 1024


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

    def close(self) -> list[DataFile]:
        """Sort and write all rows; return the files."""
        _write_ahead(self._writer, self._sorter.ordered(), self._go_on)
        self._sorter.close()
        self.closed = True
        return self._writer.close()

    def abort(self) -> None:
        """Remove all written files and buffered rows."""
        self._sorter.close()
        self._writer.abort()


def write_in_order(
    writer: TableWriter,
    keyed: Iterable[tuple[int, pa.RecordBatch]],
    check_cancelled: Callable[[], None],
) -> None:
    """Sort and write rows, one part after the other.

    Args:
        writer: receives the rows.
        keyed: rows with their sort keys as the last column, each batch with the number of its part. No row of a part
            sorts before a row of an earlier part.
        check_cancelled: called between steps; raises to stop.
    """
    _write_ahead(writer, _ordered_parts(keyed, check_cancelled), check_cancelled)


def _ordered_parts(
    keyed: Iterable[tuple[int, pa.RecordBatch]], check_cancelled: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    for _, batches in groupby(keyed, key=itemgetter(0)):
        with closing(RowSorter(check_cancelled=check_cancelled)) as sorter:
            for _, batch in batches:
                sorter.add(batch)
            yield from sorter.ordered()


def _write_ahead(
    writer: TableWriter, ordered: Iterator[pa.RecordBatch], check_cancelled: Callable[[], None]
) -> None:
    """Write sorted rows with keys."""
    # Another thread sorts while this one encodes, so two cores work on one output file.
    with closing(prefetch(ordered, _AHEAD_BYTES)) as batches:
        for batch in batches:
            check_cancelled()
            writer.write(without_keys(batch))


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
