"""What `lake check` did, as one sentence."""

from __future__ import annotations

from collections.abc import Sequence

from lake.cli.sentences.line import Line
from lake.cli.sentences.words import Facts, counted
from lake.core.base.outcome import Outcome, Status

# What a check of each level did not look at.
_UNCHECKED = {
    "metadata": "; data files were not looked for (--files), opened (--rows) or read (--deep)",
    "files": "; data files were not opened (--rows) or read (--deep)",
    "rows": "; the values of data files were not read (--deep)",
}


def sentence(outcome: Outcome) -> str:
    """Return what the command did."""
    result = outcome.result
    if outcome.plan:
        return _repair(outcome)
    read = counted(result["manifests"], "manifest")
    kinds = (("errors", "error"), ("warnings", "warning"), ("notes", "note"))
    found = [counted(result[key], noun) for key, noun in kinds if result[key]]
    text = " and ".join(found) or "nothing wrong"
    return f"read {read}, found {text}{_UNCHECKED.get(result['level'], '')}"


def after_dry_run(_outcome: Outcome) -> Sequence[str] | None:
    """Return the option that a repair needs."""
    return ("--yes",)


def next_step(outcome: Outcome, line: Line) -> str | None:
    """Return the repairs that mend some of what a check found, or the check that shows what a repair left."""
    if not line.rest:
        return None
    repairs = outcome.result.get("repairs")
    if repairs is not None:
        with_files = any(item["repair"] == "missing-files" for item in repairs)
        return line.of("check", outcome.table, *(["--files"] if with_files else []))
    found = outcome.result.get("findings", ())
    names = dict.fromkeys(item["repair"] for item in found if item.get("repair"))
    chosen = [text for name in names for text in ("--repair", name)]
    return line.of("check", outcome.table, *chosen) if chosen else None


def _repair(outcome: Outcome) -> str:
    repairs = outcome.plan.get("repairs") or ()
    if outcome.status is Status.NOTHING_TO_DO:
        return f"nothing to repair ({', '.join(item['repair'] for item in repairs)})"
    dry = outcome.status is Status.DRY_RUN
    parts = [_mended(Facts(item), dry=dry) for item in repairs]
    text = ", ".join(part for part in parts if part)
    return f"dry run: would {text}; nothing was changed" if dry else text


def _mended(item: Facts, *, dry: bool) -> str:
    """Return what one repair does; empty if there is nothing to mend."""
    drop, correct = ("drop", "correct") if dry else ("dropped", "corrected")
    files, deletes = item["data_files"], item["delete_files"]
    entries = len(item["files"] or ())
    texts = {
        "duplicate-files": files and f"{drop} the second entries of {counted(files, 'data file')}",
        "missing-files": (files or deletes) and f"{drop} {_gone(item)}",
        "dangling-deletes": deletes and f"{drop} {counted(deletes, 'dangling delete file')}",
        "totals": item["totals"] and f"{correct} {counted(len(item['totals']), 'total')}",
        "refs": item["refs"] and f"{drop} {counted(len(item['refs']), 'ref')}",
        "statistics": entries and f"{drop} the entries of {counted(entries, 'statistics file')}",
    }
    return texts.get(item["repair"]) or ""


def _gone(item: Facts) -> str:
    """Return the files that a repair drops, and the rows that are lost with them."""
    files, deletes = item["data_files"], item["delete_files"]
    parts = [counted(files, "missing data file")] if files else []
    parts += [counted(deletes, "delete file")] if deletes else []
    rows = f"{counted(item['rows_at_most'], 'row')}" if files else ""
    at_most = "at most " if files and item["rows"] != item["rows_at_most"] else ""
    return " and ".join(parts) + (f" with {at_most}{rows}" if rows else "")
