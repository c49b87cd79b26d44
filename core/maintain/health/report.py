"""The tables and lines that people see of `lake health`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lake.core.base.facts import ErrorFacts
from lake.core.base.outcome import Detail, report
from lake.core.base.units import parse_time_ms
from lake.core.maintain.health.facts import HealthFacts, HealthResult
from lake.core.maintain.health.grade import wasted
from lake.core.maintain.health.thresholds import explained

_FIRST = ("table", "grade", "needs", "wasted_s", "files", "small", "deleted_rows", "snapshots")
_MINUTE_MS, _HOUR_MS, _DAY_MS = 60_000, 3_600_000, 86_400_000


def details(result: HealthResult, now_ms: int, *, explain: bool) -> list[Detail]:
    """Return a row for each table, and the measures of each beside the thresholds of other tools if asked for."""
    tables = result.tables
    columns: dict[str, list[Any]] = {
        "table": [shown_name(row) for row in tables],
        "grade": [row.error.kind if row.error else row.grade for row in tables],
        "needs": [", ".join(row.needs) or None for row in tables],
        "wasted_s": [round(wasted(row), 2) or None for row in tables],
        "files": [row.reading.files for row in tables],
        "small": [share(row.reading.small_files, row.reading.files) for row in tables],
        "deleted_rows": [deleted(row) for row in tables],
        "delete_files": [delete_files(row) for row in tables],
        "snapshots": [row.snapshots for row in tables],
        "oldest": [age(row.oldest_snapshot, now_ms) for row in tables],
        "manifests": [row.reading.manifests for row in tables],
        "metadata_bytes": [row.metadata_bytes for row in tables],
        "last_commit": [age(row.last_commit, now_ms) for row in tables],
        "last_rewrite": [age(row.last_rewrite, now_ms) for row in tables],
    }
    found = [report("tables", columns, first=_FIRST)]
    if explain:
        names = ["table", "measure", "value", "others"]
        found.append(Detail("thresholds of other tools", names, _explained(tables)))
    return found


def _explained(tables: Sequence[HealthFacts]) -> list[list[str | None]]:
    return [[row.table, *line] for row in tables if row.error is None for line in explained(row)]


def notes(result: HealthResult, *, explain: bool) -> list[str]:
    """Return why tables could not be read or graded and, if asked for, what is not known of others."""
    found = []
    for row in result.tables:
        if row.error is not None:
            found.append(f"{row.table or row.namespace}: {reason(row.error)}")
        elif row.unknown and (explain or row.grade is None):
            found.append(f"{row.table}: not known: {', '.join(row.unknown)}")
    return found


def reason(error: ErrorFacts) -> str:
    """Return why a table could not be read, with what to do."""
    return f"{error.message} ({error.hint})" if error.hint else error.message


def shown_name(row: HealthFacts) -> str:
    """Return the name of a table, or of a namespace that could not be listed: ``db.*``."""
    return row.table or f"{row.namespace}.*".removeprefix(".")


def age(time: str | None, now_ms: int) -> str | None:
    """Return how long ago a time was, in its largest unit: ``3 d``; None for no time."""
    if time is None:
        return None
    passed = max(now_ms - parse_time_ms(time), 0)
    for unit, size in (("d", _DAY_MS), ("h", _HOUR_MS), ("min", _MINUTE_MS)):
        if passed >= size:
            return f"{passed // size:,} {unit}"
    return "now"


def share(part: int | None, whole: int | None) -> str | None:
    """Return a part with its percentage of the whole; None for no part."""
    if part is None or not whole:
        return None
    return f"{part:,} ({100 * part // whole}%)" if part else None


def deleted(row: HealthFacts) -> str | int | None:
    """Return how many rows deletes hide, or the most that they may hide; None if they hide no row."""
    reading = row.reading
    if reading.deleted_rows is not None:
        return reading.deleted_rows or None
    most = reading.deleted_rows_at_most
    return None if most is None else f"{most:,} or less"


def delete_files(row: HealthFacts) -> str | None:
    """Return the number of delete files of each kind; None without delete files."""
    reading = row.reading
    kinds = {
        "position": reading.position_delete_files,
        "equality": reading.equality_delete_files,
        "vectors": reading.deletion_vectors,
    }
    named = ", ".join(f"{count:,} {kind}" for kind, count in kinds.items() if count)
    return named or (f"{reading.delete_files:,}" if reading.delete_files else None)
