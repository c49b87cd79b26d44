"""The command lines that continue one that ended."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from lake.core.base.outcome import Outcome

# What to do about one gap: about another one, it is decided again.
_OF_ONE_GAP = "--on-gap"


@dataclass(frozen=True, slots=True)
class Line:
    """The command line that ended.

    Args:
        options: the global options that were given.
        rest: the arguments of the command that were given; empty if they are not known.
    """

    options: Sequence[str] = ()
    rest: Sequence[str] = ()

    def of(self, command: str, *arguments: str) -> str:
        """Return the line of a command with the same global options."""
        return shlex.join(["lake", *self.options, command, *arguments])

    def again(self, command: str, *, without: frozenset[str] = frozenset()) -> str:
        """Return the line that repeats the command, without options of this run and decisions made for it alone."""
        given, is_value = [], False
        for text in self.rest:
            is_decision = text == _OF_ONE_GAP or text.startswith(f"{_OF_ONE_GAP}=")
            if not is_value and not is_decision and text not in without:
                given.append(text)
            is_value = text == _OF_ONE_GAP
        return self.of(command, *given)


def branch_option(outcome: Outcome) -> list[str]:
    """Return the option that chooses the branch of what was done; empty for the main branch."""
    return [] if outcome.branch in {None, "main"} else ["--branch", str(outcome.branch)]
