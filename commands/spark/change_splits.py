"""What the tasks of streams of changes get from the driver, and do with it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql.types import StructType

from lake.commands.spark.redacted import storage_of
from lake.commands.spark.splits import Split, TaskInput
from lake.commands.spark.types import batch_of
from lake.core.read.changelog.read import changes_of
from lake.core.read.changelog.row_diff import CHANGE_COLUMNS, CHANGE_TYPES, INSERT
from lake.core.read.changelog.task_unit import ChangeUnit
from lake.core.spec.types.arrow_schema import schema_from_plain


class ChangeSplit(TaskInput):
    """What one task reads of a change log: a unit, the columns, and credentials, which are not shown."""

    def __init__(self, unit: str, columns: str, secrets: bytes) -> None:
        self.unit = unit
        self.columns = columns
        self.secrets = secrets

    def __repr__(self) -> str:
        return f"ChangeSplit({self.unit})"

    def rows(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        """Yield the changes as a DataFrame with a schema takes them."""
        unit = ChangeUnit.from_plain(json.loads(self.unit))
        columns = schema_from_plain(json.loads(self.columns))
        with storage_of(self.secrets) as storage:
            for batch in changes_of(storage, unit, columns, Counter()):
                yield batch_of(batch, columns, schema)


class InsertSplit(Split):
    """What one task reads of the snapshot with which a change log starts: all of its rows are inserts."""

    def __init__(
        self, files: str, reading: str, secrets: bytes, ordinal: int, snapshot: int
    ) -> None:
        super().__init__(files, reading, secrets)
        self.ordinal = ordinal
        self.snapshot = snapshot

    def rows(self, schema: StructType) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the columns of a change log."""
        own = StructType(schema.fields[: -len(CHANGE_COLUMNS)])
        values = (
            pa.scalar(CHANGE_TYPES[INSERT]),
            pa.scalar(self.ordinal, pa.int32()),
            pa.scalar(self.snapshot, pa.int64()),
        )
        added = zip(schema.fields[-len(CHANGE_COLUMNS) :], values, strict=True)
        columns = [(pa.field(f.name, value.type, nullable=f.nullable), value) for f, value in added]
        for batch in super().rows(own):
            found = batch
            for field, value in columns:
                found = found.append_column(field, pa.repeat(value, batch.num_rows))
            yield found
