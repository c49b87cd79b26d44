"""Parse option texts into typed values; an invalid text is an invalid request (exit code 2)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lake.core.base.errors import InvalidRequestError, did_you_mean
from lake.core.base.locations import SAME_STORE
from lake.core.base.units import is_duration, iso_time, parse_duration_ms, parse_time_ms

# A quoted name, or all characters up to the next comma. Empty names match too, and are refused.
_NAME = re.compile(
    r"""(?:^|(?<=,))(?:\s*"(?:[^"]|"")*"\s*(?=,|$)|\s*`(?:[^`]|``)*`\s*(?=,|$)|[^,]*)"""
)

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:_@-]*")
_NUMBER = re.compile("[0-9]+")
_DAYS, _DAY_MS = {"today": 0, "yesterday": 1}, 86_400_000


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return ``K=V`` texts as a mapping.

    Raises:
        InvalidRequestError: a text has no ``=`` or no key, or two texts give a key different
        values.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidRequestError(f"{option} takes NAME=VALUE, not {text!r}")
        if pairs.get(key, value) != value:
            raise InvalidRequestError(f"{option} sets {key} to two different values")
        pairs[key] = value
    return pairs


def parse_prefixes(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return ``A=B`` texts of schemes or authorities as a mapping, with one scheme for each store.

    Raises:
        InvalidRequestError: a name has characters that neither has, or a name is mapped to one that is mapped.
    """
    pairs = {
        SAME_STORE.get(key, key): SAME_STORE.get(value, value)
        for key, value in parse_pairs(texts, option).items()
    }
    pairs = {key: value for key, value in pairs.items() if key != value}
    for name in (*pairs, *pairs.values()):
        if not _PREFIX.fullmatch(name):
            raise InvalidRequestError(f"{option} takes names as in a location, not {name!r}")
    if chained := pairs.keys() & set(pairs.values()):
        raise InvalidRequestError(f"{option} maps {sorted(chained)[0]} and maps another name to it")
    return pairs


def parse_seconds(text: str) -> int:
    """Return the milliseconds of a duration; a number without a unit is seconds.

    Raises:
        InvalidRequestError: it is not a duration.
    """
    return parse_duration_ms(f"{text}s" if _NUMBER.fullmatch(text.strip()) else text)


def parse_table(text: str) -> str:
    """Return the name of a table.

    Raises:
        InvalidRequestError: it is not one.
    """
    from lake.core.table.catalogs.catalog import split_identifier

    split_identifier(text)
    return text


def parse_names(text: str | None) -> list[str] | None:
    """Parse comma-separated names and remove their quotes; return None for no text.

    As in filters, a name in double quotes or backquotes may contain commas and its own quote,
    doubled.

    Raises:
        InvalidRequestError: a name is empty or occurs twice.
    """
    if text is None:
        return None
    names = [_unquoted(match[0].strip()) for match in _NAME.finditer(text)]
    if not all(names):
        raise InvalidRequestError(f"{text!r} contains an empty name")
    if len(set(names)) < len(names):
        raise InvalidRequestError(f"{text!r} contains a name twice")
    return names


def written_names(names: Iterable[str]) -> str:
    """Return names as `parse_names` reads them."""
    return ",".join('"' + name.replace('"', '""') + '"' for name in names)


def _unquoted(name: str) -> str:
    quote = name[:1]
    if quote in {'"', "`"} and len(name) > 1 and name.endswith(quote):
        return name[1:-1].replace(quote * 2, quote)
    return name


def parse_share(text: str) -> float:
    """Return a percentage such as ``50%`` as a number between 0 and 1.

    Raises:
        InvalidRequestError: it is not a percentage between 0% and 100%.
    """
    found = re.fullmatch(r"(\d{1,2}(?:\.\d+)?|100)%", text.strip())
    if found is None:
        raise InvalidRequestError(f"not a percentage: {text!r}", hint="write it as 50%")
    return float(found[1]) / 100


def parse_choice(text: str, option: str, allowed: Sequence[str]) -> str:
    """Return the text if it is one of the allowed words.

    Raises:
        InvalidRequestError: it is not one of them.
    """
    if text not in allowed:
        raise InvalidRequestError(
            f"{option} is {text!r}, not one of {', '.join(allowed)}",
            hint=did_you_mean(text, allowed),
        )
    return text


def absolute_ref(text: str, now_ms: Callable[[], int]) -> str:
    """Return ``@yesterday``, ``@today`` and ``@10m`` (an age) as the time that they mean; other texts as they are.

    A day is its beginning in UTC, as a date is.
    """
    word = text.removeprefix("@")
    if word == text:
        return text
    if word in _DAYS:
        return f"@{iso_time((now_ms() // _DAY_MS - _DAYS[word]) * _DAY_MS)}"
    return f"@{iso_time(now_ms() - parse_duration_ms(word))}" if is_duration(word) else text


@dataclass(frozen=True, slots=True)
class Moment:
    """A time: in ms since 1970, or in ms before the present; exactly one of them is given."""

    time_ms: int | None = None
    age_ms: int = 0

    def at(self, now_ms: int) -> int:
        """Return the time in ms since 1970."""
        return now_ms - self.age_ms if self.time_ms is None else self.time_ms


def parse_moment(text: str) -> Moment:
    """Return the time that an age or a time means.

    Raises:
        InvalidRequestError: it is neither.
    """
    if is_duration(text):
        return Moment(age_ms=parse_duration_ms(text))
    try:
        return Moment(parse_time_ms(text))
    except InvalidRequestError as error:
        raise InvalidRequestError(
            f"{text!r} is neither an age nor a time", hint="use 7d, 12h, or 2026-01-31T12:00Z"
        ) from error


def checked_filter(text: str) -> str:
    """Return the text of a filter that can be read; its columns are not known yet.

    Raises:
        BadInputError: it is not a filter.
    """
    from lake.core.spec.expressions.parser import parse_filter

    parse_filter(text)
    return text
