"""What `lake expire-partitions` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.words import NOTHING_WRITTEN, Facts, counted
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import format_size, readable_time


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    dry = outcome.status is Status.DRY_RUN
    plan = Facts(outcome.result or outcome.plan)
    limit = readable_time(plan["older_than"])
    if not plan["data_files"]:
        return f"{'dry run: ' * dry}no partition is older than {limit}"
    known = "rows" in plan
    rows = ("" if known else "at most ") + counted(plan["rows" if known else "rows_at_most"], "row")
    files = f"{counted(plan['data_files'], 'file')} ({format_size(plan['bytes'])}, {rows})"
    what = f"{counted(plan['partitions'], 'partition')} older than {limit}: {files}"
    return f"dry run: would remove {what}{NOTHING_WRITTEN}" if dry else f"removed {what}"


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    plan = Facts(outcome.plan)
    return () if plan["data_files"] else None
