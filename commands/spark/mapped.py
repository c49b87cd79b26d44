"""Functions that Spark's tasks map over the batches of a DataFrame. Each import of this module is one of a task."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyspark import TaskContext

from lake.commands.spark.redacted import storage_of
from lake.commands.spark.types import table_batch
from lake.core.base.arrow import one_row
from lake.core.data.rows.content_hash import ContentHash
from lake.core.data.sorting.sort_keys import RowOrder
from lake.core.data.sources.batches import as_table_rows
from lake.core.spec.types.arrow_schema import top_columns
from lake.core.spec.types.transforms import group_indices, partition_number

# The column of rows with their places.
PLACE = "lake place"
# The columns of kept files: the file, the content hash of its rows, and what Spark shows to the tasks of a batch.
KEPT = "path string, rows string, query string, run string"
_SHOWN = {"query": "sql.streaming.queryId", "run": "spark.jobGroup.id"}
_KEPT = pa.schema([(name, pa.string()) for name in ("path", "rows", *_SHOWN)])
_PLACES = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Keep:
    """Writes the rows of a task to a file. One that no row names is of an attempt that failed.

    Rows of a batch are hashed if Spark does not show the id of its query.
    """

    prefix: str
    schema: Schema
    columns: pa.Schema
    secrets: bytes
    of_query: bool

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the file, if there are rows, with the ids of the query and of its run that Spark shows to tasks."""
        task = TaskContext.get()
        shown = {name: task.getLocalProperty(key) for name, key in _SHOWN.items()}
        content = ContentHash() if self.of_query and not shown["query"] else None
        path = f"{self.prefix}-{task.partitionId():05d}-{task.taskAttemptId()}.parquet"
        with storage_of(self.secrets) as storage:
            first = next((batch for batch in batches if batch.num_rows), None)
            if first is None:
                return
            with (
                storage.open_output(path) as sink,
                # Without Arrow's own schema, so that the session's time zone is not in the file.
                pq.ParquetWriter(sink, self.columns, store_schema=False) as file,
            ):
                for batch in chain([first], batches):
                    rows = table_batch(batch, self.schema).cast(self.columns)
                    file.write_batch(rows)
                    if content is not None:
                        content.add(rows)
        yield one_row(_KEPT, {"path": path, "rows": content and content.text(), **shown})


@dataclass(frozen=True, slots=True)
class Place:
    """Appends the place of each row: its partition as a number, or its key in the order."""

    schema: Schema
    spec: PartitionSpec
    order: RowOrder | None

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows with their places."""
        order = self.order
        ids = order.column_ids if order else [item.source_id for item in self.spec.fields]
        schema = top_columns(self.schema, ids)
        for batch in batches:
            names = [name for name in schema.column_names if name in batch.schema.names]
            known = table_batch(batch.select(names), self.schema)
            rows = as_table_rows(known, schema, "the DataFrame", range(batch.num_rows))
            places = order.keys(rows, schema) if order else self._partitions(rows, schema)
            yield batch.append_column(PLACE, places)

    def _partitions(self, rows: pa.RecordBatch, schema: Schema) -> pa.Array:
        numbers = np.zeros(rows.num_rows, np.int32)
        for partition, indices in group_indices(rows, self.spec, schema):
            numbers[indices] = partition_number(partition, _PLACES)
        return pa.array(numbers)
