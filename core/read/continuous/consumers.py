"""Protect what a reader has not read yet from expiry, by the ref of a consumer (`lake.core.table.refs.consumers`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyiceberg.table.update import (
    AssertRefSnapshotId,
    AssertTableUUID,
    RemoveSnapshotRefUpdate,
    SetSnapshotRefUpdate,
)

from lake.core.base.errors import LakeError, NotFoundError, RefusedError
from lake.core.table.catalogs.catalog import Table
from lake.core.table.refs.consumers import (
    READ_AGE_MS,
    UNREAD_AGE_MS,
    Consumer,
    after,
    find_consumers,
    ref_of,
)
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata


def protect(
    session: Session,
    table: Table,
    name: str,
    branch: str,
    needed_from: int | None,
    ttl_ms: int,
    *,
    needs_position: bool = False,
) -> None:
    """Set a consumer's ref, so that expiry keeps what its reader still needs; a failure is a warning.

    Args:
        session: the session of the invocation.
        table: the table as the reader loaded it last.
        name: the consumer's name.
        branch: the branch that is read.
        needed_from: the oldest snapshot that the reader still needs; None if it has read the branch's head.
        ttl_ms: how long the ref lives, counted from the commit of the branch's head.
        needs_position: whether `needed_from` is the reader's position, that is, it is read already.

    Raises:
        InvalidRequestError: the name is not valid.
        StoppedError: the user or the system asked lake to stop.
    """
    ref_name = ref_of(name)
    is_read = needed_from is None or needs_position
    wanted: SetSnapshotRefUpdate | None = None

    def prepare(now: Table) -> ChangeSet | None:
        nonlocal wanted
        head = ancestry.branch_head(now.metadata, branch)
        if head is None:
            return None
        _refuse_foreign(now.metadata, ref_name)
        wanted = SetSnapshotRefUpdate(
            ref_name=ref_name,
            type="branch",
            snapshot_id=head.snapshot_id,
            min_snapshots_to_keep=_snapshots_to_keep(now.metadata, head.snapshot_id, needed_from),
            max_snapshot_age_ms=READ_AGE_MS if is_read else UNREAD_AGE_MS,
            max_ref_age_ms=ttl_ms,
        )
        if is_set(now.metadata):
            return None
        ref = now.metadata.refs.get(ref_name)
        pinned = AssertRefSnapshotId(ref=ref_name, snapshot_id=ref.snapshot_id if ref else None)
        # The table that was read, not one that has its name now.
        return ChangeSet((AssertTableUUID(uuid=table.metadata.table_uuid), pinned), (wanted,))

    def is_set(metadata: TableMetadata) -> object | None:
        ref = metadata.refs.get(ref_name)
        if wanted is None or ref is None:
            return None
        fields = ("snapshot_id", "min_snapshots_to_keep", "max_snapshot_age_ms", "max_ref_age_ms")
        same = all(getattr(ref, field) == getattr(wanted, field) for field in fields)
        return True if same else None

    try:
        commit_changes(session, table, prepare, is_set)
    except LakeError as error:
        session.warn(
            f"the progress of consumer {name} was not recorded in {table.identifier}, so an expiry may remove "
            f"what it has not read: {error.message}"
        )


def drop(session: Session, table: Table, name: str, *, dry_run: bool = False) -> Consumer:
    """Remove a consumer's ref, so that it protects nothing any more, and return the consumer.

    Raises:
        NotFoundError: the table has no such consumer.
        RefusedError: the ref contains commits that are on no branch.
        CommitConflictError: the ref changed meanwhile; nothing was removed.
    """
    ref_name = ref_of(name)
    dropped = _find(table, name)

    def prepare(now: Table) -> ChangeSet | None:
        _refuse_foreign(now.metadata, ref_name)
        ref = now.metadata.refs.get(ref_name)
        if ref is None:
            return None
        same = AssertTableUUID(uuid=table.metadata.table_uuid)
        pinned = AssertRefSnapshotId(ref=ref_name, snapshot_id=ref.snapshot_id)
        return ChangeSet((same, pinned), (RemoveSnapshotRefUpdate(ref_name=ref_name),))

    def is_removed(metadata: TableMetadata) -> object | None:
        return None if ref_name in metadata.refs else True

    if dry_run:
        prepare(table)
    else:
        commit_changes(session, table, prepare, is_removed)
    return dropped


def _find(table: Table, name: str) -> Consumer:
    found = {item.name: item for item in find_consumers(table.metadata)}
    if name not in found:
        raise NotFoundError(
            f"{table.identifier} has no consumer named {name}",
            hint=f"its consumers: {', '.join(found) or 'none'}",
        )
    return found[name]


def _refuse_foreign(metadata: TableMetadata, ref_name: str) -> None:
    """Refuse to move or remove a ref that is not one of lake's, or that holds commits of others.

    Raises:
        RefusedError: see above.
    """
    ref = metadata.refs.get(ref_name)
    if ref is None:
        return
    if ref.snapshot_ref_type != "branch":
        raise RefusedError(
            f"{ref_name} is a tag, not a branch", hint="remove it with the program that made it"
        )
    found = (item for item in find_consumers(metadata) if ref_of(item.name) == ref_name)
    is_foreign = any(item.branch is None for item in found)
    if is_foreign and not was_current(metadata, ref.snapshot_id):  # check: commits-on-consumer-ref
        raise RefusedError(
            f"snapshot {ref.snapshot_id}, the head of {ref_name}, is not in the history of a branch: "
            "another program committed to the ref, or the branch was rolled back",
            hint=f"if that snapshot is not needed, remove {ref_name} with Spark's ALTER TABLE … DROP BRANCH",
        )


def was_current(metadata: TableMetadata, snapshot_id: int) -> bool:
    """Whether a snapshot was the head of ``main`` at some time: then it was rolled back, not committed to a ref."""
    return any(entry.snapshot_id == snapshot_id for entry in metadata.snapshot_log)


def _snapshots_to_keep(metadata: TableMetadata, head_id: int, needed_from: int | None) -> int:
    """Return the number of snapshots from a head back to one of its ancestors; all of them if it is not one."""
    if needed_from is None:
        return 1
    history = list(ancestry.ancestors(metadata, head_id))
    newer = len(after(history, needed_from))
    return min(newer + 1, len(history))
