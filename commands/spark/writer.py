"""Writes of a DataFrame: what Spark asks of a writer, in its driver and in its tasks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext as SparkTask
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from lake.commands.spark.redacted import reported, storage_of
from lake.commands.spark.types import frame_columns, table_batch
from lake.core.base.errors import InvalidRequestError, LakeError
from lake.core.engine.tasks import TaskContext
from lake.core.load.frames.tasks import FramePlan
from lake.core.load.ingest.payloads import WriteReport

if TYPE_CHECKING:
    from lake.core.load.frames.load import FrameWrite
    from lake.core.table.snapshots.streams import QueryEpoch

_REPLACED = ("overwrite-where", "replace-partitions", "allow-empty")
_WRITE = ("branch", "run-id", "evolve", "target-size", "no-upsert", *_REPLACED)


class Written(WriterCommitMessage):  # type: ignore[misc]
    """What a task wrote, with the plan that it followed: the driver may have none."""

    def __init__(
        self, plan: str, report: str, *, task: int, attempt: int, query: str | None
    ) -> None:
        self.plan = plan
        self.report = report
        self.task = task
        self.attempt = attempt
        self.query = query


class Parts:
    """The parts of a writer that batches and streams share. Spark pickles it for its tasks after it is planned."""

    # The options besides those of the table and the catalog, and those that Spark adds.
    names: Sequence[str] = _WRITE

    def __init__(self, options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> None:
        self._options = options
        self._schema = schema
        self._overwrite = overwrite
        with self._write() as write:
            plan, table = write.plan()
            self._plan = json.dumps(plan.to_plain())
            self._secrets = table.storage.credentials.to_bytes()

    @contextmanager
    def _write(self) -> Iterator[FrameWrite]:
        # Tasks have an object of this class, too.
        from lake.commands.spark.opened import lowered, named_table
        from lake.core.load.frames.load import FrameWrite

        calls, name = named_table(self._options, self.names)
        given = lowered(self._options)
        with reported(calls.redact):
            asked = self._load_options({one: given[one] for one in self.names if one in given})
            yield FrameWrite(
                session=calls.session,
                identifier=name,
                options=calls.load_options("Spark", asked),
                columns=partial(frame_columns, self._schema),
            )

    def _load_options(self, given: Mapping[str, str]) -> Mapping[str, str | bool]:
        """Return the options of a load."""
        replaced = [name for name in _REPLACED if name in given]
        if self._overwrite:
            whole = not {"overwrite-where", "replace-partitions"}.intersection(replaced)
            return {**given, "overwrite": whole}
        if replaced:
            raise InvalidRequestError(f"{replaced[0]} needs mode('overwrite')")
        return given

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        """Write the rows of a task to files of the table."""
        plan, spark = FramePlan.from_plain(json.loads(self._plan)), SparkTask.get()
        number, attempt = spark.partitionId(), spark.attemptNumber()
        batches = (table_batch(batch, plan.task.write.schema) for batch in iterator)
        with storage_of(self._secrets) as storage:
            context = TaskContext(storage, str(spark.taskAttemptId()))
            report = plan.write(number, batches, context)
        query = spark.getLocalProperty("sql.streaming.queryId")
        text = json.dumps(report.to_plain())
        return Written(self._plan, text, task=number, attempt=attempt, query=query)

    def _commit(self, messages: Sequence[Written | None], epoch: QueryEpoch | None) -> None:
        with self._write() as write:
            found = checked(messages)
            reports = [WriteReport.from_plain(json.loads(item.report)) for item in found]
            plan = FramePlan.from_plain(json.loads(found[0].plan))
            repeated = any(item.attempt for item in found)
            write.commit(plan, reports, epoch, repeated=repeated)

    def _abort(self, messages: Sequence[Written | None]) -> None:
        """Delete what tasks wrote, if a task has failed. Otherwise a commit was tried, and may have succeeded."""
        found = [item for item in messages if item is not None]
        if len(found) < len(messages):
            reports = [WriteReport.from_plain(json.loads(item.report)) for item in found]
            with storage_of(self._secrets) as storage:
                storage.delete(file.path for report in reports for file in report.files)


def checked(messages: Sequence[Written | None]) -> list[Written]:
    """Return the messages of all tasks.

    Raises:
        LakeError: there is none, one is missing, or two are of one task or of different plans; nothing is committed.
    """
    found = [item for item in messages if item is not None]
    tasks = {item.task for item in found}
    if not found or len(tasks) < len(messages) or len({item.plan for item in found}) > 1:
        raise LakeError(
            f"Spark has {len(messages)} tasks and reports of {len(tasks)}: nothing was committed",
            hint="write the rows again",
        )
    return found


class LakeWriter(Parts, DataSourceArrowWriter):  # type: ignore[misc]
    """Writes a DataFrame as `lake ingest` loads files: in one commit, once for each run id."""

    def commit(self, messages: list[Written | None]) -> None:
        """Commit the files of all tasks."""
        self._commit(messages, None)

    def abort(self, messages: list[Written | None]) -> None:
        """Delete the files of a write that was certainly not committed."""
        self._abort(messages)
