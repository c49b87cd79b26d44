"""Patterns of the names of tables and namespaces: a glob of full names, a namespace, or one name."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from lake.core.base.errors import NotFoundError, did_you_mean

_GLOB_SIGNS = "*?["


def matches(name: str, namespace: str, pattern: str | None) -> bool:
    """Whether a pattern selects a name: it is the name, a glob of it, or its namespace's name; None selects all."""
    return pattern is None or pattern in {name, namespace} or fnmatchcase(name, pattern)


def may_match(namespace: str, pattern: str | None) -> bool:
    """Whether a namespace may contain names that a pattern selects."""
    if pattern is None or pattern == namespace:
        return True
    fixed = pattern
    for sign in _GLOB_SIGNS:
        fixed = fixed.partition(sign)[0]
    return f"{namespace}.".startswith(fixed) or fixed.startswith(f"{namespace}.")


def is_glob(pattern: str) -> bool:
    """Whether a text is a pattern of names such as ``db.*``, and not a name."""
    return any(sign in pattern for sign in _GLOB_SIGNS)


def unmatched(pattern: str, known: Sequence[str]) -> NotFoundError:
    """Return the error for a pattern that selects nothing of the known names."""
    return NotFoundError(
        f"no namespace and no table {'matches' if is_glob(pattern) else 'is named'} {pattern}",
        hint=did_you_mean(pattern, known)
        or "list all tables without a pattern, or give a pattern such as 'db.*'",
    )
