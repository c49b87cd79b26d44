"""Values as text: in tables on a terminal, and in lines on a pipe.

In a table of data, values differ visibly and can be copied: NULL differs from the text 'NULL' and from the empty text
also without colors. In a report a missing value is blank, and counts have separators.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from lake.core.base.plain import base64_text
from lake.core.base.redaction import one_line
from lake.core.base.units import format_size

NULL = "NULL"
ELLIPSIS = "…"
# A terminal shows no more characters of a value.
_LONGEST = 5000
UTC = "UTC"
INSTANT = re.compile(r"([+-]?\d{4,}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d)(?:\.(\d+))?(Z|\+00:00| UTC)?")
_CLOCK = re.compile(r"()(\d\d:\d\d:\d\d)(?:\.(\d+))?()")
# Fractions of a second are shown as milliseconds, microseconds or nanoseconds.
_DIGITS_OF_FRACTION = 3


def is_utc(values: Sequence[Any]) -> bool:
    """Whether values are times that all name the zone UTC, which the head of their column can name for them."""
    found = [INSTANT.fullmatch(str(value)) for value in values if value]
    return bool(found) and all(item and item[4] for item in found)


def data_cells(
    name: str, values: Sequence[Any], kind: str, *, zone: bool = True
) -> list[str | None]:
    """Return the values of a column of data as texts, and NULL as None.

    Args:
        name: the name of the column: a struct ``partition`` is written as in Iceberg's paths.
        values: JSON-ready values.
        kind: the type of the column, as users write it.
        zone: write the zone of times.
    """
    if kind.startswith("time"):
        return _times(values, _CLOCK if kind == "time" else INSTANT, zone=zone)
    if name == "partition" and all(isinstance(value, Mapping) for value in values):
        return [partition_text(value) for value in values]
    write = _quoted if kind == "string" else _bounded
    return [None if value is None else write(value) for value in values]


def partition_text(value: Mapping[str, Any]) -> str:
    """Return the fields of a partition as ``day=2026-01-31/bucket=3``."""
    return "/".join(
        f"{one_line(name)}={NULL if field is None else plain_text(field)}"
        for name, field in value.items()
    )


def _bounded(value: Any) -> str:
    text = plain_text(value[: _LONGEST + 1] if isinstance(value, str) else value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + ELLIPSIS


def _quoted(value: Any) -> str:
    """Return a text in quotes, as in SQL, if it could be taken for NULL or for nothing."""
    text = _bounded(value)
    plain = text and text == text.strip() and text.upper() != NULL
    if plain and not (text.startswith("'") and text.endswith("'")):
        return text
    return "'" + text.replace("'", "''") + "'"


def report_cells(name: str, values: Sequence[Any], *, zone: bool = True) -> list[str | None]:
    """Return the values of a report's column as texts; a missing value is empty.

    Args:
        name: the name of the column: numbers of an ``id`` or ``pid`` have no separators, and ``bytes`` are sizes.
        values: JSON-ready values.
        zone: write the zone of times.
    """
    words = re.split(r"[_ ]", name)
    if any(isinstance(value, str) and INSTANT.fullmatch(value) for value in values):
        return [text or "" for text in _times(values, INSTANT, zone=zone, most_digits=0)]
    return ["" if value is None else _reported(value, words) for value in values]


def _reported(value: Any, words: Sequence[str]) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        if "bytes" in words:
            return format_size(value)
        return str(value) if {"id", "pid"} & {*words} else f"{value:,}"
    return plain_text(value)


def _times(
    values: Sequence[Any], form: re.Pattern[str], *, zone: bool, most_digits: int = 9
) -> list[str | None]:
    """Return ISO 8601 texts as ``2026-01-31 08:30:00 UTC``, with as many digits of a second as the column needs.

    Args:
        values: one for each row.
        form: what a time looks like; other texts stay as they are.
        zone: write the zone; else the head of the column names it.
        most_digits: the most digits of a second.
    """
    found = [form.fullmatch(value) if isinstance(value, str) else None for value in values]
    digits = max((len((item[3] or "").rstrip("0")) for item in found if item), default=0)
    digits = min(-(-digits // _DIGITS_OF_FRACTION) * _DIGITS_OF_FRACTION, most_digits)
    return [
        _time(item, digits, zone=zone) if item else None if value is None else plain_text(value)
        for item, value in zip(found, values, strict=True)
    ]


def _time(found: re.Match[str], digits: int, *, zone: bool) -> str:
    day, clock, fraction, named = found.groups()
    cut = f".{(fraction or '').ljust(digits, '0')[:digits]}" if digits else ""
    return f"{day} {clock}{cut}{f' {UTC}' if zone and named else ''}".lstrip()


def plain_text(value: Any) -> str:
    """Return a value as one line of text, as JSON writes it if it has a word for it; nothing for NULL."""
    if value is None:
        return ""
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return base64_text(value)
    if isinstance(value, Mapping | list | tuple):
        return one_line(json.dumps(value, default=plain_text, ensure_ascii=False))
    return one_line(str(value))
