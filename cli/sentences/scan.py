"""What `lake scan` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import Facts, counted, place
from lake.core.base.outcome import MOST_SHOWN, PREVIEW_ROWS, Outcome, Status
from lake.core.base.units import format_size


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if "epochs" in result:
        return _followed(plan, result)
    if "strategy" in outcome.plan and outcome.status is Status.NOTHING_TO_DO:
        return "nothing new"
    if "rows" not in result:
        files = f"{counted(plan['files'], 'file')} ({format_size(plan['bytes'])})"
        deletes = f" and {counted(plan['delete_files'], 'delete file')}" * bool(
            plan["delete_files"]
        )
        skipped = f"; {plan['skipped_files']:,} skipped" * bool(plan["skipped_files"])
        records = counted(plan["records"], "row")
        return f"would read {files}{deletes} with {records} in {counted(plan['splits'], 'split')}{skipped}"
    rows = counted(result["rows"], "row")
    if "bytes_written" not in result:
        # Standard output, a pipe or a device.
        return rows
    written = format_size(result["bytes_written"])
    return f"wrote {rows} to {counted(result['files'], 'file')} ({written})"


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the line that hands over the rows that a follow knows of and has not handed over."""
    result = Facts(outcome.result)
    if "pending_splits" in result:
        waits = result["pending_splits"] or (result["lag"] or {}).get("snapshots")
        return line.again("scan", without=frozenset({"--status"})) if waits and line.rest else None
    return line.again("scan") if outcome.status is Status.PARTIAL and line.rest else None


def _followed(plan: Facts, result: Facts) -> str:
    """Return what a follow handed over, in this run or in all, and where it is."""
    rows = counted(result["rows"], "row")
    epochs = counted(result["epochs"], "epoch")
    if not result["rows"]:
        text = "nothing new"
        if plan["snapshots"]:
            text += f" in {counted(plan['snapshots'], 'snapshot')}"
    elif result["files"]:
        files = f"{counted(result['files'], 'file')}, {format_size(result['bytes_written'])}"
        text = f"handed over {rows} in {epochs} ({files})"
    else:
        text = f"handed over {rows} in {epochs}"
    if result["gaps"]:
        gaps = result["gaps"]
        text += f"; {counted(gaps if isinstance(gaps, int) else len(gaps), 'gap')} in the history"
    if result["pending_splits"]:
        text += f"; {counted(result['pending_splits'], 'split')} pending"
    return f"{text} · {place(result)}"


def previewed(outcome: Outcome, hidden: str) -> str:
    """Return how many rows and columns were shown, and of how many if metadata shows it."""
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    shown, total = result["rows"], plan["rows"]
    if "rows" in plan and total > shown:
        parts = [f"{shown:,} of {counted(total, 'row')}"]
    elif "rows" in plan or shown < PREVIEW_ROWS or "rows_at_most" not in plan:
        parts = [counted(shown, "row")]
    else:
        parts = [f"{shown:,} of at most {counted(plan['rows_at_most'], 'row')}"]
    if outcome.details:
        parts.append(hidden or counted(len(outcome.details[0].columns), "column"))
    if shown >= PREVIEW_ROWS and total != shown:
        more = "--limit N for more, " if shown < MOST_SHOWN else ""
        parts.append(f"{more}--output FILE for all")
    return " · ".join(parts)
