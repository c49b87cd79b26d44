"""A process that judges for the tests: one JSON document a line goes in, one comes back."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any


class PeerProcess:
    """A process that answers requests until it is closed."""

    def __init__(self, command: Sequence[str], answers: str | tuple[str, ...]) -> None:
        """Start it.

        Args:
            command: its command line.
            answers: how lines of its output begin that are answers; others are chatter.
        """
        self._answers = answers
        # PySpark passes a test's session on Spark Connect to its children in the environment.
        environment = {key: value for key, value in os.environ.items() if "SPARK_" not in key}
        self._process = subprocess.Popen(
            command,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self._errors: list[str] = []
        threading.Thread(target=self._drain, daemon=True).start()

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._errors = [*self._errors[-50:], line]

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request and return its answer.

        Raises:
            RuntimeError: the answer is an error, or the process died.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        # The output of a process that died has the reason.
        with suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        for line in self._process.stdout:
            if line.startswith(self._answers):
                answer: dict[str, Any] = json.loads(line)
                if "error" in answer:
                    raise RuntimeError(answer["error"])
                return answer
        raise RuntimeError("the peer died:\n" + "".join(self._errors))

    @property
    def pid(self) -> int:
        """The process."""
        return self._process.pid

    def kill(self) -> None:
        """End it at once, in whatever it does."""
        self._process.kill()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
