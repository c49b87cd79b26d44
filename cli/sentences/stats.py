"""What `lake stats` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import NOTHING_WRITTEN, Facts, counted, rows_or_less
from lake.core.base.outcome import Outcome, Status


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan = Facts(outcome.plan)
    if "partitions" in plan:
        files = counted(plan["data_files"], "data file")
        found = f"{counted(plan['partitions'], 'partition')} with {files}"
        if outcome.status is Status.DRY_RUN:
            return f"dry run: would describe {found}{NOTHING_WRITTEN}"
        return f"described {found}"
    columns = counted(len(outcome.plan.get("columns") or ()), "column")
    if outcome.status is Status.NOTHING_TO_DO:
        if outcome.base_snapshot_id is None:
            return "the branch has no snapshot to describe"
        if outcome.plan.get("columns") == []:
            return "the table has no column whose values are counted"
        if not outcome.plan and not outcome.result:
            return "the snapshot has no partitions"
        return "the snapshot has these statistics already"
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would read {rows_or_less(plan, 'rows')} and describe {columns}{NOTHING_WRITTEN}"
    return f"described {columns} of {rows_or_less(plan, 'rows')}"
