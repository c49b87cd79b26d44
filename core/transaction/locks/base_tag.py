"""A tag that keeps the snapshot that a long run works on, so that the expiry of any tool keeps its files.

A tag expires when its snapshot is older than the tag's maximum age. That age is therefore the snapshot's own age and
an hour, and the run extends it while it works: the tag of a run that was killed expires an hour later.

Source: Iceberg's RemoveSnapshots.computeRetainedRefs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.base.errors import CommitConflictError, LakeError
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.refs import TAG, RefChange, commit_refs

if TYPE_CHECKING:
    from pyiceberg.table.snapshots import Snapshot

    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

_HOUR_MS = 3_600_000
# An extension is a commit, with a metadata file of its own.
_EXTEND_SECONDS = 1800.0


class BaseTag:
    """The tag of one run.

    Args:
        session: the session.
        operation_id: the run's id, which is part of the name.
    """

    def __init__(self, session: Session, operation_id: str) -> None:
        self.name = f"{ancestry.RUN_PREFIX}{operation_id}"
        self._session = session
        self._snapshot_id: int | None = None
        self._set_at = 0.0
        self._is_refused = False

    def keep(self, table: Table, snapshot: Snapshot) -> None:
        """Set the tag, move it or extend it, if that is due; the run goes on without it if that fails."""
        clock = self._session.clock
        is_kept = self._snapshot_id == snapshot.snapshot_id
        is_new = is_kept and clock.monotonic() - self._set_at < _EXTEND_SECONDS
        if (
            self._is_refused
            or is_new
            or table.metadata.snapshot_by_id(snapshot.snapshot_id) is None
        ):
            return
        ref = table.metadata.refs.get(self.name)
        age_ms = max(clock.now_ms() - snapshot.timestamp_ms, 0)
        change = RefChange(
            name=self.name,
            kind=TAG,
            before=ref.snapshot_id if ref else None,
            after=snapshot.snapshot_id,
            max_ref_age_ms=age_ms + _HOUR_MS,
        )
        # Also after an error: the commit may have succeeded.
        self._snapshot_id, self._set_at = snapshot.snapshot_id, clock.monotonic()
        try:
            commit_refs(self._session, table, [change])
        except CommitConflictError:
            # Others commit so often, or the snapshot has just expired; it is tried again.
            self._snapshot_id = None
        except LakeError as error:
            self._is_refused = True
            self._session.warn(
                f"the snapshot that the run works on could not be kept by a tag: {error.message}; if it expires "
                "meanwhile, the run fails, and nothing is lost"
            )

    def remove(self, table: Table) -> None:
        """Remove the tag, if it was set; what is not removed expires by itself."""
        if self._snapshot_id is None:
            return
        try:
            now = table.refreshed()
            ref = now.metadata.refs.get(self.name)
            if ref is not None:
                gone = RefChange(name=self.name, kind=TAG, before=ref.snapshot_id, after=None)
                commit_refs(self._session, now, [gone])
        except LakeError as error:
            self._session.warn(
                f"tag {self.name} of {table.identifier} could not be removed, and expires in an hour: {error.message}"
            )
