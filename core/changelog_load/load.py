"""Load a change log: each change in its order, by key, without a look at the table's rows, in one commit."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lake.core import locations
from lake.core.changelog_load.plan import ChangelogLoadPlan, describe_changes
from lake.core.changelog_load.tasks import (
    ChangesTask,
    ReceiveChangesTask,
    receive_changes,
    send_changes,
    source_schema,
    write_changes,
)
from lake.core.commit.commit import Committed
from lake.core.commit.operations import AppendFiles, Operation, RowDelta
from lake.core.deletes.equality_coverage import same_spec, sole_spec
from lake.core.errors import LakeError
from lake.core.ingest.execute import (
    SourceRun,
    commit_rows,
    located,
    no_empty_folders,
    preview,
    run_source,
    tell_of_no_rows,
)
from lake.core.ingest.recovery import as_staged, publish_manifests, settle
from lake.core.manifests.data_files import DataFile, stored_bytes
from lake.core.outcome import Outcome, Status
from lake.core.properties.table_properties import HASH
from lake.core.session import Session
from lake.core.staging.failed_attempts import remove_lost_attempts
from lake.core.staging.operation_files import staged
from lake.core.upsert.rejects import (
    removed_on_failure,
    temporary_files,
    write_rejects,
)


@dataclass(slots=True)
class _Written:
    """What tasks told: files, and counts of rows."""

    data: list[DataFile] = field(default_factory=list)
    deletes: list[DataFile] = field(default_factory=list)
    claims: list[dict[str, Any]] = field(default_factory=list)

    def counted(self, name: str) -> int:
        """Return how many rows tasks told of."""
        return sum(claim[name] for claim in self.claims)

    @property
    def files(self) -> list[DataFile]:
        return [*self.data, *self.deletes]

    @property
    def rows(self) -> int:
        return sum(file.record_count for file in self.data)


def preview_changes(plan: ChangelogLoadPlan) -> Outcome:
    """Describe a plan without carrying it out."""
    return replace(preview(plan.ingest), plan=describe_changes(plan))


def execute_changes(session: Session, plan: ChangelogLoadPlan) -> Outcome:
    """Write rows and deletes and commit them as one snapshot.

    Raises:
        BadInputError: a row does not fit, or does what is not known; nothing is left behind.
        CommitUnknownError: the catalog did not answer; every file stays.
    """
    ingest = plan.ingest
    if (settled := settle(session, ingest)) is not None:
        return replace(settled, plan=describe_changes(plan))
    ingest = located(session, ingest)
    plan = replace(plan, ingest=ingest)
    operation_id = session.ids.uuid()
    aside = f"lake-rejects-{operation_id}"
    with (
        no_empty_folders(ingest.table),
        staged(session, ingest.table, operation_id) as staging,
        temporary_files(session, ingest.table, aside),
        removed_on_failure(plan.options.rejects),
    ):
        written = _write(session, plan, operation_id, aside)
        if not written.files:
            tell_of_no_rows(session, ingest)
            if not ingest.table.creating:
                return _outcome(plan, Status.NOTHING_TO_DO, written)
        paths_written = [file.path for file in written.files]
        remove_lost_attempts(session, ingest.table, operation_id, paths_written)
        publish_manifests(staging, ingest, written.data, written.deletes)
        if ingest.options.stage:
            return as_staged(_outcome(plan, Status.DONE, written), staging)
        # As in a stream: nothing of the table was read, so hardly anything that happens to it is a conflict.
        operation: Operation = RowDelta(
            added=written.data,
            deletes=written.deletes,
            base_snapshot_id=ingest.base_snapshot_id,
            validates=False,
            sole_spec=sole_spec(ingest.table),
        )
        if ingest.table.creating and not written.files:
            operation = AppendFiles(added=())
        committed = commit_rows(
            session, ingest, operation, operation_id, conditions=same_spec(ingest.table)
        )
    if committed.already:
        # The same run, by another process.
        staging.delete_unreferenced(committed.table, [file.path for file in written.files])
        return _outcome(plan, Status.NOTHING_TO_DO, _Written(), operation_id, committed)
    staging.unpublish_manifests()
    return _outcome(plan, Status.DONE, written, operation_id, committed)


def _write(session: Session, plan: ChangelogLoadPlan, operation_id: str, aside: str) -> _Written:
    ingest = plan.ingest
    delta = plan.settings(operation_id)
    run = SourceRun(
        plan=ingest,
        operation_id=operation_id,
        task=partial(
            ChangesTask,
            delta=delta,
            kinds=plan.options.column,
            by_partition=ingest.distribution == HASH and not ingest.table.spec.is_unpartitioned(),
            rejects=plan.options.rejects is not None,
            aside=locations.join(ingest.table.data_location, aside),
        ),
        receiver=lambda number, _: ReceiveChangesTask(task=number, delta=delta),
        write=write_changes,
        send=send_changes,
        receive=receive_changes,
        # One writer gets the changes of a key in their order.
        together=True,
    )
    written = _Written()
    for value in run_source(session, run):
        written.data += [DataFile.from_plain(file) for file in value["files"]]
        written.deletes += [DataFile.from_plain(file) for file in value.get("deletes", ())]
        written.claims += value.get("claims", ())
    inserted = written.counted("rows")
    if written.rows != inserted:
        raise LakeError(
            f"{inserted} rows were to be written, but there are {written.rows}: "
            "nothing was committed"
        )
    _keep_rejects(plan, written)
    return written


def _keep_rejects(plan: ChangelogLoadPlan, written: _Written) -> None:
    if plan.options.rejects is None or not written.counted("rejected"):
        return
    claims = sorted(written.claims, key=lambda claim: int(claim["task"]))
    # The last claim of a task is made when its file is whole.
    files = {claim["rejects"]: claim for claim in claims if claim["rejects"]}
    schema = source_schema(plan.ingest.schema, plan.options.column)
    storage = plan.ingest.table.storage
    write_rejects(storage, schema, list(files.values()), plan.options.rejects)


def _outcome(
    plan: ChangelogLoadPlan,
    status: Status,
    written: _Written,
    operation_id: str | None = None,
    committed: Committed | None = None,
) -> Outcome:
    return Outcome(
        command="ingest",
        table=plan.ingest.table.identifier,
        branch=plan.ingest.options.branch,
        status=status,
        operation_id=operation_id if committed else None,
        base_snapshot_id=plan.ingest.base_snapshot_id,
        snapshot_ids=committed.snapshot_ids[-1:] if committed else (),
        plan=describe_changes(plan),
        result={
            "rows_read": written.counted("rows_read"),
            "rows_written": written.rows,
            # Who deletes blindly does not know what was there.
            "rows_inserted": None,
            "rows_updated": None,
            "rows_rejected": written.counted("rejected"),
            "data_files": len(written.data),
            "delete_files": len(written.deletes),
            "bytes_written": stored_bytes(written.files),
        },
    )
