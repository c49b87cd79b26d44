"""Commit changes of branches and tags: all of them or none, and only if each is still as it was planned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
)

from lake.core.base.errors import CommitConflictError
from lake.core.table.catalogs.catalog import Table
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata

    from lake.core.transaction.run_context import RunContext

BRANCH, TAG = "branch", "tag"


@dataclass(frozen=True, slots=True, kw_only=True)
class RefChange:
    """A branch or tag to set or to drop.

    Args:
        name: its name.
        kind: ``branch`` or ``tag``.
        before: the snapshot to which it must refer when it is changed; None if it must not exist.
        after: the snapshot to which it will refer; None to drop it.
        max_ref_age_ms: the age of its snapshot at which expiry drops it; None for the table's property.
        max_snapshot_age_ms: of a branch: the age at which expiry drops its snapshots.
        min_snapshots_to_keep: of a branch: how many snapshots expiry keeps.
    """

    name: str
    kind: str
    before: int | None
    after: int | None
    max_ref_age_ms: int | None = None
    max_snapshot_age_ms: int | None = None
    min_snapshots_to_keep: int | None = None

    def is_made(self, metadata: TableMetadata) -> bool:
        """Whether metadata already is as after this change."""
        ref = metadata.refs.get(self.name)
        if ref is None or self.after is None:
            return ref is None and self.after is None
        return (
            ref.snapshot_id == self.after
            and ref.snapshot_ref_type == self.kind
            and ref.max_ref_age_ms == self.max_ref_age_ms
            and ref.max_snapshot_age_ms == self.max_snapshot_age_ms
            and ref.min_snapshots_to_keep == self.min_snapshots_to_keep
        )

    def update(self) -> TableUpdate:
        """Return the change as the catalog receives it."""
        if self.after is None:
            return RemoveSnapshotRefUpdate(ref_name=self.name)
        return SetSnapshotRefUpdate(
            ref_name=self.name,
            type=self.kind,
            snapshot_id=self.after,
            max_ref_age_ms=self.max_ref_age_ms,
            max_snapshot_age_ms=self.max_snapshot_age_ms,
            min_snapshots_to_keep=self.min_snapshots_to_keep,
        )


def commit_refs(context: RunContext, table: Table, changes: Sequence[RefChange]) -> Table:
    """Make the changes in one commit, and return the table after it.

    Raises:
        CommitConflictError: a ref was changed meanwhile, or a snapshot has expired; nothing was changed.
        CommitUnknownError: the commit may have succeeded.
    """

    def prepare(now: Table) -> ChangeSet | None:
        if are_made(now.metadata):
            return None
        _refuse_others(now, changes)
        requirements: list[TableRequirement] = [
            AssertTableUUID(uuid=table.metadata.table_uuid),
            *(AssertRefSnapshotId(ref=item.name, snapshot_id=item.before) for item in changes),
        ]
        return ChangeSet(tuple(requirements), tuple(item.update() for item in changes))

    def are_made(metadata: TableMetadata) -> bool | None:
        return all(item.is_made(metadata) for item in changes) or None

    return commit_changes(context, table, prepare, are_made)


def _refuse_others(now: Table, changes: Sequence[RefChange]) -> None:
    """Refuse changes that were planned on another state of the refs.

    Raises:
        CommitConflictError: a ref was changed meanwhile, or a snapshot has expired.
    """
    known = ancestry.snapshots_by_id(now.metadata)
    for item in changes:
        ref = now.metadata.refs.get(item.name)
        if (ref.snapshot_id if ref else None) != item.before:
            raise CommitConflictError(
                f"{item.kind} {item.name} of {now.identifier} was changed meanwhile; nothing was changed",
                hint="run the command again",
            )
        if item.after is not None and item.after not in known:
            raise CommitConflictError(
                f"snapshot {item.after} of {now.identifier} expired meanwhile; nothing was changed"
            )
