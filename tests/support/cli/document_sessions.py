"""Sessions in the documents: run them, and compare what they print with what the document shows.

A session is a block of code with the info string ``console``. A line that begins with ``$ `` is a command; the lines
up to the next command are what a terminal shows. All sessions of a document run in one folder, in their order.

    PYTHONPATH=tests python -m support.cli.document_sessions README.md commands/README.md

writes what the commands print now into the documents.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from lake.cli.main import main

_BLOCK = re.compile(r"^```console\n(.*?)^```$", re.M | re.S)
# A command of lake's up to a pipe or a semicolon. What else a shell interprets is left to it.
_BY_LAKE = re.compile(r"(lake (?:'[^']*'|\"[^\"$`]*\"|[^|;<>&$`*'\"])*)([|;].*)?")
_WIDTH, _HEIGHT = 120, 50
_TERMINAL = {"COLUMNS": str(_WIDTH), "TERM": "xterm"}
_STYLE = re.compile(r"\x1b\[[0-9;]*m")
# What may differ between two runs, in the order in which it is looked for.
_ID = re.compile(r"\b[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}\b|\b\d{14,19}\b")
_COMMITTED = re.compile(r"\b20\d\d-\d\d-\d\d[ T]\d\d:\d\d:\d\d(?:\.\d{3})?(?![.\d])Z?")
_SIZE = re.compile(r"(?<![\w.])(\d+(?:\.\d+)?) (B|KB|MB|GB)\b")
_SECONDS = re.compile(r"(?<![\w.])\d+\.\d ?s\b|(?<=\"seconds\": )\d+\.\d+")
_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}
# How a line on standard error begins off a terminal, and the labels that have no name before them on one.
_LINE_START = re.compile(
    r"^20\d\d-\d\d-\d\dT\d\d:\d\d:\d\dZ (?:lake \w+ ?\S*: (?=hint|operation id|next)|(?=lake))"
    r"(?:lake \w+ (?=\S+: (?!error|warning)))?",
    re.M,
)
_SENTENCE = re.compile(r"[\w.]+: ")
# A file's size depends on the versions of its writer's libraries.
_TOLERANCE = 1.5


@dataclass
class Command:
    """A command of a session, and the lines that the document shows below it."""

    text: str
    shown: list[str] = field(default_factory=list)


def sessions(document: str) -> list[list[Command]]:
    """Return the commands of each session in a document."""
    return [_commands(block[1]) for block in _BLOCK.finditer(document)]


def _commands(block: str) -> list[Command]:
    commands: list[Command] = []
    for line in block.splitlines():
        if line.startswith("$ "):
            commands.append(Command(line[2:]))
        elif commands:
            commands[-1].shown.append(line)
        else:
            raise ValueError(f"a session begins with a command, not {line!r}")
    return commands


class Terminal:
    """Runs commands one after another in a folder, as on a terminal of 120 columns.

    Identifiers differ in every run. `same` binds those of the document to those that were printed, and `run` puts
    these into later commands.

    Args:
        folder: where the commands run.
        processes: start a process for each command, as a user does; else this process runs it, in less time.
    """

    def __init__(self, folder: Path, *, processes: bool = False) -> None:
        self.folder = folder
        self.processes = processes
        self.printed_by_shown: dict[str, str] = {}
        self._last_code = 0
        programs = folder / ".programs"
        programs.mkdir(parents=True)
        program = programs / "lake"
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m lake.cli "$@"\n')
        program.chmod(0o755)
        path = f"{programs}{os.pathsep}{os.environ['PATH']}"
        self._environment = {**os.environ, **_TERMINAL, "PATH": path}

    def run(self, command: str) -> list[str]:
        """Run a command and return the lines that it prints on both streams."""
        text = _ID.sub(lambda found: self.printed_by_shown.get(found[0], found[0]), command)
        printed = _LINE_START.sub("", self._print(text))
        return [line.rstrip() for line in _STYLE.sub("", printed).splitlines()]

    def _print(self, command: str) -> str:
        by_lake, rest = _first_program(command)
        if self.processes:
            return self._in_shell(command) if rest else self._on_a_terminal(command)
        if not by_lake:
            return self._in_shell(command)
        screen = self._here(by_lake, terminal=not rest.startswith("|"))
        if not rest:
            return screen.messages + screen.text()
        if rest.startswith("|"):
            return screen.messages + self._in_shell(rest[1:], screen.text())
        return screen.messages + screen.text() + self._in_shell(rest[1:])

    def as_shown(self, printed: str) -> str:
        """Return a printed line with the bound identifiers of the document, in columns of the same width."""
        shown_by_printed = {new: old for old, new in self.printed_by_shown.items()}

        def padded(found: re.Match[str]) -> str:
            shown = shown_by_printed.get(found[1], found[1])
            return shown.ljust(len(found[0])) if found[2] else shown

        return re.sub(f"({_ID.pattern})(  +|)", padded, printed)

    def _here(self, command: str, *, terminal: bool) -> _Screen:
        screen, messages = _Screen(terminal=terminal), io.StringIO()
        # The renderer asks for the terminal's width and abilities.
        before = {name: os.environ.get(name) for name in _TERMINAL}
        os.environ.update(_TERMINAL)
        try:
            with (
                contextlib.chdir(self.folder),
                contextlib.redirect_stdout(screen),
                contextlib.redirect_stderr(messages),
            ):
                self._last_code = main(shlex.split(command)[1:])
        finally:
            for name, value in before.items():
                if value is None:
                    del os.environ[name]
                else:
                    os.environ[name] = value
        screen.messages = messages.getvalue()
        return screen

    def _on_a_terminal(self, command: str) -> str:
        # Standard error is a pipe, so that no progress bar is drawn. `run` shows it as a terminal does.
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (_HEIGHT, _WIDTH))
        process = subprocess.Popen(
            shlex.split(command),
            cwd=self.folder,
            env=self._environment,
            executable=self.folder / ".programs/lake",
            stdout=theirs,
            stderr=subprocess.PIPE,
        )
        os.close(theirs)
        printed = bytearray()
        # The read fails when the last writer has closed the terminal.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 4096):
                printed += piece
        os.close(ours)
        messages = process.communicate()[1]
        self._last_code = process.returncode
        return (messages + printed).decode().replace("\r\n", "\n")

    def _in_shell(self, command: str, given: str = "") -> str:
        done = subprocess.run(
            ["bash", "-c", f"(exit {self._last_code}); {command}"],
            cwd=self.folder,
            env=self._environment,
            input=given,
            capture_output=True,
            text=True,
            check=False,
        )
        self._last_code = done.returncode
        return done.stderr + done.stdout

    def differences(self, command: Command, printed: list[str]) -> list[str]:
        """Return the lines that a command printed and that are not as its document shows them, with their like."""
        shown = _unwrapped(line for line in command.shown if line.strip())
        printed = _unwrapped(line for line in printed if line.strip())
        if len(shown) != len(printed):
            return [f"shown {len(shown)} lines: {shown}", f"printed {len(printed)}: {printed}"]
        pairs = zip(shown, printed, strict=True)
        return [f"{one}  !=  {other}" for one, other in pairs if not self.same(one, other)]

    def same(self, shown: str, printed: str) -> bool:
        """Return whether a printed line is the shown one except for ids, times, sizes and column widths."""
        ours, theirs = _split(shown), _split(printed)
        if [kind for kind, _ in ours] != [kind for kind, _ in theirs]:
            return False
        pairs = zip(ours, theirs, strict=True)
        return all(self._alike(kind, one, other) for (kind, one), (_, other) in pairs)

    def _alike(self, kind: str, shown: str, printed: str) -> bool:
        if kind == "id":
            known = self.printed_by_shown.setdefault(shown, printed)
            return known == printed and list(self.printed_by_shown.values()).count(printed) == 1
        if kind == "size":
            sizes = sorted((_bytes(shown), _bytes(printed)))
            return sizes[1] <= sizes[0] * _TOLERANCE
        return kind in {"time", "seconds"} or _words(shown) == _words(printed)


def _unwrapped(lines: Iterable[str]) -> list[str]:
    """Return lines in which a wrapped sentence about a table is one line: where it is wrapped depends on ids."""
    whole: list[str] = []
    end = 0  # of the sentence's last line on the screen; 0 after any other line
    for line in lines:
        # A line ends with a separator, or where the next word did not fit beside one.
        if end and (whole[-1].endswith("·") or end + len(line.split()[0]) >= _WIDTH - 2):
            whole[-1] += f" {line}"
            end = len(line)
        else:
            whole.append(line)
            end = len(line) if _SENTENCE.match(line) else 0
    return whole


class _Screen(io.TextIOWrapper):
    """Standard output, and the messages on standard error, which come first."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__(io.BytesIO(), encoding="utf-8", write_through=True)
        self._terminal = terminal
        self.messages = ""

    def isatty(self) -> bool:
        return self._terminal

    def text(self) -> str:
        self.flush()
        buffer = self.buffer
        assert isinstance(buffer, io.BytesIO)
        return buffer.getvalue().decode()


def _first_program(command: str) -> tuple[str, str]:
    """Return a command of lake's that this process can run, or nothing, and what a shell does with the rest."""
    found = _BY_LAKE.fullmatch(command)
    return (found[1].strip(), found[2] or "") if found else ("", command)


_KINDS = (("id", _ID), ("time", _COMMITTED), ("size", _SIZE), ("seconds", _SECONDS))


def _split(line: str) -> list[tuple[str, str]]:
    """Return the parts of a line: what may differ between two runs, by kind, and the text between."""
    parts = [("text", line)]
    for kind, pattern in _KINDS:
        parts = [part for one in parts for part in _split_by(kind, pattern, one)]
    return parts


def _split_by(
    kind: str, pattern: re.Pattern[str], part: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    if part[0] != "text":
        yield part
        return
    end = 0
    for found in pattern.finditer(part[1]):
        yield "text", part[1][end : found.start()]
        yield kind, found[0]
        end = found.end()
    yield "text", part[1][end:]


def _words(text: str) -> list[str]:
    # A column is as wide as its longest value, and an id has 14 to 19 digits.
    return re.sub("─{2,}", "─", text).split()


def _bytes(size: str) -> float:
    number, unit = size.split()
    return float(number) * _UNITS[unit]


def rewritten(document: str, folder: Path) -> str:
    """Return a document with what its commands print now; a line in which only ids or times differ stays."""
    terminal = Terminal(folder, processes=True)

    def replaced(found: re.Match[str]) -> str:
        lines: list[str] = []
        for command in _commands(found[1]):
            printed = terminal.run(command.text)
            lines.append(f"$ {command.text}")
            if terminal.differences(command, printed):
                lines += map(terminal.as_shown, printed)
            else:
                lines += command.shown
        return "```console\n" + "\n".join(lines) + "\n```"

    return _BLOCK.sub(replaced, document)


def update(paths: list[str]) -> None:
    """Write what the commands of documents print now into them."""
    for path in paths:
        with tempfile.TemporaryDirectory(prefix="lake-session-") as folder:
            document = Path(path)
            document.write_text(rewritten(document.read_text(), Path(folder)))


if __name__ == "__main__":
    update(sys.argv[1:])
