"""A DataFrame's write without Spark: its tasks run here, and its commit is that of the driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from lake.core.engine.tasks import TaskContext
from lake.core.load.frames.load import FrameWrite
from lake.core.load.frames.tasks import FramePlan
from lake.core.load.ingest.options import IngestOptions
from lake.core.load.ingest.payloads import WriteReport
from lake.core.table.snapshots.streams import QueryEpoch
from support.tables.iceberg_tables import named_rows, open_session

QUERY = "8c1b2f4e-0000-4000-8000-000000000001"


class Write:
    """A write of rows with ids to the table, each task with its own rows."""

    def __init__(self, warehouse: Path, *, rows: pa.Table | None = None, **options: Any) -> None:
        columns = named_rows(1).schema if rows is None else rows.schema
        self.warehouse = warehouse
        self.session = open_session(warehouse)
        self._write = FrameWrite(
            session=self.session,
            identifier="db.t",
            options=IngestOptions(sources=["Spark"], **options),
            columns=lambda _: columns,
        )
        self.plan, self._table = self._write.plan()

    def task(self, number: int, rows: pa.Table, attempt: str = "0") -> WriteReport:
        # Both travel as JSON.
        plan = FramePlan.from_plain(self.plan.to_plain())
        context = TaskContext(self._table.storage, attempt)
        return WriteReport.from_plain(
            plan.write(number, iter(rows.to_batches()), context).to_plain()
        )

    def commit(
        self, *reports: WriteReport, epoch: int | None = None, repeated: bool = False
    ) -> Any:
        found = None if epoch is None else QueryEpoch(QUERY, epoch)
        return self._write.commit(self.plan, reports, found, repeated=repeated)

    def ids(self, *ids: int, epoch: int | None = None) -> Any:
        return self.commit(self.task(0, named_rows(*ids)), epoch=epoch)
