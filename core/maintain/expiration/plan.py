"""The plan of an expiration: the snapshots and files to remove, and why the others are kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from lake.core.base.errors import CorruptFileError
from lake.core.base.options import Option
from lake.core.maintain.expiration.retention import (
    KeepReason,
    Retention,
    RetentionOptions,
    check_retention,
    plan_retention,
)
from lake.core.table.catalogs.catalog import Table
from lake.core.table.catalogs.shared_locations import refuse_shared_location
from lake.core.table.snapshots import ancestry
from lake.core.transaction.garbage.other_histories import refuse_continued
from lake.core.transaction.garbage.other_tables import OtherTables
from lake.core.transaction.garbage.own_files import own_files, warn_of_others
from lake.core.transaction.garbage.reachability import Garbage, Reachability
from lake.core.transaction.session import Session
from lake.core.transaction.staging.manifest_files import find_manifests, needed_ids

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_SHOWN_JOBS = 5


# Ids of schemas and of partition specs.
UnusedIds = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class ExpirationPlan:
    """The snapshots, refs and files to remove, and why the others are kept.

    Args:
        table: the table that the plan was made for.
        retention: the snapshots and refs to remove and to keep.
        garbage: files of the table that only expired snapshots reference.
        clean_metadata: also remove unused schemas and specs.
        keep_files: delete no files.
        now_ms: the time from which ages are measured, in ms since 1970.
        reach: the manifests read so far; metadata files are immutable, so execution uses them again.
        others: the folders of other tables. A table that is made later does not own files of expired snapshots.
        unused: ids of the schemas and of the partition specs to remove.
    """

    table: Table
    options: RetentionOptions
    retention: Retention
    garbage: Garbage
    clean_metadata: bool
    keep_files: bool
    now_ms: int
    reach: Reachability = field(repr=False, compare=False)
    others: OtherTables = field(repr=False, compare=False)
    unused: UnusedIds = ((), ())

    @property
    def base_snapshot_id(self) -> int | None:
        """The head of the named branch, else of main."""
        metadata, branch = self.table.metadata, self.options.branch
        return ancestry.head_id(metadata, branch) if branch else metadata.current_snapshot_id

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do and nothing must be committed."""
        return not (self.retention.expired or self.retention.removed_refs or any(self.unused))


def plan_expiration(
    session: Session,
    table: Table,
    options: RetentionOptions,
    *,
    clean_metadata: bool = False,
    keep_files: bool = False,
    now_ms: int | None = None,
) -> ExpirationPlan:
    """Choose the snapshots to expire and find the files that only they reference.

    Args:
        session: what the command works with.
        table: the table.
        options: which snapshots expire.
        clean_metadata: also find unused schemas and specs.
        keep_files: find no files.
        now_ms: the time from which `options` measures ages, in ms since 1970; None for the present.

    Raises:
        RefusedError: a safety rule forbids the expiration.
        CorruptFileError: metadata of a retained snapshot cannot be read.
    """
    now_ms = session.clock.now_ms() if now_ms is None else now_ms
    check_retention(table.metadata, options, now_ms)
    if not keep_files:
        refuse_shared_location(table)  # check: one-name-at-expiry
    retention = plan_retention(table.metadata, options, now_ms)
    _warn_of_held_snapshots(session, retention)
    expired, kept = split_snapshots(table.metadata, retention)
    reach = Reachability(table.storage, engine_of=session.manifest_engine)
    garbage = reach.garbage(table.metadata, expired, kept if expired or clean_metadata else [])
    others = OtherTables(session, table)
    own = own_files(table, garbage.files, others)
    if not keep_files:
        if own.num_rows:
            refuse_continued(session, table, f"{Option.KEEP_FILES} changes metadata only")
        warn_of_others(session, garbage.files.num_rows - own.num_rows)
    garbage = replace(garbage, files=own)
    unused = unused_ids(session, table, kept, garbage, reach) if clean_metadata else ((), ())
    return ExpirationPlan(
        table,
        options,
        retention,
        garbage,
        clean_metadata,
        keep_files,
        now_ms,
        reach,
        others,
        unused,
    )


def split_snapshots(
    metadata: TableMetadata, retention: Retention
) -> tuple[list[Snapshot], list[Snapshot]]:
    """Return the snapshots to expire and those to keep, in the order of the metadata."""
    expired = frozenset(retention.expired)
    return (
        [item for item in metadata.snapshots if item.snapshot_id in expired],
        [item for item in metadata.snapshots if item.snapshot_id not in expired],
    )


def unused_ids(
    session: Session, table: Table, kept: Sequence[Snapshot], garbage: Garbage, reach: Reachability
) -> UnusedIds:
    """Return the schemas and specs that no retained snapshot, uncommitted checkpoint or staged run uses."""
    metadata = table.metadata
    used = {metadata.current_schema_id, *(item.schema_id for item in kept)}
    old = [item for item in metadata.schemas if item.schema_id not in used]
    stay = [item for item in metadata.schemas if item.schema_id in used]
    specs = [
        item.spec_id
        for item in metadata.partition_specs
        if item.spec_id != metadata.default_spec_id and item.spec_id not in garbage.spec_ids
    ]
    if not (old or specs):
        return (), ()
    try:
        uncommitted = needed_ids(table.storage, find_manifests(table))
    except CorruptFileError as error:
        session.warn(f"no schema and no partition spec is removed: {error.message}")
        return (), ()
    used |= uncommitted.schemas
    # Equality deletes may compare a column that was dropped.
    needed = set(reach.compared_columns(metadata, kept) if old else ())
    needed.difference_update(*(item.field_ids for item in stay))
    for schema in sorted(old, key=lambda item: item.schema_id, reverse=True):
        if needed.intersection(schema.field_ids):
            used.add(schema.schema_id)
            needed.difference_update(schema.field_ids)
    schemas = [item.schema_id for item in old if item.schema_id not in used]
    return schemas, [item for item in specs if item not in uncommitted.specs]


def _warn_of_held_snapshots(session: Session, retention: Retention) -> None:
    """Warn about the Flink jobs for which more snapshots are kept than requested."""
    jobs = [row for row in held_rows(retention) if row[-1]]
    for job_id, operator_id, checkpoint_id, branch, _, spared in jobs[:_SHOWN_JOBS]:
        operator = f" (operator {operator_id})" if operator_id else ""
        session.warn(
            f"kept {spared} snapshots of {branch}, which Flink job {job_id}{operator} needs to restore from "
            f"checkpoint {checkpoint_id} ({Option.KEEP_CHECKPOINTS})"
        )
    if len(jobs) > _SHOWN_JOBS:
        session.warn(
            f"kept snapshots for {len(jobs) - _SHOWN_JOBS} other Flink jobs too ({Option.KEEP_CHECKPOINTS})"
        )


def held_rows(retention: Retention) -> list[list[Any]]:
    """Return for each job its ids, checkpoint, branch, and the snapshots needed and kept for it."""
    rows = []
    for held in retention.held:
        reasons = [retention.kept.get(item) for item in held.path]
        spared = list(accumulate(int(item is KeepReason.CHECKPOINT) for item in reasons))
        for item in held.checkpoints:
            commit = item.commit
            ids = [commit.job_id, commit.operator_id or "", commit.checkpoint_id, held.branch]
            rows.append([*ids, item.steps, spared[item.steps - 1]])
    return rows
