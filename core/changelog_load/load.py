"""Load a change log: each change in its order, by key, without a look at the table's rows, in one commit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

from lake.core import locations
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
from lake.core.deletes.delta_writer import RETRACT, UPSERT, DeltaSettings, check_key
from lake.core.deletes.equality_coverage import check_specs, same_spec, sole_spec
from lake.core.deletes.writers import check_delete_files
from lake.core.errors import InvalidRequestError, LakeError, RefusedError
from lake.core.ingest.execute import (
    SourceRun,
    commit_rows,
    no_empty_folders,
    preview,
    run_source,
    tell_of_no_rows,
)
from lake.core.ingest.plan import IngestOptions, IngestPlan, describe, plan_ingest
from lake.core.ingest.recovery import as_staged, publish_manifests, settle
from lake.core.manifests.data_files import DataFile, stored_bytes
from lake.core.outcome import Outcome, Status
from lake.core.properties.table_properties import HASH
from lake.core.session import Session
from lake.core.snapshots import ancestry
from lake.core.staging.failed_attempts import remove_lost_attempts
from lake.core.staging.operation_files import staged
from lake.core.upsert.options import EQUALITY, key_ids, unwanted_deletes
from lake.core.upsert.rejects import (
    check_rejects,
    removed_on_failure,
    temporary_files,
    write_rejects,
)

MODES = (UPSERT, RETRACT)
_CHANGES = "changes"
_DELETES_SINCE = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeOptions:
    """What the user asked for.

    Args:
        column: of the source; tells what a row does.
        mode: one of `MODES`, see `lake.core.deletes.delta_writer`.
        key: columns that tell rows apart; empty for the schema's identifier fields.
        rejects: local path for rows whose key is NULL or NaN; None makes such a row an error.
    """

    column: str
    mode: str
    key: Sequence[str] = ()
    rejects: str | None = None

    def __post_init__(self) -> None:
        if self.mode not in MODES:
            raise InvalidRequestError(f"--changes-mode {self.mode!r} is none of {', '.join(MODES)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePlan:
    """A decided load of a change log.

    Args:
        ingest: what is read.
        options: what was asked.
        key: ids of the key's columns.
    """

    ingest: IngestPlan
    options: ChangeOptions
    key: Sequence[int] = ()

    def settings(self, operation_id: str) -> DeltaSettings:
        """Return how changes are written."""
        table = self.ingest.table
        return DeltaSettings(
            write=self.ingest.settings(operation_id),
            key_ids=list(self.key),
            mode=self.options.mode,
            format_version=table.metadata.format_version,
            fresh=bool(table.creating),
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


def plan_changes(
    session: Session, identifier: str, ingest: IngestOptions, options: ChangeOptions
) -> ChangePlan:
    """Look at source and table and decide; nothing is written.

    Raises:
        BadInputError: as `plan_ingest`, or the source lacks the column that tells what rows do.
        RefusedError: the table's old rows could not be deleted by the key.
        InvalidRequestError: there is no key, or the rows have no order.
    """
    if ingest.from_table:
        raise InvalidRequestError("--changes-column needs files: a table's rows have no order")
    if options.rejects is not None:
        check_rejects(options.rejects)
    plan = plan_ingest(
        session, identifier, replace(ingest, mode=_CHANGES, changes_column=options.column)
    )
    if plan.is_settled:
        return ChangePlan(ingest=plan, options=options)
    table, schema = plan.table, plan.schema
    if table.metadata.format_version < _DELETES_SINCE:
        raise RefusedError("a table of format version 1 has no delete files")
    key = key_ids(schema, options.key, "--changes-column")
    check_key(schema, table.spec, key, options.mode)
    head = None if table.creating else ancestry.branch_head(table.metadata, ingest.branch)
    if head is not None:
        check_specs(table, head)
    check_delete_files(plan.settings(""))
    if unwanted := unwanted_deletes(table.properties, EQUALITY):
        session.warn(unwanted)
    return ChangePlan(ingest=plan, options=options, key=key)


def preview_changes(plan: ChangePlan) -> Outcome:
    """Describe a plan without carrying it out."""
    return replace(preview(plan.ingest), plan=describe_changes(plan))


def describe_changes(plan: ChangePlan) -> dict[str, Any]:
    """Return the plan as it is shown."""
    schema = plan.ingest.schema
    return {
        **describe(plan.ingest),
        "changes_column": plan.options.column,
        "changes_mode": plan.options.mode,
        "key": [schema.find_column_name(column) for column in plan.key],
    }


def execute_changes(session: Session, plan: ChangePlan) -> Outcome:
    """Write rows and deletes and commit them as one snapshot.

    Raises:
        BadInputError: a row does not fit, or does what is not known; nothing is left behind.
        CommitUnknownError: the catalog did not answer; every file stays.
    """
    ingest = plan.ingest
    if (settled := settle(session, ingest)) is not None:
        return replace(settled, plan=describe_changes(plan))
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


def _write(session: Session, plan: ChangePlan, operation_id: str, aside: str) -> _Written:
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


def _keep_rejects(plan: ChangePlan, written: _Written) -> None:
    if plan.options.rejects is None or not written.counted("rejected"):
        return
    claims = sorted(written.claims, key=lambda claim: int(claim["task"]))
    # The last claim of a task is made when its file is whole.
    files = {claim["rejects"]: claim for claim in claims if claim["rejects"]}
    schema = source_schema(plan.ingest.schema, plan.options.column)
    storage = plan.ingest.table.storage
    write_rejects(storage, schema, list(files.values()), plan.options.rejects)


def _outcome(
    plan: ChangePlan,
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
