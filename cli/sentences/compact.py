"""What `lake compact` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.conditions import conditions, due
from lake.cli.sentences.words import NOTHING_WRITTEN, remaining
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted, format_size
from lake.core.maintain.compaction.facts import CompactionFacts, CompactionResult
from lake.core.spec.expressions.conditions import ConditionFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if isinstance(outcome.plan, ConditionFacts):
        return f"compaction is not due: {conditions(outcome.plan, holds=False)} since the last one"
    plan, result = CompactionFacts.of(outcome.plan), CompactionResult.of(outcome.result)
    if outcome.status is Status.DRY_RUN and not plan.groups:
        return f"dry run: {_already_compact(plan)}"
    if outcome.status is Status.DRY_RUN:
        files = f"{counted(plan.input_files, 'file')} ({format_size(plan.input_bytes)})"
        groups = counted(plan.groups, "group")
        outputs = counted(plan.expected_output_files, "file")
        rest = remaining(plan.remaining_files, "file")
        if plan.depth is not None and plan.expected_depth is not None:
            rest = (
                f", at one place at most {plan.depth.worst:,} → {plan.expected_depth.worst:,}{rest}"
            )
        if plan.row_groups_to_copy:
            rest += f", copying {counted(plan.row_groups_to_copy, 'row group')}"
        if plan.busy_partitions:
            rest += f"; {plan.busy_text}"
        return (
            f"dry run: would rewrite {files} in {groups} into about {outputs}{rest}{NOTHING_WRITTEN}"
            f"{due(plan.condition)}"
        )
    if outcome.status is Status.NOTHING_TO_DO:
        return _already_compact(plan)
    return f"{_done(plan, result)}{remaining(plan.remaining_files, 'file')}{due(plan.condition)}"


def _done(plan: CompactionFacts, result: CompactionResult) -> str:
    text = (
        f"{counted(result.rewritten_files, 'file')} → {result.added_files:,}, "
        f"{format_size(result.rewritten_bytes)} → {format_size(result.added_bytes)}, "
        f"{counted(result.rows_out, 'row')} unchanged"
    )
    if result.copied_row_groups:
        text += f", {counted(result.copied_row_groups, 'row group')} copied"
    if result.rows_dropped_by_deletes:
        text += f", removed {counted(result.rows_dropped_by_deletes, 'deleted row')} permanently"
    if result.removed_delete_files:
        text += f", removed {counted(result.removed_delete_files, 'delete file')}"
    if plan.depth is not None and result.depth is not None:
        text += f", at one place at most {plan.depth.worst:,} → {result.depth.worst:,}"
    if result.failed_groups:
        text += f"; {counted(result.failed_groups, 'group')} failed"
    return text


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the compaction needs more than its dry run; None if nothing would be rewritten."""
    return () if CompactionFacts.of(outcome.plan).groups else None


def _them(plan: CompactionFacts) -> str:
    return "it" if plan.busy_partitions == 1 else "them"


def _already_compact(plan: CompactionFacts) -> str:
    files = plan.total_data_files
    if plan.busy_partitions:
        return f"nothing to compact: {plan.busy_text}; --idle 0s compacts {_them(plan)}"
    if not files:
        return "nothing to compact"
    average = format_size(plan.total_files_size // files)
    if plan.depth is not None and not plan.remaining_files:
        return f"nothing to sort: too few of {counted(files, 'file')} overlap at one place"
    if moved := plan.left_alone.get("more-partitions"):
        return (
            f"nothing to compact: {counted(moved.files, 'file')} of older partition specs would become about "
            f"{moved.expected_output_files:,} in partition spec {moved.spec_id}; "
            f"--spec-id {moved.spec_id} rewrites them"
        )
    if few := plan.left_alone.get("few-files"):
        small = (
            f"{few.files:,} of {counted(files, 'file')}"
            if few.files < files
            else counted(files, "file")
        )
        return (
            f"nothing to compact: {small} ({average} on average) wait for more files in their partitions "
            "(--min-input-files); --dry-run --explain lists them"
        )
    return f"already compact ({counted(files, 'file')}, {average}{' on average' * (files > 1)})"
