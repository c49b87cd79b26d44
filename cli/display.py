"""How tables and colors appear on a terminal."""

from __future__ import annotations

import os
import shutil
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

# Between the parts of a summary.
_SEPARATOR = " · "


@dataclass(frozen=True, slots=True, kw_only=True)
class Display:
    """The user's choices for output on a terminal.

    Args:
        vertical: print each row of a table as a block of lines.
        all_columns: print all columns of a table, however long the lines become.
        color: ``auto``, ``always`` or ``never``.
    """

    vertical: bool = False
    all_columns: bool = False
    color: str = "auto"

    def colors(self, stream: TextIO) -> bool:
        """Whether text on the stream has colors. The variable NO_COLOR turns off ``auto``."""
        if self.color != "auto":
            return self.color == "always"
        return stream.isatty() and not os.environ.get("NO_COLOR")

    def wrapped(self, text: str, stream: TextIO) -> list[str]:
        """Return a text as lines for a terminal: they end between its parts, or between words of a long part."""
        if not stream.isatty():
            return [text]
        # A line that ends between two parts ends with a separator.
        end = _SEPARATOR.rstrip()
        width = max(_terminal_width() - len(end), 1)
        lines = [""]
        for part in text.split(_SEPARATOR):
            longer = f"{lines[-1]}{_SEPARATOR}{part}".removeprefix(_SEPARATOR)
            if len(longer) <= width:
                lines[-1] = longer
                continue
            lines[-1] += end * bool(lines[-1])
            lines += textwrap.wrap(part, width, break_long_words=False, break_on_hyphens=False)
        return [line for line in lines if line]

    def console(self, stream: TextIO) -> Console:
        """Return a Rich console on the stream that interprets nothing in the text."""
        from rich.console import Console  # noqa: PLC0415 - only a terminal needs it

        colors = self.colors(stream)
        return Console(
            file=stream,
            markup=False,
            emoji=False,
            highlight=False,
            soft_wrap=True,
            # With a width of 0, which some terminals report, Rich prints nothing.
            width=_terminal_width() if stream.isatty() else None,
            color_system="auto" if colors else None,
            force_terminal=True if colors else None,
        )


def _terminal_width() -> int:
    """Return the width of the terminal: the variable COLUMNS, unless it is not a positive number, else its size."""
    return shutil.get_terminal_size().columns
