"""Find the rules of policies that have no effect: a name that is misspelt, or a setting that earlier rules decide."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from lake.core.base.errors import did_you_mean
from lake.core.table.catalogs.names import known_names
from lake.core.table.catalogs.patterns import is_glob, matches, may_match

if TYPE_CHECKING:
    from lake.core.maintain.policies.policy import Rule
    from lake.core.table.catalogs.names import Namespace

_SIMILAR = 0.7


def ineffective(rules: Sequence[Rule], spaces: Sequence[Namespace]) -> Iterator[str]:
    """Yield a sentence for each rule, or setting of a rule, that has no effect in a catalog.

    A rule that may select tables of a namespace that cannot be listed has none. The rules of a file are compared with
    each other only: what a later file changes is meant to change.

    Args:
        rules: the rules in effect, those that win first.
        spaces: all namespaces of the catalog, each with its tables.
    """
    tables = [(space.name, name) for space in spaces for name in space.tables]
    unlisted = [space.name for space in spaces if space.error is not None]
    for number, rule in enumerate(rules):
        if not rule.settings:
            continue
        if any(matches(name, space, rule.pattern) for space, name in tables):
            yield from _decided(rule, rules[:number], tables)
        elif not any(may_match(space, rule.pattern) for space in unlisted):
            meant = did_you_mean(rule.pattern, known_names(spaces), similarity=_SIMILAR)
            yield "; ".join(filter(None, (f"{rule} selects no table", meant)))


def _decided(
    rule: Rule, before: Sequence[Rule], tables: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield what earlier rules of the same file decide otherwise for each table that a rule selects."""
    deciding: dict[str, list[str]] = {}
    for key, given in rule.settings.items():
        first = next((one for one in before if key in one.settings and _covers(one, rule)), None)
        if (
            first is not None
            and first.settings[key].value != given.value
            and all(
                matches(name, space, first.pattern)
                for space, name in tables
                if matches(name, space, rule.pattern)
            )
        ):
            deciding.setdefault(f'["{first.pattern}"]', []).append(key)
    if sum(map(len, deciding.values())) == len(rule.settings):
        reasons = [
            f"{by} is before it and decides {' and '.join(keys)}" for by, keys in deciding.items()
        ]
        yield f"{rule} has no effect: {', '.join(reasons)}"
        return
    for by, keys in deciding.items():
        for key in keys:
            yield f"{key} of {rule} has no effect: {by} is before it"


def _covers(earlier: Rule, later: Rule) -> bool:
    """Whether a rule of the same file selects what a later one selects, by their patterns.

    A rule for the tables that no other one selects comes last, and has an effect for tables that are created later.
    """
    pattern = later.pattern
    inner = pattern if is_glob(pattern) else f"{pattern}.*"
    return earlier.place == later.place and (
        matches(pattern, pattern.rpartition(".")[0], earlier.pattern)
        or matches(inner, pattern, earlier.pattern)
    )
