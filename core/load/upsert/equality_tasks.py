"""Write equality deletes for the source's keys, without reading the table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lake.core.base.plain import PlainData
from lake.core.data.deletes.writers import open_equality_writer
from lake.core.data.rows.writer import WriteSettings
from lake.core.engine.tasks import TaskContext
from lake.core.load.ingest.checksummed_batches import batches_in
from lake.core.spec.types.arrow_schema import PlainSchema, arrow_schema
from lake.core.table.manifests.data_files import DataFile


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualityDeleteTask(PlainData):
    """Write a delete for every key of a bucket.

    Args:
        task: the task's number, part of file names.
        keys: a file of the bucket's keys.
        ids: columns of the key, in the file's order.
        columns: the schema of the delete files, in the same order.
        writing: the settings for writing.
    """

    task: int
    keys: str
    ids: Sequence[int]
    columns: PlainSchema
    writing: WriteSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualityDeleteReport(PlainData):
    """The equality delete files of one bucket."""

    deletes: Sequence[DataFile]


def write_deletes(task: EqualityDeleteTask, context: TaskContext) -> Iterator[EqualityDeleteReport]:
    """Write a delete for every key of a bucket."""
    settings = task.writing
    columns = task.columns
    schema = arrow_schema(columns)
    names = settings.file_names(task=task.task, attempt=context.attempt)
    with open_equality_writer(
        context.storage, settings, columns=columns, equality_ids=task.ids, names=names
    ) as writer:
        for batch in batches_in(context.storage, task.keys):
            context.check_cancelled()
            writer.write(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
        files = writer.close()
    yield EqualityDeleteReport(deletes=files)
