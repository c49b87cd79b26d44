"""A process that runs `lake` commands one after the other, as cron does, and can be killed in any of them.

command_worker.py        (a JSON list of arguments a line goes in, a JSON document comes back)
"""

from __future__ import annotations

import contextlib
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    # Run by its path, Python looks for modules beside this file only.
    sys.path[0] = str(Path(__file__).parents[2])

from lake.cli.main import main
from support.peers.peer_process import PeerProcess


class CommandWorker(PeerProcess):
    """The process as a test sees it."""

    def __init__(self) -> None:
        """Start it."""
        super().__init__([sys.executable, str(Path(__file__))], '{"code"')

    def run(self, arguments: Sequence[str]) -> dict[str, Any] | None:
        """Return exit code, status and error of a command; None where the process was killed."""
        try:
            return self.ask({"arguments": list(arguments)})
        except (RuntimeError, OSError, ValueError):
            self._process.wait(60)
            return None


def serve() -> None:
    """Run the commands that come in until standard input ends."""
    for line in sys.stdin:
        out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(["--json", *json.loads(line)["arguments"]])
        document = json.loads(_text(out) or "{}")
        answer = {"code": code, "status": document.get("status"), "failure": document.get("error")}
        print(json.dumps({**answer, "stderr": _text(err)[-1000:]}), flush=True)


def _text(stream: io.TextIOWrapper) -> str:
    buffer = stream.buffer
    assert isinstance(buffer, io.BytesIO)
    return buffer.getvalue().decode()


if __name__ == "__main__":
    serve()
