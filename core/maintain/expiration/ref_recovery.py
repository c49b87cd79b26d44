"""Restore refs lost with expired snapshots: no requirement of the REST protocol forbids a new ref meanwhile.

The metadata file before the commit, which the metadata log names, contains them. A snapshot is restored with its
own id as the newest snapshot, without a parent, because sequence numbers must not decrease.

A catalog that builds metadata in this process checks a requirement of this module's own, so that it loses no ref.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from pyiceberg.exceptions import CommitFailedException, ValidationError
from pyiceberg.table.snapshots import Summary
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    AssertRefSnapshotId,
    AssertTableUUID,
    SetSnapshotRefUpdate,
    TableRequirement,
    TableUpdate,
    ValidatableTableRequirement,
)

from lake.core.base.errors import BadInputError
from lake.core.spec.properties.table_properties import MAX_REF_AGE_MS
from lake.core.spec.types.format_versions import ROW_LINEAGE_SINCE
from lake.core.table.catalogs.catalog import Table
from lake.core.table.metadata.commit_times import latest_ms
from lake.core.table.metadata.files import read_metadata
from lake.core.table.snapshots import ancestry
from lake.core.table.snapshots.row_lineage import next_row_id
from lake.core.transaction.commit.attempt import ChangeSet, commit_changes
from lake.core.transaction.commit.snapshot_producer import next_sequence_number
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.refs import SnapshotRef


# Metadata files that are read at most to find the one before a commit.
_MOST_READ = 1000


def restore_refs(
    session: Session, table: Table, snapshots: Collection[int], removed_refs: Collection[str]
) -> Table:
    """Restore refs to snapshots that a commit removed, except the refs that it was meant to remove.

    Other writers may have committed since. The metadata before the commit is the newest with such a snapshot, and a
    ref that the metadata after it still has was removed by another commit.

    Raises:
        LakeError: lost refs cannot be determined now: no file may be deleted.
    """
    removed, after = frozenset(snapshots), table.metadata
    read: set[str] = set()
    log = _log_of(after) if removed else []
    logged = frozenset(log)
    while log and log[-1] not in read and len(read) < _MOST_READ:
        read.add(place := log.pop())
        if place not in logged and not _is_beside(table, place):
            break
        before = _metadata_at(session, table, place)
        if before is None:
            return table
        if removed & ancestry.snapshots_by_id(before).keys():
            # check: refs-that-others-dropped
            return _restore(session, table, before, {*removed_refs, *_whole_refs(after)})
        # What has dropped out of the log may still exist.
        after, log = before, log or _log_of(before)  # check: refs-before-the-log
    if removed and not table.catalog.makes_metadata:
        session.warn(
            "the log of metadata files does not reach back to the commit: a ref that was created in its moment, to a "
            "snapshot that expired, is lost"
        )
    return table


def _restore(session: Session, table: Table, before: TableMetadata, but: Collection[str]) -> Table:
    lost = {
        name: ref
        for name, ref in before.refs.items()
        if name not in {*but, *_whole_refs(table.metadata)}
        and table.metadata.snapshot_by_id(ref.snapshot_id) is None
        and not _is_aged(session, before, ref)
    }
    if not lost:
        return table

    def prepare(now: Table) -> ChangeSet | None:
        updates = _restoring(session, now.metadata, before, lost)
        return ChangeSet(assert_refs(now), updates) if updates else None

    def is_committed(metadata: TableMetadata) -> object | None:
        return True if lost.keys() <= _whole_refs(metadata) else None

    repaired = commit_changes(session, table, prepare, is_committed)
    session.warn(
        f"restored refs that were created while their snapshots expired: {', '.join(sorted(lost))}"
    )
    return repaired


def _log_of(metadata: TableMetadata) -> list[str]:
    return [entry.metadata_file for entry in metadata.metadata_log]


def _is_beside(table: Table, place: str) -> bool:
    """Whether a file exists in the folder of the table's metadata file."""
    is_near = place.rpartition("/")[0] == table.metadata_location.rpartition("/")[0]
    return is_near and table.storage.look_up([place])[place] is not None


def _whole_refs(metadata: TableMetadata) -> set[str]:
    """Return the refs whose snapshots exist: a server may remove the snapshot of a new ref, and not the ref."""
    known = ancestry.snapshots_by_id(metadata)
    return {name for name, ref in metadata.refs.items() if ref.snapshot_id in known}


def _is_aged(session: Session, before: TableMetadata, ref: SnapshotRef) -> bool:
    """Whether a ref is older than its limit or the table's: any expiry may have removed it on purpose."""
    snapshot = before.snapshot_by_id(ref.snapshot_id)
    if snapshot is None:
        return False
    limit = ref.max_ref_age_ms or MAX_REF_AGE_MS.of(before.properties)
    return session.clock.now_ms() - snapshot.timestamp_ms > limit


class AssertNoOtherRefs(ValidatableTableRequirement):
    """The table has no other refs than these. Only catalogs that build metadata in this process know it."""

    type: str = "assert-no-other-refs"
    refs: frozenset[str]

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """Check the refs of the metadata that a commit replaces.

        Raises:
            CommitFailedException: the table has another ref.
        """
        others = base_metadata.refs.keys() - self.refs if base_metadata else ()
        if others:  # check: no-ref-lost-at-expiry
            raise CommitFailedException(f"others created refs: {', '.join(sorted(others))}")


def assert_refs(table: Table) -> tuple[TableRequirement, ...]:
    """Require every ref to be unchanged, so that a rollback to an expiring snapshot is a conflict."""
    metadata = table.metadata
    refs = {name: ref.snapshot_id for name, ref in metadata.refs.items()}
    refs.setdefault(ancestry.MAIN, metadata.current_snapshot_id)  # type: ignore[arg-type]
    own = (AssertNoOtherRefs(refs=frozenset(refs)),) if table.catalog.makes_metadata else ()
    return (
        AssertTableUUID(uuid=metadata.table_uuid),
        *(AssertRefSnapshotId(ref=name, snapshot_id=head) for name, head in sorted(refs.items())),
        *own,
    )


def _metadata_at(session: Session, table: Table, location: str) -> TableMetadata | None:
    try:
        return read_metadata(table.storage, location)
    except (BadInputError, ValueError, ValidationError):
        # It will stay unreadable. Errors that may be temporary are raised, and the next run retries.
        session.warn(
            f"cannot read {location}, the metadata before this commit: lost refs cannot be restored"
        )
        return None


def _restoring(
    session: Session, now: TableMetadata, before: TableMetadata, lost: Mapping[str, SnapshotRef]
) -> tuple[TableUpdate, ...]:
    updates: list[TableUpdate] = []
    present, whole = set(ancestry.snapshots_by_id(now)), _whole_refs(now)
    sequence = next_sequence_number(now) - 1
    for name, ref in lost.items():
        if name in whole:
            continue
        snapshot = before.snapshot_by_id(ref.snapshot_id)
        if snapshot is None:
            continue
        if snapshot.snapshot_id not in present:
            sequence += 1 if now.format_version > 1 else 0
            present.add(snapshot.snapshot_id)
            changed: dict[str, Any] = {
                "sequence_number": sequence,
                "parent_snapshot_id": None,
                "timestamp_ms": max(session.clock.now_ms(), latest_ms(now)),
            }
            if now.format_version > 1 and (summary := snapshot.summary) is not None:
                original = {ancestry.ADDED_AT: str(ancestry.added_at(snapshot))}
                more = {**summary.additional_properties, **original}
                changed["summary"] = Summary(summary.operation, **more)
            if now.format_version >= ROW_LINEAGE_SINCE:
                # The rows of its manifests have row ids already, and it adds no others.
                changed |= {"first_row_id": next_row_id(now), "added_rows": 0}
            updates.append(AddSnapshotUpdate(snapshot=snapshot.model_copy(update=changed)))
        updates.append(
            SetSnapshotRefUpdate(
                ref_name=name,
                type=ref.snapshot_ref_type,
                snapshot_id=ref.snapshot_id,
                max_ref_age_ms=ref.max_ref_age_ms,
                max_snapshot_age_ms=ref.max_snapshot_age_ms,
                min_snapshots_to_keep=ref.min_snapshots_to_keep,
            )
        )
    return tuple(updates)
