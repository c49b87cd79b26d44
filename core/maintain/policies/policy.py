"""Policies: rules of files by globs, properties of a table, and what both say about one table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from lake.core.base.errors import InvalidRequestError, RefusedError, did_you_mean, nearest
from lake.core.base.units import parse_duration_ms
from lake.core.maintain.policies.conditions import parse_when
from lake.core.maintain.policies.windows import Window, parse_window
from lake.core.spec.properties.table_properties import MAINTENANCE_PREFIX
from lake.core.table.catalogs.patterns import matches

if TYPE_CHECKING:
    from lake.core.spec.expressions.conditions import Condition

# In the order in which a round does them.
ACTIONS = ("expire", "compact", "deletes", "manifests", "clean", "stats")
_ENABLED, _WHEN, _WINDOW, _EVERY = "enabled", "when", "window", "every"
# The settings of a table, and those of an action; all others are options of its verb.
_OF_TABLES = (_ENABLED, _WINDOW, _EVERY)
_OF_ACTIONS = (_ENABLED, _WHEN, _WINDOW, _EVERY)
_LONGEST = 4096


class Choices(NamedTuple):
    """The options that actions take.

    Args:
        of_files: the names of those that a policy file may set, by the action.
        of_properties: the names of those that a table property may set, by the action; a user who writes the table
            must not lower its protection.
        check: is called with an action, the name of an option, its value, and what contains it; raises
            `InvalidRequestError` if the value is not allowed.
    """

    of_files: Mapping[str, Collection[str]]
    of_properties: Mapping[str, Collection[str]]
    check: Callable[[str, str, Any, str], object]


class Given(NamedTuple):
    """A value, and what contains it, for messages."""

    value: Any
    place: str


@dataclass(frozen=True, slots=True)
class Rule:
    """The settings for the tables that a glob selects.

    Args:
        pattern: the glob, the name of a table, or that of a namespace.
        settings: the values by ``window`` or ``compact.window``.
        place: the file that contains it.
    """

    pattern: str
    settings: Mapping[str, Given]
    place: str

    def __str__(self) -> str:
        return _rule_text(self.pattern, self.place)


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPolicy:
    """What a policy says about an action on a table.

    Args:
        forbidden_by: the setting that forbids it; empty if none does.
        when: it is due if this is true; None if its forecast decides.
        window: when it may begin; None for always.
        every_ms: the time after which it may be done again; None for no limit.
        options: options of its verb, by their names.
    """

    forbidden_by: str = ""
    when: Condition | None = None
    window: Window | None = None
    every_ms: int | None = None
    options: Mapping[str, Given] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TablePolicy:
    """What a policy says about each action on a table."""

    actions: Mapping[str, ActionPolicy]


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules in effect, those that win first."""

    rules: Sequence[Rule] = ()

    def of(self, table: str, properties: Mapping[str, str], choices: Choices) -> TablePolicy:
        """Return the policy of a table: its own properties win, but nothing allows what one of them forbids.

        Raises:
            InvalidRequestError: a property has an unknown name or a value that is not allowed.
            RefusedError: a property sets an option that only a policy file may set.
        """
        own = _of_properties(properties, choices)
        namespace = table.rpartition(".")[0]
        settings = [rule.settings for rule in self.rules if matches(table, namespace, rule.pattern)]
        return TablePolicy({action: _action(action, settings, own) for action in ACTIONS})


def policy_rules(document: Mapping[str, Any], place: str, choices: Choices) -> list[Rule]:
    """Return the rules of a policy file in their order.

    Args:
        document: its content: a table for each glob.
        place: what contains it, for messages.
        choices: the options that it may set.

    Raises:
        InvalidRequestError: it contains an unknown name or a value that is not allowed.
    """
    return [
        Rule(
            pattern, dict(_settings(settings, pattern, _rule_text(pattern, place), choices)), place
        )
        for pattern, settings in document.items()
    ]


def _rule_text(pattern: str, place: str) -> str:
    return f'["{pattern}"] in {place}'


def _settings(
    found: Any, pattern: str, place: str, choices: Choices
) -> Iterator[tuple[str, Given]]:
    if not isinstance(found, Mapping):
        raise InvalidRequestError(
            f"{place} is not a table", hint='a policy has a table for each pattern: ["db.*"]'
        )
    for name, value in found.items():
        if name not in ACTIONS:
            _require_quoted(pattern, name, value, place)
            _require_known(name, (*_OF_TABLES, *ACTIONS), place)
            yield name, _given(name, value, f"{name} of {place}")
            continue
        inner = f"{name} of {place}"
        if not isinstance(value, Mapping):
            raise InvalidRequestError(f"{inner} is not a table")
        for option, chosen in value.items():
            _require_known(option, (*_OF_ACTIONS, *choices.of_files[name]), inner)
            yield (
                f"{name}.{option}",
                _given_to(name, option, chosen, f"{option} of {inner}", choices),
            )


def _require_quoted(pattern: str, name: str, value: Any, place: str) -> None:
    """Refuse ``[db.t]``, which in TOML is not the table with the name ``db.t``."""
    known = (*_OF_TABLES, *ACTIONS)
    if isinstance(value, Mapping) and nearest(name, known) is None:
        raise InvalidRequestError(
            f"{place} has the unknown name {name}",
            hint=f'a name with a dot needs quotes: "{pattern}.{name}"',
        )


def _of_properties(properties: Mapping[str, str], choices: Choices) -> dict[str, Given]:
    found = {}
    for key, value in properties.items():
        if not key.startswith(MAINTENANCE_PREFIX):
            continue
        action, _, name = key.removeprefix(MAINTENANCE_PREFIX).rpartition(".")
        place = f"property {key}"
        if action:
            _require_known(action, ACTIONS, place)
            allowed = (*_OF_ACTIONS, *choices.of_properties[action])
            if name not in allowed and name in choices.of_files[action]:
                raise RefusedError(
                    f"{place} would set {name} of {action}, which only a policy file may set",
                    hint="remove the property",
                )
            _require_known(name, allowed, place)
            found[f"{action}.{name}"] = _given_to(action, name, value, place, choices)
        else:
            _require_known(name, _OF_TABLES, place)
            found[name] = _given(name, value, place)
    return found


def _require_known(name: str, known: Sequence[str], place: str) -> None:
    if name in known:
        return
    hint = did_you_mean(name, known) or f"known are: {', '.join(known)}"
    raise InvalidRequestError(f"{place} has the unknown name {name}", hint=hint)


def _given(name: str, value: Any, place: str) -> Given:
    return Given(_PARSERS[name](value, place), place)


def _given_to(action: str, name: str, value: Any, place: str, choices: Choices) -> Given:
    if name in _OF_ACTIONS:
        return _given(name, value, place)
    choices.check(action, name, value, place)
    return Given(value, place)


def _flag(value: Any, place: str) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in {"true", "false"}:
        return value.lower() == "true"
    raise InvalidRequestError(f"{place} is not true or false: {value!r}")


def _text(value: Any, place: str) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise InvalidRequestError(f"{place} is not a text of at most {_LONGEST:,} characters")
    return value


def _condition(value: Any, place: str) -> Condition:
    return parse_when(_text(value, place), place)


def _window(value: Any, place: str) -> Window:
    return parse_window(_text(value, place), place)


def _duration(value: Any, place: str) -> int:
    text = _text(value, place)
    try:
        return parse_duration_ms(text)
    except InvalidRequestError as error:
        raise InvalidRequestError(f"{place} is {error.message}", hint=error.hint) from error


_PARSERS: Mapping[str, Callable[[Any, str], Any]] = {
    _ENABLED: _flag,
    _WHEN: _condition,
    _WINDOW: _window,
    _EVERY: _duration,
}


def _action(
    action: str, rules: Sequence[Mapping[str, Given]], own: Mapping[str, Given]
) -> ActionPolicy:
    # What the owner says about the table as a whole wins over what a file says about the action.
    when, window, every = (
        _first(action, name, [own]) or _first(action, name, rules)
        for name in (_WHEN, _WINDOW, _EVERY)
    )
    options: dict[str, Given] = {}
    for settings in (own, *rules):
        for key, given in settings.items():
            of, _, name = key.rpartition(".")
            if of == action and name not in _OF_ACTIONS:
                options.setdefault(name, given)
    return ActionPolicy(
        forbidden_by=_forbidding(action, rules, own),
        when=when and when.value,
        window=window and window.value,
        every_ms=every and every.value,
        options=options,
    )


def _first(action: str, name: str, rules: Sequence[Mapping[str, Given]]) -> Given | None:
    """Return the first setting of the action, else the first one of the table; None if there is none."""
    for key in (f"{action}.{name}", name):
        for settings in rules:
            if key in settings:
                return settings[key]
    return None


def _forbidding(action: str, rules: Sequence[Mapping[str, Given]], own: Mapping[str, Given]) -> str:
    """Return what forbids an action; empty if nothing does."""
    # What the owner of the table forbids, the owner allows nowhere else.
    switches = [own.get(_ENABLED), own.get(f"{action}.{_ENABLED}"), _first(action, _ENABLED, rules)]
    return next((found.place for found in switches if found and not found.value), "")
