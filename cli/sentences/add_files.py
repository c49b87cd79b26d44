"""What `lake add-files` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.words import dry_or_done
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.load.file_addition.facts import AdditionFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if outcome.status is Status.NOTHING_TO_DO:
        return "nothing to do: the branch contains this run already"
    plan = AdditionFacts.of(outcome.plan)
    dry = outcome.status is Status.DRY_RUN
    files, rows = counted(plan.added_files, "file"), counted(plan.added_rows, "row")
    text = f"{'would add' if dry else 'added'} {files} with {rows} to {outcome.table}"
    if plan.sets_name_mapping:
        text += ", and set the table's name mapping"
    return dry_or_done(text, dry=dry)
