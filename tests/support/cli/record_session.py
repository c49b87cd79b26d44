"""Record the session of README.md as a terminal shows it, in the format asciicast v2.

    PYTHONPATH=tests python -m support.cli.record_session tests/data/session.cast

The first line of the file is a header, and each other line is an event: seconds since the start, "o", and the text
that the terminal received. Source: https://docs.asciinema.org/manual/asciicast/v2/.
"""

from __future__ import annotations

import codecs
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

from support.cli.document_sessions import Terminal, sessions

_ROOT = Path(__file__).resolve().parents[3]
_WIDTH, _HEIGHT = 120, 30
_SECONDS_PER_WORD = 0.1
_SECONDS_BETWEEN_COMMANDS = 1.0
# Waits of a player; a recording on a slow machine is as long as on a fast one.
_LONGEST_WAIT = 1.5


class Recorder(Terminal):
    """Runs commands on a terminal of their own, and keeps what it receives and when."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, processes=True)
        self.events: list[tuple[float, str]] = []
        self._now = 0.0

    def _print(self, command: str) -> str:
        for number, word in enumerate(command.split(" ")):
            self._add(_SECONDS_PER_WORD, f"{' ' if number else '$ '}{word}")
        self._add(_SECONDS_PER_WORD, "\r\n")
        ours, theirs = os.openpty()
        termios.tcsetwinsize(theirs, (_HEIGHT, _WIDTH))
        process = subprocess.Popen(
            ["bash", "-c", f"(exit {self._last_code}); {command}"],
            cwd=self.folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            stdout=theirs,
            stderr=theirs,
        )
        os.close(theirs)
        printed, decoder = "", codecs.getincrementaldecoder("utf-8")()
        before = time.monotonic()
        # The read fails when the last writer has closed the terminal.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65536):
                text, now = decoder.decode(piece), time.monotonic()
                self._add(min(now - before, _LONGEST_WAIT), text)
                printed, before = printed + text, now
        os.close(ours)
        self._last_code = process.wait()
        self._now += _SECONDS_BETWEEN_COMMANDS
        return printed.replace("\r\n", "\n")

    def _add(self, seconds: float, text: str) -> None:
        self._now += seconds
        self.events.append((round(self._now, 2), text))


def recording(document: str, folder: Path) -> str:
    """Return a recording of the sessions of a document, run in a folder."""
    recorder = Recorder(folder)
    for command in (command for session in sessions(document) for command in session):
        # Binds the identifiers of the document to those of this run.
        recorder.differences(command, recorder.run(command.text))
    header = {
        "version": 2,
        "width": _WIDTH,
        "height": _HEIGHT,
        "title": "lake",
        "env": {"SHELL": "/bin/bash", "TERM": "xterm-256color"},
    }
    lines = [header, *([seconds, "o", text] for seconds, text in recorder.events)]
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="lake-session-") as made:
        text = recording((_ROOT / "README.md").read_text(), Path(made))
    Path(sys.argv[1]).write_text(text)
