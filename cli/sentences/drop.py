"""What `lake drop` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import dry_or_done
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted, format_size
from lake.core.maintain.definition.facts import DropFacts, DropResult


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, result = DropFacts.of(outcome.plan), DropResult.of(outcome.result)
    dry = outcome.status is Status.DRY_RUN
    text = f"{'would drop' if dry else 'dropped'} the table"
    if not plan.purge:
        text += f"; its metadata file stays: {plan.metadata_location}"
    elif dry:
        text += f" and delete {counted(plan.files, 'file')} ({format_size(plan.bytes)})"
    else:
        text += f" and deleted {counted(result.deleted_files, 'file')}"
    if result.failed_deletes:
        text += f"; {counted(result.failed_deletes, 'file')} could not be deleted"
    return dry_or_done(text, dry=dry)


def after_dry_run(outcome: Outcome) -> Sequence[str] | None:
    """Return the option that a drop needs to delete files."""
    return ("--yes",) if DropFacts.of(outcome.plan).purge else ()


def next_step(_outcome: Outcome, _line: Line) -> str | None:
    """Return None: the table is gone, also if some of its files remain."""
    return None
