"""What `lake check` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lake.cli.sentences.line import Line, branch_option
from lake.cli.sentences.words import read_by
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import counted
from lake.core.maintain.checking.facts import CheckResult
from lake.core.maintain.repair.facts import (
    DanglingDeletesFacts,
    DuplicateFilesFacts,
    LostRefsFacts,
    LostStatisticsFacts,
    MissingFilesFacts,
    RepairFacts,
    RepairsFacts,
    TotalsFacts,
)
from lake.core.maintain.repair.names import OF_TABLE

# What a check of each level did not look at.
_UNCHECKED = {
    "metadata": "; data files were not looked for (--files), opened (--rows) or read (--deep)",
    "files": "; data files were not opened (--rows) or read (--deep)",
    "rows": "; the values of data files were not read (--deep)",
}


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    if isinstance(outcome.plan, RepairsFacts):
        return _repair(outcome.plan.repairs, outcome.status)
    result = CheckResult.of(outcome.result)
    read = counted(result.manifests, "manifest")
    kinds = ((result.errors, "error"), (result.warnings, "warning"), (result.notes, "note"))
    text = " and ".join(counted(number, noun) for number, noun in kinds if number)
    return f"read {read}, found {text or 'nothing wrong'}{_UNCHECKED.get(result.level, '')}{read_by(result.engine)}"


def after_dry_run(_outcome: Outcome) -> Sequence[str] | None:
    """Return the option that a repair needs."""
    return ("--yes",)


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the repairs that mend some of what a check found, or the check that shows what a repair left."""
    if not line.rest:
        return None
    result = outcome.result
    if isinstance(result, RepairsFacts):
        with_files = any(isinstance(item, MissingFilesFacts) for item in result.repairs)
        return line.of("check", outcome.table, *(["--files"] if with_files else []))
    found = CheckResult.of(result).findings
    # One branch at a time: the check after its repair finds what the next one has.
    branches = {item.branch for item in found if item.repair and item.branch}
    branch = min(branches, key=lambda name: (name != "main", name), default=None)
    names = dict.fromkeys(
        item.repair
        for item in found
        if item.repair in OF_TABLE or (item.repair and item.branch and item.branch == branch)
    )
    chosen = [text for name in names for text in ("--repair", str(name))]
    where = branch_option(replace(outcome, branch=branch))
    return line.of("check", outcome.table, *chosen, *where) if chosen else None


def _repair(repairs: Sequence[RepairFacts], status: Status) -> str:
    if status is Status.NOTHING_TO_DO:
        return f"nothing to repair ({', '.join(item.repair for item in repairs)})"
    dry = status is Status.DRY_RUN
    text = ", ".join(part for part in (_mended(item, dry=dry) for item in repairs) if part)
    return f"dry run: would {text}; nothing was changed" if dry else text


def _mended(item: RepairFacts, *, dry: bool) -> str:
    """Return what one repair does; empty if there is nothing to mend."""
    drop, correct = ("drop", "correct") if dry else ("dropped", "corrected")
    match item:
        case DuplicateFilesFacts(data_files=files) if files:
            return f"{drop} the second entries of {counted(files, 'data file')}"
        case MissingFilesFacts() if item.data_files or item.delete_files:
            return f"{drop} {_gone(item)}"
        case DanglingDeletesFacts(delete_files=deletes) if deletes:
            return f"{drop} {counted(deletes, 'dangling delete file')}"
        case TotalsFacts(totals=totals) if totals:
            return f"{correct} {counted(len(totals), 'total')}"
        case LostRefsFacts(refs=refs) if refs:
            return f"{drop} {counted(len(refs), 'ref')}"
        case LostStatisticsFacts(files=entries) if entries:
            return f"{drop} the entries of {counted(len(entries), 'statistics file')}"
    return ""


def _gone(item: MissingFilesFacts) -> str:
    """Return the files that a repair drops, and the rows that are lost with them."""
    files, deletes = item.data_files, item.delete_files
    parts = [counted(files, "missing data file")] if files else []
    parts += [counted(deletes, "delete file")] if deletes else []
    at_most = "at most " if item.rows is None else ""
    rows = f" with {at_most}{counted(item.rows_at_most, 'row')}" if files else ""
    return " and ".join(parts) + rows
