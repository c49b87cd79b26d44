"""What `lake delete` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.line import Line, branch_option
from lake.cli.sentences.words import NOTHING_WRITTEN, earlier_run
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.row_deletion.facts import DeletionFacts, DeletionResult


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, result = DeletionFacts.of(outcome.plan), DeletionResult.of(outcome.result)
    if plan.earlier_run:
        return earlier_run(plan.earlier_run, "committed")
    whole, partly = plan.data_files_removed, plan.data_files_examined
    if outcome.status is Status.DRY_RUN:
        if not whole + partly:
            return "dry run: no row matches"
        rows = f"{'up to ' if plan.rows is None else ''}{counted(plan.rows_at_most, 'row')}"
        files = (
            f"{counted(whole + partly, 'file')}{f' ({partly:,} of them in part)' * bool(partly)}"
        )
        return f"dry run: would delete {rows} in {files}{_named_partitions(plan)}{NOTHING_WRITTEN}"
    if outcome.status is Status.NOTHING_TO_DO:
        return "no row matches; nothing was deleted"
    parts = [f"deleted {counted(result.rows, 'row')}"]
    if result.data_files_removed:
        parts.append(f"removed {counted(result.data_files_removed, 'file')}")
    if result.data_files_rewritten:
        parts.append(f"rewrote {counted(result.data_files_rewritten, 'file')}")
    if result.delete_files:
        parts.append(f"wrote {counted(result.delete_files, 'delete file')}")
    return ", ".join(parts)


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    plan = DeletionFacts.of(outcome.plan)
    return () if plan.data_files_removed + plan.data_files_examined else None


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the line that brings the deleted rows back."""
    if outcome.status is not Status.DONE or not outcome.base_snapshot_id:
        return None
    before = str(outcome.base_snapshot_id)
    return line.of("rollback", outcome.table, before, *branch_option(outcome))


def _named_partitions(plan: DeletionFacts) -> str:
    named = [item for item in plan.partitions if item.partition]
    return f" of {counted(len(named), 'partition')}" if named else ""
