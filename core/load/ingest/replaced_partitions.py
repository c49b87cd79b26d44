"""The partitions that a load would replace, for a dry run: reads the source's partition columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lake.core.engine.inline import InlineEngine
from lake.core.engine.tasks import Task
from lake.core.load.ingest.payloads import SourceTask
from lake.core.load.ingest.plan import IngestPlan, tasks_for
from lake.core.load.ingest.tasks import find_partitions
from lake.core.table.snapshots import ancestry
from lake.core.transaction.removals import Removals, removals_in_partitions
from lake.core.transaction.session import Session

if TYPE_CHECKING:
    from lake.core.spec.types.transforms import Partition

# A dry run does not read more than this.
_MOST_BYTES = 256 * 1024 * 1024


def replaced_partitions(session: Session, plan: IngestPlan) -> Removals | None:
    """Return what a load that replaces partitions removes; None if much of the source must be read to know.

    Raises:
        BadInputError: the source cannot be read.
    """
    creating = bool(plan.table.creating)
    head = None if creating else ancestry.branch_head(plan.table.metadata, plan.options.branch)
    if head is None or plan.table.spec.is_unpartitioned():
        return removals_in_partitions(plan.table, head, [()])
    if sum(unit.input_bytes for unit in plan.units) > _MOST_BYTES:
        return None
    return removals_in_partitions(plan.table, head, _source_partitions(session, plan))


def _source_partitions(session: Session, plan: IngestPlan) -> list[Partition]:
    write = plan.settings("")
    tasks = [
        Task(
            SourceTask(
                task=number,
                write=write,
                units=[unit.read for unit in units],
                reading=plan.reading(units),
                rejects=plan.reject_settings(""),
            )
        )
        for number, units in enumerate(tasks_for(plan, 1))
    ]
    engine = InlineEngine(ids=session.ids)
    results = engine.run(tasks, find_partitions, storage=plan.table.storage)
    return list(dict.fromkeys(item for result in results for item in result.value.partitions))
