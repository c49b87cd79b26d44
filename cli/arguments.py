"""Global options anywhere on the line. Typer accepts them before the command only, so they are moved there."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lake.core.base.errors import InvalidRequestError

# For each option, whether the next argument is its value.
OptionTable = Mapping[str, bool]


def option_table(command: Any) -> dict[str, bool]:
    """Return the options of a Click command by every spelling, and whether each takes a value."""
    return {
        name: not (item.is_flag or item.count)
        for item in command.params
        if item.param_type_name == "option"
        for name in (*item.opts, *item.secondary_opts)
    } | {"--help": False, "-h": False}


@dataclass(slots=True)
class CommandLine:
    """The arguments of one invocation, in the order that Typer expects.

    Args:
        options: global options with their values.
        command: the name of the command as given; None without a command.
        rest: what belongs to the command.
        manual: the section of the manual to show instead; empty for the names of all sections.
    """

    options: list[str] = field(default_factory=list)
    command: str | None = None
    rest: list[str] = field(default_factory=list)
    manual: str | None = None

    @property
    def arguments(self) -> list[str]:
        """All arguments: global options, command, options and arguments of the command."""
        return [*self.options, *([] if self.command is None else [self.command]), *self.rest]


def arrange(
    arguments: Sequence[str], root: OptionTable, options_of: Callable[[str], OptionTable]
) -> CommandLine:
    """Return the arguments with the global options in front of the command.

    An option that the command has itself, the value of an option, and everything after ``--`` stay in place.

    Args:
        arguments: those after the program's name.
        root: the global options.
        options_of: returns the options of a command; an empty table for an unknown one.

    Raises:
        InvalidRequestError: the last option lacks its value.
    """
    line = CommandLine()
    own: OptionTable = {}
    given = iter(arguments)
    for argument in given:
        if argument == "--":
            line.rest += ["--", *given]
        elif not _is_option(argument):
            if line.command is None:
                line.command, own = argument, options_of(argument)
            else:
                line.rest.append(argument)
        elif line.command is not None and _takes(argument, own) is not None:
            line.rest += _with_value(argument, own, given)
        elif _takes(argument, root) is not None and (
            line.command is None or not _is_help(argument)
        ):
            line.options += _with_value(argument, root, given)
        else:
            (line.options if line.command is None else line.rest).append(argument)
    return line


def _is_option(argument: str) -> bool:
    # A single hyphen is a file: standard input or output.
    return argument.startswith("-") and argument != "-"


def _is_help(argument: str) -> bool:
    return argument in {"--help", "-h"}


def _takes(argument: str, options: OptionTable) -> bool | None:
    """Return whether the next argument is the option's value; None if the option is unknown."""
    name, assigned, _ = argument.partition("=")
    if argument.startswith("--"):
        takes = options.get(name)
        return False if takes and assigned else takes
    letters = [f"-{letter}" for letter in argument[1:]]
    if any(letter not in options for letter in letters):
        return None
    return options[letters[-1]]


def _with_value(argument: str, options: OptionTable, rest: Iterator[str]) -> Iterator[str]:
    yield argument
    if _takes(argument, options):
        value = next(rest, None)
        if value is None:
            raise InvalidRequestError(f"{argument} needs a value")
        yield value
