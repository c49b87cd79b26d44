"""Texts of options as typed values; a text that cannot be read is an invalid request (exit 2)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from lake.core.errors import InvalidRequestError

# A name in quotes, or all up to the next comma; empty ones are found too, to be refused.
_NAME = re.compile(
    r"""(?:^|(?<=,))(?:\s*"(?:[^"]|"")*"\s*(?=,|$)|\s*`(?:[^`]|``)*`\s*(?=,|$)|[^,]*)"""
)


def parse_pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return ``K=V`` texts as a mapping.

    Raises:
        InvalidRequestError: one has no ``=`` or no key, or two give one key different values.
    """
    pairs: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        key = key.strip()
        if not equals or not key:
            raise InvalidRequestError(f"{option} wants NAME=VALUE, not {text!r}")
        if pairs.get(key, value) != value:
            raise InvalidRequestError(f"{option} gives {key} two values")
        pairs[key] = value
    return pairs


def parse_names(text: str | None) -> list[str] | None:
    """Return comma-separated names, without the quotes that may be around each; None for no text.

    In double quotes or backquotes a name may hold commas, and its own quote doubled, as in filters.

    Raises:
        InvalidRequestError: a name is empty or comes twice.
    """
    if text is None:
        return None
    names = [_unquoted(found[0].strip()) for found in _NAME.finditer(text)]
    if not all(names):
        raise InvalidRequestError(f"an empty name in {text!r}")
    if len(set(names)) < len(names):
        raise InvalidRequestError(f"a name comes twice in {text!r}")
    return names


def _unquoted(name: str) -> str:
    quote = name[:1]
    if quote in {'"', "`"} and len(name) > 1 and name.endswith(quote):
        return name[1:-1].replace(quote * 2, quote)
    return name


def parse_choice(text: str, option: str, allowed: Sequence[str]) -> str:
    """Return the text, which is one of a few.

    Raises:
        InvalidRequestError: it is none of them.
    """
    if text not in allowed:
        raise InvalidRequestError(f"{option} is {text!r}, not one of {', '.join(allowed)}")
    return text
