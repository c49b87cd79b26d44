"""What `lake scan` did, as one sentence."""

from __future__ import annotations

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import place
from lake.core.base.outcome import MOST_SHOWN, PREVIEW_ROWS, Outcome, Status
from lake.core.base.units import counted, format_size
from lake.core.read.continuous.facts import (
    FollowFacts,
    FollowResult,
    NextFacts,
    StandingFacts,
    StatusResult,
)
from lake.core.read.exports.facts import ReadResult
from lake.core.read.scan.facts import RowBounds, ScanFacts


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    plan, result = outcome.plan, outcome.result
    if isinstance(result, FollowResult | StatusResult):
        return _followed(result, FollowFacts.of(plan).snapshots)
    if isinstance(result, ReadResult):
        rows = counted(result.rows, "row")
        if result.bytes_written is None:
            # Standard output, a pipe or a device.
            return rows
        written = format_size(result.bytes_written)
        return f"wrote {rows} to {counted(result.files, 'file')} ({written})"
    if isinstance(plan, NextFacts) and outcome.status is Status.NOTHING_TO_DO:
        return "nothing new"
    scan = ScanFacts.of(plan)
    found = plan if isinstance(plan, NextFacts) else scan
    files = f"{counted(found.files, 'file')} ({format_size(found.bytes)})"
    deletes = f" and {counted(scan.delete_files, 'delete file')}" * bool(scan.delete_files)
    skipped = f"; {scan.skipped_files:,} skipped" * bool(scan.skipped_files)
    records = counted(found.records, "row")
    return (
        f"would read {files}{deletes} with {records} in {counted(found.splits, 'split')}{skipped}"
    )


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the line that hands over the rows that a follow knows of and has not handed over."""
    result = outcome.result
    if isinstance(result, FollowResult | StatusResult):
        standing = result.standing or StandingFacts()
        waits = standing.pending_splits or (standing.lag is not None and standing.lag.snapshots)
        return line.again("scan", without=frozenset({"--status"})) if waits and line.rest else None
    return line.again("scan") if outcome.status is Status.PARTIAL and line.rest else None


def _followed(result: FollowResult | StatusResult, snapshots: int) -> str:
    """Return what a follow handed over, in this run or in all, and where it is."""
    standing = result.standing or StandingFacts()
    rows = counted(result.rows, "row")
    epochs = counted(result.epochs, "epoch")
    # A status is not of one run, so it has no files and gaps.
    files, gaps = (result.files, len(result.gaps)) if isinstance(result, FollowResult) else (0, 0)
    if not result.rows:
        text = "nothing new"
        if snapshots:
            text += f" in {counted(snapshots, 'snapshot')}"
    else:
        text = f"handed over {rows} in {epochs}"
        if files:
            text += f" ({counted(files, 'file')}, {format_size(result.bytes_written)})"
    if gaps:
        text += f"; {counted(gaps, 'gap')} in the history"
    if standing.pending_splits:
        text += f"; {counted(standing.pending_splits, 'split')} pending"
    return f"{text} · {place(standing.position, standing.lag)}"


def previewed(outcome: Outcome, hidden: str) -> str:
    """Return how many rows and columns were shown, and of how many if metadata shows it."""
    shown = ReadResult.of(outcome.result).rows
    bounds = ScanFacts.of(outcome.plan).bounds or RowBounds()
    total = bounds.rows
    if total is not None and total > shown:
        parts = [f"{shown:,} of {counted(total, 'row')}"]
    elif total is not None or shown < PREVIEW_ROWS or bounds.rows_at_most is None:
        parts = [counted(shown, "row")]
    else:
        parts = [f"{shown:,} of at most {counted(bounds.rows_at_most, 'row')}"]
    if outcome.details:
        parts.append(hidden or counted(len(outcome.details[0].columns), "column"))
    if shown >= PREVIEW_ROWS and total != shown:
        more = "--limit N for more, " if shown < MOST_SHOWN else ""
        parts.append(f"{more}--output FILE for all")
    return " · ".join(parts)
