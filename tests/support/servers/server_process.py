"""Servers that tests start and end themselves: on loopback, on free ports, ended by their own process id."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HOST = "127.0.0.1"
_PORTS = range(15_000, 32_000)
_PATIENCE_SECONDS = 300.0
_END_SECONDS = 60.0


def free_port() -> int:
    """Return a free port, below those that the system gives to clients meanwhile."""
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("", secrets.choice(_PORTS)))
            return int(probe.getsockname()[1])


class Server:
    """A process that listens on a port; its output goes to a file."""

    def __init__(
        self,
        command: Sequence[str | Path],
        port: int,
        log: Path,
        *,
        end_signal: signal.Signals = signal.SIGTERM,
        **options: Any,
    ) -> None:
        """Start it and return when it accepts connections."""
        self.port = port
        self._log = log
        self._end_signal = end_signal
        with log.open("ab") as output:
            self.process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **options,
            )
        try:
            self._wait()
        except BaseException:
            self.end()
            raise

    @property
    def output(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    def pause(self) -> None:
        """Let it accept connections, by its kernel, and never answer."""
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on."""
        os.killpg(self.process.pid, signal.SIGCONT)

    def end(self) -> None:
        """End it and every process of its group."""
        if self.process.poll() is not None:
            return
        self.process.send_signal(self._end_signal)
        try:
            self.process.wait(_END_SECONDS)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def _wait(self) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            if self.process.poll() is not None:
                raise RuntimeError(f"{self.process.args} ended at once:\n{self.output[-4000:]}")
            with contextlib.suppress(OSError), socket.create_connection((HOST, self.port), 1):
                return
            if time.monotonic() > deadline:
                raise RuntimeError(f"{self.process.args} does not listen:\n{self.output[-4000:]}")
            time.sleep(0.05)
