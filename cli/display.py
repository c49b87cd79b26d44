"""How tables and colors appear on a terminal."""

from __future__ import annotations

import os
import shutil
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console


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
        """Return a sentence as lines that end between words, if the stream is a terminal."""
        if not stream.isatty():
            return [text]
        width = shutil.get_terminal_size().columns
        return textwrap.wrap(text, width, break_long_words=False, break_on_hyphens=False) or [text]

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
            no_color=not colors,
            force_terminal=True if colors else None,
        )
