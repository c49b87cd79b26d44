"""What the tasks of reads get from the driver, and do with it. Each import of this module is one of a task."""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import closing

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from lake.commands.spark.redacted import storage_of
from lake.commands.spark.types import batch_of
from lake.core.data.deletes.apply import Deletes, read_rows
from lake.core.data.rows.reader import FileSlice, ReadSettings


class TaskInput(InputPartition):  # type: ignore[misc]
    """What one task reads."""

    @abstractmethod
    def rows(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        """Yield the rows as a DataFrame with a schema takes them."""


class Split(TaskInput):
    """What one task reads: slices of files and their deletes as JSON, and credentials, which are not shown."""

    def __init__(self, files: str, reading: str, secrets: bytes) -> None:
        self.files = files
        self.reading = reading
        self.secrets = secrets

    def __repr__(self) -> str:
        return f"Split({self.files})"

    def rows(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        """Yield the rows as a DataFrame with a schema takes them."""
        reading = ReadSettings.from_plain(json.loads(self.reading))
        files = [FileSlice.from_plain(item) for item in json.loads(self.files)]
        with (
            storage_of(self.secrets) as storage,
            closing(Deletes(storage, reading, files)) as deletes,
        ):
            for batch in read_rows(storage, files, reading, deletes):
                yield batch_of(batch, reading.projection, schema)


class SplitReader:
    """What tasks have of a reader. Spark pickles readers for its tasks only, and after it has made them."""

    def __init__(self, schema: StructType) -> None:
        self._schema = schema

    def __reduce__(self) -> tuple[type[SplitReader], tuple[StructType]]:
        # Without what plans, which takes a second to import.
        return SplitReader, (self._schema,)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a split. Spark also asks for one, which is not ours, if there are none."""
        return partition.rows(self._schema) if isinstance(partition, TaskInput) else iter(())
