"""The plan of an expiration: which snapshots and files are removed, and why the rest stays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from lake.core.catalogs.catalog import Table
from lake.core.catalogs.shared_locations import refuse_shared_location
from lake.core.expiration.own_files import own_files, warn_of_others
from lake.core.expiration.reachability import Garbage, Reachability
from lake.core.expiration.retention import (
    KeepReason,
    Retention,
    RetentionOptions,
    check_retention,
    plan_retention,
)
from lake.core.session import Session
from lake.core.snapshots import ancestry

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_SHOWN_JOBS = 5


# Ids of schemas and of partition specs.
UnusedIds = tuple[Sequence[int], Sequence[int]]


@dataclass(frozen=True, slots=True)
class ExpirationPlan:
    """What expiring will remove, and why the rest stays.

    Args:
        table: as it was read.
        retention: snapshots and refs.
        garbage: files of the table's own that only the expired snapshots reach.
        clean_metadata: also remove schemas and specs that nothing uses.
        keep_files: delete no file at all.
        now_ms: the moment that ages were counted from.
        reach: what was read to find that out; files of metadata never change.
        unused: ids of the schemas and of the partition specs that go.
    """

    table: Table
    options: RetentionOptions
    retention: Retention
    garbage: Garbage
    clean_metadata: bool
    keep_files: bool
    now_ms: int
    reach: Reachability = field(repr=False, compare=False)
    unused: UnusedIds = ((), ())

    @property
    def base_snapshot_id(self) -> int | None:
        """The head of the branch that is named, else of main."""
        metadata, branch = self.table.metadata, self.options.branch
        return ancestry.head_id(metadata, branch) if branch else metadata.current_snapshot_id

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to do, so nothing may be committed."""
        return not (self.retention.expired or self.retention.removed_refs or any(self.unused))


def plan_expiration(
    session: Session,
    table: Table,
    options: RetentionOptions,
    *,
    clean_metadata: bool = False,
    keep_files: bool = False,
) -> ExpirationPlan:
    """Decide what goes and find the files that only it reaches.

    Raises:
        RefusedError: a safety rule forbids it.
        CorruptFileError: metadata of a snapshot that stays cannot be read.
    """
    now_ms = session.clock.now_ms()
    check_retention(table.metadata, options, now_ms)
    if not keep_files:
        refuse_shared_location(table)
    retention = plan_retention(table.metadata, options, now_ms)
    _warn_of_held_snapshots(session, retention)
    expired, kept = split_snapshots(table.metadata, retention)
    reach = Reachability(table.storage)
    garbage = reach.garbage(table.metadata, expired, kept if expired or clean_metadata else [])
    own = own_files(table, garbage.files)
    if not keep_files:
        warn_of_others(session, garbage.files.num_rows - own.num_rows)
    garbage = replace(garbage, files=own)
    unused = unused_ids(table.metadata, kept, garbage, reach) if clean_metadata else ((), ())
    return ExpirationPlan(
        table, options, retention, garbage, clean_metadata, keep_files, now_ms, reach, unused
    )


def split_snapshots(
    metadata: TableMetadata, retention: Retention
) -> tuple[list[Snapshot], list[Snapshot]]:
    """Return the snapshots that expire, and those that stay, in the order of the metadata."""
    gone = frozenset(retention.expired)
    return (
        [item for item in metadata.snapshots if item.snapshot_id in gone],
        [item for item in metadata.snapshots if item.snapshot_id not in gone],
    )


def unused_ids(
    metadata: TableMetadata, kept: Sequence[Snapshot], garbage: Garbage, reach: Reachability
) -> UnusedIds:
    """Return schemas and specs that neither the table nor any kept snapshot uses."""
    used = {metadata.current_schema_id, *(item.schema_id for item in kept)}
    old = [item for item in metadata.schemas if item.schema_id not in used]
    stay = [item for item in metadata.schemas if item.schema_id in used]
    # A column that was dropped may tell which rows are deleted.
    needed = set(reach.compared_columns(metadata, kept) if old else ())
    needed.difference_update(*(item.field_ids for item in stay))
    for schema in sorted(old, key=lambda item: item.schema_id, reverse=True):
        if needed.intersection(schema.field_ids):
            used.add(schema.schema_id)
            needed.difference_update(schema.field_ids)
    schemas = [item.schema_id for item in old if item.schema_id not in used]
    specs = [
        item.spec_id
        for item in metadata.partition_specs
        if item.spec_id != metadata.default_spec_id and item.spec_id not in garbage.spec_ids
    ]
    return schemas, specs


def _warn_of_held_snapshots(session: Session, retention: Retention) -> None:
    """Warn of the Flink jobs for which more stays than was asked for."""
    told = [row for row in held_rows(retention) if row[-1]]
    for job_id, operator_id, checkpoint_id, branch, _, spared in told[:_SHOWN_JOBS]:
        operator = f" (operator {operator_id})" if operator_id else ""
        session.warn(
            f"snapshots kept because Flink job {job_id}{operator} needs them to go on after checkpoint "
            f"{checkpoint_id} on {branch}: {spared} (--keep-checkpoints)"
        )
    if len(told) > _SHOWN_JOBS:
        session.warn(f"the same holds for {len(told) - _SHOWN_JOBS} other Flink jobs")


def held_rows(retention: Retention) -> list[list[Any]]:
    """Return a row for each job: ids, checkpoint, branch, snapshots on its way, and those kept for it alone."""
    rows = []
    for held in retention.held:
        reasons = [retention.kept.get(item) for item in held.path]
        spared = list(accumulate(int(item is KeepReason.CHECKPOINT) for item in reasons))
        for item in held.checkpoints:
            commit = item.commit
            ids = [commit.job_id, commit.operator_id or "", commit.checkpoint_id, held.branch]
            rows.append([*ids, item.steps, spared[item.steps - 1]])
    return rows
