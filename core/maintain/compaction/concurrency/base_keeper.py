"""Keep a plan valid while its groups are rewritten for hours, whatever expires meanwhile.

From time to time, the commits of other writers since the plan are validated, so that a commit of this run needs only
the snapshots since then, and a tag keeps the files of the plan. A tag alone is not enough: it keeps the snapshot of
the plan, but not those between it and the head, without which the commits in between are unknown. A short run does
neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from lake.core.base.errors import ConflictingFilesError, LakeError
from lake.core.maintain.compaction.grouping import FileGroup, numbers_of
from lake.core.table.snapshots import ancestry
from lake.core.transaction.commit.conflicts import (
    CommitsSince,
    Partition,
    partitions_of,
    refuse_new_deletes_for,
)
from lake.core.transaction.locks.base_tag import BaseTag

if TYPE_CHECKING:
    from lake.core.maintain.compaction.plan import CompactionPlan
    from lake.core.table.catalogs.catalog import Table
    from lake.core.transaction.session import Session

# An expiry that keeps less than this, while a table is maintained, also breaks the writers of the table.
_SECONDS = 300.0
_PARTITIONED = ("file_path", "partition", "spec_id")


class BaseKeeper:
    """Validates the commits since a plan, and keeps its snapshot.

    Args:
        session: the session.
        operation_id: the run's id.

    Attributes:
        validated_id: the snapshot up to which all commits were validated for the groups that are not lost.
    """

    def __init__(self, session: Session, plan: CompactionPlan, operation_id: str) -> None:
        self._session = session
        self._tag = BaseTag(session, operation_id)
        self._looked_at = session.clock.monotonic()
        self._plan = plan
        self.validated_id = _base_id(plan)

    def begin(self, plan: CompactionPlan) -> None:
        """Continue with another plan."""
        self._plan = plan
        self.validated_id = _base_id(plan)

    @property
    def is_due(self) -> bool:
        """Whether it is time to look at the table."""
        return self._session.clock.monotonic() - self._looked_at >= _SECONDS

    def look(self, table: Table, groups: Sequence[FileGroup]) -> frozenset[str]:
        """Validate the commits since the last time, and keep the plan's snapshot.

        Args:
            table: the table as it is now.
            groups: the groups that are neither committed nor lost.

        Returns:
            The files of the groups that other writers deleted rows of; their groups cannot be committed any more.
        """
        self._looked_at = self._session.clock.monotonic()
        affected = self._validate(table, groups)
        if self._plan.base is not None:
            self._tag.keep(table, self._plan.base)
        return affected

    def _validate(self, table: Table, groups: Sequence[FileGroup]) -> frozenset[str]:
        plan, metadata = self._plan, table.metadata
        affected: frozenset[str] = frozenset()
        try:
            head_id = ancestry.head_id(metadata, plan.branch)
            if head_id == self.validated_id:
                return affected
            since = CommitsSince(table.storage, metadata, head_id, self.validated_id)
            refuse_new_deletes_for(
                since, self._partitions(groups), ignore_equality=plan.keeps_sequence_number
            )
        except ConflictingFilesError as error:
            affected = error.paths  # check: deletes-before-a-look
        except LakeError:
            # The commit finds out.
            return affected
        self.validated_id = head_id
        return affected

    def _partitions(self, groups: Sequence[FileGroup]) -> dict[str, Partition]:
        found: dict[str, Partition] = {}
        live = self._plan.live
        for spec_id, _, rows in live.places(numbers_of(groups)):
            entries = live.by_spec[spec_id].select(_PARTITIONED).take(pa.array(rows))
            found.update(zip(entries["file_path"].to_pylist(), partitions_of(entries), strict=True))
        return found

    def end(self, table: Table) -> None:
        """Remove the tag."""
        self._tag.remove(table)


def _base_id(plan: CompactionPlan) -> int | None:
    return plan.base.snapshot_id if plan.base else None
