"""What `lake stats` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import NOTHING_WRITTEN
from lake.core.base.facts import NoFacts
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.statistics.facts import PartitionStatisticsFacts, StatisticsFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan = outcome.plan
    if isinstance(plan, PartitionStatisticsFacts):
        found = (
            f"{counted(plan.partitions, 'partition')} with {counted(plan.data_files, 'data file')}"
        )
        if outcome.status is Status.DRY_RUN:
            return f"dry run: would describe {found}{NOTHING_WRITTEN}"
        return f"described {found}"
    if outcome.status is Status.NOTHING_TO_DO:
        if outcome.base_snapshot_id is None:
            return "the branch has no snapshot to describe"
        if isinstance(plan, StatisticsFacts) and not plan.columns:
            return "the table has no column whose values are counted"
        if isinstance(plan, NoFacts) and isinstance(outcome.result, NoFacts):
            return "the snapshot has no partitions"
        return "the snapshot has these statistics already"
    plan = StatisticsFacts.of(plan)
    columns = counted(len(plan.columns), "column")
    rows = counted(plan.rows_at_most, "row") + " or less" * (plan.rows is None)
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would read {rows} and describe {columns}{NOTHING_WRITTEN}"
    return f"described {columns} of {rows}"
