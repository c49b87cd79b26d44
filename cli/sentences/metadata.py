"""What the commands in `lake.commands.metadata` found or changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from lake.cli.sentences.words import (
    NOTHING_WRITTEN,
    Facts,
    counted,
    listed,
    remaining,
    rows_or_less,
)
from lake.core.base.outcome import Outcome, Status
from lake.core.base.units import format_size


def _alter(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table is so already; nothing to do"
    plan, dry = outcome.plan, outcome.status is Status.DRY_RUN
    verbs = {
        "added_columns": ("add", "added"),
        "renamed_columns": ("rename", "renamed"),
        "dropped_columns": ("drop", "dropped"),
        "widened_columns": ("widen", "widened"),
    }
    parts = [
        f"{would if dry else did} {counted(len(plan[key]), 'column')}"
        for key, (would, did) in verbs.items()
        if plan[key]
    ]
    for key, verb in (("partition_by", "partitioned"), ("sort_by", "sorted")):
        if plan[key] is not None:
            terms = ", ".join(plan[key])
            parts.append(_arranged(verb, terms, dry=dry))
    if changed := len(plan["set"]) + len(plan["unset"]):
        properties = f"{changed:,} propert{'y' if changed == 1 else 'ies'}"
        parts.append(f"{'change' if dry else 'changed'} {properties}")
    if plan["format_version"]:
        verb = "upgrade" if dry else "upgraded"
        parts.append(f"{verb} the table to format version {plan['format_version']}")
    return f"{'dry run: would ' * dry}{', '.join(parts)}{NOTHING_WRITTEN * dry}"


def _arranged(verb: str, terms: str, *, dry: bool) -> str:
    """Return how new files are partitioned or sorted after a change."""
    by = f"{verb} by {terms}" if terms else f"not {verb}"
    return f"write new files {by}" if dry else f"new files are {by}"


def _create(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table exists already; nothing to do"
    plan = outcome.plan
    dry = outcome.status is Status.DRY_RUN
    by = ", ".join(plan["partition_by"])
    parts = [
        counted(len(plan["columns"]), "column"),
        f"partitioned by {by}" if by else "not partitioned",
        f"format version {plan['format_version']}",
    ]
    text = f"{'would create' if dry else 'created'} the table ({', '.join(parts)})"
    return f"{'dry run: ' * dry}{text}{NOTHING_WRITTEN * dry}"


def _rename(outcome: Outcome) -> str:
    plan, dry = Facts(outcome.plan), outcome.status is Status.DRY_RUN
    text = f"{'would rename' if dry else 'renamed'} the table to {plan['to']}"
    return f"{'dry run: ' * dry}{text}{NOTHING_WRITTEN * dry}"


def _register(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "the table is registered already; nothing to do"
    plan, dry = Facts(outcome.plan), outcome.status is Status.DRY_RUN
    text = f"{'would register' if dry else 'registered'} the table at {plan['location']}"
    if rows := rows_or_less(plan, "rows"):
        text += f" with {rows}"
    return f"{'dry run: ' * dry}{text}{NOTHING_WRITTEN * dry}"


def _drop(outcome: Outcome) -> str:
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    dry = outcome.status is Status.DRY_RUN
    text = f"{'would drop' if dry else 'dropped'} the table"
    if not plan["purge"]:
        text += f"; its metadata file stays: {plan['metadata_location']}"
    elif dry:
        text += f" and delete {counted(plan['files'], 'file')} ({format_size(plan['bytes'])})"
    else:
        text += f" and deleted {counted(result['deleted_files'], 'file')}"
    if result["failed_deletes"]:
        text += f"; {counted(result['failed_deletes'], 'file')} could not be deleted"
    return f"{'dry run: ' * dry}{text}{NOTHING_WRITTEN * dry}"


def _add_files(outcome: Outcome) -> str:
    if outcome.status is Status.NOTHING_TO_DO:
        return "nothing to do: the branch contains this run already"
    plan = Facts(outcome.plan)
    dry = outcome.status is Status.DRY_RUN
    files, rows = counted(plan["added_files"], "file"), counted(plan["added_rows"], "row")
    text = f"{'would add' if dry else 'added'} {files} with {rows} to {outcome.table}"
    if plan["sets_name_mapping"]:
        text += ", and set the table's name mapping"
    return f"{'dry run: ' * dry}{text}{NOTHING_WRITTEN * dry}"


def _partitions(outcome: Outcome) -> str:
    rows = outcome.result.get("partitions", ())
    text = listed(len(rows), "partition")
    if any(row["idle"] is None for row in rows):
        return text
    idle = sum(row["idle"] is True for row in rows)
    return f"{text}, {f'{idle:,}' if idle else 'none'} idle" if rows else text


# What a check of each level did not look at.
_UNCHECKED = {
    "metadata": "; data files were not looked for (--files), opened (--rows) or read (--deep)",
    "files": "; data files were not opened (--rows) or read (--deep)",
    "rows": "; the values of data files were not read (--deep)",
}


def _check(outcome: Outcome) -> str:
    result = outcome.result
    if outcome.plan:
        return _repair(outcome)
    read = counted(result["manifests"], "manifest")
    kinds = (("errors", "error"), ("warnings", "warning"), ("notes", "note"))
    found = [counted(result[key], noun) for key, noun in kinds if result[key]]
    text = " and ".join(found) or "nothing wrong"
    return f"read {read}, found {text}{_UNCHECKED.get(result['level'], '')}"


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


def _deletes(outcome: Outcome) -> str:
    if outcome.plan:
        is_conversion = "equality_deletes" in outcome.plan
        return _conversion(outcome) if is_conversion else _deletes_rewrite(outcome)
    rows = outcome.result.get("delete_files", ())
    dangling = sum(row["dangling"] is True for row in rows)
    text = listed(len(rows), "delete file")
    return f"{text}, {f'{dangling:,}' if dangling else 'none'} dangling" if rows else text


def _conversion(outcome: Outcome) -> str:
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    nothing = not (plan["equality_deletes"] or plan["remaining_files"])
    if nothing or outcome.status is Status.NOTHING_TO_DO:
        return "the branch has no equality delete files"
    noun = "equality delete file"
    read = counted(plan["data_files"], "data file")
    if outcome.status is Status.DRY_RUN:
        files = counted(plan["equality_deletes"], noun)
        if not plan["remaining_files"]:
            return f"dry run: would convert {files} that may apply to {read}{NOTHING_WRITTEN}"
        rest = f"{plan['remaining_files']:,} remain"
        return f"dry run: would read {read} and convert {files}; {rest}{NOTHING_WRITTEN}"
    files = counted(result["removed_equality_deletes"], noun)
    rows = counted(result["deleted_rows"], "row")
    text = f"converted {files}: {rows} of {counted(result['changed_data_files'], 'data file')} deleted by position"
    return text + remaining(result["remaining_deletes"], noun)


def _deletes_rewrite(outcome: Outcome) -> str:
    plan, result = Facts(outcome.plan), Facts(outcome.result)
    if not plan["position_deletes"] or outcome.status is Status.NOTHING_TO_DO:
        return "no position delete file can be replaced"
    noun = "position delete file"
    dangling = f" ({plan['dangling']:,} dangling)" * bool(plan["dangling"])
    if outcome.status is Status.DRY_RUN:
        files = counted(plan["position_deletes"], noun)
        of = counted(plan["data_files"], "data file")
        rest = f"; {plan['remaining_files']:,} remain" * bool(plan["remaining_files"])
        return f"dry run: would replace {files}{dangling} of {of}{rest}{NOTHING_WRITTEN}"
    files = counted(result["removed_position_deletes"], noun)
    if not result["added_deletes"]:
        return f"removed {files} that deleted nothing{remaining(result['remaining_deletes'], noun)}"
    added = counted(
        result["added_deletes"], "deletion vector" if plan["kind"] == "vector" else "file"
    )
    dropped = result["dropped_rows"]
    text = f"replaced {files}{dangling} by {added}, {counted(result['deleted_rows'], 'row')} stay deleted"
    text += f", {counted(dropped, 'record')} dropped" * bool(dropped)
    return text + remaining(result["remaining_deletes"], noun)


def _tables(outcome: Outcome) -> str:
    rows, views = outcome.result.get("tables", ()), outcome.result.get("views", ())
    failed = sum(row["error"] is not None for row in rows)
    text = listed(sum(row["table"] is not None for row in rows), "table")
    if views:
        text += f", {counted(len(views), 'view')}"
    return f"{text}; {failed:,} could not be read" if failed else text


def _show(outcome: Outcome) -> str:
    schema, version = outcome.result["schema"], outcome.result["format_version"]
    columns = counted(len(schema["fields"]), "column")
    return (
        f"{columns}, {counted(outcome.result['snapshots'], 'snapshot')}, format version {version}"
    )


def _inspect(outcome: Outcome) -> str:
    rows = Facts(outcome.result)["rows"]
    found = outcome.plan.get("rows_found")
    if "preview" in outcome.result:
        if found is None:
            return counted(rows, "row")
        return counted(found, "row") if rows == found else f"{rows:,} of {counted(found, 'row')}"
    return f"wrote {counted(rows, 'row')}"


def _snapshots(outcome: Outcome) -> str:
    return listed(len(outcome.result.get("snapshots", ())), "snapshot")


def _consumers(outcome: Outcome) -> str:
    result = Facts(outcome.result)
    name = Facts(outcome.plan)["dropped"]
    if outcome.status is Status.DRY_RUN:
        return f"dry run: would remove consumer {name}; nothing was changed"
    if result["dropped"]:
        return f"removed consumer {name}: expiry does not wait for its reader any more"
    return listed(len(result["consumers"] or ()), "consumer")


SENTENCES: Mapping[str, Callable[[Outcome], str]] = {
    "add-files": _add_files,
    "alter": _alter,
    "check": _check,
    "consumers": _consumers,
    "create": _create,
    "deletes": _deletes,
    "drop": _drop,
    "inspect": _inspect,
    "partitions": _partitions,
    "register": _register,
    "rename": _rename,
    "show": _show,
    "snapshots": _snapshots,
    "tables": _tables,
}
