"""Conditions of runs: ``NAME >= N or NAME > N …``, the grammar of each verb that may find nothing due."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.errors import InvalidRequestError
from lake.core.options import Option

_TERM = re.compile(r"\s*([a-z-]+)\s*(>=|>)\s*(.+?)\s*", re.DOTALL)
_OR = re.compile(r"\s+or\s+", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Term:
    """A name that is compared with a limit.

    Args:
        name: what is measured.
        is_strict: whether the value must exceed the limit, and not only reach it.
        limit: the limit as it was written.
    """

    name: str
    is_strict: bool
    limit: str


def parse_terms(text: str, names: Sequence[str], *, option: Option, hint: str) -> tuple[Term, ...]:
    """Return the terms of a condition; one that holds is enough.

    Args:
        text: the condition.
        names: the names that it may contain.
        option: the option that contains it, for messages.
        hint: how a condition is written, for messages.

    Raises:
        InvalidRequestError: it is not such a condition, or contains a name twice.
    """
    terms: dict[str, Term] = {}
    for part in _OR.split(text.strip()):
        found = _TERM.fullmatch(part)
        if found is None or found[1] not in names:
            raise InvalidRequestError(f"{option}: {part.strip()!r} is not a condition", hint=hint)
        name = found[1]
        if name in terms:
            raise InvalidRequestError(f"{option} contains {name} twice", hint=hint)
        terms[name] = Term(name, found[2] == ">", found[3])
    return tuple(terms.values())
