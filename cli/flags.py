"""The flags of the options that the core's messages refer to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from typer.core import TyperOption

from lake.cli.app import VERBS, load_verb, root_command
from lake.core.base.options import Option, spell_options


def with_flags(text: str, verb: str | None) -> str:
    """Replace the references to options in a text by flags.

    Args:
        text: a message, hint or warning of the core.
        verb: the verb that ran; None if none is known.
    """
    return spell_options(text, lambda option: _flag(option, verb))


def _flag(option: Option, verb: str | None) -> str:
    """Return an option's flag: the verb's or a global one, else another verb's with that verb's name."""
    name = option.value
    own = _flags(verb if verb in VERBS else None)
    if name in own:
        return own[name]
    elsewhere = (f"lake {other} {_flags(other)[name]}" for other in VERBS if name in _flags(other))
    # Each option has a flag (tests/cli/test_flags.py), but an error must be printed in any case.
    return next(elsewhere, option.value)


@cache
def _flags(verb: str | None) -> Mapping[str, str]:
    """Return the flags of a verb and the global ones, by the name of their parameter."""
    commands = [root_command(), *([load_verb(verb)] if verb else [])]
    return {
        item.name: next((text for text in _texts(item) if text.startswith("--")), item.opts[0])
        for command in commands
        for item in command.params
        if item.name and isinstance(item, TyperOption)
    }


def _texts(item: TyperOption) -> list[str]:
    """Return the flags of an option; of one that is on by default, those that turn it off."""
    return item.secondary_opts if item.default is True and item.secondary_opts else item.opts
