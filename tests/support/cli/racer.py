"""What a process runs that calls `lake` one time after the other, as cron does: again when another run won."""

from __future__ import annotations

import contextlib
import gc
import io
import json

from lake.cli.main import main

# Another writer won, or the catalog did not answer: running again is right.
AGAIN = {4, 5}
_ATTEMPTS = 20


def run(arguments: list[str]) -> list[int]:
    """Run a command until it is done and return the exit codes."""
    codes: list[int] = []
    for _ in range(_ATTEMPTS):
        out = io.TextIOWrapper(io.BytesIO())
        with contextlib.redirect_stdout(out):
            codes.append(main(arguments))
        # A process of cron's would end here, and with it its connections to the catalog.
        gc.collect()
        if codes[-1] not in AGAIN:
            break
    return codes


def race(commands: list[list[str]]) -> int:
    """Run each of the commands; print a JSON list of the exit codes of each one's attempts."""
    print(json.dumps([run(arguments) for arguments in commands]))
    return 0
