"""Real processes that get a signal at a random moment of their run, from before `lake` is loaded to its last line."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random

from world.crashes import Crashes
from world.killed import COMMANDS, NOTHING
from world.mortal import Mortals

_SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGSTOP)
_STOPPED = {signal.SIGTERM: 143, signal.SIGINT: 130}
# Python ends so, with 1, if Ctrl-C comes while it starts, before any module of lake is loaded.
_BEFORE_LAKE = re.compile(rb"Fatal Python error: init_|Could not import runpy")
_LOCKED = "is locked by another process"
# A machine under load makes a run much longer than the first.
_LONGEST_SECONDS = 600


class Struck:
    """One command, started as users start it.

    Args:
        folder: where all is.
        mortals: run what comes before and after.
        name: the command's.
        version: the table's format version.
    """

    def __init__(self, folder: Path, mortals: Mortals, name: str, version: int) -> None:
        self.crashes = Crashes(folder, mortals, COMMANDS[name], version)
        self._command = COMMANDS[name]
        self._folder = folder
        self.crashes.restore()
        started = time.monotonic()
        ended, *_ = self._wait(self._start())
        assert ended == 0
        self._seconds = time.monotonic() - started

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "lake.cli", "--json", *self.crashes.words()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self._folder,
        )

    def _wait(self, process: subprocess.Popen[bytes]) -> tuple[int, bytes, bytes]:
        out, err = process.communicate(timeout=_LONGEST_SECONDS)
        return process.returncode, out, err

    def strike(self, random: Random) -> Counter[str]:
        """Start it, send it a signal at some time, and see that the next run ends what it left."""
        number = random.choice(_SIGNALS)
        after = random.random() * self._seconds
        self.crashes.restore()
        process = self._start()
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(number)
        description = f"{number.name} after {after:.2f} s of {self._seconds:.2f} s"
        if number == signal.SIGSTOP and process.poll() is None:
            # Others cannot distinguish it from one that is gone.
            self._others(description)
            process.send_signal(signal.SIGCONT)
        code, out, err = self._wait(process)
        if number == signal.SIGINT and code == 1 and _BEFORE_LAKE.match(err):
            code = -number
        self._judge(number, code, out, description)
        return Counter({"random kills": 1, f"struck: {_ending(code)}": 1})

    def _others(self, description: str) -> None:
        listed = self.crashes.run(arguments=["snapshots", "db.t"])
        # It may have been stopped while it had SQLite's lock, for which others wait a minute.
        has_lock = listed.code == 10 and _LOCKED in listed.document["error"]["message"]  # type: ignore[index]
        assert has_lock or listed.code in {0, 7}, (description, listed)

    def _judge(self, number: int, code: int, out: bytes, description: str) -> None:
        crashes = self.crashes
        found = crashes.look()
        assert found.rows in (crashes.before.rows, crashes.after.rows), description
        if number == signal.SIGSTOP:
            assert code == 0, (description, code, out)
        elif number in _STOPPED:
            # By its own hand where it was far enough to have one; a process that was not has done nothing.
            expected = {0, _STOPPED[signal.Signals(number)], -number}
            assert code in expected, (description, code, out)
            if code > 0:
                assert json.loads(out)["error"]["kind"] == "stopped", (description, out)
            if self._command.leaves and code and self._command.again == NOTHING:
                lost = found.lost - crashes.before.lost - crashes.after.lost
                assert not lost, (description, code, lost)
        else:
            assert code in {0, -number}, (description, code, out)
        crashes.end(description)


def _ending(code: int) -> str:
    return "ended" if code == 0 else "killed" if code < 0 else "stopped"
