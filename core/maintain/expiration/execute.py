"""Expire snapshots: commit first, then delete the files that are no longer referenced.

Safety rests on the order: all manifests of retained snapshots are read before anything changes; the commit asserts
every ref; a ref that a race removed all the same is restored; reachability is computed again from the table's new
state. Only then are files deleted, each below the table's own roots.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.table.update import (
    AssertCurrentSchemaId,
    AssertDefaultSpecId,
    RemovePartitionSpecsUpdate,
    RemoveSchemasUpdate,
    RemoveSnapshotRefUpdate,
    SetPropertiesUpdate,
    TableRequirement,
    TableUpdate,
)

from lake.core.base import locations
from lake.core.base.arrow import one_array
from lake.core.base.errors import (
    CommitUnknownError,
    LakeError,
    NotAuthorisedError,
)
from lake.core.base.outcome import Detail, Outcome, Status
from lake.core.maintain.expiration import journal
from lake.core.maintain.expiration.explanation import explained, left_alone
from lake.core.maintain.expiration.facts import ExpirationFacts
from lake.core.maintain.expiration.journal_recovery import JournalRecovery
from lake.core.maintain.expiration.plan import (
    ExpirationPlan,
    UnusedIds,
    held_rows,
    split_snapshots,
    unused_ids,
)
from lake.core.maintain.expiration.ref_recovery import assert_refs, restore_refs
from lake.core.maintain.expiration.retention import (
    Retention,
    check_retention,
    plan_retention,
    rounded_age,
)
from lake.core.table.catalogs.catalog import Table
from lake.core.table.metadata.snapshot_updates import RemoveProperties, RemoveSnapshots
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.run_ids import runs_noted_in_expiry
from lake.core.table.snapshots.streams import queries_noted_in_expiry, streams_noted_in_expiry
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes
from lake.core.transaction.garbage.file_deletion import Removed, delete_files
from lake.core.transaction.garbage.manifest_files import (
    DATA_FILE,
    EQUALITY_DELETE,
    FILES,
    POSITION_DELETE,
)
from lake.core.transaction.garbage.reachability import (
    MANIFEST,
    MANIFEST_LIST,
    STATISTICS,
    Garbage,
    Reachability,
)
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot


def preview(plan: ExpirationPlan, *, explain: bool = False, verbose: bool = False) -> Outcome:
    """Return a dry run's outcome.

    Args:
        plan: the plan.
        explain: also show what keeps the snapshots that stay.
        verbose: with `explain`, also list these snapshots.
    """
    facts = _plan_facts(plan)
    outcome = Outcome(
        status=Status.DRY_RUN,
        base_snapshot_id=plan.base_snapshot_id,
        plan=replace(facts, left_alone=left_alone(plan)) if explain else facts,
        details=_details(plan)[1:] if explain else _details(plan),
    )
    return explained(plan).explain(outcome, verbose=verbose) if explain else outcome


def execute(session: Session, plan: ExpirationPlan, operation_id: str | None = None) -> Outcome:
    """Commit the plan, then delete its files.

    Raises:
        CommitConflictError: other writers won every attempt; nothing was changed.
        CommitUnknownError: the catalog did not answer; nothing was deleted, and the next run finishes the work.
    """
    removed = Removed()
    if not plan.is_empty:
        return _commit_and_delete(session, plan, operation_id or session.ids.uuid(), removed)
    if not plan.keep_files:
        JournalRecovery(session, plan.table).finish(plan.table, removed)
    if not (removed.files or removed.failed):
        return _outcome(plan, Status.NOTHING_TO_DO, removed)
    session.warn(f"deleted {removed.files} files that an earlier run had left")
    status = Status.PARTIAL if removed.failed else Status.DONE
    return _outcome(plan, status, removed)


def _commit_and_delete(
    session: Session, plan: ExpirationPlan, operation_id: str, removed: Removed
) -> Outcome:
    attempt = _Expiry(session, plan, operation_id)
    attempt.after = attempt.commit()
    session.interrupts.checkpoint()
    try:
        complete = attempt.clean_up(removed)
    except CommitUnknownError:
        raise
    except LakeError as error:
        # The commit remains, and the next run deletes the files that the journal lists.
        session.warn(f"stopped before all files were deleted: {error.message}")
        complete = False
    if not plan.keep_files:
        _explain(session, plan, attempt, removed)
    status = Status.DONE if complete and not removed.failed else Status.PARTIAL
    return _outcome(plan, status, removed, attempt)


@dataclass(slots=True)
class _Expiry:
    """The commit of one expiry; each attempt prepares it again."""

    session: Session
    plan: ExpirationPlan
    operation_id: str
    expired: tuple[int, ...] = ()
    removed_refs: tuple[str, ...] = ()
    cleaned: UnusedIds = ((), ())
    # The location of the journal, while there is one.
    journal_location: str | None = None
    # Whether the commit may record the ids of expired runs in table properties, and whether the last attempt did.
    may_record_runs: bool = True
    recorded_runs: bool = False
    # The files to delete after the commit, and the number of deleted files that an earlier run had left.
    garbage_files: pa.Table = field(default_factory=FILES.empty_table)
    earlier: int = 0
    reach: Reachability = field(init=False)
    # The metadata of the last attempt, and the table after the commit.
    before: TableMetadata = field(init=False)
    after: Table = field(init=False)

    def __post_init__(self) -> None:
        self.reach = self.plan.reach
        self.before = self.plan.table.metadata

    @property
    def removed_snapshots(self) -> list[Snapshot]:
        """The snapshots that the commit removed."""
        present = ancestry.snapshots_by_id(self.after.metadata)
        return [item for item in self.before.snapshots if item.snapshot_id not in present]

    def commit(self) -> Table:
        """Commit. The journal is written before, and lists the files to delete."""
        try:
            return self._send()
        except CommitUnknownError as error:
            # The commit may have succeeded; the next run finds out.
            error.operation_id = self.operation_id
            raise
        except BaseException:
            # If it was interrupted while it was sent, the commit may have succeeded.
            if (
                self.journal_location
                and locations.canonical(self.journal_location) not in self.session.protected_files
            ):
                self.forget(self.plan.table)
            raise

    def _send(self) -> Table:
        """Commit; if the catalog forbids changes of table properties, without recording run ids."""
        try:
            return commit_changes(self.session, self.plan.table, self.prepare, self.is_committed)
        except NotAuthorisedError:
            if not self.recorded_runs:
                raise
            self.may_record_runs = False
            return commit_changes(self.session, self.plan.table, self.prepare, self.is_committed)

    def clean_up(self, removed: Removed) -> bool:
        """Restore refs that a race removed, then delete files; return whether all garbage is known."""
        session, plan = self.session, self.plan
        # check: removed-refs-restored
        self.after = restore_refs(session, self.after, self.expired, self.removed_refs)
        others = None
        if not plan.keep_files:
            others = JournalRecovery(
                session, self.after, but=self.operation_id, removed_refs=self.removed_refs
            )
            self.after = others.restore_refs(self.after)  # check: refs-of-other-runs-restored
        metadata = self.after.metadata
        garbage = self.reach.garbage(
            _readable_with(metadata, self.before),
            self.removed_snapshots,
            metadata.snapshots,
            before=self.before,  # check: statistics-before-expiry
        )
        for location in garbage.unreadable:
            session.warn(
                f"could not read {location} of an expired snapshot; files that only it lists are kept"
            )
        if others is not None:
            self.garbage_files = delete_files(
                session, self.after, self.reach, garbage.files, removed, plan.others
            )
            if not removed.failed:
                self.forget(self.after)
            deleted = removed.files
            others.finish(self.after, removed)
            self.earlier = removed.files - deleted
        return not garbage.unreadable

    def forget(self, table: Table) -> None:
        """Remove the journal if one was written."""
        if self.journal_location:
            journal.remove(table, self.journal_location)
            self.journal_location = None

    def prepare(self, table: Table) -> ChangeSet | None:
        metadata = table.metadata
        now_ms = self.plan.now_ms
        check_retention(metadata, self.plan.options, now_ms)
        retention = plan_retention(metadata, self.plan.options, now_ms)
        expired, kept = split_snapshots(metadata, retention)
        garbage = self.reach.garbage(metadata, expired, kept)
        self.before = metadata
        self.expired, self.removed_refs = retention.expired, retention.removed_refs
        if self.plan.clean_metadata:
            self.cleaned = unused_ids(self.session, table, kept, garbage, self.reach)
        updates = self._updates(metadata, retention)
        if updates and garbage.files.num_rows and not self.plan.keep_files:
            self._write_journal(table, garbage)
        needed = (self.journal_location,) if self.journal_location else ()
        # check: refs-unmoved-at-expiry
        return ChangeSet(self._requirements(table), updates, needed) if updates else None

    def _requirements(self, table: Table) -> tuple[TableRequirement, ...]:
        metadata = table.metadata
        if not self.plan.clean_metadata:
            return assert_refs(table)
        # A schema or spec to remove must not be in use again.
        return (
            *assert_refs(table),
            AssertCurrentSchemaId(current_schema_id=metadata.current_schema_id),
            AssertDefaultSpecId(default_spec_id=metadata.default_spec_id),
        )

    def _write_journal(self, table: Table, garbage: Garbage) -> None:
        self.journal_location = journal.location_of(table, self.operation_id)
        journal.write(
            table,
            journal.Journal(
                operation_id=self.operation_id,
                table_uuid=str(table.metadata.table_uuid),
                created_ms=self.session.clock.now_ms(),
                snapshots=self.expired,
                refs=self.removed_refs,
                files=garbage.files,
            ),
            self.session.ids,
        )

    def is_committed(self, metadata: TableMetadata) -> object | None:
        """Whether the commit succeeded. A removal has no summary: check that all is removed."""
        present = ancestry.snapshots_by_id(metadata)
        schemas, specs = self.cleaned
        remaining = (
            *(item for item in self.expired if item in present),
            *(name for name in self.removed_refs if name in metadata.refs),
            *(item for item in metadata.schemas if item.schema_id in schemas),
            *(item for item in metadata.partition_specs if item.spec_id in specs),
        )
        requested = self.expired or self.removed_refs or schemas or specs
        return True if requested and not remaining else None

    def _updates(self, metadata: TableMetadata, retention: Retention) -> tuple[TableUpdate, ...]:
        updates: list[TableUpdate] = [
            RemoveSnapshotRefUpdate(ref_name=name) for name in retention.removed_refs
        ]
        if retention.expired:
            updates.append(RemoveSnapshots(snapshot_ids=list(retention.expired)))
        if updates and self.may_record_runs:  # check: expiry-times-of-runs
            updates += self._run_ids(metadata, retention)
        schemas, specs = self.cleaned
        if schemas:
            updates.append(RemoveSchemasUpdate(schema_ids=list(schemas)))
        if specs:
            updates.append(RemovePartitionSpecsUpdate(spec_ids=list(specs)))
        return tuple(updates)

    def _run_ids(self, metadata: TableMetadata, retention: Retention) -> list[TableUpdate]:
        updates: dict[str, str] = {}
        removals: list[str] = []
        kinds = (runs_noted_in_expiry, streams_noted_in_expiry, queries_noted_in_expiry)
        for noted_in_expiry in kinds:
            changed, unneeded = noted_in_expiry(
                metadata,
                retention.expired,
                self.plan.now_ms,
                removed_refs=retention.removed_refs,
            )
            updates |= changed
            removals += unneeded
        self.recorded_runs = bool(updates or removals)
        return [
            *([SetPropertiesUpdate(updates=updates)] if updates else []),
            *([RemoveProperties(removals=removals)] if removals else []),
        ]


def _explain(session: Session, plan: ExpirationPlan, attempt: _Expiry, removed: Removed) -> None:
    """Warn if the deleted files differ from the planned ones, with the reasons."""
    planned = plan.garbage.files
    if not attempt.earlier and removed.counts == _by_kind(planned):
        return
    new = pc.invert(pc.is_in(attempt.garbage_files["path"], value_set=one_array(planned["path"])))
    old = pc.invert(pc.is_in(planned["path"], value_set=one_array(attempt.garbage_files["path"])))
    reasons = {
        "were planned but are still needed, because the table changed": pc.sum(old).as_py() or 0,
        "were not planned and became unused, because the table changed": pc.sum(new).as_py() or 0,
        "are referenced by the table again": removed.reached,
        "could not be deleted": len(removed.failed),
        "were left by an earlier run and deleted now": attempt.earlier,
    }
    listed = "; ".join(f"{count} files {reason}" for reason, count in reasons.items() if count)
    session.warn(
        f"{planned.num_rows} files were planned and {removed.files} were deleted"
        + (f": {listed}" if listed else ": the run stopped before it was done")
    )


def _by_kind(files: pa.Table) -> dict[str, int]:
    counted = files.group_by("kind").aggregate([("kind", "count")])
    return dict(zip(counted["kind"].to_pylist(), counted["kind_count"].to_pylist(), strict=True))


def _readable_with(metadata: TableMetadata, before: TableMetadata) -> TableMetadata:
    """Return metadata with the schemas and specs of both: the commit may have removed some."""
    schemas = {item.schema_id: item for item in (*before.schemas, *metadata.schemas)}
    specs = {item.spec_id: item for item in (*before.partition_specs, *metadata.partition_specs)}
    return metadata.model_copy(
        update={"schemas": list(schemas.values()), "partition_specs": list(specs.values())}
    )


# Reporting


def _plan_facts(plan: ExpirationPlan) -> ExpirationFacts:
    deletes, retention = not plan.keep_files, plan.retention
    return _facts(
        plan,
        lambda kind: plan.garbage.count(kind) if deletes else 0,
        snapshots=len(retention.expired),
        refs=len(retention.removed_refs),
        size=plan.garbage.bytes if deletes else 0,
    )


def _facts(
    plan: ExpirationPlan,
    files: Callable[[str], int],
    *,
    snapshots: int,
    refs: int,
    size: int,
    failed: int | None = None,
) -> ExpirationFacts:
    """Return counts with the reasons why snapshots are kept, which are the same in plan and result."""
    retention = plan.retention
    reasons = Counter(str(reason) for reason in retention.kept.values())
    return ExpirationFacts(
        snapshots=snapshots,
        refs=refs,
        data_files=files(DATA_FILE),
        position_delete_files=files(POSITION_DELETE),
        equality_delete_files=files(EQUALITY_DELETE),
        manifests=files(MANIFEST),
        manifest_lists=files(MANIFEST_LIST),
        statistics_files=files(STATISTICS),
        bytes=size,
        failed_deletes=failed,
        kept_snapshots=dict(sorted(reasons.items())),
        kept_refs=sorted(set(plan.table.metadata.refs) - set(retention.removed_refs)),
        max_snapshot_age_ms=rounded_age(retention.max_age_ms),
        engine=plan.reach.engine,
    )


def _details(plan: ExpirationPlan) -> list[Detail]:
    reasons = Counter(plan.retention.kept.values())
    columns = ["job_id", "operator_id", "checkpoint_id", "branch", "snapshots", "otherwise_expired"]
    return [
        Detail(
            "kept snapshots",
            ["reason", "snapshots"],
            [[str(reason), count] for reason, count in sorted(reasons.items())],
        ),
        Detail("kept Flink checkpoints", columns, held_rows(plan.retention)),
    ]


def file_details(plan: ExpirationPlan) -> Detail:
    """Return every file to delete, with the reason, as rows to print."""
    rows = [
        [
            row["path"],
            row["kind"].removesuffix("s").replace("_", " "),
            "referenced by expired snapshots only",
        ]
        for row in plan.garbage.files.to_pylist()
    ]
    return Detail("files", ["path", "kind", "reason"], rows)


def _outcome(
    plan: ExpirationPlan,
    status: Status,
    removed: Removed,
    committed: _Expiry | None = None,
) -> Outcome:
    result = _facts(
        plan,
        lambda kind: removed.counts.get(kind, 0),
        snapshots=len(committed.removed_snapshots) if committed else 0,
        refs=len(committed.removed_refs) if committed else 0,
        size=removed.bytes,
        failed=len(removed.failed),
    )
    return Outcome(
        status=status,
        operation_id=committed.operation_id if committed else None,
        base_snapshot_id=plan.base_snapshot_id,
        plan=_plan_facts(plan),
        result=result,
        details=_details(plan),
    )
