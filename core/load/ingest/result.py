"""What a load wrote, and the outcome that reports it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from lake.core.base.outcome import Outcome, Status
from lake.core.load.ingest.facts import IngestFacts, IngestResult, RemovalFacts
from lake.core.load.ingest.plan import IngestPlan
from lake.core.table.manifests.data_files import DataFile, stored_bytes
from lake.core.transaction.commit.commit import Committed
from lake.core.transaction.removals import Removals


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadResult:
    """What a load wrote.

    Args:
        data: the data files that it wrote.
        deletes: the delete files that it wrote.
        counts: the rows that it read and wrote; the numbers of files are added by `facts`.
        removals: what an overwrite removed; None for other loads.
        base_snapshot_id: the snapshot on which the load was decided, if it is not the plan's.
    """

    data: Sequence[DataFile] = ()
    deletes: Sequence[DataFile] = ()
    counts: IngestResult = field(default_factory=IngestResult)
    removals: Removals | None = None
    base_snapshot_id: int | None = None

    @property
    def paths(self) -> list[str]:
        """The paths of all files."""
        return [file.path for file in (*self.data, *self.deletes)]

    def facts(self) -> IngestResult:
        """Return the result for the outcome."""
        removals = self.removals
        return replace(
            self.counts,
            data_files=len(self.data),
            delete_files=len(self.deletes),
            bytes_written=stored_bytes([*self.data, *self.deletes]),
            removed_files=removals.files if removals else None,
            rewritten_files=removals.rewritten_files if removals else None,
            removed=RemovalFacts.from_removals(removals) if removals else None,
        )


@dataclass(frozen=True, slots=True)
class Landed:
    """A load's result and its commit; `committed` is None for a load that is only staged."""

    result: LoadResult
    committed: Committed | None = None
    operation_id: str | None = None


def load_outcome(plan: IngestPlan, shown: IngestFacts, status: Status, landed: Landed) -> Outcome:
    """Return the outcome of a load; ``shown`` describes its plan."""
    result, committed = landed.result, landed.committed
    return Outcome(
        status=status,
        operation_id=landed.operation_id if committed else None,
        base_snapshot_id=plan.base_snapshot_id
        if result.base_snapshot_id is None
        else result.base_snapshot_id,
        snapshot_ids=committed.snapshot_ids[-1:] if committed else (),
        plan=shown,
        result=result.facts(),
    )
