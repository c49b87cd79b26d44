"""Load a change log: apply each change in order, by key, without reading the table's rows, in one commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial

from lake.core.base.errors import LakeError
from lake.core.base.outcome import Outcome
from lake.core.load.changelog_load.plan import ChangelogLoadPlan, describe_changes
from lake.core.load.changelog_load.tasks import (
    ChangeCounts,
    ChangesTask,
    ReceiveChangesTask,
    receive_changes,
    send_changes,
    write_changes,
)
from lake.core.load.ingest.execute import preview
from lake.core.load.ingest.facts import IngestResult
from lake.core.load.ingest.load import Load, SourceRun, run_load, run_source, warn_of_no_rows
from lake.core.load.ingest.plan import IngestPlan
from lake.core.load.ingest.rejects import RejectReport
from lake.core.load.ingest.result import Landed, LoadResult
from lake.core.load.upsert.change_rows import source_schema
from lake.core.spec.properties.table_properties import HASH
from lake.core.table.manifests.data_files import DataFile
from lake.core.transaction.commit.operations import AppendFiles, Operation, RowDelta
from lake.core.transaction.session import Session
from lake.core.transaction.spec_conditions import same_spec, sole_spec
from lake.core.transaction.staging.operation_files import Staging


@dataclass(slots=True)
class _Written:
    """The reports of tasks: files, and counts of rows."""

    data: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)
    counts: list[ChangeCounts] = field(default_factory=list)

    @property
    def rows_read(self) -> int:
        return sum(counts.rows_read for counts in self.counts)

    @property
    def ignored(self) -> int:
        return sum(counts.ignored for counts in self.counts)

    @property
    def merged(self) -> int:
        return sum(counts.merged for counts in self.counts)

    @property
    def rejects(self) -> list[RejectReport]:
        return [report for counts in self.counts for report in counts.rejects]

    @property
    def rejected(self) -> int:
        return sum(report.rows for report in self.rejects)

    @property
    def files(self) -> list[DataFile]:
        return [*self.data, *self.deletes]

    @property
    def rows(self) -> int:
        return sum(file.record_count for file in self.data)


def preview_changes(session: Session, plan: ChangelogLoadPlan) -> Outcome:
    """Describe a plan without executing it."""
    return preview(session, plan.ingest, describe_changes(plan))


def execute_changes(session: Session, plan: ChangelogLoadPlan) -> Outcome:
    """Write rows and deletes and commit them as one snapshot.

    Raises:
        BadInputError: a row does not fit, or does what is not known; nothing is left behind.
        CommitUnknownError: the catalog did not answer; every file stays.
    """
    return run_load(
        session, plan.ingest, partial(_ChangelogLoad, session, plan), describe_changes(plan)
    )


class _ChangelogLoad(Load):
    """One load of a change log."""

    # A load that deletes by key alone does not know what was there.
    nothing = LoadResult(counts=IngestResult(rows_inserted=None, rows_updated=None))

    def __init__(
        self, session: Session, load: ChangelogLoadPlan, plan: IngestPlan, operation_id: str
    ) -> None:
        super().__init__(session, plan, operation_id)
        self._load = replace(load, ingest=plan)
        self._written = _Written()

    def write(self) -> LoadResult:
        """Write rows and deletes."""
        self._written = written = _write(self.session, self._load, self.operation_id)
        schema = source_schema(self.plan.schema, self._load.options.changes_column)
        self.keep_rejects(written.rejects, schema, written.rows_read)
        if not written.files:
            warn_of_no_rows(self.session, self.plan)
        counts = replace(
            self.nothing.counts,
            rows_read=written.rows_read,
            rows_written=written.rows,
            rows_rejected=written.rejected,
            deletes_ignored=written.ignored if self._load.options.ignore_deletes else None,
            changes_merged=written.merged if self._load.options.local_merge else None,
        )
        return LoadResult(data=written.data, deletes=written.deletes, counts=counts)

    @property
    def has_changes(self) -> bool:
        """Whether there is anything to commit."""
        written = self._written
        return bool(written.files or (self.plan.table.creating and not written.rejected))

    def commit(self, staging: Staging, result: LoadResult) -> Landed:
        """Commit the files, or leave them staged."""
        table = self.plan.table
        # As in a stream: nothing of the table was read, so hardly any change of it is a conflict.
        operation: Operation = RowDelta(
            added=result.data,
            deletes=result.deletes,
            base_snapshot_id=self.plan.base_snapshot_id,
            validates=False,
            sole_spec=sole_spec(table),
        )
        if table.creating and not result.paths:
            operation = AppendFiles(added=())
        return self.commit_files(
            staging, result, operation, published=True, conditions=same_spec(table)
        )


def _write(session: Session, plan: ChangelogLoadPlan, operation_id: str) -> _Written:
    ingest = plan.ingest
    delta = plan.settings(operation_id)
    run = SourceRun(
        plan=ingest,
        operation_id=operation_id,
        task=partial(
            ChangesTask,
            delta=delta,
            kinds=plan.options.changes_column,
            ignore_deletes=plan.options.ignore_deletes,
            local_merge=plan.options.local_merge or 0,
            by_partition=ingest.distribution == HASH and not ingest.table.spec.is_unpartitioned(),
        ),
        receiver=lambda number, _: ReceiveChangesTask(task=number, delta=delta),
        write=write_changes,
        send=send_changes,
        receive=receive_changes,
        # One writer gets the changes of a key in their order.
        together=True,
    )
    written = _Written()
    for report in run_source(session, run):
        written.data += report.files
        written.deletes += report.deletes
        written.counts += report.counts
    inserted = sum(counts.rows for counts in written.counts)
    if written.rows != inserted:
        raise LakeError(
            f"{inserted} rows were to be written, but there are {written.rows}: "
            "nothing was committed"
        )
    return written
