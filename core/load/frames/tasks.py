"""The tasks of a DataFrame's write: their rows to data files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import pyarrow as pa

from lake.core.base.errors import LakeError
from lake.core.base.plain import PlainData
from lake.core.data.rows.sorted_writer import open_ordered_writer
from lake.core.data.sources.acceptance import Acceptance, RowCheck
from lake.core.data.sources.batches import raw_table_rows
from lake.core.engine.tasks import TaskContext
from lake.core.load.ingest.payloads import SourceTask, WriteReport
from lake.core.load.ingest.tasks import filter_check, null_check
from lake.core.spec.expressions.filters import bind_filter


@dataclass(frozen=True, slots=True, kw_only=True)
class FramePlan(PlainData):
    """A decided write, as it travels to the tasks and with their reports to the commit.

    Args:
        table: the table's UUID.
        base_snapshot_id: the head of the branch; None if it is empty.
        task: what each task does; its number is that of Spark's partition.
        already: whether an earlier run has written the same, so that tasks write nothing.
    """

    table: str
    base_snapshot_id: int | None
    task: SourceTask
    already: bool = False

    def write(
        self, number: int, batches: Iterable[pa.RecordBatch], context: TaskContext
    ) -> WriteReport:
        """Write the rows of one of Spark's partitions.

        Raises:
            BadInputError: a row does not fit; nothing is left behind.
        """
        if not self.already:
            return _write_rows(replace(self.task, task=number), batches, context)
        for _ in batches:
            pass  # Spark waits until its rows are taken
        return WriteReport()


def _write_rows(
    task: SourceTask, batches: Iterable[pa.RecordBatch], context: TaskContext
) -> WriteReport:
    schema, name = task.write.schema, f"partition {task.task} of the DataFrame"
    checks: list[RowCheck] = [null_check]
    if task.must_match is not None:
        checks.append(filter_check(bind_filter(task.must_match, schema), schema))
    acceptance = Acceptance(checks)
    rows = 0
    with open_ordered_writer(context, task.write, task=task.task) as writer:
        for batch in batches:
            if batch.num_rows:
                raw = raw_table_rows(batch, schema, name, rows + 1)
                writer.write(acceptance.accepted(raw, name))
                rows += batch.num_rows
        files = writer.close()
    if sum(file.record_count for file in files) != rows:
        raise LakeError(f"{name} has {rows} rows, and not all of them were written")
    return WriteReport(files=files, rows_read=rows)
