"""Options as fields: a dataclass is a panel of the help, a set of options that belong together, and what verbs take.

A field with a `Flag` is an option with the field's name. The first line of the dataclass's docstring is the panel's
title. A verb takes such dataclasses as parameters, and single options as parameters with a `Flag`:

    @dataclass(frozen=True, kw_only=True)
    class Work:
        '''Amount of work.'''

        max_files: Annotated[int | None, Flag("Maximum files to rewrite.", "N")] = None

    def compact(context: typer.Context, table: TableArgument, *, work: Work, dry_run: DryRun = False) -> Outcome: ...

Options that need each other are one dataclass, so that `require` finds those that were given alone. A dataclass may
contain others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache, cached_property, partial
from operator import itemgetter
from typing import Annotated, Any, get_args, get_origin, get_type_hints

import typer

from lake.commands.parsing import parse_choice, written_names
from lake.core.base.errors import BadInputError, InvalidRequestError, did_you_mean
from lake.core.base.outcome import Outcome


@dataclass(frozen=True, slots=True)
class Flag:
    """How an option is spelled and described.

    Args:
        help: what the option does.
        metavar: how the help shows the value; None if the option takes none, or one of its type's words.
        name: the flag, such as ``--if``; empty for the field's name.
        parse: returns the value of a text; None if the text, or Typer's value of it, is the value.
        callback: what Typer calls with the context and the value.
        short: the flag of one letter; empty for none.
        is_eager: whether it is handled before the others.
    """

    help: str
    metavar: str | None = None
    name: str = ""
    parse: Callable[[str], Any] | None = None
    callback: Callable[[typer.Context, Any], Any] | None = None
    short: str = ""
    is_eager: bool = False


_NONE = inspect.Parameter.empty
_FILE = "FILE"
_SWITCHES = {"true": True, "false": False}


@dataclass(frozen=True)
class _Option:
    """An option: its name and type in Python, how it is described, and its default; `_NONE` if it is required."""

    name: str
    kind: Any
    flag: Flag
    default: Any

    @cached_property
    def spelled(self) -> str:
        return self.flag.name or f"--{self.name.replace('_', '-')}"

    @cached_property
    def key(self) -> str:
        """The name in a file."""
        return self.spelled.partition("/")[0].removeprefix("--")

    @cached_property
    def words(self) -> type[StrEnum] | None:
        """The words among which the option chooses; None if it takes another value."""
        kinds = (self.kind, *get_args(self.kind))
        found = (one for one in kinds if isinstance(one, type) and issubclass(one, StrEnum))
        return next(found, None)

    def parameter(self, panel: str | None) -> inspect.Parameter:
        """Return the parameter that Typer reads. What is parsed here is a text for Typer."""
        kind, default, words = self.kind, self.default, self.words
        if get_origin(kind) is tuple:
            kind, default = list[str] | None, None
        elif self.flag.parse or words:
            kind = str if default is _NONE else str | None
            # A default that help shows is a word; one of a parsed option is in its sentence.
            if default is not _NONE:
                default = str(default) if isinstance(default, StrEnum) else None
        option = typer.Option(
            self.spelled,
            *filter(None, [self.flag.short]),
            metavar=self.flag.metavar or ("|".join(words) if words else None),
            help=self.flag.help,
            callback=self.flag.callback,
            is_eager=self.flag.is_eager,
            show_default=default is not _NONE,
            rich_help_panel=panel,
        )
        only = inspect.Parameter.KEYWORD_ONLY
        return inspect.Parameter(
            self.name, only, default=default, annotation=Annotated[kind, option]
        )

    def read(
        self, options: Mapping[str, tuple[Any, str]], context: typer.Context | None = None
    ) -> Any:
        """Return what Typer would have found, from the options of a file or a program.

        Raises:
            InvalidRequestError: the value has another type, or is not allowed.
        """
        if self.key not in options:
            return None if self.flag.parse or self.words else self.default
        found, place = options[self.key]
        try:
            typed = self._typed(found)
            if self.flag.callback and context is not None:
                typed = self.flag.callback(context, typed)
        except (KeyError, TypeError, ValueError) as error:
            raise InvalidRequestError(f"{place} cannot be {found!r}") from error
        try:
            self._checked(typed, place)
        except BadInputError as error:
            raise InvalidRequestError(error.message, hint=error.hint) from error
        return typed

    def _typed(self, found: Any) -> Any:
        """Return a value of a file as Typer has it.

        Raises:
            KeyError: it is not a switch.
            TypeError: it is a switch, a list or no value, and the option takes none.
            ValueError: it is not a number.
        """
        kinds = {self.kind, *get_args(self.kind)}
        if bool in kinds:
            return _SWITCHES[str(found).lower()]
        several = found if isinstance(found, list) else [found]
        if any(isinstance(one, bool) or not isinstance(one, str | int | float) for one in several):
            raise TypeError(found)
        if get_origin(self.kind) is tuple:
            return list(map(str, several))
        if isinstance(found, list):
            if not any(get_origin(kind) is Sequence for kind in kinds):
                raise TypeError(found)
            return written_names(map(str, found))
        number = next((kind for kind in (int, float) if kind in kinds), None)
        return number(str(found)) if number and not self.flag.parse else str(found)

    def value(self, values: Mapping[str, Any]) -> Any:
        """Return the value of what Typer found on the command line."""
        return self._checked(values[self.name], self.spelled)

    def _checked(self, found: Any, place: str) -> Any:
        """Return the value of what Typer found; an error names what contains it.

        Raises:
            BadInputError: it is a filter that cannot be read.
            InvalidRequestError: it is not allowed.
        """
        if self.flag.metavar == _FILE and "" in (
            [found] if isinstance(found, str) else found or ()
        ):
            # As that of a variable that is not set. It would be the current folder.
            raise InvalidRequestError(f"{place} needs the name of a file, and is empty")
        if get_origin(self.kind) is tuple:
            return tuple(found or ())
        if found is None:
            return self.default
        if self.words:
            return self.words(parse_choice(found, place, tuple(self.words)))
        if self.flag.parse is None:
            return found
        try:
            return self.flag.parse(found)
        except (BadInputError, InvalidRequestError) as error:
            if place in error.message:
                raise
            raise type(error)(f"{place}: {error.message}", hint=error.hint) from error


def of_typer(verb: Callable[..., Outcome | None]) -> Callable[..., Outcome | None]:
    """Return a verb as Typer takes it: with the options of its groups as parameters of their own."""
    hints = get_type_hints(verb, include_extras=True)
    parameters: list[inspect.Parameter] = []
    taken: dict[str, Callable[[Mapping[str, Any]], Any]] = {}
    for name, parameter in inspect.signature(verb).parameters.items():
        hint, is_group = hints[name], is_dataclass(hints[name])
        if is_group:
            parameters += _parameters(hint)
            taken[name] = partial(_made, hint)
        elif option := _option(name, hint, parameter.default):
            parameters.append(option.parameter(None))
            taken[name] = option.value
        else:
            only = inspect.Parameter.KEYWORD_ONLY
            parameters.append(parameter.replace(annotation=hint, kind=only))
            taken[name] = itemgetter(name)

    def expanded(**values: Any) -> Outcome | None:
        return verb(**{name: take(values) for name, take in taken.items()})

    expanded.__name__, expanded.__doc__ = verb.__name__, verb.__doc__
    expanded.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    expanded.__annotations__ = {item.name: item.annotation for item in parameters}
    return expanded


def arguments_of(
    verb: Callable[..., Outcome | None],
    options: Mapping[str, tuple[Any, str]],
    context: typer.Context | None = None,
) -> dict[str, Any]:
    """Return the arguments of a verb for options that a file or a program contains; the others have their defaults.

    Args:
        verb: the verb.
        options: texts, numbers, switches or lists by the options' names without dashes, each with its place for
            messages.
        context: what the options' callbacks take; None for a file, which has none of these options.

    Raises:
        InvalidRequestError: a value is not allowed, or the verb has no such option.
    """
    require_options(verb, {name: place for name, (_, place) in options.items()})
    values: dict[str, Any] = {}
    found: dict[str, Any] = {}
    for name, member in _parameters_of(verb).items():
        if isinstance(member, _Option):
            found[name] = member.value({name: member.read(options, context)})
        elif member:
            values |= {one.name: one.read(options, context) for one in _options(member)}
            found[name] = _made(member, values)
    return found


def require_options(verb: Callable[..., Outcome | None], places: Mapping[str, str]) -> None:
    """Check the names of options without dashes, each with its place for messages.

    Raises:
        InvalidRequestError: the verb has no such option.
    """
    known = option_names(verb)
    for name in places.keys() - set(known):
        raise InvalidRequestError(
            f"{places[name]} is not an option of the command",
            hint=did_you_mean(name, known),
        )


@cache
def option_names(verb: Callable[..., Outcome | None]) -> tuple[str, ...]:
    """Return the names of a verb's options, without dashes."""
    found: list[str] = []
    for member in filter(None, _parameters_of(verb).values()):
        options = [member] if isinstance(member, _Option) else _options(member)
        found += [one.key for one in options]
    return tuple(found)


@cache
def _parameters_of(verb: Callable[..., Outcome | None]) -> Mapping[str, Any]:
    """Return the groups and options among a verb's parameters, else None; to read the types takes a millisecond."""
    hints = get_type_hints(verb, include_extras=True)
    parameters = inspect.signature(verb).parameters
    return {
        name: hints[name] if is_dataclass(hints[name]) else _option(name, hints[name], item.default)
        for name, item in parameters.items()
    }


def given(*groups: Any) -> dict[str, Any]:
    """Return the options of groups that differ from their defaults, by the names of their fields."""
    return {option.name: value for option, value in _given(groups)}


def flags_given(*groups: Any) -> list[str]:
    """Return the flags of the options that differ from their defaults."""
    return [option.spelled for option, _ in _given(groups)]


def require(needed: str, *groups: Any) -> None:
    """Refuse options of groups that need another option, which was not given.

    Raises:
        InvalidRequestError: there is one.
    """
    for flag in flags_given(*groups):
        raise InvalidRequestError(f"{flag} needs {needed}")


def _given(groups: Iterable[Any]) -> Iterator[tuple[_Option, Any]]:
    for group in groups:
        for name, member in _members(group.__class__).items():
            value = getattr(group, name)
            if not isinstance(member, _Option):
                yield from _given([value])
            elif value != member.default:
                yield member, value


@cache
def _members(group: Any) -> Mapping[str, Any]:
    """Return the options of a group, and the groups in it, by the names of their fields."""
    hints = get_type_hints(group, include_extras=True)
    defaults = {
        item.name: _NONE if item.default is MISSING else item.default for item in fields(group)
    }
    return {
        name: _option(name, hints[name], default) or hints[name]
        for name, default in defaults.items()
    }


@cache
def _options(group: Any) -> tuple[_Option, ...]:
    """Return the options of a group and of the groups in it."""
    members = _members(group).values()
    return tuple(
        option
        for member in members
        for option in ([member] if isinstance(member, _Option) else _options(member))
    )


def _parameters(group: Any) -> Iterator[inspect.Parameter]:
    title = (group.__doc__ or "").partition("\n")[0].rstrip(".")
    for member in _members(group).values():
        if isinstance(member, _Option):
            yield member.parameter(title)
        else:
            yield from _parameters(member)


def _option(name: str, hint: Any, default: Any) -> _Option | None:
    """Return the option that a type with a `Flag` describes; None for another type."""
    kind, *described = get_args(hint) if get_origin(hint) is Annotated else (hint,)
    flags = (one for one in described if isinstance(one, Flag))
    return next((_Option(name, kind, flag, default) for flag in flags), None)


def _made(group: Callable[..., Any], values: Mapping[str, Any]) -> Any:
    return group(
        **{
            name: member.value(values) if isinstance(member, _Option) else _made(member, values)
            for name, member in _members(group).items()
        }
    )
