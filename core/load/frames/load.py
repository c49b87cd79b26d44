"""A DataFrame's write on the driver: planned before its tasks run, and committed from what they report.

The two are different processes, and a streaming query may commit in a third one after a restart, so the plan travels
in the reports.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.base.errors import CommitConflictError, RefusedError
from lake.core.base.options import Option
from lake.core.base.outcome import Outcome
from lake.core.load.frames.tasks import FramePlan
from lake.core.load.ingest.execute import FrameFiles, execute
from lake.core.load.ingest.options import (
    APPEND,
    OVERWRITE,
    OVERWRITE_WHERE,
    Frame,
    IngestOptions,
    LoadRequest,
)
from lake.core.load.ingest.payloads import SourceTask, WriteReport
from lake.core.load.ingest.plan import IngestPlan, plan_ingest
from lake.core.load.ingest.recovery import finish_earlier
from lake.core.spec.properties.table_properties import UPSERT_ENABLED
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots.run_ids import OPERATION_ID, find_on_branch
from lake.core.table.snapshots.streams import QueryEpoch
from lake.core.transaction.session import Session
from lake.core.transaction.staging.failed_attempts import remove_unreported

if TYPE_CHECKING:
    from pyiceberg.schema import Schema


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameWrite:
    """What a user asks of a write.

    Args:
        session: the session.
        identifier: the table.
        options: the options of a load.
        columns: see `Frame`.
    """

    session: Session
    identifier: str
    options: IngestOptions
    columns: Callable[[Schema], pa.Schema]

    def plan(self) -> tuple[FramePlan, Table]:
        """Decide the write; nothing is written.

        Raises:
            BadInputError: a column does not fit the table.
            RefusedError: the table cannot be written.
        """
        plan = self._planned(Frame(columns=self.columns))
        task = SourceTask(
            task=0,
            write=plan.ordered_settings(self.session.ids.uuid()),
            units=(),
            must_match=plan.condition,
        )
        decided = FramePlan(
            table=str(plan.table.metadata.table_uuid),
            base_snapshot_id=plan.base_snapshot_id,
            task=task,
            already=plan.earlier.needs_no_source,
        )
        return decided, plan.table

    def commit(
        self,
        plan: FramePlan,
        reports: Sequence[WriteReport],
        epoch: QueryEpoch | None = None,
        *,
        repeated: bool = False,
    ) -> Outcome | None:
        """Commit what the tasks of a plan reported, once; return None if this was done before.

        Args:
            plan: the plan.
            reports: one of each task.
            epoch: the epoch of a streaming query.
            repeated: whether a task was attempted several times, so that there may be files that none reported.

        Raises:
            CommitConflictError: others changed what was planned; the files were deleted.
            CommitUnknownError: the catalog did not answer; every file stays.
        """
        operation_id = plan.task.write.operation_id
        files = FrameFiles(operation_id=operation_id, reports=reports)
        paths = [file.path for report in reports for file in report.files]
        table = self.session.table(self.identifier)
        done = {OPERATION_ID: operation_id}
        if find_on_branch(table.metadata, self.options.branch, done):  # check: frame-not-committed
            return None
        try:
            found = self._planned(
                Frame(
                    columns=self.columns,
                    written=True,
                    base_snapshot_id=plan.base_snapshot_id,
                ),
                epoch,
            )
            self._check(found, plan, paths)
            finished = (
                finish_earlier(self.session, found) if found.earlier.needs_no_source else None
            )
        except BaseException:
            # No commit has begun, and no other process knows these files.
            table.storage.delete(paths)
            raise
        if finished is not None:
            table.storage.delete(paths)
            return finished
        if repeated:
            remove_unreported(self.session, table, operation_id, paths)
        return execute(self.session, found, files)

    def _planned(self, frame: Frame, epoch: QueryEpoch | None = None) -> IngestPlan:
        request = LoadRequest(options=self.options, epoch=None, query_epoch=epoch, frame=frame)
        plan = plan_ingest(self.session, self.identifier, request)
        enabled = (
            UPSERT_ENABLED.of(plan.table.properties) and plan.table.schema.identifier_field_ids
        )
        if self.options.mode == APPEND and enabled and not self.options.no_upsert:
            raise RefusedError(
                f"{self.identifier} has the property {UPSERT_ENABLED.name}: its loads replace rows by key",
                hint=f"{Option.NO_UPSERT} appends the rows",
            )
        return plan

    def _check(self, found: IngestPlan, plan: FramePlan, paths: Sequence[str]) -> None:
        """Refuse to commit what was planned on another state of the table.

        Raises:
            CommitConflictError: the table, its columns or the earlier run are not what they were.
            RefusedError: the frame is empty, and would delete the old rows.
        """
        if str(found.table.metadata.table_uuid) != plan.table:
            raise CommitConflictError(f"{self.identifier} was replaced while rows were written")
        if found.earlier.needs_no_source:
            return
        if plan.already:
            raise CommitConflictError(
                f"run {self.options.run_id} was taken back since it was found",
                hint="write the rows again",
            )
        if not _is_known(plan.task.write.schema, [found.schema, *found.table.metadata.schemas]):
            raise CommitConflictError(
                f"the columns of {self.identifier} changed while rows were written",
                hint="write the rows again",
            )
        replaces = self.options.mode in {OVERWRITE, OVERWRITE_WHERE}
        if replaces and not paths and not self.options.allow_empty:
            raise RefusedError(
                "the DataFrame has no rows: nothing was replaced",
                hint=f"{Option.ALLOW_EMPTY} removes the old rows",
            )


def _is_known(written: Schema, schemas: Sequence[Schema]) -> bool:
    """Whether each column that was written is one of the table, or becomes one with this commit."""
    columns = {column for schema in schemas for column in _columns(schema)}
    return columns.issuperset(_columns(written))


def _columns(schema: Schema) -> Iterator[tuple[int, str | None, str]]:
    for number in schema.field_ids:
        kind = schema.find_type(number)
        if kind.is_primitive:
            yield number, schema.find_column_name(number), str(kind)
