"""Draw what `lake health` prints on a terminal of 120 columns about the tables of `lake demo --lake`.

    PYTHONPATH=tests python -m support.cli.health_picture tests/data/health.svg

The picture refers to nothing outside it. Its description is the session as plain text.
"""

from __future__ import annotations

import io
import os
import re
import sys
import tempfile
from html import escape, unescape
from pathlib import Path

from rich.console import Console
from rich.text import Text

from lake.commands.tours.maintenance import FOLDER
from lake.commands.tours.tables import TABLES, make_tables
from lake.core.base.settings import Settings
from lake.core.transaction.session import open_session
from support.cli.document_sessions import Command, Terminal

_NAMESPACE = "prod"
_COMMAND = f"lake --warehouse {FOLDER} health '{_NAMESPACE}.*'"
_WIDTH = 120
# Stands for the folder in which the session ran.
_HOME = "/srv"
_FONTS = re.compile(r"@font-face \{.*?\}\s*|<!--.*?-->\s*", re.S)
_DESCRIPTION = re.compile(r"<desc>(.*?)</desc>", re.S)
_TEXT = re.compile(r"<text (?![^>]*title)[^>]*>([^<]*)</text>")
# The estimate and the place of the damage depend on the sizes of metadata files, and so on the lengths of paths.
_ESTIMATE = re.compile(r"(?<= )\d\.\d{1,2}(?= )|(?<=at byte )\d+")


class HealthSession(Terminal):
    """Shows the health of the tables in a folder's warehouse."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, processes=True)

    def printed(self) -> str:
        """Return the command and what a terminal shows, with its styles."""
        shown = self._print(_COMMAND).rstrip().replace(str(self.folder), _HOME)
        return f"$ {_COMMAND}\n{shown}"

    def changes(self, picture: str) -> list[str]:
        """Return the lines that are not as a picture shows them, except for ids, times, sizes and estimates."""
        found = _DESCRIPTION.search(picture)
        shown = _lines(unescape(found[1]) if found else "")
        return self.differences(Command(_COMMAND, shown), _lines(_plain(self.printed())))


def _plain(styled: str) -> str:
    return Text.from_ansi(styled).plain


def _lines(text: str) -> list[str]:
    return _ESTIMATE.sub("0.1", text).splitlines()


def drawn(printed: str) -> str:
    """Return a picture of what a terminal shows."""
    console = Console(record=True, width=_WIDTH, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(printed))
    picture = _FONTS.sub("", console.export_svg(title="lake health", unique_id="health"))
    picture = picture.replace("Fira Code, monospace", "ui-monospace, monospace")
    text = "\n".join(line.rstrip() for line in _plain(printed).splitlines())
    return picture.replace("    <style>", f"    <desc>{escape(text)}</desc>\n    <style>", 1)


def is_described(picture: str) -> bool:
    """Whether the description of a picture has the visible characters."""
    found = _DESCRIPTION.search(picture)
    visible = unescape("".join(_TEXT.findall(picture)))
    return found is not None and "".join(visible.split()) == "".join(unescape(found[1]).split())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="lake-session-") as made:
        wanted = [spec for spec in TABLES if spec.name.startswith(f"{_NAMESPACE}.")]
        make_tables(open_session(Settings(warehouse=os.path.join(made, FOLDER))), wanted)
        Path(sys.argv[1]).write_text(drawn(HealthSession(Path(made)).printed()))
