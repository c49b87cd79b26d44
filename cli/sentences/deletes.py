"""What `lake deletes` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.words import NOTHING_WRITTEN, listed, remaining
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.delete_conversion.facts import (
    ConversionFacts,
    ConversionResult,
    RewriteFacts,
    RewriteResult,
)
from lake.core.read.inspection.facts import DeletesResult


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, result = outcome.plan, outcome.result
    if isinstance(plan, ConversionFacts):
        return _conversion(outcome.status, plan, ConversionResult.of(result))
    if isinstance(plan, RewriteFacts):
        return _deletes_rewrite(outcome.status, plan, RewriteResult.of(result))
    rows = DeletesResult.of(result).delete_files
    dangling = sum(row.dangling for row in rows)
    text = listed(len(rows), "delete file")
    return f"{text}, {f'{dangling:,}' if dangling else 'none'} dangling" if rows else text


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the options that the command needs more than its dry run; None if there is nothing to do."""
    conversion, rewrite = ConversionFacts.of(outcome.plan), RewriteFacts.of(outcome.plan)
    files = conversion.equality_deletes + rewrite.position_deletes
    return () if files + conversion.remaining_files + rewrite.remaining_files else None


def _conversion(status: Status, plan: ConversionFacts, result: ConversionResult) -> str:
    nothing = not (plan.equality_deletes or plan.remaining_files)
    if nothing or status is Status.NOTHING_TO_DO:
        return "the branch has no equality delete files"
    noun = "equality delete file"
    read = counted(plan.data_files, "data file")
    if status is Status.DRY_RUN:
        files = counted(plan.equality_deletes, noun)
        if not plan.data_files:
            return f"dry run: would remove {files} that delete nothing{NOTHING_WRITTEN}"
        if not plan.remaining_files:
            return f"dry run: would convert {files} that may apply to {read}{NOTHING_WRITTEN}"
        rest = f"{plan.remaining_files:,} remain"
        return f"dry run: would read {read} and convert {files}; {rest}{NOTHING_WRITTEN}"
    files = counted(result.removed_equality_deletes, noun)
    rest = remaining(result.remaining_deletes, noun)
    if not result.changed_data_files:
        return f"removed {files} that deleted nothing{rest}"
    rows = counted(result.deleted_rows, "row")
    changed = counted(result.changed_data_files, "data file")
    return f"converted {files}: {rows} of {changed} deleted by position{rest}"


def _deletes_rewrite(status: Status, plan: RewriteFacts, result: RewriteResult) -> str:
    if not plan.position_deletes or status is Status.NOTHING_TO_DO:
        return "no position delete file can be replaced"
    noun = "position delete file"
    dangling = f" ({plan.dangling:,} dangling)" * bool(plan.dangling)
    if status is Status.DRY_RUN:
        files = counted(plan.position_deletes, noun)
        of = counted(plan.data_files, "data file")
        rest = f"; {plan.remaining_files:,} remain" * bool(plan.remaining_files)
        return f"dry run: would replace {files}{dangling} of {of}{rest}{NOTHING_WRITTEN}"
    files = counted(result.removed_position_deletes, noun)
    if not result.added_deletes:
        return f"removed {files} that deleted nothing{remaining(result.remaining_deletes, noun)}"
    added = counted(result.added_deletes, "deletion vector" if plan.kind == "vector" else "file")
    dropped = result.dropped_rows
    text = (
        f"replaced {files}{dangling} by {added}, {counted(result.deleted_rows, 'row')} stay deleted"
    )
    text += f", {counted(dropped, 'record')} dropped" * bool(dropped)
    return text + remaining(result.remaining_deletes, noun)
