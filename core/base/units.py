"""Numbers, sizes, durations and times in the notation of the command line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from lake.core.base.errors import InvalidRequestError

_WHOLE = re.compile(r"[+-]?[0-9]{1,19}")
_SIZE = re.compile(r"(\d{1,15}(?:\.\d{1,15})?)\s*([kmgtp]?)(i?b)?", re.IGNORECASE | re.ASCII)
_FACTORS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40, "p": 1 << 50}
_LARGEST = (1 << 63) - 1
# Of the largest: numbers with fewer are smaller.
_DIGITS = 19
# A smaller number was probably meant as megabytes.
_LEAST_WITHOUT_UNIT = 1 << 20
_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|d|w)", re.IGNORECASE | re.ASCII)
_MILLISECONDS = {
    "ms": 1,
    "s": 1000,
    "m": 60_000,
    "h": 3_600_000,
    "d": 86_400_000,
    "w": 604_800_000,
}
# The digits of the numbers in times, which may adjoin each other: fractions are milliseconds or microseconds.
_NUMBERS = {**dict.fromkeys("ymdHIMSUWV", "2"), "Y": "4", "G": "4", "j": "3", "u": "1", "w": "1"}
_PARTS = re.compile(
    rf"(?P<adjoining>(?:%[f{''.join(_NUMBERS)}]){{2,}})|%(?P<one>.)|(?P<blanks>\s+)|.", re.DOTALL
)
_DIRECTIVE = re.compile("%(.)", re.DOTALL)
# Expressions take much longer to search longer texts.
_LONGEST_TIME = 256
_STEP = 1024
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
# Without a zone, whose text takes time to write.
_START = _EPOCH.replace(tzinfo=None)


def whole_number(text: str) -> int | None:
    """Return a text's 64-bit integer as Java parses it; None if it is not one."""
    if text.isdigit() and text.isascii() and len(text) < _DIGITS:
        return int(text)
    found = int(text) if _WHOLE.fullmatch(text) else _LARGEST + 1
    return found if -_LARGEST - 1 <= found <= _LARGEST else None


def natural_number(text: str) -> int | None:
    """Return a text's integer from 0 to 2^63 - 1; None if it is not one."""
    found = whole_number(text)
    return None if found is None or found < 0 else found


def parse_size(text: str) -> int:
    """Return bytes; ``64MB`` is 64 MiB, a number without a unit is bytes and at least 1 MiB.

    Raises:
        InvalidRequestError: it is not a size above zero, does not fit in 63 bits, or has no unit.
    """
    found = _SIZE.fullmatch(text.strip())
    size = _scaled(found[1], _FACTORS[found[2].lower()]) if found else 0
    if not 0 < size <= _LARGEST:
        raise InvalidRequestError(f"not a size: {text!r}", hint="write it as 64MB or 1.5GB")
    if size < _LEAST_WITHOUT_UNIT and not (found and (found[2] or found[3])):
        number = text.strip()
        raise InvalidRequestError(
            f"the size {number!r} has no unit", hint=f"write {number}MB, or {number}B for bytes"
        )
    return size


def format_size(size: int) -> str:
    """Return a size in readable form, e.g. ``1.5 MB`` (MiB-based)."""
    amount = float(size)
    if abs(amount) < _STEP:
        return f"{size} B"
    for unit in ("KB", "MB", "GB"):
        amount /= _STEP
        # A value that rounds to 1024.0 is shown in the next unit.
        if abs(amount) < _STEP - 0.05:
            return f"{amount:.1f} {unit}"
    return f"{amount / _STEP:.1f} TB"


def is_duration(text: str) -> bool:
    """Whether the text is a duration rather than a point in time."""
    return bool(_DURATION.fullmatch(text.strip()))


def parse_duration_ms(text: str) -> int:
    """Return milliseconds of ``90s``, ``15m``, ``12h``, ``7d``.

    Raises:
        InvalidRequestError: it is not a duration.
    """
    found = _DURATION.fullmatch(text.strip())
    if not found:
        raise InvalidRequestError(
            f"not a duration: {text!r}", hint="write it as 90s, 15m, 12h or 7d"
        )
    return _scaled(found[1], _MILLISECONDS[found[2].lower()])


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 row``, ``1,000 rows``."""
    return f"{number:,} {noun}{'s' * (number != 1)}"


def format_duration(seconds: float) -> str:
    """Return seconds in readable form, e.g. ``3m 05s``."""
    if round(seconds, 1) < 60:  # noqa: PLR2004 - seconds of a minute
        return f"{seconds:.1f}s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h {minutes:02d}m" if hours else f"{minutes}m {rest:02d}s"


def format_age(milliseconds: int) -> str:
    """Return a duration in the largest unit that divides it, e.g. ``5 days``."""
    for unit, length in (("day", 86_400_000), ("hour", 3_600_000), ("minute", 60_000)):
        if milliseconds and milliseconds % length == 0:
            return counted(milliseconds // length, unit)
    return format_duration(milliseconds / 1000)


def parse_time_ms(text: str) -> int:
    """Return an ISO 8601 time as milliseconds since 1970 UTC (UTC if it has no zone, or is followed by UTC).

    A time between two milliseconds is the earlier one.

    Raises:
        InvalidRequestError: it is not an ISO 8601 time.
    """
    try:
        parsed = datetime.fromisoformat(text.removesuffix(" UTC"))
    except ValueError as error:
        raise InvalidRequestError(
            f"not a time: {text!r}", hint="write it as 2026-01-31 or 2026-01-31T12:00:00Z"
        ) from error
    moment = parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)
    return (moment - _EPOCH) // timedelta(milliseconds=1)


def read_time(text: str, form: str) -> datetime:
    """Return a time as `datetime.strptime` reads it; a number must have all digits if another one adjoins it.

    Raises:
        ValueError: the text does not have the format. Python would read 1112026 as the 11th of January.
    """
    if len(text) > _LONGEST_TIME:
        raise ValueError(f"{len(text)} characters are not a time")
    moment = datetime.strptime(text, form)  # noqa: DTZ007 - the caller decides what a time without a zone is
    if not _digits(form).fullmatch(text):  # check: all-digits
        raise ValueError(f"{text} lacks a digit")
    return moment


def directives(form: str) -> frozenset[str]:
    """Return the letters of the directives in a format of times, such as ``Y`` of ``%Y``."""
    return frozenset(_DIRECTIVE.findall(form))


@lru_cache
def _digits(form: str) -> re.Pattern[str]:
    """Return what a text of a format matches if each number that adjoins another one has all its digits."""

    def pattern(part: re.Match[str]) -> str:
        if part["adjoining"]:
            return "".join(_fixed(name) for name in part[0][1::2])
        if part["blanks"]:
            return r"\s+"
        if part["one"] in _NUMBERS:
            return r"\d+"
        return ".*" if part["one"] else re.escape(part[0])

    return re.compile(_PARTS.sub(pattern, form), re.DOTALL | re.IGNORECASE)


def _fixed(name: str) -> str:
    return rf"\d{{{_NUMBERS[name]}}}" if name in _NUMBERS else r"(\d{3}){1,2}"


def iso_time(time_ms: int) -> str | None:
    """Return milliseconds since 1970 as ISO 8601 in UTC, as scripts read it; None outside of the calendar."""
    try:
        moment = _START + timedelta(milliseconds=time_ms)
    except OverflowError:
        return None
    return f"{moment.isoformat(timespec='milliseconds')}Z"


def readable_time(text: str) -> str:
    """Return a time of `iso_time` as `format_time` writes it."""
    return f"{text[:19].replace('T', ' ')} UTC"


def format_time(time_ms: int) -> str | None:
    """Return milliseconds since 1970 in readable form: ``2026-01-31 08:30:00 UTC``; None outside of the calendar."""
    text = iso_time(time_ms)
    return None if text is None else readable_time(text)


def _scaled(number: str, factor: int) -> int:
    # With integers, because a float does not have 63 bits of precision.
    whole, _, fraction = number.partition(".")
    parts = 10 ** len(fraction)
    return int(whole) * factor + int(fraction or "0") * factor // int(parts)
